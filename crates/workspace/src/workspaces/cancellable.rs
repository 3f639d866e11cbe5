//! Operations on workspaces that the caller can cancel.
//!
//! The *base* of a workspace is the snapshot that it was created from, or last reset to. A *reset* replaces the content
//! of a workspace by that of another snapshot, in place or by a new directory. *Layers* are read-only directories below
//! workspaces, which workspaces share.

use std::time::Instant;

use workspace_state::{Cancel, NewSnapshot, SnapshotId, Store};

use super::{Changes, NewWorkspace, PreparedReset, ResetMode, ResetResult, WorkspaceInfo, Workspaces};
use crate::base::Materialize;
use crate::conditional_commit::ConditionalCommit;
use crate::error::Result;
use crate::layers::{LayerGcResult, UnusedLayers};
use crate::provider::{CommitResult, UncommittedContent};
use crate::writers::Writers;

/// Handle for workspaces, returned by [`Workspaces::cancellable`]. After cancellation, its operations fail with
/// [`StoreError::Cancelled`](workspace_state::StoreError::Cancelled) and leave the workspace unchanged. The parameter
/// `writers` of operations that read a workspace says whether processes may write to the workspace meanwhile.
#[derive(Debug)]
pub struct CancellableWorkspaces<'a> {
    pub(super) workspaces: &'a Workspaces,
    /// Store handle with the caller's cancellation flag.
    store: Store,
}

impl Workspaces {
    /// Returns a handle whose operations stop when `cancel` is set.
    pub fn cancellable(&self, cancel: &Cancel) -> CancellableWorkspaces<'_> {
        CancellableWorkspaces { workspaces: self, store: self.store.with_cancel(cancel.clone()) }
    }
}

impl CancellableWorkspaces<'_> {
    /// Returns the store of the snapshots.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Creates a workspace, as [`Workspaces::create`] does.
    pub fn create(&self, id: &str, new: &NewWorkspace<'_>) -> Result<WorkspaceInfo> {
        self.workspaces.create_with(&self.store, id, new)
    }

    /// Computes the differences between a workspace and its base, as [`Workspaces::changes`] does. Reading the returned
    /// trees can be cancelled, too.
    pub fn changes(&self, id: &str, writers: Writers) -> Result<Changes> {
        self.workspaces.changes_with(&self.store, id, writers)
    }

    /// Commits the content of a workspace, as [`Workspaces::commit`] does. A commit that is already writing its record
    /// is not cancelled.
    pub fn commit(&self, id: &str, new: NewSnapshot, writers: Writers) -> Result<CommitResult> {
        self.workspaces.commit_with(&self.store, id, new, writers)
    }

    /// Reads the content of a workspace, as [`Workspaces::read`] does.
    pub fn read(&self, id: &str, writers: Writers) -> Result<UncommittedContent> {
        self.workspaces.read_with(&self.store, id, writers)
    }

    /// Returns false if a workspace has certainly not changed since the last [`Self::commit_if_changed`]. Compares
    /// names, modes, sizes, times and inodes, and reads no file content.
    pub fn may_have_changed(&self, id: &str) -> Result<bool> {
        self.workspaces.may_have_changed_with(&self.store, id)
    }

    /// Commits a workspace like [`Self::commit`], unless its content is that of the snapshot that would be the parent.
    pub fn commit_if_changed(
        &self,
        id: &str,
        new: NewSnapshot,
        writers: Writers,
    ) -> Result<ConditionalCommit> {
        self.workspaces.commit_if_changed_with(&self.store, id, new, writers)
    }

    /// Resets a workspace to another snapshot, as [`Workspaces::reset`] does. `materialize` says when the files of the
    /// snapshot are written to disk, `mode` whether the workspace may get a new directory. If the reset is cancelled
    /// while it replaces files in place, the former content is restored.
    pub fn reset(
        &self,
        id: &str,
        snapshot: Option<SnapshotId>,
        materialize: Materialize,
        mode: ResetMode,
    ) -> Result<ResetResult> {
        self.workspaces.reset_with(&self.store, id, (snapshot, None), materialize, mode)
    }

    /// Resets a workspace like [`Self::reset`]. The new base and `base_info` are stored in one write of the workspace's
    /// record. `base_info` ([`Generation::base_info`](crate::Generation::base_info)) is a text of the caller about the
    /// base, which the caller can read after a crash. This crate does not interpret it.
    pub fn reset_with_info(
        &self,
        id: &str,
        snapshot: SnapshotId,
        base_info: String,
        mode: ResetMode,
    ) -> Result<ResetResult> {
        let base = (Some(snapshot), Some(base_info));
        self.workspaces.reset_with(&self.store, id, base, Materialize::Auto, mode)
    }

    /// Writes the layers that a reset to `snapshot` needs. They are kept until the result is dropped. Call this before
    /// you freeze processes for the reset, to keep the freeze short.
    pub fn prepare_reset(&self, id: &str, snapshot: SnapshotId) -> Result<PreparedReset> {
        self.workspaces.prepare_reset_with(&self.store, id, snapshot)
    }

    /// Removes unused layers, as [`Workspaces::collect_layers`] does: all, or those whose retention time has passed
    /// (`selection`).
    pub fn collect_layers(&self, selection: UnusedLayers) -> Result<LayerGcResult> {
        self.workspaces.layers.collect(Instant::now(), selection, self.store.cancel_flag())
    }
}
