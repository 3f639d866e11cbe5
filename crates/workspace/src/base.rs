//! What a workspace is made from.

use std::str::FromStr;

use workspace_state::{Snapshot, SnapshotId, Store, Tree};

use crate::error::{Result, WorkspaceError};

/// When the files of a snapshot are written to the disk for workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Materialize {
    /// Few files at once; many are loaded as they are read, and written in the background for those who come later.
    #[default]
    Auto,
    /// They are loaded as they are read.
    Lazy,
    /// They are all there before the workspace is.
    Full,
}

impl FromStr for Materialize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "lazy" => Ok(Self::Lazy),
            "full" => Ok(Self::Full),
            _ => Err(format!("`{text}` is no way to materialise: auto, lazy and full are")),
        }
    }
}

/// What a workspace is made from: a snapshot, or nothing.
#[derive(Clone)]
pub struct Base {
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) tree: Tree,
    /// The handle that work on it is done with: its [`Cancel`](workspace_state::Cancel) stops that.
    pub(crate) store: Store,
    pub(crate) materialize: Materialize,
}

impl Base {
    /// What a snapshot holds; an empty directory if there is none.
    pub(crate) fn new(store: &Store, snapshot: Option<SnapshotId>, materialize: Materialize) -> Result<Self> {
        let Some(id) = snapshot else {
            let tree = store.empty_tree()?.preview()?;
            return Ok(Self { snapshot: None, tree, store: store.clone(), materialize });
        };
        let snapshot = store.find_snapshot(&id)?.ok_or(WorkspaceError::UnknownSnapshot(id))?;
        let tree = Tree::of_snapshot(store, &snapshot)?;
        Ok(Self { snapshot: Some(snapshot), tree, store: store.clone(), materialize })
    }

    /// The snapshot's id.
    pub fn id(&self) -> Option<SnapshotId> {
        self.snapshot.as_ref().map(|snapshot| snapshot.id)
    }
}
