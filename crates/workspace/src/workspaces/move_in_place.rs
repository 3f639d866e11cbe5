//! Moves of workspaces. A *move* replaces the files of a workspace by those of another snapshot in the same directory,
//! and gives the workspace another *base* (the snapshot that its changes are compared with). It is done only while the
//! workspace has the content of an expected snapshot, such as the commit that was merged into the agent's project.
//!
//! Files that differ between the two snapshots are replaced one by one. Processes that the caller did not start may
//! write meanwhile. Their changes of other files are kept. All files to be replaced are checked for changes before
//! a file is written, and each file again just before it is replaced. If a file was changed, the move is undone: the
//! files replaced so far get their former content again, except those that were changed meanwhile, too. Only a write
//! between the second check of a file and its replacement is lost.

use workspace_state::{Durability, NewSnapshot, PinId, SnapshotId, Store, WORKSPACE_LABEL};

use super::settled_commit::none_if_unsettled;
use super::{CancellableWorkspaces, LiveWorkspace, Workspaces};
use crate::base::{Base, Materialize};
use crate::copy::CopyProvider;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::failpoint;
use crate::provider::Provider as _;
use crate::provider_kind::ProviderKind;
use crate::writers::Writers;

/// Condition for a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStart {
    /// New move, only if the workspace has the content of this snapshot.
    ExpectContent(SnapshotId),
    /// Continuation of a move that failed or whose process was killed. The content is not compared with a snapshot.
    Continue,
}

/// Files and base that a workspace gets by a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveTarget {
    /// Snapshot of the files.
    pub files: SnapshotId,
    /// Base of the workspace after the move. It is equal to `files`, or `files` has changes since this snapshot, which
    /// are then the changes of the workspace.
    pub base: SnapshotId,
}

impl MoveTarget {
    /// Returns the target with a base and the files of this base: the workspace has no changes after the move.
    pub fn unchanged(base: SnapshotId) -> Self {
        Self { files: base, base }
    }
}

impl CancellableWorkspaces<'_> {
    /// Moves a workspace of the provider clone or copy to other files and another base. Returns false if the workspace
    /// keeps its base and files, because it does not have the expected content, or a changed or new file is in the way.
    /// If a move fails or the process is killed, the caller continues it with [`MoveStart::Continue`].
    pub fn move_in_place(&self, id: &str, start: MoveStart, to: MoveTarget) -> Result<bool> {
        let (workspaces, store) = (self.workspaces, self.store());
        workspaces.check_directory(id)?;
        workspaces.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            workspaces.move_locked(store, id, workspace, start, to)
        })
    }
}

impl Workspaces {
    /// Moves a locked workspace, as [`CancellableWorkspaces::move_in_place`] does.
    fn move_locked(
        &self,
        store: &Store,
        id: &str,
        workspace: &mut LiveWorkspace,
        start: MoveStart,
        to: MoveTarget,
    ) -> Result<bool> {
        let provider = match workspace.record.current.provider {
            ProviderKind::Clone => &self.clone,
            ProviderKind::Copy => &self.copy,
            ProviderKind::Overlay => {
                let reason = "an overlay cannot be moved in place".to_owned();
                return Err(WorkspaceError::Unusable { id: id.to_owned(), reason });
            }
        };
        if start == MoveStart::Continue && to.files != to.base && store.find_snapshot(&to.files)?.is_none() {
            // The server was killed when it began the move, and `to.files` was removed with its other unfinished
            // snapshots.
            return Ok(false);
        }
        // Opened first: if this fails, there is no temporary snapshot to be removed. `self.part` is the files of
        // workspaces or the root filesystem. `Materialize` has no effect on the providers clone and copy.
        let open = |snapshot| Base::new(store, self.part, Some(snapshot), Materialize::default());
        let (files, base) = (open(to.files)?, open(to.base)?);
        let temporary = match start {
            MoveStart::Continue => None,
            MoveStart::ExpectContent(expected) => {
                match self.commit_expected(store, id, workspace, provider, expected)? {
                    Some(snapshot) => Some(snapshot),
                    None => return Ok(false),
                }
            }
        };
        let directory = self.directory.join(id);
        failpoint::hit("move-committed").context("move", &directory)?;
        let moved = provider.check_out_over(&self.current_dir(id, &workspace.record), &files);
        failpoint::hit("move-checked-out").context("move", &directory)?;
        if let Some(temporary) = temporary {
            self.store.remove_snapshots(&[temporary])?;
        }
        if !moved? {
            return Ok(false);
        }
        let pin = PinId::generate();
        self.pin(id, &base, Some(pin))?;
        let mut record = workspace.record.clone();
        let former_pin = record.current.pin.replace(pin);
        (record.current.base, record.next_parent) = (Some(to.base), Some(to.base));
        // If this fails, the next start of the server removes the new pin, unless the record names it.
        record.write(&directory)?;
        failpoint::hit("move-recorded").context("move", &directory)?;
        workspace.record = record;
        // The digest says that the content equals the last snapshot. That is the base now, and `files` may differ from
        // it.
        workspace.unchanged_digest = None;
        self.unpin(former_pin);
        Ok(true)
    }

    /// Commits the content of a workspace as a temporary snapshot. A checkout treats content that is in no snapshot as
    /// local edits, and refuses to replace it. Returns `None`, without a snapshot, if the content is not that of
    /// `expected`, or processes keep changing it.
    fn commit_expected(
        &self,
        store: &Store,
        id: &str,
        workspace: &LiveWorkspace,
        provider: &CopyProvider,
        expected: SnapshotId,
    ) -> Result<Option<SnapshotId>> {
        let expected = store.find_snapshot(&expected)?.ok_or(WorkspaceError::UnknownSnapshot(expected))?;
        let (dir, generation) = (self.current_dir(id, &workspace.record), &workspace.record.current);
        let base = Base::new(store, self.part, generation.base, Materialize::default())?;
        // The snapshot is pending, and its label names the workspace: if this server is killed, the snapshot is kept,
        // because the continued move needs it.
        let labels = [(WORKSPACE_LABEL.to_owned(), id.to_owned())].into();
        let new =
            NewSnapshot { labels, durability: Durability::Buffered, pending: true, ..NewSnapshot::default() };
        let committed = none_if_unsettled(provider.commit(&dir, &base, new, Writers::Running))?;
        let Some(committed) = committed.map(|committed| committed.snapshot) else { return Ok(None) };
        if committed.tree == expected.tree {
            return Ok(Some(committed.id));
        }
        self.store.remove_snapshots(&[committed.id])?;
        Ok(None)
    }
}
