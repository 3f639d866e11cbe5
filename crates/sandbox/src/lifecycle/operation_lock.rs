//! The operation lock of a sandbox: at most one operation changes, reads or kills a sandbox at a time.

use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::timeout;

use crate::lock_table::LockTable;

/// The locks of all sandboxes, one for each id.
///
/// The rule:
///
/// - **Held by** create, commit, trace, listing of changes, restore, delete, expiry, stopping a sandbox that filled
///   its disk, cleaning up after processes that died, and recovery: by everything that starts, freezes,
///   reads, replaces or kills a sandbox. It is held from before the operation reads the state of the sandbox
///   until its last effect on the sandbox. A fork holds it only for its commit.
/// - **The state is read under the lock.** The state that a request found before it waited may have changed. A
///   delete writes `stopping` before it waits, so that operations behind it are refused with that state, and
///   operations behind the finished delete find no sandbox. No operation fails because half of a sandbox is gone.
/// - **One at a time, in the order of requests.** No operation waits for the lock of a second sandbox. The only
///   locks that are taken while it is held are the quota lock and, exclusively, the gate of the workspace
///   ([`Gates`](crate::gate::Gates)), which is taken before a freeze; never the other way round.
/// - **Bounded.** Every call to a runtime under the lock has a time limit, and requests wait for the lock for
///   [`OPERATION_WAIT`] at most.
///
/// These need no lock: a change of the row alone (compare-and-set in the catalog), and requests to the guest
/// agent, which end with their sandbox.
#[derive(Debug, Default)]
pub(crate) struct OperationLocks(LockTable<AsyncMutex<()>>);

/// Time that a request waits for another operation on the same sandbox.
pub(crate) const OPERATION_WAIT: Duration = Duration::from_secs(60);

/// Guard of the operation lock of a sandbox.
#[derive(Debug)]
pub(crate) struct Operation(#[expect(dead_code, reason = "held for its drop")] OwnedMutexGuard<()>);

impl OperationLocks {
    /// Waits for the lock without a timeout.
    pub(crate) async fn lock(&self, id: &str) -> Operation {
        Operation(self.0.get(id).lock_owned().await)
    }

    /// Takes the lock; `None` if another operation has it.
    pub(crate) fn try_lock(&self, id: &str) -> Option<Operation> {
        self.0.get(id).try_lock_owned().ok().map(Operation)
    }

    /// Waits for the lock. Returns `None` on timeout.
    pub(crate) async fn lock_within(&self, id: &str, max_wait: Duration) -> Option<Operation> {
        timeout(max_wait, self.0.get(id).lock_owned()).await.ok().map(Operation)
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
        assert!(locks.try_lock("a").is_none() && locks.try_lock("c").is_some());
        drop(first);
        assert!(locks.lock_within("a", OPERATION_WAIT).await.is_some());
    }
}
