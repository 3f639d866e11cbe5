//! Locks that order the completions of each sandbox.

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::lock_rank::{LockRank, Ranked};
use crate::lock_table::LockTable;
use crate::service::Service;

/// The locks of all sandboxes, one for each id. A task that holds one may wait for the operation lock of the same
/// sandbox. A task that holds the operation lock does not wait for this one.
#[derive(Debug, Default)]
pub(crate) struct WorkLocks(LockTable<Mutex<()>>);

/// Guard under which the work in a sandbox is committed and recorded as completed, so that completions are recorded in
/// the order of their commits.
#[derive(Debug)]
pub struct WorkLock(#[expect(dead_code, reason = "held for its drop")] Ranked<OwnedMutexGuard<()>>);

impl Service {
    /// Waits until no other task completes the work in a sandbox, and excludes others until the result is dropped.
    pub async fn lock_work(&self, id: &str) -> WorkLock {
        WorkLock(LockRank::Work.wait(self.0.work_locks.0.get(id).lock_owned()).await)
    }

    /// Takes the lock of [`Self::lock_work`]; `None` if another task has it.
    pub fn try_lock_work(&self, id: &str) -> Option<WorkLock> {
        let guard = self.0.work_locks.0.get(id).try_lock_owned().ok()?;
        Some(WorkLock(LockRank::Work.taken(guard)))
    }
}
