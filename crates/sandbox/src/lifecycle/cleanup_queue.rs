//! Deleted sandboxes whose files are being removed.

use std::collections::{HashMap, HashSet};

use tokio::sync::watch;

use crate::fair_semaphore::FairSemaphore;
use crate::leaf_mutex::{LeafGuard, LeafMutex};
use crate::scope::Scope;

/// Maximum number of deleted sandboxes of one owner whose files are still there. Further deletions of that
/// owner wait.
pub(crate) const BACKLOG_MAX: usize = 250;
/// Maximum number of sandboxes whose files are removed at the same time; half of them for one owner.
const AT_ONCE: u32 = 4;

/// Deleted sandboxes whose files are being removed.
#[derive(Debug)]
pub(crate) struct CleanupQueue {
    /// Sandboxes by id.
    all: LeafMutex<HashMap<String, DeletedSandbox>>,
    /// Notifies each time that a sandbox is added or removed.
    changes: watch::Sender<()>,
    /// Limits sandboxes whose files are removed at the same time.
    pub(crate) permits: FairSemaphore,
}

/// A deleted sandbox whose files are being removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeletedSandbox {
    pub(crate) owner: String,
    /// Bytes of its workspace when it was deleted, as far as they were known.
    pub(crate) bytes: u64,
}

impl Default for CleanupQueue {
    fn default() -> Self {
        let permits = FairSemaphore::new(AT_ONCE);
        Self { all: LeafMutex::default(), changes: watch::Sender::default(), permits }
    }
}

impl CleanupQueue {
    pub(crate) fn add(&self, id: &str, deleted: DeletedSandbox) {
        self.lock().insert(id.to_owned(), deleted);
        self.changes.send_replace(());
    }

    pub(crate) fn remove(&self, id: &str) {
        self.lock().remove(id);
        self.changes.send_replace(());
    }

    fn lock(&self) -> LeafGuard<'_, HashMap<String, DeletedSandbox>> {
        self.all.lock()
    }

    /// Returns the ids of the sandboxes whose files are being removed.
    pub(crate) fn ids(&self) -> HashSet<String> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the sandboxes whose files are being removed, by id.
    pub(crate) fn all(&self) -> HashMap<String, DeletedSandbox> {
        self.lock().clone()
    }

    /// Waits until no sandbox of a scope is left.
    pub(crate) async fn wait_until_none_of(&self, scope: &Scope) {
        self.wait_for_fewer_than(1, scope).await;
    }

    /// Waits until fewer than `limit` sandboxes of a scope are left.
    pub(crate) async fn wait_for_fewer_than(&self, limit: usize, scope: &Scope) {
        let is_counted = |one: &&DeletedSandbox| scope.owner().is_none_or(|owner| owner == one.owner);
        let count = || self.lock().values().filter(is_counted).count();
        let mut changes = self.changes.subscribe();
        // The sender lives as long as this.
        while count() >= limit && changes.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[tokio::test]
    async fn owner_waits_only_for_its_own_files() {
        let queue = CleanupQueue::default();
        let alice = Scope::Owner("alice".to_owned());
        let is_done = |scope: &Scope| {
            let mut waiting = pin!(queue.wait_until_none_of(scope));
            waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        let of = |owner: &str| DeletedSandbox { owner: owner.to_owned(), bytes: 0 };
        queue.add("sbx-1", of("bob"));
        assert!(is_done(&alice) && !is_done(&Scope::All));
        queue.add("sbx-2", of("alice"));
        assert!(!is_done(&alice));
        queue.remove("sbx-1");
        assert!(!is_done(&alice) && !is_done(&Scope::All));
        queue.remove("sbx-2");
        assert!(is_done(&alice) && is_done(&Scope::All));
    }

    #[tokio::test]
    async fn full_backlog_blocks_only_its_owner() {
        let queue = CleanupQueue::default();
        let is_free = |owner: &str| {
            let scope = Scope::Owner(owner.to_owned());
            let mut waiting = pin!(queue.wait_for_fewer_than(BACKLOG_MAX, &scope));
            waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        for number in 0..BACKLOG_MAX {
            assert!(is_free("bob"));
            queue.add(&number.to_string(), DeletedSandbox { owner: "bob".to_owned(), bytes: 1 });
        }
        assert!(!is_free("bob") && is_free("alice"));
        // An owner does not get all permits.
        let mut permits = Vec::new();
        while let Some(permit) = queue.permits.try_acquire("bob") {
            permits.push(permit);
        }
        assert!(permits.len() < AT_ONCE as usize && queue.permits.try_acquire("alice").is_some());
        queue.remove("0");
        assert!(is_free("bob"));
    }
}
