//! Hard-linked files in an archive: the first name of a file has the content, and each further name is a link to it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::id::NodeId;
use crate::node::FileNode;

/// Approximate memory of a [`LinkedFile`] in the table, without its name, in bytes.
const ENTRY_SIZE: usize = 96;

/// Table of the hard-linked files that the archive has, with the first name of each.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// By link label: the number that all names of a hard-linked file share in a tree.
    files: HashMap<u64, LinkedFile>,
    /// Approximate memory of the table in bytes.
    memory: usize,
}

#[derive(Debug)]
struct LinkedFile {
    /// Path in the archive.
    first_name: Box<[u8]>,
    /// Id of the file's node, which covers mode, attributes and extents. The node itself is not kept, because it may
    /// have millions of extents.
    node: NodeId,
}

impl Links {
    /// Returns the first name of the file in the archive. If the archive does not have the file yet, records `path` as
    /// its first name and returns `None`. Returns `None` too for a file without a link label, and if the nodes of the
    /// two names differ: the second name becomes a separate file.
    pub(super) fn first_name(
        &mut self,
        path: &[u8],
        link_label: Option<u64>,
        file: &FileNode,
    ) -> Option<Vec<u8>> {
        let label = link_label?;
        let node = NodeId::of(&file.encode());
        match self.files.entry(label) {
            Entry::Occupied(entry) => {
                let known = entry.get();
                (known.node == node).then(|| known.first_name.to_vec())
            }
            Entry::Vacant(entry) => {
                self.memory += ENTRY_SIZE + path.len();
                entry.insert(LinkedFile { first_name: path.into(), node });
                None
            }
        }
    }

    /// Returns the approximate memory use in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }
}
