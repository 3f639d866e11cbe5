//! Parts of a snapshot: the files of a workspace, and possibly the root filesystem of its sandbox.
//!
//! Each part is a tree (names, modes and content) with its times (a second tree with modification times and hard
//! links). A server has one [`Workspaces`](crate::Workspaces) value for each of the two parts: the root filesystem of a
//! sandbox, if it is writable and kept, is managed as a workspace, too.

use workspace_state::{Snapshot, SnapshotId, Store};

use crate::error::{Result, WorkspaceError};

/// Part of a snapshot from which workspaces are created, and as which they are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapshotPart {
    /// Files of the workspace.
    #[default]
    Workspace,
    /// Root filesystem of the sandbox.
    Root,
}

impl SnapshotPart {
    /// Returns the snapshot with the tree and times of this part in its fields `tree` and `times`; `None` if the
    /// snapshot does not have this part.
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
