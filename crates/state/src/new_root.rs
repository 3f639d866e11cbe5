//! Root filesystem of a sandbox, to be committed as a part of a snapshot.

use std::fmt;
use std::sync::Arc;

use crate::gc_guards::Guard;
use crate::new_objects::NewObjects;
use crate::snapshot::SnapshotRoot;

/// Root filesystem of a sandbox for a new snapshot, made by [`VirtualTree::into_root`](crate::VirtualTree::into_root).
/// Its tree is beside the tree of the snapshot's files.
#[derive(Clone)]
pub struct NewRoot {
    pub(crate) root: SnapshotRoot,
    /// Objects of the root that are not in the store yet.
    pub(crate) objects: NewObjects,
    /// Protects stored objects that the root relies on from garbage collection until it is committed.
    pub(crate) _guard: Arc<Guard>,
}

impl fmt::Debug for NewRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRoot").field("root", &self.root).finish_non_exhaustive()
    }
}
