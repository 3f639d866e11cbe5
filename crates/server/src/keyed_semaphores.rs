//! Semaphores by key. A semaphore that is not in use is removed when a semaphore is next requested.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Semaphores with the same number of permits, one per key, such as the name of an owner or the id of a terminal.
#[derive(Debug)]
pub(crate) struct KeyedSemaphores {
    permits: usize,
    /// Semaphores of all keys for which a permit is held or awaited, and of others that were in use until recently.
    by_key: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl KeyedSemaphores {
    pub(crate) fn new(permits: usize) -> Self {
        Self { permits, by_key: Mutex::default() }
    }

    /// Returns the number of permits of each key.
    pub(crate) fn permits(&self) -> usize {
        self.permits
    }

    /// Returns the semaphore of a key.
    pub(crate) fn semaphore(&self, key: &str) -> Arc<Semaphore> {
        let mut by_key = self.by_key.lock();
        // Permits and waiting tasks hold a reference to their semaphore.
        by_key.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        let semaphore =
            by_key.entry(key.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.permits)));
        Arc::clone(semaphore)
    }

    /// Waits for a permit of a key.
    pub(crate) async fn acquire(&self, key: &str) -> OwnedSemaphorePermit {
        match self.semaphore(key).acquire_owned().await {
            Ok(permit) => permit,
            Err(_) => unreachable!("semaphores are never closed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_a_permit_are_forgotten() {
        let permits = KeyedSemaphores::new(2);
        for key in 0..100 {
            drop(permits.semaphore(&key.to_string()).try_acquire_owned().unwrap());
        }
        let _held = permits.semaphore("a").try_acquire_owned().unwrap();
        assert!(permits.by_key.lock().len() <= 2);
        assert_eq!(permits.semaphore("a").available_permits(), 1);
        assert_eq!(permits.semaphore("b").available_permits(), 2);
    }
}
