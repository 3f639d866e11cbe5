//! The gate of a workspace, a fair read-write lock.
//!
//! A freeze stops the processes of a sandbox, but no writer outside, such as the file API or an export. So
//! each of these holds the gate shared for every change that a snapshot must contain entirely or not at all.
//! An operation that reads or replaces the workspace holds it exclusively.
//!
//! Both waits are bounded. A shared holder takes no operation lock and waits for no client.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout;

use crate::error::{Result, SandboxError};
use crate::lifecycle::operation_lock::OperationLockGuard;
use crate::lock_table::LockTable;

/// The gates of all workspaces, one for each id.
#[derive(Debug)]
pub(crate) struct Gates {
    /// These locks are fair: a reader waits behind a writer that waits.
    locks: LockTable<RwLock<()>>,
    /// Timeout of shared access.
    shared_timeout: Duration,
    /// Timeout of exclusive access.
    exclusive_timeout: Duration,
}

/// Permission to change the files of a workspace from outside its sandbox, until this is dropped.
#[derive(Debug)]
pub struct SharedAccess {
    _guard: OwnedRwLockReadGuard<()>,
}

/// Exclusion of all writers outside a sandbox from its workspace, until this is dropped.
#[derive(Debug)]
pub(crate) struct ExclusiveAccess {
    _guard: OwnedRwLockWriteGuard<()>,
}

impl SharedAccess {
    /// Returns shared access through a gate at once; `None` if a task has exclusive access or is waiting for it.
    pub(crate) fn try_new(gate: &Arc<RwLock<()>>) -> Option<Self> {
        Some(Self { _guard: Arc::clone(gate).try_read_owned().ok()? })
    }

    /// Waits for shared access through a gate; `None` after `max_wait`.
    pub(crate) async fn new(gate: &Arc<RwLock<()>>, max_wait: Duration) -> Option<Self> {
        let guard = timeout(max_wait, Arc::clone(gate).read_owned()).await.ok()?;
        Some(Self { _guard: guard })
    }
}

impl Gates {
    /// Creates the gates, with the maximum time that shared and exclusive access are waited for.
    pub(crate) fn new(shared_timeout: Duration, exclusive_timeout: Duration) -> Self {
        Self { locks: LockTable::default(), shared_timeout, exclusive_timeout }
    }

    /// Waits until no task has exclusive access or is waiting for it. Fails with [`SandboxError::WorkspaceBusy`]
    /// after the timeout.
    pub(crate) async fn shared(&self, id: &str) -> Result<SharedAccess> {
        let access = SharedAccess::new(&self.gate(id), self.shared_timeout).await;
        access.ok_or_else(|| busy(id, self.shared_timeout))
    }

    /// Returns the gate of a workspace. It stays the same as long as a caller keeps it.
    pub(crate) fn gate(&self, id: &str) -> Arc<RwLock<()>> {
        self.locks.get(id)
    }

    /// Waits until no other task has access. Fails with [`SandboxError::WorkspaceBusy`] after the timeout. The
    /// caller holds the operation lock of the sandbox.
    pub(crate) async fn exclusive(
        &self,
        id: &str,
        _operation: &OperationLockGuard,
    ) -> Result<ExclusiveAccess> {
        let guard = timeout(self.exclusive_timeout, self.locks.get(id).write_owned()).await;
        Ok(ExclusiveAccess { _guard: guard.map_err(|_| busy(id, self.exclusive_timeout))? })
    }
}

fn busy(id: &str, waited: Duration) -> SandboxError {
    SandboxError::WorkspaceBusy { id: id.to_owned(), seconds: waited.as_secs() }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;
    use crate::lifecycle::operation_lock::OperationLocks;

    fn gates() -> Gates {
        Gates::new(Duration::from_secs(10), Duration::from_secs(5))
    }

    async fn operation() -> OperationLockGuard {
        OperationLocks::default().lock("a").await
    }

    fn is_waiting<T>(access: Pin<&mut impl Future<Output = Result<T>>>) -> bool {
        access.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[track_caller]
    fn assert_busy<T: std::fmt::Debug>(access: Result<T>, expected: u64) {
        let busy = access.expect_err("somebody else has access");
        assert!(matches!(busy, SandboxError::WorkspaceBusy { seconds, .. } if seconds == expected), "{busy}");
    }

    #[tokio::test(start_paused = true)]
    async fn exclusive_access_waits_for_all_writers() {
        let (gates, operation) = (gates(), operation().await);
        let (first, second) = (gates.shared("a").await.unwrap(), gates.shared("a").await.unwrap());
        let mut exclusive = pin!(gates.exclusive("a", &operation));
        assert!(is_waiting(exclusive.as_mut()));
        drop(first);
        assert!(is_waiting(exclusive.as_mut()));
        drop(second);
        exclusive.await.unwrap();
        // Writers of other workspaces are independent.
        let _other = gates.shared("b").await.unwrap();
        gates.exclusive("a", &operation).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn new_writers_wait_behind_waiting_exclusive_access() {
        let (gates, operation) = (gates(), operation().await);
        let writer = gates.shared("a").await.unwrap();
        let mut exclusive = pin!(gates.exclusive("a", &operation));
        assert!(is_waiting(exclusive.as_mut()));
        let mut next = pin!(gates.shared("a"));
        assert!(is_waiting(next.as_mut()));
        drop(writer);
        assert!(is_waiting(next.as_mut()));
        let exclusive = exclusive.await.unwrap();
        assert!(is_waiting(next.as_mut()));
        drop(exclusive);
        next.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_access_are_bounded() {
        let (gates, operation) = (gates(), operation().await);
        let writer = gates.shared("a").await.unwrap();
        assert_busy(gates.exclusive("a", &operation).await, 5);
        drop(writer);
        let _exclusive = gates.exclusive("a", &operation).await.unwrap();
        assert_busy(gates.shared("a").await, 10);
        assert_busy(gates.exclusive("a", &operation).await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_waiter_blocks_nobody() {
        let (gates, operation) = (gates(), operation().await);
        let _writer = gates.shared("a").await.unwrap();
        {
            let mut exclusive = pin!(gates.exclusive("a", &operation));
            assert!(is_waiting(exclusive.as_mut()));
        }
        assert!(!is_waiting(pin!(gates.shared("a"))));
        // Nor does one that gave up.
        assert_busy(gates.exclusive("a", &operation).await, 5);
        assert!(!is_waiting(pin!(gates.shared("a"))));
    }
}
