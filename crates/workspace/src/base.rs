//! Base of a workspace: the snapshot (a recorded directory tree in the store) that it is created from, and that its
//! changes are compared with.

use std::str::FromStr;

use workspace_state::{Snapshot, SnapshotId, Store, Tree, VirtualTree};

use crate::error::Result;
use crate::part::SnapshotPart;

/// Mode of writing the files of a snapshot to disk for workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Materialize {
    /// Before the workspace is created for small trees. A large tree is mounted lazily (a FUSE mount that loads files
    /// on first read), and written in the background for later workspaces.
    #[default]
    Auto,
    /// Never: files are loaded on first read from the lazy mount.
    Lazy,
    /// Before the workspace is created.
    Full,
}

impl FromStr for Materialize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "lazy" => Ok(Self::Lazy),
            "full" => Ok(Self::Full),
            _ => Err(format!("`{text}` is not a materialization mode: use auto, lazy or full")),
        }
    }
}

/// Base of a workspace: a snapshot, or nothing.
#[derive(Clone)]
pub struct Base {
    /// Snapshot of the base; `None` for an empty base. If `part` is `Root`, the snapshot's fields `tree` (content) and
    /// `times` (modification times and hard links) are those of the root filesystem instead of the workspace.
    pub(crate) snapshot: Option<Snapshot>,
    /// Content of the base.
    pub(crate) tree: Tree,
    /// Store handle for operations on the workspace. They stop when the [`Cancel`](workspace_state::Cancel) flag of the
    /// handle is set.
    pub(crate) store: Store,
    /// Mode of writing the files of the snapshot to disk.
    pub(crate) materialize: Materialize,
    /// Part of the snapshot that the base consists of: the files of the workspace, or the root filesystem.
    pub(crate) part: SnapshotPart,
}

impl Base {
    /// Opens a part of a snapshot. The base is empty if `snapshot` is `None`.
    pub(crate) fn new(
        store: &Store,
        part: SnapshotPart,
        snapshot: Option<SnapshotId>,
        materialize: Materialize,
    ) -> Result<Self> {
        let Some(id) = snapshot else {
            // `preview` returns the tree that a commit would produce. Nothing is written to the store.
            let tree = store.empty_tree()?.preview()?;
            return Ok(Self { snapshot: None, tree, store: store.clone(), materialize, part });
        };
        let snapshot = part.find_snapshot(store, id)?;
        let tree = Tree::of_snapshot(store, &snapshot)?;
        Ok(Self { snapshot: Some(snapshot), tree, store: store.clone(), materialize, part })
    }

    /// Opens the content as a virtual tree (a mutable tree in memory), to apply the changes of a workspace to it.
    pub(crate) fn to_virtual_tree(&self) -> Result<VirtualTree> {
        match (self.id(), self.part) {
            (Some(id), SnapshotPart::Workspace) => Ok(self.store.restore(&id)?),
            // `restore` would open the files of the workspace instead of the root filesystem. It would also make the
            // snapshot a parent of the commit. That is not needed here: a root filesystem is committed in one snapshot
            // with the files of a workspace, and the virtual tree of those files adds the parent.
            (Some(_), SnapshotPart::Root) => Ok(VirtualTree::over(&self.tree)?),
            (None, _) => Ok(self.store.empty_tree()?),
        }
    }

    /// Returns the snapshot's id; `None` for an empty base.
    pub fn id(&self) -> Option<SnapshotId> {
        self.snapshot.as_ref().map(|snapshot| snapshot.id)
    }
}
