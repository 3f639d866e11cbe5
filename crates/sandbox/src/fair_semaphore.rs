//! Concurrency limits for costly work: in all, and for one owner, so that no owner takes all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Turns of which one owner has at most half, and one at least.
#[derive(Debug)]
pub(crate) struct FairSemaphore {
    total: usize,
    per_owner: usize,
    all: Arc<Semaphore>,
    /// Owners that have a turn or wait for one.
    owners: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct FairPermit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl FairSemaphore {
    pub(crate) fn new(total: u32) -> Self {
        let total = total.max(1) as usize;
        let all = Arc::new(Semaphore::new(total));
        Self { total, per_owner: (total / 2).max(1), all, owners: Mutex::default() }
    }

    /// Waits for a turn. The owner's own comes first: a request that waits for it takes nothing from other owners.
    /// Fails when the semaphore are closed.
    pub(crate) async fn acquire(&self, owner: &str) -> Result<FairPermit, AcquireError> {
        let own = self.of(owner).acquire_owned().await?;
        Ok(FairPermit { _own: own, _all: Arc::clone(&self.all).acquire_owned().await? })
    }

    /// A turn, if there is one without waiting.
    pub(crate) fn try_acquire(&self, owner: &str) -> Option<FairPermit> {
        let own = self.of(owner).try_acquire_owned().ok()?;
        Some(FairPermit { _own: own, _all: Arc::clone(&self.all).try_acquire_owned().ok()? })
    }

    /// Counts the semaphore that an owner has taken, or all owners where this one may take more.
    pub(crate) fn used(&self, owner: &str) -> usize {
        match self.per_owner - self.of(owner).available_permits() {
            own if own < self.per_owner => self.total - self.all.available_permits(),
            own => own,
        }
    }

    /// Gives nobody a turn any more.
    pub(crate) fn close(&self) {
        self.all.close();
        for own in self.owners.lock().unwrap_or_else(PoisonError::into_inner).values() {
            own.close();
        }
    }

    fn of(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // Turns, and requests that wait for one, hold on to their owner's.
        owners.retain(|_, own| Arc::strong_count(own) > 1);
        let own = owners.entry(owner.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.per_owner)));
        Arc::clone(own)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A turn, if there is one for this owner without waiting.
    async fn now(semaphore: &FairSemaphore, owner: &str) -> Option<FairPermit> {
        let taken = semaphore.used(owner);
        let turn = semaphore.try_acquire(owner);
        // Whoever waits gets one at the same time.
        let waited = tokio::time::timeout(Duration::ZERO, semaphore.acquire(owner)).await;
        assert!(turn.is_some() || waited.is_err(), "{taken}");
        turn
    }

    #[tokio::test]
    async fn one_owner_cannot_take_all_semaphore() {
        let semaphore = FairSemaphore::new(5);
        let mut first = Vec::new();
        while let Some(turn) = now(&semaphore, "a").await {
            first.push(turn);
        }
        assert_eq!(first.len(), 2);
        let mut others = Vec::new();
        for owner in ["b", "b", "c"] {
            others.push(now(&semaphore, owner).await.unwrap());
        }
        assert!(now(&semaphore, "d").await.is_none(), "all are taken");
        first.pop();
        now(&semaphore, "d").await.unwrap();
    }

    #[tokio::test]
    async fn one_turn_is_everybodys() {
        let semaphore = FairSemaphore::new(0);
        let turn = semaphore.acquire("a").await.unwrap();
        assert!(now(&semaphore, "b").await.is_none());
        drop(turn);
        semaphore.acquire("b").await.unwrap();
        semaphore.close();
        assert!(semaphore.acquire("a").await.is_err());
    }

    #[tokio::test]
    async fn owners_without_a_turn_are_forgotten() {
        let semaphore = FairSemaphore::new(4);
        for owner in 0..100 {
            semaphore.acquire(&owner.to_string()).await.unwrap();
        }
        let _turn = semaphore.acquire("a").await.unwrap();
        assert!(semaphore.owners.lock().unwrap().len() <= 2);
    }
}
