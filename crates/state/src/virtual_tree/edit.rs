//! Changes to a virtual tree (a mutable tree in memory over a snapshot).
//!
//! A [`Lookup`] is the result of a path lookup: the root, an entry that the tree changed (`Virtual`, with a [`Child`]),
//! or an unchanged entry of the store (`Stored`). A [`File`] is a changed file: extents in the store, and content in
//! memory that follows them.

use std::sync::Arc;

use crate::content;
use crate::entry::Node;
use crate::node::{MODE_BITS, NodeKind, NodeRef, Xattrs};
use crate::snapshot::Timestamp;
use crate::tree_path::path_names;

use super::{
    Child, File, Lookup, NEW_FILE_MODE, Result, TreeError, VirtualTree, decode_node_ref, display_path, split,
};

impl VirtualTree {
    /// Replaces the content of a file, or creates the file and missing parents. An existing file keeps its mode and
    /// extended attributes. A symlink is replaced.
    pub fn write(&mut self, path: impl AsRef<[u8]>, content: impl Into<Vec<u8>>) -> Result<()> {
        let path = path.as_ref();
        let is_a_directory = || TreeError::IsADirectory { path: display_path(path) };
        let Some((parent, name)) = split(path)? else { return Err(is_a_directory()) };
        let store = self.store.clone();
        // The existing entry is looked up in the directory that is changed, so that the path is walked only once.
        let directory = self.directory_mut(&parent)?;
        let (mode, xattrs) = match directory.child(&store, name)? {
            Some(Child::Directory(_)) => return Err(is_a_directory()),
            Some(Child::File(file)) => (file.mode, file.xattrs.clone()),
            Some(Child::Stored { node_ref, .. }) => match decode_node_ref(&node_ref)? {
                NodeRef::Directory(_) => return Err(is_a_directory()),
                NodeRef::Symlink(_) | NodeRef::InlineSymlink(_) => (NEW_FILE_MODE, Xattrs::new()),
                file => {
                    let file = store.read_file_node(file)?;
                    (file.mode, file.xattrs)
                }
            },
            Some(Child::Symlink { .. }) | None => (NEW_FILE_MODE, Xattrs::new()),
        };
        let modified = Some(Timestamp::now());
        let file = File {
            mode,
            xattrs,
            modified,
            link_label: None,
            stored_extents: Vec::new(),
            unstored_tail: content.into(),
        };
        directory.put(name, Child::File(Arc::new(file)));
        Ok(())
    }

    /// Appends to a file, or creates it. The cost depends on the appended bytes, not on the size of the file.
    pub fn append(&mut self, path: impl AsRef<[u8]>, content: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let mut file = match self.find(path)? {
            None => return self.write(path, content),
            Some(Lookup::Virtual(Child::File(file))) => Arc::clone(file),
            Some(lookup) => Arc::new(self.file_for_appending(path, lookup)?),
        };
        if file.unstored_tail.is_empty() && !file.stored_extents.is_empty() {
            // All content is in the store. The last chunk ends where the file ended, not at a boundary that the chunker
            // chose from the content. So it is read again, and split into chunks together with the new bytes.
            let (stored_extents, stable_len) = content::stable_part(&file.stored_extents);
            let unstored_tail = self.content_of(&file.stored_extents, stable_len, u64::MAX)?;
            file = Arc::new(File { stored_extents, unstored_tail, ..File::clone(&file) });
        }
        let edited = Arc::make_mut(&mut file);
        edited.unstored_tail.extend_from_slice(content);
        edited.modified = Some(Timestamp::now());
        // If the file was hard-linked, its content is no longer equal to the content of the other names.
        edited.link_label = None;
        self.put(path, Child::File(file))
    }

    /// Converts a file of the store to a [`File`] with its last chunk in memory, so that content can be appended.
    fn file_for_appending(&self, path: &[u8], lookup: Lookup<'_>) -> Result<File> {
        let entry = self.lookup_entry(lookup)?;
        let Node::File(node) = entry.node else {
            return Err(match entry.node {
                Node::Directory(_) => TreeError::IsADirectory { path: display_path(path) },
                _ => TreeError::BadPath { path: display_path(path) },
            });
        };
        let (stored_extents, stable_len) = content::stable_part(&node.extents);
        let unstored_tail = self.store.read_extents(&node.extents, stable_len, u64::MAX)?;
        Ok(File {
            mode: node.mode,
            xattrs: node.xattrs,
            modified: None,
            link_label: None,
            stored_extents,
            unstored_tail,
        })
    }

