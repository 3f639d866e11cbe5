//! Changing a virtual tree.

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
    /// Writes a whole file and creates missing parents. An existing file keeps its mode and attributes.
    pub fn write(&mut self, path: impl AsRef<[u8]>, content: impl Into<Vec<u8>>) -> Result<()> {
        let path = path.as_ref();
        let is_a_directory = || TreeError::IsADirectory { path: display_path(path) };
        let Some((parent, name)) = split(path)? else { return Err(is_a_directory()) };
        let store = self.store.clone();
        // The path is walked only once: the existing entry is looked up in the directory that is changed.
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
            // The whole content is in the store. Its last chunk ends at the old end of the file instead of at
            // a boundary that the chunker chose, so it is read back and chunked again with the new bytes.
            let (stored_extents, stable_len) = content::stable_part(&file.stored_extents);
            let unstored_tail = self.content_of(&file.stored_extents, stable_len, u64::MAX)?;
            file = Arc::new(File { stored_extents, unstored_tail, ..File::clone(&file) });
        }
        let edited = Arc::make_mut(&mut file);
        edited.unstored_tail.extend_from_slice(content);
        edited.modified = Some(Timestamp::now());
        // It is no longer equal to the other names of a hard-linked file.
        edited.link_label = None;
        self.put(path, Child::File(file))
    }

    /// Converts a file of the store to a [`File`] whose last chunk is in memory, so that it can grow.
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

    /// Renames an entry, replacing a file or an empty directory at `to` as `rename(2)` does. A directory is
    /// moved in constant time, unless `to` has more names than `from`: then its directories are read, to check
    /// their depth.
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
        // The target's parent is created first: nothing can fail once the source is removed, so it is not lost.
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
            // `depth` must stay an upper bound. The moved subtree is at most as deep as the whole tree was.
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

    /// Creates a directory and its missing parents. An existing one is left unchanged.
    pub fn mkdir(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let names = path_names(path)?;
        self.directory_mut(&names).map(drop)
    }

    /// Creates a symlink, replacing a file or symlink.
    pub fn symlink(&mut self, path: impl AsRef<[u8]>, target: impl Into<Vec<u8>>) -> Result<()> {
        self.put_symlink(path, target, None)
    }

    /// Changes permission bits of a file or directory.
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

    /// Converts a file of the store to a [`File`], with its content in stored extents.
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
