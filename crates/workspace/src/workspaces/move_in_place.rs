//! Moving the workspace of an agent to a newer snapshot, in place, while it has the content of a given snapshot, such
//! as its last completion.
//!
//! Files that differ between the two snapshots are replaced one by one. Processes that the caller does not know may
//! write meanwhile: their changes of other files stay, and a changed file in the way stops the move before anything is
//! written. Only a write between the comparison of a file and its replacement is lost.

use workspace_state::{DirectoryError, Durability, NewSnapshot, PinId, SnapshotId, Store, WORKSPACE_LABEL};

use super::settled_commit::none_if_unsettled;
use super::{CancellableWorkspaces, LiveWorkspace, Workspaces};
use crate::base::{Base, Materialize};
use crate::copy::CopyProvider;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::failpoint;
use crate::provider::Provider as _;
use crate::provider_kind::ProviderKind;
use crate::writers::Writers;

/// Start of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStart {
    /// Moves the workspace if it has the content of this snapshot.
    ExpectContent(SnapshotId),
    /// Continues a move that failed or was killed.
    Continue,
}

impl CancellableWorkspaces<'_> {
    /// Moves a workspace with its own files (provider clone or copy) to another snapshot, which becomes its base.
    /// Returns false if it was not moved, because it does not have the expected content, or a changed file is in the
    /// way. A move that fails or is killed is to be continued with [`MoveStart::Continue`].
    pub fn move_in_place(&self, id: &str, start: MoveStart, to: SnapshotId) -> Result<bool> {
        let (workspaces, store) = (self.workspaces, self.store());
        workspaces.check_directory(id)?;
        workspaces.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            workspaces.move_locked(store, id, workspace, start, to)
        })
    }
}

impl Workspaces {
    fn move_locked(
        &self,
        store: &Store,
        id: &str,
        workspace: &mut LiveWorkspace,
        start: MoveStart,
        to: SnapshotId,
    ) -> Result<bool> {
        let provider = match workspace.record.current.provider {
            ProviderKind::Clone => &self.clone,
            ProviderKind::Copy => &self.copy,
            ProviderKind::Overlay => {
                let reason = "an overlay cannot be moved in place".to_owned();
                return Err(WorkspaceError::Unusable { id: id.to_owned(), reason });
            }
        };
        if workspace.record.current.base == Some(to) {
            return Ok(true);
        }
        // Opened first: if that fails, no temporary snapshot is left.
        let target = Base::new(store, self.part, Some(to), Materialize::default())?;
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
        let moved =
            is_checked_out(provider.check_out_over(&self.current_dir(id, &workspace.record), &target));
        failpoint::hit("move-checked-out").context("move", &directory)?;
        if let Some(temporary) = temporary {
            self.store.remove_snapshots(&[temporary])?;
        }
        if !moved? {
            return Ok(false);
        }
        let pin = PinId::generate();
        self.pin(id, &target, Some(pin))?;
        let mut record = workspace.record.clone();
        let former_pin = record.current.pin.replace(pin);
        (record.current.base, record.next_parent) = (Some(to), Some(to));
        // If this fails, the new pin is removed at the next start, unless the record has it.
        record.write(&directory)?;
        failpoint::hit("move-recorded").context("move", &directory)?;
        workspace.record = record;
        self.unpin(former_pin);
        Ok(true)
    }

    /// Commits the content of a workspace temporarily, so that a checkout finds it saved, and does not take it for
    /// local edits. Returns `None`, without a snapshot, if it is not the content of `expected`.
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
        // If this server is killed, the move is continued, and needs this content until then.
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

/// Returns false if a checkout found changes that it would have undone.
fn is_checked_out(result: Result<()>) -> Result<bool> {
    match result {
        Err(WorkspaceError::Directory(
            DirectoryError::LocalEdits { .. }
            | DirectoryError::Unsaved { .. }
            | DirectoryError::NotEmpty { .. },
        )) => Ok(false),
        result => result.map(|()| true),
    }
}
