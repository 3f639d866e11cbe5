//! Names of hard-linked files in an archive.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::id::NodeId;
use crate::node::FileNode;

/// Approximate memory of a remembered file in bytes, without its name.
const ENTRY_SIZE: usize = 96;

/// First name of each hard-linked file that the archive has.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// By link label: the number that all names of a hard-linked file share in a tree.
    files: HashMap<u64, LinkedFile>,
    memory: usize,
}

#[derive(Debug)]
struct LinkedFile {
    first_name: Box<[u8]>,
    /// Id of the node. The node itself may have millions of extents.
    node: NodeId,
}

impl Links {
    /// Returns the name under which the archive already has this file, or remembers `path` as that name. All
    /// names of a file must have equal nodes; otherwise they become separate files.
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
