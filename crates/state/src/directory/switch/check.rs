//! Search for local changes that a switch (the change of a directory from one tree to another) would undo.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{FileType, Stat, fstat, readlinkat};
use rustix::io::Errno;

use crate::chunker::is_zero;
use crate::directory::checkout_options::EditCheck;
use crate::directory::error::{Context, DirectoryError, Result};
use crate::directory::parallel::{each, each_with_open_directory};
use crate::directory::path::{READ_ACCESS, open_file_with_owner_access, open_with_owner_access, os_path};
use crate::directory::read::fingerprint;
use crate::directory::tree_listing::{EntryPair, Listing, TreeIds, pairs};
use crate::directory::xattrs;
use crate::entry::{DirectoryNode, Entry, Node};
use crate::id::ChunkId;
use crate::node::{Extent, FileNode};
use crate::tree_path::join;

use super::{OpenDirectory, SET_ID, Switch, tree_ids};

/// Existing directory that is checked after its parent is closed.
struct Subdirectory {
    path: Vec<u8>,
    /// Directory in the old tree; `None` if the old tree has none here.
    old: Option<DirectoryNode>,
    /// Directory in the new tree; `None` if the new tree has none here.
    new: Option<DirectoryNode>,
    /// True if the new tree has a file or symlink here.
    is_replaced: bool,
}

/// Path of a directory on disk, and its node in the tree; `None` if the tree has another kind of entry there.
type SubdirectoryInTree = (Vec<u8>, Option<DirectoryNode>);

