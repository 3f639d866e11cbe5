//! Moving the workspace of an agent to a newer snapshot, in place, while it has no changes.
//!
//! Files that differ between the two snapshots are replaced one by one. Processes that the caller does not know may
//! write meanwhile: their changes of other files stay, and a changed file in the way stops the move before anything is
//! written. Only a write between the comparison of a file and its replacement is lost.

use workspace_state::{DirectoryError, Durability, NewSnapshot, PinId, SnapshotId, Store};

use super::settled_commit::unless_changing;
use super::{CancellableWorkspaces, LiveWorkspace, Workspaces};
use crate::base::{Base, Materialize};
use crate::copy::CopyProvider;
use crate::error::{Result, WorkspaceError};
use crate::provider::Provider as _;
use crate::provider_kind::ProviderKind;
use crate::writers::Writers;

/// Start of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStart {
    /// Moves the workspace if it has the content of this snapshot.
    Unchanged(SnapshotId),
    /// Continues a move that a killed process began.
    Interrupted,
}

impl CancellableWorkspaces<'_> {
    /// Moves a workspace with its own files (provider clone or copy) to another snapshot, which becomes its base. Returns
    /// false if it has changes, and was not moved. A move that fails or is killed is to be continued with
    /// [`MoveStart::Interrupted`].
    pub fn move_unchanged(&self, id: &str, start: MoveStart, to: SnapshotId) -> Result<bool> {
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
        let temporary = match start {
            MoveStart::Interrupted => None,
            MoveStart::Unchanged(last) => {
                match self.commit_unchanged(store, id, workspace, provider, last)? {
                    Some(snapshot) => Some(snapshot),
                    None => return Ok(false),
                }
            }
        };
        let target = Base::new(store, self.part, Some(to), Materialize::default())?;
        let moved = is_done(provider.check_out_over(&self.current_dir(id, &workspace.record), &target));
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
        record.write(&self.directory.join(id))?;
        workspace.record = record;
        self.unpin(former_pin);
        Ok(true)
    }

    /// Commits the content of a workspace temporarily, so that a checkout may replace it. Returns `None`, without a
    /// snapshot, if it is not the content of `last`.
    fn commit_unchanged(
        &self,
        store: &Store,
        id: &str,
        workspace: &LiveWorkspace,
        provider: &CopyProvider,
        last: SnapshotId,
    ) -> Result<Option<SnapshotId>> {
        let last = store.find_snapshot(&last)?.ok_or(WorkspaceError::UnknownSnapshot(last))?;
        let (dir, generation) = (self.current_dir(id, &workspace.record), &workspace.record.current);
        let base = Base::new(store, self.part, generation.base, Materialize::default())?;
        let new = NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() };
        let committed = unless_changing(provider.commit(&dir, &base, new, Writers::Running))?;
        let Some(committed) = committed.map(|committed| committed.snapshot) else { return Ok(None) };
        if committed.tree == last.tree {
            return Ok(Some(committed.id));
        }
        self.store.remove_snapshots(&[committed.id])?;
        Ok(None)
    }
}

/// Returns false if a checkout found changes that it would have undone.
fn is_done(checked_out: Result<()>) -> Result<bool> {
    match checked_out {
        Err(WorkspaceError::Directory(
            DirectoryError::LocalEdits { .. }
            | DirectoryError::Unsaved { .. }
            | DirectoryError::NotEmpty { .. },
        )) => Ok(false),
        done => done.map(|()| true),
    }
}
