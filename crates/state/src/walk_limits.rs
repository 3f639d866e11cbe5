//! Memory limits of walks: traversals of directories and trees, which keep entries or paths in memory.
//!
//! A disk quota does not bound the memory of a walk: a few megabytes of directories on disk can contain hundreds of
//! thousands of files with paths of 256 KiB each.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::entry::{DirectoryNode, Entry, Node};
use crate::limit::{LimitExceeded, LimitKind, WalkLimits};
use crate::node::{Extent, FileNode, Xattrs};

/// Memory use of a walk, counted against its limits. Shared by the threads of the walk.
#[derive(Debug)]
pub struct WalkUsage {
    limits: WalkLimits,
    entries: AtomicU64,
    metadata: AtomicU64,
}

impl WalkUsage {
    /// Creates the usage of a walk that has nothing in memory yet.
    pub fn new(limits: WalkLimits) -> Self {
        Self { limits, entries: AtomicU64::new(0), metadata: AtomicU64::new(0) }
    }

    /// Counts an entry with `metadata` bytes of paths, attributes and the like. Call this before allocating them.
    pub fn add(&self, metadata: usize) -> Result<(), LimitExceeded> {
        add(&self.entries, 1, self.limits.entries, LimitKind::Entries)?;
        self.add_metadata(metadata)
    }

    /// Counts additional bytes of entries that are already counted.
    pub fn add_metadata(&self, bytes: usize) -> Result<(), LimitExceeded> {
        add(&self.metadata, bytes as u64, self.limits.metadata, LimitKind::Metadata)
    }

    /// Subtracts an entry that is no longer in memory. `metadata` must be the value that was added.
    pub fn remove(&self, metadata: usize) {
        self.entries.fetch_sub(1, Ordering::Relaxed);
        self.metadata.fetch_sub(metadata as u64, Ordering::Relaxed);
    }
}

fn add(used: &AtomicU64, more: u64, limit: u64, kind: LimitKind) -> Result<(), LimitExceeded> {
    let total = used.fetch_add(more, Ordering::Relaxed).saturating_add(more);
    if total > limit { Err(LimitExceeded { kind, limit }) } else { Ok(()) }
}

/// Returns the size of extended attributes in bytes.
pub fn xattrs_size(xattrs: &Xattrs) -> usize {
    xattrs.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Returns the size of a file's attributes and list of extents in bytes.
pub(crate) fn file_metadata(file: &FileNode) -> usize {
    xattrs_size(&file.xattrs) + size_of_val::<[Extent]>(&file.extents)
}

/// Returns the size of a directory that is queued to be read, in bytes: its path and its attributes.
pub(crate) fn queued_size(path: &[u8], directory: &DirectoryNode) -> usize {
    path.len() + xattrs_size(&directory.xattrs)
}

/// Returns the size in bytes of the parts of an entry that have a variable length. Each name of a hard-linked file
/// counts separately, because each has its own list of extents in memory.
pub(crate) fn entry_size(entry: &Entry) -> usize {
    let node = match &entry.node {
        Node::Directory(node) => xattrs_size(&node.xattrs),
        Node::File(node) => file_metadata(node),
        Node::Symlink(node) => node.target.len(),
    };
    entry.name.len() + node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_entries_free_their_share_of_the_limit() {
        let usage = WalkUsage::new(WalkLimits { entries: 2, metadata: 10 });
        usage.add(5).unwrap();
        usage.add(5).unwrap();
        usage.remove(5);
        usage.add(5).unwrap();
        assert_eq!(usage.add(0), Err(LimitExceeded { kind: LimitKind::Entries, limit: 2 }));
        let bytes = usage.add_metadata(1).unwrap_err();
        assert_eq!(bytes.to_string(), "more than 10 bytes of names and attributes");
    }
}