impl Switch<'_> {
    /// Fails if the switch would undo local changes. Does not change the directory.
    pub(in crate::directory) fn check(&self, from: Option<TreeIds>, to: TreeIds) -> Result<()> {
        self.check_directory(b"", 0, from, Some(to))?;
        let mut paths = std::mem::take(&mut *self.edits.lock());
        if paths.is_empty() {
            return Ok(());
        }
        paths.sort();
        Err(DirectoryError::LocalEdits { directory: self.tracked.path.clone(), paths })
    }

    /// Adds the local changes at or below `path` to `edits`, as far as the two trees differ there.
    fn check_directory(
        &self,
        path: &[u8],
        depth: usize,
        from: Option<TreeIds>,
        to: Option<TreeIds>,
    ) -> Result<()> {
        self.check_depth(path, depth)?;
        if from == to {
            return Ok(());
        }
        let (fd, former_mode) = match open_with_owner_access(self.root, path, READ_ACCESS) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                self.edits.lock().push(os_path(path).to_owned());
                return Ok(());
            }
            Err(error) => return Err(error).context("open", &self.full_path(path)),
        };
        let subdirectories = self.check_entries(&fd, path, from, to);
        drop(fd);
        let checked = subdirectories.and_then(|subdirectories| {
            each(&subdirectories, |subdirectory| self.check_subdirectory(subdirectory, depth + 1)).map(drop)
        });
        self.restore_mode_at(path, former_mode)?;
        checked
    }

    /// Checks a subdirectory. If a file replaces it, untracked entries in it count as local changes.
    fn check_subdirectory(&self, subdirectory: &Subdirectory, depth: usize) -> Result<()> {
        if subdirectory.is_replaced && self.has_untracked(&subdirectory.path, subdirectory.old.as_ref())? {
            self.edits.lock().push(os_path(&subdirectory.path).to_owned());
        }
        self.check_directory(
            &subdirectory.path,
            depth,
            tree_ids(subdirectory.old.as_ref()),
            tree_ids(subdirectory.new.as_ref()),
        )
    }

    /// Checks the entries of a directory that differ between the trees. Returns the existing subdirectories among them,
    /// which the caller checks.
    fn check_entries(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        from: Option<TreeIds>,
        to: Option<TreeIds>,
    ) -> Result<Vec<Subdirectory>> {
        let (old, new) = (Listing::of(self.store, from)?, Listing::of(self.store, to)?);
        let record = self.record_of(path, from)?;
        let directory = OpenDirectory { fd, path, record: record.as_ref() };
        let mut changed = pairs(&old, &new);
        changed.retain(|pair| !pair.is_same());
        // Untracked files in a removed directory need no check, because `remove` keeps them.
        let subdirectories = each_with_open_directory(&changed, |pair| self.check_entry(&directory, pair))?;
        Ok(subdirectories.into_iter().flatten().collect())
    }

    /// Checks an entry that differs between the trees. Returns a subdirectory for the caller to check.
    fn check_entry(
        &self,
        directory: &OpenDirectory<'_>,
        pair: &EntryPair<'_>,
    ) -> Result<Option<Subdirectory>> {
        let entry_path = join(directory.path, pair.name);
        let old = pair.before.map(|raw| self.decode_entry(raw)).transpose()?;
        let new = pair.after.map(|raw| self.decode_entry(raw)).transpose()?;
        let (old_directory, new_directory) = (directory_of(old.as_ref()), directory_of(new.as_ref()));
        // A missing entry has no local changes that could be lost.
        let Some(stat) = self.stat(directory.fd, &entry_path, pair.name)? else { return Ok(None) };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_directory && (old_directory.is_some() || new_directory.is_some()) {
            let is_replaced = new.is_some() && new_directory.is_none();
            return Ok(Some(Subdirectory {
                path: entry_path,
                old: old_directory,
                new: new_directory,
                is_replaced,
            }));
        }
        if !self.is_replaceable(directory, pair.name, &stat, old.as_ref(), new.as_ref())? {
            self.edits.lock().push(os_path(&entry_path).to_owned());
        }
        Ok(None)
    }

    /// Returns true if the entry on disk equals the entry of the old or of the new tree, so that replacing it undoes no
    /// local change. `directory.record` must be of the old tree.
    fn is_replaceable(
        &self,
        directory: &OpenDirectory<'_>,
        name: &[u8],
        stat: &Stat,
        old: Option<&Entry>,
        new: Option<&Entry>,
    ) -> Result<bool> {
        let stat_entry = directory.record.filter(|_| old.is_some()).and_then(|record| record.find(name));
        let is_unchanged = stat_entry
            .is_some_and(|stat_entry| stat_entry.reliable && stat_entry.fingerprint == fingerprint(stat));
        Ok(is_unchanged
            || self.is_on_disk(directory.fd, name, old)?
            || self.is_on_disk(directory.fd, name, new)?)
    }

    /// Searches again for a local change of an entry that is about to be replaced or removed, if the options request
    /// that. If there is one, fails or returns true, depending on the options; true means that the entry must be kept.
    /// Does not descend into a directory, unless a file replaces it.
    pub(super) fn keeps_edit(
        &self,
        directory: &OpenDirectory<'_>,
        name: &[u8],
        stat: Option<&Stat>,
        (old, new): (Option<&Entry>, Option<&Entry>),
    ) -> Result<bool> {
        let checks_again = self.options.edits != EditCheck::Before && !self.options.force;
        let Some(stat) = stat.filter(|_| checks_again) else { return Ok(false) };
        let path = join(directory.path, name);
        let (old_directory, new_directory) = (directory_of(old), directory_of(new));
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let is_edited = match is_directory && (old_directory.is_some() || new_directory.is_some()) {
            true if new.is_none() || new_directory.is_some() => false,
            true => self.has_untracked(&path, old_directory.as_ref())?,
            false => !self.is_replaceable(directory, name, stat, old, new)?,
        };
        if !is_edited {
            return Ok(false);
        }
        if self.options.edits == EditCheck::Keep {
            return Ok(true);
        }
        let paths = vec![os_path(&path).to_owned()];
        Err(DirectoryError::LocalEdits { directory: self.tracked.path.clone(), paths })
    }

    /// Returns true if the directory on disk has untracked entries at any depth: entries that are not in `tree`.
    fn has_untracked(&self, path: &[u8], tree: Option<&DirectoryNode>) -> Result<bool> {
        let (fd, former_mode) =
            open_with_owner_access(self.root, path, READ_ACCESS).context("open", &self.full_path(path))?;
        let subdirectories = self.tracked_subdirectories(&fd, path, tree);
        drop(fd);
        let has_untracked = subdirectories.and_then(|subdirectories| self.any_has_untracked(subdirectories));
        self.restore_mode_at(path, former_mode)?;
        has_untracked
    }

    /// Returns true if any of the subdirectories has untracked entries, or for `None`.
    fn any_has_untracked(&self, subdirectories: Option<Vec<SubdirectoryInTree>>) -> Result<bool> {
        let Some(subdirectories) = subdirectories else { return Ok(true) };
        for (path, tree) in subdirectories {
            if self.has_untracked(&path, tree.as_ref())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the subdirectories on disk of a directory; `None` if the directory itself has an untracked entry.
    fn tracked_subdirectories(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        tree: Option<&DirectoryNode>,
    ) -> Result<Option<Vec<SubdirectoryInTree>>> {
        let tree_entries = Listing::of(self.store, tree_ids(tree))?;
        let mut subdirectories = Vec::new();
        for name in self.list_names(fd, path)? {
            let Some(raw) = tree_entries.get(&name) else { return Ok(None) };
            let entry_path = join(path, &name);
            let Some(stat) = self.stat(fd, &entry_path, &name)? else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let node = self.decode_entry(raw)?.node;
                subdirectories
                    .push((entry_path, if let Node::Directory(node) = node { Some(node) } else { None }));
            }
        }
        Ok(Some(subdirectories))
    }

    /// Returns true if the file or symlink on disk equals the entry, except for times. Returns false for a directory.
    pub(super) fn is_on_disk(&self, fd: &OwnedFd, name: &[u8], entry: Option<&Entry>) -> Result<bool> {
        let entry_path = || self.tracked.path.join(os_path(name));
        match entry.map(|entry| &entry.node) {
            None | Some(Node::Directory(_)) => Ok(false),
            Some(Node::Symlink(link)) => match readlinkat(fd, name, Vec::new()) {
                Ok(target) => Ok(target.as_bytes() == link.target),
                Err(Errno::INVAL | Errno::NOENT) => Ok(false),
                Err(error) => Err(error).context("read", &entry_path()),
            },
            Some(Node::File(node)) => {
                let file = match open_file_with_owner_access(fd, name) {
                    Ok(file) => file,
                    Err(Errno::LOOP | Errno::NOENT | Errno::NXIO) => return Ok(false),
                    Err(error) => return Err(error).context("open", &entry_path()),
                };
                let stat = fstat(&file).context("stat", &entry_path())?;
                let mode_mask = if self.options.keep_set_id { 0o7777 } else { 0o7777 & !SET_ID };
                let fits = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                    && stat.st_size as u64 == node.size()
                    && (stat.st_mode as u16) & mode_mask == node.mode & mode_mask;
                if !fits
                    || xattrs::read(&file).context("read", &entry_path())?
                        != *self.written_xattrs(&node.xattrs)
                {
                    return Ok(false);
                }
                self.same_content(&File::from(file), node)
            }
        }
    }

    /// Returns true if the file has the content of the node. Reads the file up to the first difference.
    fn same_content(&self, file: &File, node: &FileNode) -> Result<bool> {
        let mut offset = 0;
        for extent in &node.extents {
            let end = offset + extent.len();
            while offset < end {
                let mut buffer = vec![0; (end - offset).min(1 << 20) as usize];
                if file.read_exact_at(&mut buffer, offset).is_err() {
                    return Ok(false);
                }
                let same = match extent {
                    Extent::Hole { .. } => is_zero(&buffer),
                    // A chunk is at most 256 KiB, so the buffer holds all of it.
                    Extent::Data { chunk, .. } => ChunkId::of(&buffer) == *chunk,
                };
                if !same {
                    return Ok(false);
                }
                offset += buffer.len() as u64;
            }
        }
        Ok(true)
    }
}

/// Returns the node of an entry if it is a directory.
fn directory_of(entry: Option<&Entry>) -> Option<DirectoryNode> {
    match entry.map(|entry| &entry.node) {
        Some(Node::Directory(node)) => Some(node.clone()),
        _ => None,
    }
}
