//! Semaphores per owner, which exist only while they are in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Semaphores with the same number of permits, one per owner or other key.
#[derive(Debug)]
pub(crate) struct PerOwner {
    permits: usize,
    /// Semaphores of owners that hold a permit or wait for one.
    owners: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl PerOwner {
    pub(crate) fn new(permits: usize) -> Self {
        Self { permits, owners: Mutex::default() }
    }

    /// Returns the number of permits of each owner.
    pub(crate) fn permits(&self) -> usize {
        self.permits
    }

    /// Returns the semaphore of an owner.
    pub(crate) fn semaphore(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // Permits and waiting tasks hold a reference to their semaphore.
        owners.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        let semaphore =
            owners.entry(owner.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.permits)));
        Arc::clone(semaphore)
    }

    /// Waits for a permit of an owner. Always `Some`, because the semaphores are never closed.
    pub(crate) async fn acquire(&self, owner: &str) -> Option<OwnedSemaphorePermit> {
        self.semaphore(owner).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_without_a_permit_are_forgotten() {
        let permits = PerOwner::new(2);
        for owner in 0..100 {
            drop(permits.semaphore(&owner.to_string()).try_acquire_owned().unwrap());
        }
        let _held = permits.semaphore("a").try_acquire_owned().unwrap();
        assert!(permits.owners.lock().unwrap().len() <= 2);
        assert_eq!(permits.semaphore("a").available_permits(), 1);
        assert_eq!(permits.semaphore("b").available_permits(), 2);
    }
}
