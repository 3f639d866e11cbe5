//! Concurrency limits for costly work: in all, and for each owner, so that no owner takes all permits.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::leaf_mutex::LeafMutex;

/// A semaphore of which one owner has at most half of the permits, and at least one.
#[derive(Debug)]
pub(crate) struct FairSemaphore {
    total: usize,
    per_owner: usize,
    all: Arc<Semaphore>,
    /// Semaphores of owners that have a permit or wait for one.
    owners: LeafMutex<HashMap<String, Arc<Semaphore>>>,
}

/// A permit, until it is dropped.
#[derive(Debug)]
pub(crate) struct FairPermit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl FairSemaphore {
    pub(crate) fn new(total: u32) -> Self {
        let total = total.max(1) as usize;
        let all = Arc::new(Semaphore::new(total));
        Self { total, per_owner: (total / 2).max(1), all, owners: LeafMutex::default() }
    }

    /// Waits for a permit. The owner's own comes first: a request that waits for it takes nothing from other
    /// owners. Fails when the semaphore is closed.
    pub(crate) async fn acquire(&self, owner: &str) -> Result<FairPermit, AcquireError> {
        let own = self.semaphore_of(owner).acquire_owned().await?;
        Ok(FairPermit { _own: own, _all: Arc::clone(&self.all).acquire_owned().await? })
    }

    /// Takes a permit without waiting. `None` if there is none.
    pub(crate) fn try_acquire(&self, owner: &str) -> Option<FairPermit> {
        let own = self.semaphore_of(owner).try_acquire_owned().ok()?;
        Some(FairPermit { _own: own, _all: Arc::clone(&self.all).try_acquire_owned().ok()? })
    }

    /// Counts the permits that an owner has, or that all owners have where this one may have more.
    pub(crate) fn used(&self, owner: &str) -> usize {
        match self.per_owner - self.semaphore_of(owner).available_permits() {
            own if own < self.per_owner => self.total - self.all.available_permits(),
            own => own,
        }
    }

    /// Closes the semaphore: no more permits are issued.
    pub(crate) fn close(&self) {
        self.all.close();
        for own in self.owners.lock().values() {
            own.close();
        }
    }

    fn semaphore_of(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock();
        // Permits, and requests that wait for one, hold a reference to their owner's semaphore.
        owners.retain(|_, own| Arc::strong_count(own) > 1);
        let own = owners.entry(owner.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.per_owner)));
        Arc::clone(own)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Takes a permit without waiting.
    async fn now(semaphore: &FairSemaphore, owner: &str) -> Option<FairPermit> {
        let taken = semaphore.used(owner);
        let permit = semaphore.try_acquire(owner);
        // A waiting request gets one at the same time.
        let waited = tokio::time::timeout(Duration::ZERO, semaphore.acquire(owner)).await;
        assert!(permit.is_some() || waited.is_err(), "{taken}");
        permit
    }

    #[tokio::test]
    async fn one_owner_cannot_take_all_permits() {
        let semaphore = FairSemaphore::new(5);
        let mut first = Vec::new();
        while let Some(permit) = now(&semaphore, "a").await {
            first.push(permit);
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
    async fn a_single_permit_is_shared_by_all_owners() {
        let semaphore = FairSemaphore::new(0);
        let permit = semaphore.acquire("a").await.unwrap();
        assert!(now(&semaphore, "b").await.is_none());
        drop(permit);
        semaphore.acquire("b").await.unwrap();
        semaphore.close();
        assert!(semaphore.acquire("a").await.is_err());
    }

    #[tokio::test]
    async fn owners_without_a_permit_are_forgotten() {
        let semaphore = FairSemaphore::new(4);
        for owner in 0..100 {
            semaphore.acquire(&owner.to_string()).await.unwrap();
        }
        let _permit = semaphore.acquire("a").await.unwrap();
        assert!(semaphore.owners.lock().len() <= 2);
    }
}
