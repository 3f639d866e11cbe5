//! The lock of a sandbox's life: at most one operation changes, reads or ends a sandbox at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use tokio::time::timeout;

/// The locks of all sandboxes, one for each id.
///
/// The rule:
///
/// - **Held by** create, commit, changes, restore, delete, expiry, the end of a sandbox that filled its disk or whose
///   processes died, and recovery: by everything that starts, freezes, reads, replaces or ends a sandbox, from before it
///   reads the state it decides by until its last effect on the sandbox. A fork holds it for its commit alone.
/// - **The state is read under the lock.** What a request found before it had to wait may be over. A delete writes
///   `stopping` before it waits, so that operations behind it are refused with that state, and those behind the
///   finished delete find no sandbox. Nobody fails because half of a sandbox is gone.
/// - **One at a time, in the order of asking.** No operation waits for the lock of a second sandbox. The only lock that
///   is taken while it is held is the one under which sandboxes are counted; never the other way round.
/// - **Bounded.** Every call to a runtime under the lock has a time limit, and requests wait for the lock for
///   [`OPERATION_WAIT`] at most.
///
/// What needs no lock: a change of the row alone (compare-and-set in the catalog), and orders to the guest agent, which
/// end with their sandbox.
#[derive(Debug, Default)]
pub(crate) struct OperationLocks(Mutex<HashMap<String, Weak<Turn<()>>>>);

/// Time that a request waits for another operation on the same sandbox.
pub(crate) const OPERATION_WAIT: Duration = Duration::from_secs(60);
/// Locks that nobody holds are swept out when there are so many.
const SWEEP: usize = 256;

/// The right to operate on a sandbox, until it is dropped.
#[derive(Debug)]
pub(crate) struct Operation(#[expect(dead_code, reason = "held for its drop")] OwnedMutexGuard<()>);

impl OperationLocks {
    /// Waits for its turn, however long the others take.
    pub(crate) async fn lock(&self, id: &str) -> Operation {
        Operation(self.of(id).lock_owned().await)
    }

    /// Waits for its turn for so long; none when others took longer.
    pub(crate) async fn lock_within(&self, id: &str, limit: Duration) -> Option<Operation> {
        timeout(limit, self.of(id).lock_owned()).await.ok().map(Operation)
    }

    fn of(&self, id: &str) -> Arc<Turn<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = locks.get(id).and_then(Weak::upgrade) {
            return turn;
        }
        if locks.len() >= SWEEP && locks.len().is_power_of_two() {
            locks.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::new(Turn::new(()));
        locks.insert(id.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn operations_on_one_sandbox_wait_for_each_other_and_for_no_other() {
        let locks = OperationLocks::default();
        let first = locks.lock("a").await;
        let _other = locks.lock("b").await;
        assert!(locks.lock_within("a", OPERATION_WAIT).await.is_none());
        drop(first);
        assert!(locks.lock_within("a", OPERATION_WAIT).await.is_some());
    }

    #[tokio::test]
    async fn locks_that_nobody_holds_are_swept_out() {
        let locks = OperationLocks::default();
        let held = locks.lock("held").await;
        for number in 0..10 * SWEEP {
            drop(locks.lock(&number.to_string()).await);
        }
        let left = locks.0.lock().unwrap().len();
        assert!(left <= SWEEP, "{left} locks are left");
        assert!(locks.lock_within("held", Duration::ZERO).await.is_none());
        drop(held);
    }
}
