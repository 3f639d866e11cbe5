//! Adds entries with all their attributes to a virtual tree (a mutable tree in memory over a snapshot). Content need
//! not fit into memory: it is streamed, or it is already in the store.
//!
//! A [`Child`] is a changed entry of a directory. A [`File`] is a changed file: extents in the store, and content in
//! memory that follows them.

use std::io::Read;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::child_objects::{ObjectId, for_each_child};
use crate::content::ContentWriter;
use crate::diff::Subtree;
use crate::entry::{Entry, Node};
use crate::error::{Result as StoreResult, StoreError};
use crate::id::NodeId;
use crate::node::{Extent, FileNode, MODE_BITS, NodeKind, NodeRef, is_valid_target};
use crate::page::EntryTime;
use crate::record::Kind;
use crate::snapshot::Timestamp;
use crate::tree::Tree;
use crate::tree_path::path_names;

use super::commit::{file_node_ref, symlink_node_ref};
use super::{
    Attributes, Child, Directory, File, Result, TreeError, UncommittedContent, VirtualTree, display_path,
};

impl VirtualTree {
    /// Adds a file with streamed content. Memory use does not depend on the size of the file. Replaces any entry at
    /// `path`.
    pub fn put_file(
        &mut self,
        path: impl AsRef<[u8]>,
        content: &mut dyn Read,
        attributes: Attributes,
    ) -> Result<()> {
        let path = path.as_ref();
        self.put_file_with(path, attributes, |writer| {
            let mut buffer = vec![0; 256 << 10];
            loop {
                match content.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(len) => writer.push(&buffer[..len])?,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(source) => return Err(TreeError::Content { path: display_path(path), source }),
                }
            }
        })
    }

    /// Adds a file whose content `write` passes to a [`ContentWriter`] in pieces. Replaces any entry at `path`.
    pub(crate) fn put_file_with<E: From<TreeError>>(
        &mut self,
        path: &[u8],
        attributes: Attributes,
        write: impl FnOnce(&mut ContentWriter<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let content = self.uncommitted_content().map_err(TreeError::from)?;
        let mut writer = ContentWriter::new(&content.batch);
        write(&mut writer)?;
        let file = File {
            mode: attributes.mode & MODE_BITS,
            xattrs: attributes.xattrs,
            modified: Some(attributes.modified.unwrap_or_else(Timestamp::now)),
            link_label: attributes.link_label,
            stored_extents: writer.finish().map_err(TreeError::from)?,
            unstored_tail: Vec::new(),
        };
        Ok(self.put(path, Child::File(Arc::new(file)))?)
    }

    /// Adds a file with content in memory. Replaces any entry at `path`.
    pub fn put_content(
        &mut self,
        path: impl AsRef<[u8]>,
        content: Vec<u8>,
        attributes: Attributes,
    ) -> Result<()> {
        let file = File {
            mode: attributes.mode & MODE_BITS,
            xattrs: attributes.xattrs,
            modified: Some(attributes.modified.unwrap_or_else(Timestamp::now)),
            link_label: attributes.link_label,
            stored_extents: Vec::new(),
            unstored_tail: content,
        };
        self.put(path.as_ref(), Child::File(Arc::new(file)))
    }

    /// Adds a file with content that this store already has, without reading the content. Replaces any entry at `path`.
    /// If `attributes` has no modification time, the time of the file is unknown.
    pub fn put_extents(
        &mut self,
        path: impl AsRef<[u8]>,
        extents: &[Extent],
        attributes: Attributes,
    ) -> Result<()> {
        let node = FileNode { extents: extents.to_vec(), ..FileNode::default() };
        let path = path.as_ref();
        self.check_live(path, &Node::File(node))?;
        let file = File {
            mode: attributes.mode & MODE_BITS,
            xattrs: attributes.xattrs,
            modified: attributes.modified,
            link_label: attributes.link_label,
            stored_extents: extents.to_vec(),
            unstored_tail: Vec::new(),
        };
        self.put(path, Child::File(Arc::new(file)))
    }

    /// Creates a directory, or changes the attributes of an existing one. Creates missing parents.
    pub fn put_directory(&mut self, path: impl AsRef<[u8]>, attributes: Attributes) -> Result<()> {
        let path = path.as_ref();
        let names = path_names(path)?;
        let directory = self.directory_mut(&names)?;
        directory.mode_and_xattrs = Some((attributes.mode & MODE_BITS, attributes.xattrs));
        if attributes.modified.is_some() {
            directory.modified = attributes.modified;
        }
        Ok(())
    }

    /// Adds a symlink. `modified` is `None` for the current time. Replaces a file or symlink at `path`; fails if there
    /// is a directory.
    pub fn put_symlink(
        &mut self,
        path: impl AsRef<[u8]>,
        target: impl Into<Vec<u8>>,
        modified: Option<Timestamp>,
    ) -> Result<()> {
        let path = path.as_ref();
        let target: Vec<u8> = target.into();
        if !is_valid_target(&target) {
            return Err(TreeError::BadTarget { target: display_path(&target) });
        }
        self.check_replaceable(path, NodeKind::Symlink)?;
        let modified = modified.unwrap_or_else(Timestamp::now);
        self.put(path, Child::Symlink { target: target.into(), modified })
    }

    /// Adds an entry of another tree of this store at `path` without reading the entry: a file, a symlink, or a
    /// directory with everything below it. `from` is the path of the entry in the other tree, or empty if it is
    /// unknown. If the entry is a directory and `path` has more names than `from`, reads all directories below it, to
    /// check that none is nested deeper than [`DEPTH_MAX`](crate::DEPTH_MAX).
    pub fn graft(&mut self, path: impl AsRef<[u8]>, entry: &Entry, from: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        if matches!(&entry.node, Node::Directory(node) if node.times.is_none()) {
            return Err(without_times().into());
        }
        self.check_live(path, &entry.node)?;
        if let Node::Directory(node) = &entry.node {
            let depth = path_names(path)?.len();
            if depth > path_names(from.as_ref())?.len() {
                self.check_depth_of_graft(node.id, path, depth)?;
            }
        }
        let time = match (&entry.node, entry.modified) {
            (Node::Directory(node), _) => node.times.map_or(EntryTime::Unknown, EntryTime::Directory),
            (_, Some(time)) => EntryTime::Modified { time, link_label: entry.link_label },
            (_, None) => EntryTime::Unknown,
        };
        // The nodes are in the store already, so only their ids are computed.
        let node_ref = match &entry.node {
            Node::Directory(node) => NodeRef::Directory(node.id).encode(),
            Node::File(node) => file_node_ref(&node.encode(), |node| Ok(NodeId::of(node)))?,
            Node::Symlink(node) => symlink_node_ref(&node.encode(), |node| Ok(NodeId::of(node)))?,
        };
        let child = Child::Stored { node_ref: node_ref.into(), time: time.encode().into() };
        self.put(path, child)
    }

    /// Adds an entry of another tree of this store like [`VirtualTree::graft`]. Its path is equal in both trees.
    pub fn graft_at_same_path(&mut self, path: impl AsRef<[u8]>, entry: &Entry) -> Result<()> {
        let path = path.as_ref();
        self.graft(path, entry, path)
    }

    /// Copies directories of another tree of this store to the same paths without reading them. Each directory replaces
    /// the entry of this tree at its path. A subtree with an empty path replaces the whole tree.
    pub fn graft_subtrees(&mut self, tree: &Tree, subtrees: &[Subtree]) -> Result<()> {
        if subtrees.is_empty() {
            return Ok(());
        }
        // All objects below a live object are live, so it is enough to check the root of the other tree.
        self.check_live(&subtrees[0].path, &tree.root().node)?;
        // Subtrees that follow each other in one directory are added together, so that their parent is looked up once.
        for siblings in subtrees.chunk_by(|a, b| a.parent() == b.parent()) {
            let Some(parent) = siblings[0].parent() else {
                let (id, times) = tree.ids().ok_or_else(without_times)?;
                self.root = Arc::new(Directory::stored(id, times));
                continue;
            };
            let directory = self.directory_mut(&path_names(parent)?)?;
            for subtree in siblings {
                let times = subtree.times.ok_or_else(without_times)?;
                let node_ref = NodeRef::Directory(subtree.id).encode().into();
                let time = EntryTime::Directory(times).encode().into();
                directory.put(subtree.name(), Child::Stored { node_ref, time });
            }
        }
        Ok(())
    }

    /// Fails if an object of the node is not live. The guard of this tree protects live objects. An object that a
    /// garbage collection has already condemned may be deleted before the tree is committed.
    fn check_live(&self, path: &[u8], node: &Node) -> StoreResult<()> {
        let objects: Vec<ObjectId> = match node {
            Node::Directory(node) => {
                node.times.iter().chain([&node.id]).map(|id| (Kind::Node, *id.as_bytes())).collect()
            }
            Node::File(node) => {
                let mut objects = Vec::new();
                for_each_child(node.encode(), &mut |object| objects.push(object))
                    .map_err(|source| StoreError::Undecodable { what: "a file".to_owned(), source })?;
                objects
            }
            Node::Symlink(_) => Vec::new(),
        };
        let index = &self.store.inner.index;
        let txn = index.read()?;
        for (kind, id) in objects {
            if index.find_live(&txn, kind, &id)?.is_none() {
                let what = display_path(path);
                return Err(StoreError::Refused(format!(
                    "the content of `{what}` is about to be deleted by a garbage collection"
                )));
            }
        }
        Ok(())
    }

    /// Returns the uncommitted content of the tree, which its clones share. If there is none, creates it with a batch
    /// for large amounts of content.
    fn uncommitted_content(&mut self) -> StoreResult<Arc<UncommittedContent>> {
        if let Some(content) = &self.uncommitted {
            return Ok(Arc::clone(content));
        }
        let content = Arc::new(UncommittedContent {
            batch: Arc::new(self.store.batch()?),
            commit_lock: Mutex::default(),
        });
        self.uncommitted = Some(Arc::clone(&content));
        Ok(content)
    }
}

/// Returns the error for a directory whose times are not known.
fn without_times() -> StoreError {
    StoreError::Refused("a directory whose times are unknown cannot be copied into another tree".to_owned())
}
