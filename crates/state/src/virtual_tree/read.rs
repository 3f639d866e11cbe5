//! Reads a virtual tree (a mutable tree in memory over a snapshot): changes from memory, everything else from the
//! store.
//!
//! A [`Lookup`] is the result of a path lookup: the root, an entry that the tree changed (`Virtual`, with a [`Child`]),
//! or an unchanged entry of the store (`Stored`). A [`File`] is a changed file: extents in the store, and content in
//! memory that follows them.

use std::collections::BTreeMap;

use crate::entry::{Entry, Node};
use crate::error::{Result as StoreResult, StoreError};
use crate::id::NodeId;
use crate::node::{Extent, NodeKind, NodeRef, SymlinkNode, Xattrs};
use crate::page::EntryTime;
use crate::tree_path::path_names;

use super::{
    Child, Directory, File, Lookup, NEW_DIRECTORY_MODE, Result, Stat, TreeError, VirtualEntry, VirtualTree,
    decode_node_ref, display_path, stored_directory,
};

impl VirtualTree {
    /// Returns the content of a file.
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.read_range(path, 0, u64::MAX)
    }

    /// Returns up to `len` bytes of a file from `offset`.
    pub fn read_range(&self, path: impl AsRef<[u8]>, offset: u64, len: u64) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let lookup = self.must_find(path)?;
        if let Lookup::Virtual(Child::File(file)) = &lookup {
            return self.read_file(file, offset, len);
        }
        match self.lookup_entry(lookup)?.node {
            Node::File(node) => Ok(self.store.read_extents(&node.extents, offset, len)?),
            Node::Directory(_) => Err(TreeError::IsADirectory { path: display_path(path) }),
            Node::Symlink(_) => Err(TreeError::BadPath { path: display_path(path) }),
        }
    }

    /// Returns up to `len` bytes of a changed file from `offset`: first from the store, then from memory.
    fn read_file(&self, file: &File, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut out = self.content_of(&file.stored_extents, offset, len)?;
        let stored_len: u64 = file.stored_extents.iter().map(Extent::len).sum();
        let from = offset.saturating_sub(stored_len).min(file.unstored_tail.len() as u64) as usize;
        let remaining = len.saturating_sub(out.len() as u64);
        let to = from + usize::try_from(remaining).unwrap_or(usize::MAX).min(file.unstored_tail.len() - from);
        if offset.saturating_add(len) > stored_len {
            out.extend_from_slice(&file.unstored_tail[from..to]);
        }
        Ok(out)
    }

    /// Reads content from chunks, which may be uncommitted.
    pub(super) fn content_of(&self, extents: &[Extent], offset: u64, len: u64) -> Result<Vec<u8>> {
        match &self.uncommitted {
            Some(content) => Ok(content.batch.read_extents(extents, offset, len)?),
            None => Ok(self.store.read_extents(extents, offset, len)?),
        }
    }

    /// Returns the target of a symlink.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let lookup = self.must_find(path)?;
        if let Lookup::Virtual(Child::Symlink { target, .. }) = &lookup {
            return Ok(target.to_vec());
        }
        match self.lookup_entry(lookup)?.node {
            Node::Symlink(link) => Ok(link.target),
            _ => Err(TreeError::BadPath { path: display_path(path) }),
        }
    }

    /// Returns the entries of a directory, sorted by name.
    pub fn list(&self, path: impl AsRef<[u8]>) -> Result<Vec<VirtualEntry>> {
        let path = path.as_ref();
        let not_a_directory = || TreeError::NotADirectory { path: display_path(path) };
        let base_of = |directory: &Directory| directory.base.map(|(id, times)| (id, Some(times)));
        let (base, edits) = match self.must_find(path)? {
            Lookup::Root(directory) => (base_of(directory), Some(&directory.edits)),
            Lookup::Virtual(Child::Directory(directory)) => (base_of(directory), Some(&directory.edits)),
            lookup => match self.lookup_entry(lookup)?.node {
                Node::Directory(node) => (Some((node.id, node.times)), None),
                _ => return Err(not_a_directory()),
            },
        };
        let mut names: BTreeMap<Vec<u8>, NodeKind> = BTreeMap::new();
        if let Some((id, times)) = base {
            self.store.for_each_leaf(id, times, &mut |list, _| {
                for index in 0..list.len() {
                    let kind = list
                        .node_ref(index)
                        .map(|node_ref| node_ref.kind())
                        .map_err(|source| StoreError::Undecodable { what: format!("node {id}"), source })?;
                    names.insert(list.name(index).to_vec(), kind);
                }
                Ok(())
            })?;
        }
        for (name, edit) in edits.into_iter().flatten() {
            match edit {
                Some(child) => drop(names.insert(name.to_vec(), self.kind_of(child)?)),
                None => drop(names.remove(&name[..])),
            }
        }
        Ok(names.into_iter().map(|(name, kind)| VirtualEntry { name, kind }).collect())
    }

    /// Returns the metadata of the entry at `path`.
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Stat> {
        let lookup = self.must_find(path.as_ref())?;
        self.lookup_stat(lookup)
    }

    /// Returns true if there is an entry at `path`.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.find(path.as_ref())?.is_some())
    }

    /// Looks a path up. Fails if there is no entry.
    pub(super) fn must_find(&self, path: &[u8]) -> Result<Lookup<'_>> {
        self.find(path)?.ok_or_else(|| TreeError::NotFound { path: display_path(path) })
    }

    /// Looks a path up, first in the changes, then in the store. Returns `None` if there is no entry.
    pub(super) fn find(&self, path: &[u8]) -> Result<Option<Lookup<'_>>> {
        let names = path_names(path)?;
        let mut directory = &*self.root;
        let mut names = names.into_iter();
        let Some(mut name) = names.next() else { return Ok(Some(Lookup::Root(directory))) };
        loop {
            match directory.edits.get(name) {
                Some(None) => return Ok(None),
                Some(Some(child)) => match (child, names.next()) {
                    (Child::Stored { node_ref, time }, Some(next)) => {
                        return match stored_directory(node_ref, time)?
                            .and_then(|subdirectory| subdirectory.base)
                        {
                            Some((id, times)) => self.find_stored(id, Some(times), next, names),
                            None => Ok(None),
                        };
                    }
                    (child, None) => return Ok(Some(Lookup::Virtual(child))),
                    (Child::Directory(subdirectory), Some(next)) => {
                        directory = subdirectory;
                        name = next;
                    }
                    (_, Some(_)) => return Ok(None),
                },
                None => {
                    let Some((id, times)) = directory.base else { return Ok(None) };
                    return self.find_stored(id, Some(times), name, names);
                }
            }
        }
    }

    /// Looks up `name` in directory `id` of the store, and then the following `names` below it. `times` is the id of
    /// the directory's times.
    fn find_stored<'a>(
        &self,
        mut id: NodeId,
        mut times: Option<NodeId>,
        mut name: &'a [u8],
        mut names: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<Lookup<'_>>> {
        let decode_error = |source| StoreError::Undecodable { what: "an entry".to_owned(), source };
        loop {
            let Some((list, time_list, index)) = self.store.find_entry(id, times, name)? else {
                return Ok(None);
            };
            let Some(next) = names.next() else {
                let entry = self.store.decode_entry(&list, time_list.as_deref(), index)?;
                return Ok(Some(Lookup::Stored(entry)));
            };
            let NodeRef::Directory(subdirectory) = list.node_ref(index).map_err(decode_error)? else {
                return Ok(None);
            };
            (id, name) = (subdirectory, next);
            times = match time_list {
                Some(time_list) if index < time_list.len() => {
                    match time_list.time(index).map_err(decode_error)? {
                        EntryTime::Directory(times) => Some(times),
                        _ => None,
                    }
                }
                _ => None,
            };
        }
    }

    /// Decodes an entry of the store. The result has no name.
    pub(super) fn stored_entry(&self, node_ref: &[u8], time: &[u8]) -> StoreResult<Entry> {
        let decode_error = |source| StoreError::Undecodable { what: "an entry".to_owned(), source };
        let node_ref = NodeRef::decode(node_ref).map_err(decode_error)?;
        self.store.entry_from_parts(b"", node_ref, EntryTime::decode(time).map_err(decode_error)?)
    }

    /// Converts the result of a lookup to an entry. Fails for changed files and directories, which callers handle
    /// themselves.
    pub(super) fn lookup_entry(&self, lookup: Lookup<'_>) -> Result<Entry> {
        match lookup {
            Lookup::Stored(entry) => Ok(entry),
            Lookup::Virtual(Child::Stored { node_ref, time }) => Ok(self.stored_entry(node_ref, time)?),
            Lookup::Virtual(Child::Symlink { target, modified }) => Ok(Entry {
                name: Vec::new(),
                node: Node::Symlink(SymlinkNode { target: target.to_vec() }),
                modified: Some(*modified),
                link_label: None,
            }),
            Lookup::Root(_) | Lookup::Virtual(Child::Directory(_)) => {
                Err(TreeError::IsADirectory { path: String::new() })
            }
            Lookup::Virtual(Child::File(_)) => Err(TreeError::NotADirectory { path: String::new() }),
        }
    }

    /// Returns the kind of an entry.
    pub(super) fn kind_of(&self, child: &Child) -> StoreResult<NodeKind> {
        Ok(match child {
            Child::Directory(_) => NodeKind::Directory,
            Child::File(_) => NodeKind::File,
            Child::Symlink { .. } => NodeKind::Symlink,
            Child::Stored { node_ref, .. } => decode_node_ref(node_ref)?.kind(),
        })
    }

    /// Returns the metadata for the result of a lookup.
    pub(super) fn lookup_stat(&self, lookup: Lookup<'_>) -> Result<Stat> {
        let stat_directory = |directory: &Directory| -> Result<Stat> {
            let stored = match directory.base {
                Some((id, times)) => Some(self.store.directory(id, Some(times))?),
                None => None,
            };
            let modified = directory.modified.or(stored.as_ref().and_then(|(_, modified)| *modified));
            let (mode, xattrs) = match (&directory.mode_and_xattrs, stored) {
                (Some(changed), _) => changed.clone(),
                (None, Some((node, _))) => (node.mode, node.xattrs),
                (None, None) => (NEW_DIRECTORY_MODE, Xattrs::new()),
            };
            Ok(Stat { kind: NodeKind::Directory, mode, size: 0, modified, link_label: None, xattrs })
        };
        match lookup {
            Lookup::Root(root) => stat_directory(root),
            Lookup::Virtual(Child::Directory(subdirectory)) => stat_directory(subdirectory),
            Lookup::Virtual(Child::File(file)) => Ok(Stat {
                kind: NodeKind::File,
                mode: file.mode,
                size: file.size(),
                modified: file.modified,
                link_label: file.link_label,
                xattrs: file.xattrs.clone(),
            }),
            lookup => {
                let entry = self.lookup_entry(lookup)?;
                let size = if entry.node.kind() == NodeKind::Directory { 0 } else { entry.node.size() };
                let xattrs = match &entry.node {
                    Node::File(node) => node.xattrs.clone(),
                    Node::Directory(node) => node.xattrs.clone(),
                    Node::Symlink(_) => Xattrs::new(),
                };
                Ok(Stat {
                    kind: entry.node.kind(),
                    mode: entry.node.mode(),
                    size,
                    modified: entry.modified,
                    link_label: entry.link_label,
                    xattrs,
                })
            }
        }
    }
}
