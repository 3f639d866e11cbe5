//! Concurrency limits for costly work: in total and per owner, so that no owner takes all permits.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::leaf_mutex::LeafMutex;

/// Semaphore that limits each owner to half of the permits, but at least one.
#[derive(Debug)]
pub(crate) struct FairSemaphore {
    /// Number of all permits.
    total: usize,
    /// Permits that one owner can have.
    per_owner: usize,
    /// Permits of all owners together.
    shared: Arc<Semaphore>,
    /// Semaphores of owners that have a permit or wait for one.
    owners: LeafMutex<HashMap<String, Arc<Semaphore>>>,
}

/// Permit that is released on drop.
#[derive(Debug)]
pub(crate) struct FairPermit {
    _owner: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
}

impl FairSemaphore {
    pub(crate) fn new(total: u32) -> Self {
        let total = total.max(1) as usize;
        let shared = Arc::new(Semaphore::new(total));
        Self { total, per_owner: (total / 2).max(1), shared, owners: LeafMutex::default() }
    }

    /// Waits for a permit, first within the owner's limit: a request that exceeds it takes no permit from
    /// other owners. Fails when the semaphore is closed.
    pub(crate) async fn acquire(&self, owner: &str) -> Result<FairPermit, AcquireError> {
        let owner_permit = self.semaphore_of(owner).acquire_owned().await?;
        Ok(FairPermit { _owner: owner_permit, _shared: Arc::clone(&self.shared).acquire_owned().await? })
    }

    /// Takes a permit without waiting; `None` if none is available.
    pub(crate) fn try_acquire(&self, owner: &str) -> Option<FairPermit> {
        let owner_permit = self.semaphore_of(owner).try_acquire_owned().ok()?;
        Some(FairPermit { _owner: owner_permit, _shared: Arc::clone(&self.shared).try_acquire_owned().ok()? })
    }

    /// Returns the number of permits in use that count against the limit that this owner reaches first: its
    /// own permits if it has reached its limit, otherwise those of all owners.
    pub(crate) fn used(&self, owner: &str) -> usize {
        match self.per_owner - self.semaphore_of(owner).available_permits() {
            by_owner if by_owner < self.per_owner => self.total - self.shared.available_permits(),
            by_owner => by_owner,
        }
    }

    /// Closes the semaphore: no more permits are issued.
    pub(crate) fn close(&self) {
        self.shared.close();
        for semaphore in self.owners.lock().values() {
            semaphore.close();
        }
    }

    fn semaphore_of(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock();
        // Permits, and requests that wait for one, hold a reference to their owner's semaphore.
        owners.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        let new = || Arc::new(Semaphore::new(self.per_owner));
        Arc::clone(owners.entry(owner.to_owned()).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Takes a permit without waiting.
    async fn take_now(semaphore: &FairSemaphore, owner: &str) -> Option<FairPermit> {
        let taken = semaphore.used(owner);
        let permit = semaphore.try_acquire(owner);
        // Waiting would succeed only if there is a permit.
        let waited = tokio::time::timeout(Duration::ZERO, semaphore.acquire(owner)).await;
        assert!(permit.is_some() || waited.is_err(), "{taken}");
        permit
    }

    #[tokio::test]
    async fn one_owner_cannot_take_all_permits() {
        let semaphore = FairSemaphore::new(5);
        let mut first = Vec::new();
        while let Some(permit) = take_now(&semaphore, "a").await {
            first.push(permit);
        }
        assert_eq!(first.len(), 2);
        let mut others = Vec::new();
        for owner in ["b", "b", "c"] {
            others.push(take_now(&semaphore, owner).await.unwrap());
        }
        assert!(take_now(&semaphore, "d").await.is_none(), "all are taken");
        first.pop();
        take_now(&semaphore, "d").await.unwrap();
    }

    #[tokio::test]
    async fn a_single_permit_is_shared_by_all_owners() {
        let semaphore = FairSemaphore::new(0);
        let permit = semaphore.acquire("a").await.unwrap();
        assert!(take_now(&semaphore, "b").await.is_none());
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
