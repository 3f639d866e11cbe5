//! Root filesystem of a snapshot that is to be committed.

use std::fmt;
use std::sync::Arc;

use crate::gc_guards::Guard;
use crate::new_objects::NewObjects;
use crate::snapshot::SnapshotRoot;

/// Root filesystem for a new snapshot, with its new objects. Made by
/// [`VirtualTree::into_root`](crate::VirtualTree::into_root).
#[derive(Clone)]
pub struct NewRoot {
    pub(crate) root: SnapshotRoot,
    pub(crate) objects: NewObjects,
    /// Protects stored objects that the root relies on from garbage collection until it is committed.
    pub(crate) _guard: Arc<Guard>,
}

impl fmt::Debug for NewRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRoot").field("root", &self.root).finish_non_exhaustive()
    }
}
