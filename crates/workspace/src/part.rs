//! Part of a snapshot that a set of workspaces holds.

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
    /// Returns the snapshot with this part in place of its tree and times; `None` if it does not have the part.
    pub(crate) fn of(self, snapshot: Snapshot) -> Option<Snapshot> {
        match self {
            Self::Workspace => Some(snapshot),
            Self::Root => {
                let root = snapshot.root.clone()?;
                Some(Snapshot { tree: root.tree, times: root.times, ..snapshot })
            }
        }
    }

    /// Finds a snapshot that has this part.
    pub(crate) fn find(self, store: &Store, id: SnapshotId) -> Result<Snapshot> {
        let snapshot = store.find_snapshot(&id)?.ok_or(WorkspaceError::UnknownSnapshot(id))?;
        self.of(snapshot).ok_or(WorkspaceError::NoRoot(id))
    }
}
