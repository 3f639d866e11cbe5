//! Removing the files of sandboxes that are gone, behind the answer to their deletion.
//!
//! A sandbox that is deleted is ended and out of the catalog before anybody is answered. Its workspace and its
//! directory have no row then, so that a start after a crash, and a collection of garbage, remove them like everything
//! that belongs to nobody.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::disk::usage::blocking;
use crate::error::Result;
use crate::fair_semaphore::FairSemaphore;
use crate::service::{Scope, Service};

/// Deleted sandboxes of one owner whose files are there still. Whoever deletes more of them waits.
const BACKLOG_MAX: usize = 250;
/// Sandboxes whose files are removed at the same time, half of them of one owner at most.
const AT_ONCE: u32 = 4;
/// Attempts to remove the files of one sandbox, and the first pause between them. What stays is left to the next
/// collection of garbage.
const ATTEMPTS: (u32, Duration) = (5, Duration::from_millis(500));

/// Deleted sandboxes whose files are being removed.
#[derive(Debug)]
pub(crate) struct CleanupQueue {
    /// By id.
    all: Mutex<HashMap<String, Leftover>>,
    /// Told of every change.
    changes: watch::Sender<()>,
    turns: FairSemaphore,
}

/// A deleted sandbox whose files are being removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) owner: String,
    /// Bytes of its workspace when it was deleted, as far as they were known.
    pub(crate) bytes: u64,
}

impl Default for CleanupQueue {
    fn default() -> Self {
        let turns = FairSemaphore::new(AT_ONCE);
        Self { all: Mutex::default(), changes: watch::Sender::default(), turns }
    }
}

impl CleanupQueue {
    fn add(&self, id: &str, leftover: Leftover) {
        self.lock().insert(id.to_owned(), leftover);
        self.changes.send_replace(());
    }

    fn remove(&self, id: &str) {
        self.lock().remove(id);
        self.changes.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Leftover>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ids of the sandboxes whose files are being removed.
    pub(crate) fn ids(&self) -> HashSet<String> {
        self.lock().keys().cloned().collect()
    }

    /// Sandboxes whose files are being removed, by id.
    pub(crate) fn all(&self) -> HashMap<String, Leftover> {
        self.lock().clone()
    }

    /// Waits until there are none in a scope.
    async fn none_of(&self, scope: &Scope) {
        self.fewer_than(1, scope).await;
    }

    /// Waits until there are fewer than so many in a scope.
    async fn fewer_than(&self, limit: usize, scope: &Scope) {
        let count = || self.lock().values().filter(|one| scope.covers(Some(one.owner.as_str()))).count();
        let mut changes = self.changes.subscribe();
        // The sender lives as long as this.
        while count() >= limit && changes.changed().await.is_ok() {}
    }
}

impl Service {
    /// Removes the files of a sandbox that is in no catalog any more, later, in turns of the owners. Waits only while the
    /// owner's backlog is full. `bytes` are those of its workspace, as far as they are known.
    pub(crate) async fn remove_files_behind(&self, id: &str, owner: &str, bytes: u64) {
        let leftovers = &self.0.leftovers;
        leftovers.fewer_than(BACKLOG_MAX, &Scope::Owner(owner.to_owned())).await;
        leftovers.add(id, Leftover { owner: owner.to_owned(), bytes });
        let (service, id, owner) = (self.clone(), id.to_owned(), owner.to_owned());
        tokio::spawn(async move {
            let turn = service.0.leftovers.turns.take(&owner).await;
            service.remove_files_at_last(&id).await;
            drop(turn);
            service.0.leftovers.remove(&id);
        });
    }

    async fn remove_files_at_last(&self, id: &str) {
        let (mut left, mut pause) = ATTEMPTS;
        loop {
            left -= 1;
            match self.remove_files(id).await {
                Ok(()) => return,
                Err(error) if left == 0 => {
                    tracing::error!(sandbox = id, %error, "failed to remove the files of a deleted sandbox");
                    return;
                }
                Err(error) => {
                    tracing::warn!(sandbox = id, %error, "failed to remove the files of a deleted sandbox, trying again");
                }
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Removes the workspace and the directory of a sandbox. The directory goes last: what is found of a sandbox has
    /// one.
    pub(crate) async fn remove_files(&self, id: &str) -> Result<()> {
        self.remove_workspace(id).await?;
        self.remove_place(id).await
    }

    pub(crate) async fn remove_place(&self, id: &str) -> Result<()> {
        let dir = self.dir(id);
        blocking(move || dir.remove()).await?
    }

    /// Waits until the files of all sandboxes that were deleted before are removed, for so long; whether they are.
    pub async fn files_removed(&self, limit: Duration) -> bool {
        self.files_removed_of(&Scope::All, limit).await
    }

    /// The same for the sandboxes of a scope.
    pub async fn files_removed_of(&self, scope: &Scope, limit: Duration) -> bool {
        timeout(limit, self.0.leftovers.none_of(scope)).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[tokio::test]
    async fn an_owner_waits_for_nobody_elses_files() {
        let leftovers = CleanupQueue::default();
        let alice = Scope::Owner("alice".to_owned());
        let is_done = |scope: &Scope| {
            let mut waiting = pin!(leftovers.none_of(scope));
            waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        let of = |owner: &str| Leftover { owner: owner.to_owned(), bytes: 0 };
        leftovers.add("sbx-1", of("bob"));
        assert!(is_done(&alice) && !is_done(&Scope::All));
        leftovers.add("sbx-2", of("alice"));
        assert!(!is_done(&alice));
        leftovers.remove("sbx-1");
        assert!(!is_done(&alice) && !is_done(&Scope::All));
        leftovers.remove("sbx-2");
        assert!(is_done(&alice) && is_done(&Scope::All));
    }

    #[tokio::test]
    async fn a_full_backlog_is_its_owners_alone() {
        let leftovers = CleanupQueue::default();
        let is_free = |owner: &str| {
            let scope = Scope::Owner(owner.to_owned());
            let mut waiting = pin!(leftovers.fewer_than(BACKLOG_MAX, &scope));
            waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        for number in 0..BACKLOG_MAX {
            assert!(is_free("bob"));
            leftovers.add(&number.to_string(), Leftover { owner: "bob".to_owned(), bytes: 1 });
        }
        assert!(!is_free("bob") && is_free("alice"));
        // Nor has an owner all turns.
        let mut turns = Vec::new();
        while let Some(turn) = leftovers.turns.try_take("bob") {
            turns.push(turn);
        }
        assert!(turns.len() < AT_ONCE as usize && leftovers.turns.try_take("alice").is_some());
        leftovers.remove("0");
        assert!(is_free("bob"));
    }
}
