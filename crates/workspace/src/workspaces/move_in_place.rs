//! Moving the workspace of an agent to other files, in place, while it has the content of a given snapshot, such as its
//! last completion.
//!
//! Files that differ between the two snapshots are replaced one by one. Processes that the caller does not know may
//! write meanwhile: their changes of other files stay. All files in the way are compared before anything is written,
//! and each again just before it is replaced. If one was changed, the files that were replaced by then get their former
//! content again, unless they were changed, too. Only a write between this comparison of a file and its replacement is
//! lost.

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

/// Start of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStart {
    /// Moves the workspace if it has the content of this snapshot.
    ExpectContent(SnapshotId),
    /// Continues a move that failed or was killed.
    Continue,
}

/// Files and base that a workspace gets by a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveTarget {
    /// Snapshot of the files.
    pub files: SnapshotId,
    /// Snapshot that the workspace is compared with from then on: that of the files, or one that they have changes
    /// to.
    pub base: SnapshotId,
}

impl MoveTarget {
    /// Returns the target with the files of a base.
    pub fn unchanged(base: SnapshotId) -> Self {
        Self { files: base, base }
    }
}

impl CancellableWorkspaces<'_> {
    /// Moves a workspace with its own files (provider clone or copy) to other files and another base. Returns false if
    /// it keeps its base and files, because it does not have the expected content, or a changed file is in the way. A
    /// move that fails or is killed is to be continued with [`MoveStart::Continue`].
    pub fn move_in_place(&self, id: &str, start: MoveStart, to: MoveTarget) -> Result<bool> {
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
            // The server was killed as it began the move, and the files were removed with everything else that it left.
            return Ok(false);
        }
        // Opened first: if that fails, no temporary snapshot is left.
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
