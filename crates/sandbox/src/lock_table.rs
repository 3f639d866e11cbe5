//! Locks by id, one for each sandbox or workspace.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::leaf_mutex::LeafMutex;

/// Number of entries at which unused ones are removed.
const SWEEP_THRESHOLD: usize = 256;

/// Locks by id. A lock exists while a caller uses it. The table has at most [`SWEEP_THRESHOLD`] entries, or twice the
/// maximum number of locks that were in use at the same time.
#[derive(Debug, Default)]
pub(crate) struct LockTable<L>(LeafMutex<HashMap<String, Weak<L>>>);

impl<L: Default> LockTable<L> {
    /// Returns the lock of an id. All callers that use it at the same time get the same one.
    pub(crate) fn get(&self, id: &str) -> Arc<L> {
        let mut locks = self.0.lock();
        if let Some(lock) = locks.get(id).and_then(Weak::upgrade) {
            return lock;
        }
        // At powers of two only: so the cost of a sweep is shared by the calls that made the table grow.
        if locks.len() >= SWEEP_THRESHOLD && locks.len().is_power_of_two() {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::new(L::default());
        locks.insert(id.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn locks_that_nobody_uses_are_swept_out() {
        let table = LockTable::<Mutex<()>>::default();
        let used = table.get("used");
        for number in 0..10 * SWEEP_THRESHOLD {
            drop(table.get(&number.to_string()));
        }
        let left = table.0.lock().len();
        assert!(left <= SWEEP_THRESHOLD, "{left} locks are left");
        assert!(Arc::ptr_eq(&used, &table.get("used")));
    }
}
