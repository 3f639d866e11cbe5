//! Preview of a virtual tree: reads it like any other tree, without committing it.

use std::sync::Arc;

use crate::batch::Batch;
use crate::tree::Tree;
use crate::uncommitted_objects::UncommittedObjects;

use super::{Result, VirtualTree};

impl VirtualTree {
    /// Returns the tree as it would be if it were committed now. It can be read and compared; nothing is
    /// written to the store.
    pub fn preview(&self) -> Result<Tree> {
        let batch = Batch::low_latency(self.store.clone(), Arc::clone(&self.guard));
        let (tree, times) = self.write_root(&batch)?;
        let staged = self.staging.as_ref().map(|staging| Arc::clone(&staging.batch));
        let uncommitted =
            UncommittedObjects::new(&self.store, batch.finish()?, staged, Arc::clone(&self.guard));
        Ok(Tree::open(&self.store.with_uncommitted(uncommitted), tree.into(), Some(times))?)
    }
}
