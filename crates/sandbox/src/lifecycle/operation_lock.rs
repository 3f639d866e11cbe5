//! The operation lock of a sandbox: at most one operation changes, reads or kills a sandbox at a time.

use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::timeout;

use crate::lock_rank::{LockRank, Ranked};
use crate::lock_table::LockTable;

/// The locks of all sandboxes, one for each id.
///
/// The rules:
///
/// - **Held by** create, commit, trace (the automatic snapshot after a command), automatic completion, listing of
///   changes, restore, pause, resume, delete, expiry, stopping a sandbox that filled its disk, cleaning up after
///   processes that died, and recovery: by everything that starts, freezes, reads, replaces or kills a sandbox. It is
///   held from before the operation reads the state of the sandbox until its last effect on the sandbox. A fork holds
///   it only for its commit.
/// - **The state is read under the lock.** The state that a request found before it waited may have changed. A
///   delete writes `stopping` before it waits, so that operations behind it are refused with that state, and
///   operations behind the finished delete find no sandbox. No operation fails because half of a sandbox is gone.
/// - **One at a time, in the order of requests.** No operation waits for the lock of a second sandbox. The locks that
///   are waited for before it and while it is held have an order, [`LockRank`], which debug builds check. Exclusively,
///   the gate of the workspace ([`Gates`](crate::gate::Gates)) is waited for under this lock, before a freeze; its
///   holders never wait for an operation lock. The creation lock of the service is taken shared, before this
///   lock by a creation and after it by a resume: no task waits for that lock exclusively.
/// - **Bounded.** A call to a runtime under the lock has a time limit, except those that start a sandbox, for which an
///   image may have to be pulled, and those of recovery. Requests wait for the lock for [`OPERATION_WAIT`] at most;
///   removals and retries in the background wait without a limit.
///
/// These need no lock: a change of the row alone (compare-and-set in the catalog), and requests to the guest
/// agent, which end with their sandbox.
#[derive(Debug, Default)]
pub(crate) struct OperationLocks(LockTable<AsyncMutex<()>>);

/// Time that a request waits for another operation on the same sandbox.
pub(crate) const OPERATION_WAIT: Duration = Duration::from_secs(60);

/// Guard that holds the operation lock of a sandbox until it is dropped.
#[derive(Debug)]
pub(crate) struct OperationLockGuard(Ranked<OwnedMutexGuard<()>>);

impl OperationLocks {
    /// Waits for the lock without a timeout.
    pub(crate) async fn lock(&self, id: &str) -> OperationLockGuard {
        OperationLockGuard(LockRank::Operation.wait(self.0.get(id).lock_owned()).await)
    }

    /// Takes the lock; `None` if another operation has it.
    pub(crate) fn try_lock(&self, id: &str) -> Option<OperationLockGuard> {
        let guard = self.0.get(id).try_lock_owned().ok()?;
        Some(OperationLockGuard(LockRank::Operation.taken(guard)))
    }

    /// Waits for the lock. Returns `None` on timeout.
    pub(crate) async fn lock_within(&self, id: &str, max_wait: Duration) -> Option<OperationLockGuard> {
        let lock = LockRank::Operation.wait(self.0.get(id).lock_owned());
        timeout(max_wait, lock).await.ok().map(OperationLockGuard)
    }
}

impl OperationLockGuard {
    /// Returns the guard for another task, which keeps it.
    pub(crate) fn into_other_task(self) -> Self {
        Self(self.0.into_other_task())
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