    /// Removes a file, a symlink, or a directory with everything below it.
    pub fn remove(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.must_find(path)?;
        let Some((parent, name)) = split(path)? else {
            return Err(TreeError::BadPath { path: display_path(path) });
        };
        let store = self.store.clone();
        Ok(self.directory_mut(&parent)?.remove(&store, name)?)
    }

    /// Renames an entry. Like `rename(2)`, replaces a file or an empty directory at `to`. Takes constant time, unless a
    /// directory is moved to a path with more names: then all directories below it are read, to check their depth.
    pub fn rename(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = path_names(from)?;
        let target = path_names(to)?;
        let kind = self.stat(from)?.kind;
        if source == target {
            return Ok(());
        }
        if source.is_empty() || target.is_empty() || target.starts_with(&source) {
            return Err(TreeError::IntoItself { path: display_path(from) });
        }
        self.check_replaceable(to, kind)?;
        if kind == NodeKind::Directory && target.len() > source.len() {
            self.check_depth_of_move(from, to, target.len())?;
        }
        // The parent of the target is created before the source is removed. Nothing can fail after that, so the entry
        // is not lost.
        self.directory_mut(&target[..target.len() - 1])?;
        let store = self.store.clone();
        let (name, parent) = source.split_last().unwrap_or_else(|| unreachable!("a path with names"));
        let child = {
            let parent = self.directory_mut(parent)?;
            let child = parent.child(&store, name)?;
            parent.remove(&store, name)?;
            child
        };
        if matches!(child, Some(Child::Directory(_))) {
            // `self.depth` is an upper bound of the depth of changes. The moved subtree is not deeper than the whole
            // tree.
            self.depth += target.len();
        }
        match child {
            Some(child) => self.put(to, child),
            None => Err(TreeError::NotFound { path: display_path(from) }),
        }
    }

    /// Fails if an entry at `path` cannot be replaced by an entry of this kind.
    pub(super) fn check_replaceable(&self, path: &[u8], replacement: NodeKind) -> Result<()> {
        let Some(lookup) = self.find(path)? else { return Ok(()) };
        let is_directory = self.lookup_stat(lookup)?.kind == NodeKind::Directory;
        match (replacement == NodeKind::Directory, is_directory) {
            (false, false) => Ok(()),
            (false, true) => Err(TreeError::IsADirectory { path: display_path(path) }),
            (true, false) => Err(TreeError::NotADirectory { path: display_path(path) }),
            (true, true) if self.list(path)?.is_empty() => Ok(()),
            (true, true) => Err(TreeError::NotEmpty { path: display_path(path) }),
        }
    }

    /// Creates a directory and its missing parents. Does nothing if the directory exists.
    pub fn mkdir(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let names = path_names(path)?;
        self.directory_mut(&names).map(drop)
    }

    /// Creates a symlink. Replaces a file or symlink at `path`; fails if there is a directory.
    pub fn symlink(&mut self, path: impl AsRef<[u8]>, target: impl Into<Vec<u8>>) -> Result<()> {
        self.put_symlink(path, target, None)
    }

    /// Sets the permission bits of a file or directory. Fails for a symlink.
    pub fn chmod(&mut self, path: impl AsRef<[u8]>, mode: u16) -> Result<()> {
        let path = path.as_ref();
        let mode = mode & MODE_BITS;
        let lookup = self.must_find(path)?;
        let stat = self.lookup_stat(lookup)?;
        match stat.kind {
            NodeKind::Symlink => Err(TreeError::BadPath { path: display_path(path) }),
            NodeKind::Directory => {
                let names = path_names(path)?;
                self.directory_mut(&names)?.mode_and_xattrs = Some((mode, stat.xattrs));
                Ok(())
            }
            NodeKind::File => {
                let mut file = match self.must_find(path)? {
                    Lookup::Virtual(Child::File(file)) => Arc::clone(file),
                    lookup => Arc::new(self.file_as_is(path, lookup)?),
                };
                Arc::make_mut(&mut file).mode = mode;
                self.put(path, Child::File(file))
            }
        }
    }

    /// Converts a file of the store to a [`File`] without reading its content.
    fn file_as_is(&self, path: &[u8], lookup: Lookup<'_>) -> Result<File> {
        let entry = self.lookup_entry(lookup)?;
        let Node::File(node) = entry.node else {
            return Err(TreeError::BadPath { path: display_path(path) });
        };
        Ok(File {
            mode: node.mode,
            xattrs: node.xattrs,
            modified: entry.modified,
            link_label: entry.link_label,
            stored_extents: node.extents,
            unstored_tail: Vec::new(),
        })
    }
}
