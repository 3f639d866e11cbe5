//! Part of a snapshot that a set of workspaces holds.
//!
//! A snapshot has the files of a workspace, and possibly the kept root filesystem of its sandbox. Each is a tree with
//! times. A server has a set of workspaces for each of the two parts.

use workspace_state::{Snapshot, SnapshotId, Store};

use crate::error::{Result, WorkspaceError};

/// Part of a snapshot that workspaces are created from and committed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapshotPart {
    /// Files of the workspace.
    #[default]
    Workspace,
    /// Root filesystem of the sandbox.
    Root,
}

impl SnapshotPart {
    /// Returns the snapshot with the tree and times of this part in its fields `tree` and `times`; `None` if it does
    /// not have the part.
    pub(crate) fn select(self, snapshot: Snapshot) -> Option<Snapshot> {
        match self {
            Self::Workspace => Some(snapshot),
            Self::Root => {
                let root = snapshot.root.clone()?;
                Some(Snapshot { tree: root.tree, times: root.times, ..snapshot })
            }
        }
    }

    /// Finds a snapshot, and replaces its tree and times by those of this part, as [`SnapshotPart::select`] does. Fails
    /// if the snapshot does not exist or does not have the part.
    pub(crate) fn find_snapshot(self, store: &Store, id: SnapshotId) -> Result<Snapshot> {
        let snapshot = store.find_snapshot(&id)?.ok_or(WorkspaceError::UnknownSnapshot(id))?;
        self.select(snapshot).ok_or(WorkspaceError::NoRoot(id))
    }
}
