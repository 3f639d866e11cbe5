//! Operations on workspaces that can be cancelled.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use workspace_state::{Cancel, NewSnapshot, SnapshotId, Store, StoreError};

use super::{Changes, Committed, Made, New, Prepared, Switched, Workspaces};
use crate::base::Materialize;
use crate::error::Result;
use crate::layers::Collected;

/// Time between two attempts to lock a workspace that another thread works on.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Handle of [`Workspaces::cancellable`]. Its operations fail with [`StoreError::Cancelled`] once the flag is
/// set, and leave a workspace unchanged.
#[derive(Debug)]
pub struct Cancellable<'a> {
    workspaces: &'a Workspaces,
    store: Store,
}

impl Workspaces {
    /// Returns a handle whose operations `cancel` stops.
    pub fn cancellable(&self, cancel: &Cancel) -> Cancellable<'_> {
        Cancellable { workspaces: self, store: self.store.with_cancel(cancel.clone()) }
    }
}

impl Cancellable<'_> {
    /// Returns the store of the snapshots.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Creates a workspace, as [`Workspaces::create`] does.
    pub fn create(&self, id: &str, new: &New<'_>) -> Result<Made> {
        self.workspaces.create_with(&self.store, id, new)
    }

    /// Computes the differences, as [`Workspaces::changes`] does. Reading the returned trees is cancelled as
    /// well.
    pub fn changes(&self, id: &str, quiescent: bool) -> Result<Changes> {
        self.workspaces.changes_with(&self.store, id, quiescent)
    }

    /// Commits, as [`Workspaces::commit`] does. A commit whose record is being written is finished.
    pub fn commit(&self, id: &str, new: NewSnapshot, quiescent: bool) -> Result<Committed> {
        self.workspaces.commit_with(&self.store, id, new, quiescent)
    }

    /// Resets a workspace to another snapshot, as [`Workspaces::reset`] does. A directory that is changed in
    /// place is restored.
    pub fn reset(
        &self,
        id: &str,
        snapshot: Option<SnapshotId>,
        materialize: Materialize,
        may_move: bool,
    ) -> Result<Switched> {
        self.workspaces.reset_with(&self.store, id, snapshot, materialize, may_move)
    }

    /// Writes everything that a reset to this snapshot needs, before processes are frozen for it.
    pub fn prepare(&self, id: &str, snapshot: SnapshotId) -> Result<Prepared> {
        self.workspaces.prepare_with(&self.store, id, snapshot)
    }

    /// Removes layers, as [`Workspaces::collect`] does, until the flag is set.
    pub fn collect(&self, recent: bool) -> Result<Collected> {
        self.workspaces.layers.collect(Instant::now(), recent, self.store.cancel())
    }
}

/// Locks a mutex that may be held for long, unless `cancel` is set before.
pub(super) fn lock<'a, T>(mutex: &'a Mutex<T>, cancel: &Cancel) -> Result<MutexGuard<'a, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => {}
        }
        cancel.check().map_err(StoreError::from)?;
        std::thread::sleep(LOCK_POLL_INTERVAL);
    }
}
