//! Entries of directories in a tree, with their nodes (files, directories and symlinks) decoded.

use crate::id::NodeId;
use crate::node::{FileNode, NodeKind, SymlinkNode, Xattrs};
use crate::snapshot::Timestamp;

/// A node of a tree with its content decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File(FileNode),
    /// A symbolic link.
    Symlink(SymlinkNode),
    /// A directory; its entries are read with [`Tree::list`](crate::Tree::list).
    Directory(DirectoryNode),
}

/// A directory without its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryNode {
    /// Id of the directory node.
    pub id: NodeId,
    /// Id of the node with the modification times of the directory and its entries; `None` if they are not known.
    pub times: Option<NodeId>,
    /// Permission bits.
    pub mode: u16,
    /// Extended attributes of the namespace `user.`, by full name.
    pub xattrs: Xattrs,
    /// Number of entries.
    pub entries: u64,
}

impl Node {
    /// Returns the kind of the node.
    pub fn kind(&self) -> NodeKind {
        match self {
            Self::File(_) => NodeKind::File,
            Self::Symlink(_) => NodeKind::Symlink,
            Self::Directory(_) => NodeKind::Directory,
        }
    }

    /// Returns the permission bits; 0o777 for a symlink.
    pub fn mode(&self) -> u16 {
        match self {
            Self::File(file) => file.mode,
            Self::Symlink(_) => 0o777,
            Self::Directory(directory) => directory.mode,
        }
    }

    /// Returns the length of a file's content or a symlink's target in bytes, or the number of a directory's
    /// entries.
    pub fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size(),
            Self::Symlink(link) => link.target.len() as u64,
            Self::Directory(directory) => directory.entries,
        }
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// File name.
    pub name: Vec<u8>,
    /// Decoded node.
    pub node: Node,
    /// Modification time; `None` if it is not known.
    pub modified: Option<Timestamp>,
    /// Link label: a number that all hard links to one file in one snapshot have in common; `None` for a file with one
    /// name.
    pub link_label: Option<u64>,
}
