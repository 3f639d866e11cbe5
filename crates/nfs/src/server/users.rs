//! Counts of the operations that use an export.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of operations that use each generation of an export.
#[derive(Debug, Default)]
pub(super) struct Users {
    counts: Mutex<HashMap<u64, usize>>,
    ended: Condvar,
}

impl Users {
    pub(super) fn enter(&self, generation: u64) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(generation).or_default() += 1;
    }

    pub(super) fn leave(&self, generation: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&generation) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&generation);
                self.ended.notify_all();
            }
        }
    }

    /// Waits until no generation but `current` is used. Returns false after the timeout.
    pub(super) fn wait_unused(&self, current: Option<u64>, max_wait: Duration) -> bool {
        let end = Instant::now() + max_wait;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        while counts.keys().any(|generation| Some(*generation) != current) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            counts = self.ended.wait_timeout(counts, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_generations_are_waited_for() {
        let users = Users::default();
        users.enter(1);
        assert!(users.wait_unused(Some(1), Duration::ZERO));
        assert!(!users.wait_unused(Some(2), Duration::ZERO));
        users.enter(1);
        users.leave(1);
        assert!(!users.wait_unused(None, Duration::ZERO));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| users.wait_unused(None, Duration::from_secs(60)));
            users.leave(1);
            assert!(waiter.join().unwrap());
        });
    }
}
