//! Removing the files of sandboxes that are gone, behind the answer to their deletion.
//!
//! A sandbox that is deleted is ended and out of the catalog before anybody is answered. Its workspace and its
//! directory have no row then, so that a start after a crash, and a collection of garbage, remove them like everything
//! that belongs to nobody.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::disk::blocking;
use crate::error::Result;
use crate::service::{Scope, Service};

/// Deleted sandboxes whose files are there still. Whoever deletes more waits.
const BACKLOG_MAX: usize = 1_000;
/// Sandboxes whose files are removed at the same time.
const AT_ONCE: usize = 2;
/// Attempts to remove the files of one sandbox, and the first pause between them. What stays is left to the next
/// collection of garbage.
const ATTEMPTS: (u32, Duration) = (5, Duration::from_millis(500));

/// Deleted sandboxes whose files are being removed.
#[derive(Debug)]
pub(crate) struct Leftovers {
    /// The owner of each, by id.
    owners: Mutex<HashMap<String, String>>,
    count: watch::Sender<usize>,
    turns: Semaphore,
}

impl Default for Leftovers {
    fn default() -> Self {
        Self { owners: Mutex::default(), count: watch::Sender::default(), turns: Semaphore::new(AT_ONCE) }
    }
}

impl Leftovers {
    fn add(&self, id: &str, owner: &str) {
        self.change(|owners| owners.insert(id.to_owned(), owner.to_owned()));
    }

    fn remove(&self, id: &str) {
        self.change(|owners| owners.remove(id));
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<String, String>) -> Option<String>) {
        let mut owners = self.lock();
        change(&mut owners);
        self.count.send_replace(owners.len());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ids of the sandboxes whose files are being removed.
    pub(crate) fn ids(&self) -> HashSet<String> {
        self.lock().keys().cloned().collect()
    }

    /// Waits until there are none in a scope.
    async fn none_of(&self, scope: &Scope) {
        let is_in = |owner: &String| scope.owner().is_none_or(|wanted| wanted == owner);
        let mut changes = self.count.subscribe();
        // The owners are looked at while nothing of the count is locked: a change locks both.
        while self.lock().values().any(is_in) && changes.changed().await.is_ok() {}
    }

    /// Waits until there are fewer than so many.
    async fn fewer_than(&self, limit: usize) {
        // The sender lives as long as this.
        let _ = self.count.subscribe().wait_for(|count| *count < limit).await;
    }
}

impl Service {
    /// Removes the files of a sandbox that is in no catalog any more, later. Waits only while the backlog is full.
    pub(crate) async fn remove_files_behind(&self, id: &str, owner: &str) {
        let leftovers = &self.0.leftovers;
        leftovers.fewer_than(BACKLOG_MAX).await;
        leftovers.add(id, owner);
        let (service, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            let turn = service.0.leftovers.turns.acquire().await;
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
        let place = self.place(id);
        blocking(move || place.remove()).await?
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
        let leftovers = Leftovers::default();
        let alice = Scope::Owner("alice".to_owned());
        let is_done = |scope: &Scope| {
            let mut waiting = pin!(leftovers.none_of(scope));
            waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        leftovers.add("sbx-1", "bob");
        assert!(is_done(&alice) && !is_done(&Scope::All));
        leftovers.add("sbx-2", "alice");
        assert!(!is_done(&alice));
        leftovers.remove("sbx-1");
        assert!(!is_done(&alice) && !is_done(&Scope::All));
        leftovers.remove("sbx-2");
        assert!(is_done(&alice) && is_done(&Scope::All));
    }
}
