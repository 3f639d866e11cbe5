//! Number of operations that use an export, so that its removal can wait for them.
//!
//! The directory of an export in one state is identified by its *generation*, a random number. After the directory was
//! replaced, the export has another generation, and operations on the former one may still run.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Number of operations that use each generation of an export.
#[derive(Debug, Default)]
pub(super) struct Users {
    counts: Mutex<Counts>,
    /// Notified when the last operation on a generation ends.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    /// Number of running operations by generation; never zero.
    operations: HashMap<u64, usize>,
    /// Number of threads that wait for the end of operations. If it is zero, the system call for a notification is
    /// saved.
    waiting: usize,
}

impl Users {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock()
    }

    /// Counts the start of an operation.
    pub(super) fn enter(&self, generation: u64) {
        *self.lock().operations.entry(generation).or_default() += 1;
    }

    /// Counts the end of an operation.
    pub(super) fn leave(&self, generation: u64) {
        let mut counts = self.lock();
        if let Some(count) = counts.operations.get_mut(&generation) {
            *count -= 1;
            if *count == 0 {
                counts.operations.remove(&generation);
                if counts.waiting > 0 {
                    self.ended.notify_all();
                }
            }
        }
    }

    /// Waits until no operation uses a generation other than `current`. Returns false after the timeout.
    pub(super) fn wait_unused(&self, current: Option<u64>, max_wait: Duration) -> bool {
        let is_used = |counts: &mut Counts| counts.operations.keys().any(|it| Some(*it) != current);
        let mut counts = self.lock();
        counts.waiting += 1;
        let timeout = self.ended.wait_while_for(&mut counts, is_used, max_wait);
        counts.waiting -= 1;
        !timeout.timed_out()
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
