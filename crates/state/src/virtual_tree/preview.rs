//! Preview of a virtual tree (a mutable tree in memory over a snapshot): its content as a [`Tree`], without a commit.

use std::sync::Arc;

use crate::batch::Batch;
use crate::tree::Tree;
use crate::uncommitted_objects::UncommittedObjects;

use super::{Result, VirtualTree};

impl VirtualTree {
    /// Returns the tree that a commit would produce now, for reading and comparing. Its new objects are not written to
    /// the store; the returned tree keeps them.
    pub fn preview(&self) -> Result<Tree> {
        let batch = Batch::low_latency(self.store.clone(), Arc::clone(&self.guard));
        let (tree, times) = self.write_root(&batch)?;
        let content_batch = self.uncommitted.as_ref().map(|content| Arc::clone(&content.batch));
        let uncommitted =
            UncommittedObjects::new(&self.store, batch.finish()?, content_batch, Arc::clone(&self.guard));
        Ok(Tree::open(&self.store.with_uncommitted(uncommitted), tree.into(), Some(times))?)
    }
}
