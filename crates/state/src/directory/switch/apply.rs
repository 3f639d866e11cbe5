//! Applies a switch: changes the directory on disk from the old tree to the new one.
//!
//! A *stat entry* is the fingerprint of a file in the stat record of its directory. Each step returns the stat entries
//! for the new record.

use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawMode, Stat, fchmod, fstat, futimens, mkdirat, openat, statat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

use crate::directory::checkout_options::ENTRY_BYTES;
use crate::directory::error::{Context, Result};
use crate::directory::parallel::{each, each_with_open_directory};
use crate::directory::path::{WRITE_ACCESS, open_directory, open_with_owner_access};
use crate::directory::read::fingerprint;
use crate::directory::stat_index::{StatEntry, StatFingerprint, StatRecord};
use crate::directory::tree_listing::{EntryPair, ListedEntry, Listing, TreeIds, pairs};
use crate::directory::xattrs::{self, ExistingXattrs};
use crate::entry::{DirectoryNode, Entry, Node};
use crate::error::StoreError;
use crate::id::NodeId;
use crate::node::NodeRef;
use crate::page::EntryTime;
use crate::platform::{IfExists, mode_to_u32};
use crate::snapshot::Timestamp;
use crate::tree_path::join;

use super::{OpenDirectory, SET_ID, Switch, tree_ids};

/// Result of applying one entry.
enum ApplyResult {
    /// The entry was removed, or kept without being in the new tree.
    Removed,
    FileOrSymlink(StatEntry),
    Directory(Subdirectory),
}

/// Existing directory whose entries are applied after its parent is closed.
struct Subdirectory {
    /// Index among the entry pairs of the parent.
    index: usize,
    name: Vec<u8>,
    /// Directory in the old tree; `None` if the old tree has none here.
    from: Option<TreeIds>,
    /// Directory in the new tree.
    to: DirectoryNode,
    /// Modification time in the new tree.
    modified: Option<Timestamp>,
}

impl Switch<'_> {
    /// Changes the directory from the tree `from` to the tree `to`. `from` is `None` if the directory holds no known
    /// tree.
    pub(in crate::directory) fn apply(&self, from: Option<TreeIds>, to: TreeIds) -> Result<()> {
        let (node, modified) = self.store.directory(to.0, Some(to.1))?;
        self.apply_directory(b"", 0, from, &node, modified)?;
        self.write_links(to)
    }

    /// Changes the directory at `path` and everything below it, and records the new stat records.
    fn apply_directory(
        &self,
        path: &[u8],
        depth: usize,
        from: Option<TreeIds>,
        to: &DirectoryNode,
        modified: Option<Timestamp>,
    ) -> Result<()> {
        self.check_depth(path, depth)?;
        let (mut fd, _) =
            open_with_owner_access(self.root, path, WRITE_ACCESS).context("open", &self.full_path(path))?;
        let (old, new) = (Listing::of(self.store, from)?, Listing::of(self.store, tree_ids(Some(to)))?);
        let old_record = self.record_of(path, from)?;
        let mode = fstat(&fd).context("stat", &self.full_path(path))?.st_mode as u16 & 0o7777;
        // The owner needs all rights to change entries. `finish_directory` sets the final mode.
        if mode & 0o700 != 0o700 {
            fchmod(&fd, Mode::from_raw_mode(RawMode::from(mode | 0o700)))
                .context("change the mode of", &self.full_path(path))?;
        }
        let directory = OpenDirectory { fd: &fd, path, record: old_record.as_ref() };
        // The target of a forced checkout may be the tree that the directory already holds, apart from local changes.
        // The stat record is then of the new tree, and shows which files are already right.
        let new_record = if self.options.force { self.record_of(path, tree_ids(Some(to)))? } else { None };
        let (mut entries, subdirectories) =
            self.apply_entries(&directory, new_record.as_ref(), &pairs(&old, &new))?;
        if !subdirectories.is_empty() {
            drop(fd);
            self.apply_subdirectories(path, depth, &subdirectories, &mut entries)?;
            fd = open_directory(self.root, path).context("open", &self.full_path(path))?;
        }
        let entries = entries.into_iter().flatten().collect();
        let own_fingerprint = self.finish_directory(&fd, path, to, modified)?;
        let record = StatRecord {
            node: to.id,
            times_node: times_id(to),
            own_fingerprint,
            own_reliable: true,
            entries,
        };
        self.records.lock().push((path.to_vec(), Some(record)));
        Ok(())
    }

    /// Applies the entries of a directory, in parallel if they differ. Does not descend into subdirectories, but
    /// returns them. `new_record` is the stat record if it is of the new tree. The returned stat entries are in the
    /// order of `pairs`; `None` for removed entries and changed subdirectories.
    fn apply_entries(
        &self,
        directory: &OpenDirectory<'_>,
        new_record: Option<&StatRecord>,
        pairs: &[EntryPair<'_>],
    ) -> Result<(Vec<Option<StatEntry>>, Vec<Subdirectory>)> {
        let mut entries = Vec::with_capacity(pairs.len());
        let mut changed = Vec::new();
        for pair in pairs {
            let kept = match self.kept_entry(directory, pair) {
                None => self.up_to_date_entry(directory, new_record, pair)?,
                kept => kept,
            };
            if kept.is_none() {
                changed.push((entries.len(), pair));
            }
            entries.push(kept);
        }
        let applied = each_with_open_directory(&changed, |(index, pair)| {
            Ok((*index, self.apply_entry(directory, *index, pair)?))
        })?;
        let mut subdirectories = Vec::new();
        for (index, applied) in applied {
            match applied {
                ApplyResult::Removed => {}
                ApplyResult::FileOrSymlink(entry) => entries[index] = Some(entry),
                ApplyResult::Directory(directory) => subdirectories.push(directory),
            }
        }
        Ok((entries, subdirectories))
    }

    /// Applies the subdirectories of a directory, and adds their stat entries.
    fn apply_subdirectories(
        &self,
        path: &[u8],
        depth: usize,
        subdirectories: &[Subdirectory],
        entries: &mut [Option<StatEntry>],
    ) -> Result<()> {
        each(subdirectories, |Subdirectory { name, from, to, modified, .. }| {
            self.apply_directory(&join(path, name), depth + 1, *from, to, *modified)
        })?;
        for Subdirectory { index, name, to, .. } in subdirectories {
            let mode = FileType::Directory.as_raw_mode() | self.mode(to.mode).as_raw_mode();
            let fingerprint = StatFingerprint::of_directory_content(mode_to_u32(mode), to.id, times_id(to));
            entries[*index] = Some(StatEntry { name: name.clone(), fingerprint, reliable: true });
        }
        Ok(())
    }

    /// Returns the stat entry of an entry that is equal in both trees, so it need not be written; `None` for other
    /// entries. With `force`, the entry on disk must be unchanged too.
    fn kept_entry(&self, directory: &OpenDirectory<'_>, pair: &EntryPair<'_>) -> Option<StatEntry> {
        if !pair.is_same() {
            return None;
        }
        let stat_entry = directory.record.and_then(|record| record.find(pair.name));
        if self.options.force {
            let stat_entry = stat_entry?;
            if stat_entry.fingerprint.is_directory() || !self.is_unchanged_on_disk(directory.fd, stat_entry) {
                return None;
            }
        }
        self.unchanged.fetch_add(1, Ordering::Relaxed);
        Some(stat_entry.cloned().unwrap_or_else(|| unknown_entry(pair.name, pair.after)))
    }

    /// Returns the stat entry of a file that already equals the new tree, by the stat record `new_record`; `None` for
    /// other entries, and for hard-linked files, whose names must be processed together.
    fn up_to_date_entry(
        &self,
        directory: &OpenDirectory<'_>,
        new_record: Option<&StatRecord>,
        pair: &EntryPair<'_>,
    ) -> Result<Option<StatEntry>> {
        let (Some(new_record), Some(after)) = (new_record, pair.after) else { return Ok(None) };
        let is_up_to_date = |stat_entry: &&StatEntry| {
            !stat_entry.fingerprint.is_directory() && self.is_unchanged_on_disk(directory.fd, stat_entry)
        };
        let Some(stat_entry) = new_record.find(pair.name).filter(is_up_to_date) else { return Ok(None) };
        if self.decode_entry(after)?.link_label.is_some() {
            return Ok(None);
        }
        self.unchanged.fetch_add(1, Ordering::Relaxed);
        Ok(Some(stat_entry.clone()))
    }

    /// Returns true if the file on disk certainly is unchanged since its stat entry was recorded.
    fn is_unchanged_on_disk(&self, fd: &OwnedFd, stat_entry: &StatEntry) -> bool {
        let stat = || statat(fd, stat_entry.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        stat_entry.reliable && stat().is_ok_and(|stat| fingerprint(&stat) == stat_entry.fingerprint)
    }

    /// Sets extended attributes, owner, mode and mtime of a directory, if they differ. Returns its new fingerprint.
    fn finish_directory(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        to: &DirectoryNode,
        modified: Option<Timestamp>,
    ) -> Result<StatFingerprint> {
        let full_path = || self.full_path(path);
        xattrs::write(fd, &self.written_xattrs(&to.xattrs), ExistingXattrs::Possible)
            .context("set the attributes of", &full_path())?;
        self.set_owner(fd, &to.xattrs, path)?;
        let mode = self.mode(to.mode);
        let mut own_fingerprint = fingerprint(&fstat(fd).context("stat", &full_path())?);
        let mode_differs = own_fingerprint.mode & 0o7777 != mode_to_u32(mode.as_raw_mode());
        let new_time = modified.filter(|modified| modified.0 != own_fingerprint.mtime);
        if mode_differs {
            fchmod(fd, mode).context("change the mode of", &full_path())?;
        }
        if let Some(modified) = new_time {
            futimens(fd, &modified.file_times()).context("set the times of", &full_path())?;
        }
        if mode_differs || new_time.is_some() {
            own_fingerprint = fingerprint(&fstat(fd).context("stat", &full_path())?);
        }
        Ok(own_fingerprint)
    }

    /// Returns the mode on disk for an entry with this mode in the tree.
    pub(super) fn mode(&self, mode: u16) -> Mode {
        let mode = if self.options.keep_set_id { mode } else { mode & !SET_ID };
        Mode::from_raw_mode(RawMode::from(mode))
    }

    /// Creates, changes or removes one entry. Does not descend into a directory.
    fn apply_entry(
        &self,
        directory: &OpenDirectory<'_>,
        index: usize,
        pair: &EntryPair<'_>,
    ) -> Result<ApplyResult> {
        // Reads of the store check this too, but removed and reflinked files are not read from the store.
        self.store.cancel_flag().check().map_err(StoreError::from)?;
        self.progress.advance(1);
        let entry_path = join(directory.path, pair.name);
        let old = pair.before.map(|raw| self.decode_entry(raw)).transpose()?;
        let new = pair.after.map(|raw| self.decode_entry(raw)).transpose()?;
        let stat = self.stat(directory.fd, &entry_path, pair.name)?;
        if self.keeps_edit(directory, pair.name, stat.as_ref(), (old.as_ref(), new.as_ref()))? {
            return Ok(match pair.after {
                Some(_) => ApplyResult::FileOrSymlink(unknown_entry(pair.name, None)),
                None => ApplyResult::Removed,
            });
        }
        let Some(new) = new else {
            self.remove(directory.fd, &entry_path, pair.name, old.as_ref())?;
            return Ok(ApplyResult::Removed);
        };
        self.count_write(ENTRY_BYTES, &entry_path)?;
        if let Node::Directory(to) = new.node {
            let from = self.make_directory(directory, &entry_path, pair.name, old.as_ref(), stat.as_ref())?;
            let (name, modified) = (pair.name.to_vec(), new.modified);
            return Ok(ApplyResult::Directory(Subdirectory { index, name, from, to, modified }));
        }
        self.apply_file_or_symlink(directory.fd, &entry_path, pair.name, old.as_ref(), &new, stat.as_ref())
            .map(ApplyResult::FileOrSymlink)
    }

    /// Creates a directory if it does not exist. Returns the ids of the directory in the old tree; `None` if the old
    /// tree has none, or the directory was created here.
    fn make_directory(
        &self,
        directory: &OpenDirectory<'_>,
        entry_path: &[u8],
        name: &[u8],
        old: Option<&Entry>,
        stat: Option<&Stat>,
    ) -> Result<Option<TreeIds>> {
        if stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
            return Ok(match old.map(|old| &old.node) {
                Some(Node::Directory(old)) => tree_ids(Some(old)),
                _ => None,
            });
        }
        if stat.is_some() {
            unlinkat(directory.fd, name, AtFlags::empty()).context("remove", &self.full_path(entry_path))?;
        }
        match mkdirat(directory.fd, name, Mode::RWXU) {
            Err(Errno::EXIST) => return Err(self.name_collision(entry_path)),
            other => other.context("create", &self.full_path(entry_path))?,
        }
        self.written.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }

    /// Writes a file or symlink of the new tree, or only sets its attributes if the content on disk is already right.
    fn apply_file_or_symlink(
        &self,
        fd: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        old: Option<&Entry>,
        new: &Entry,
        stat: Option<&Stat>,
    ) -> Result<StatEntry> {
        let mut if_exists = if stat.is_some() { IfExists::Replace } else { IfExists::Fail };
        if stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
            self.remove_replaced_directory(fd, entry_path, name, old)?;
            if_exists = IfExists::Fail;
        } else if stat.is_some_and(|stat| stat.st_nlink == 1)
            && self.differs_only_in_attributes(old, new)
            && self.has_content_on_disk(fd, name, new)?
        {
            self.set_attributes(fd, entry_path, name, new)?;
            self.unchanged.fetch_add(1, Ordering::Relaxed);
            return self.stat_entry(fd, entry_path, name);
        }
        self.written.fetch_add(1, Ordering::Relaxed);
        if let Some(label) = new.link_label {
            // The file is written under its first name. Further names are linked to it at the end; until then, their
            // stat entries are unreliable.
            if self.add_link_name(label, entry_path, &new.node, new.modified) {
                return Ok(StatEntry {
                    name: name.to_vec(),
                    fingerprint: StatFingerprint::default(),
                    reliable: false,
                });
            }
        }
        self.write_file_or_symlink(fd, entry_path, name, &new.node, new.modified, if_exists)?;
        self.stat_entry(fd, entry_path, name)
    }

    /// Returns true if both entries have the same content and neither is hard-linked.
    fn differs_only_in_attributes(&self, old: Option<&Entry>, new: &Entry) -> bool {
        match (old.map(|old| (&old.node, old.link_label)), &new.node) {
            (Some((Node::File(old), label)), Node::File(file)) => {
                old.same_content(file) && label == new.link_label && label.is_none()
            }
            (Some((Node::Symlink(old), label)), Node::Symlink(symlink)) => {
                old.target == symlink.target && label == new.link_label && label.is_none()
            }
            _ => false,
        }
    }

    /// Returns true if the content on disk is the content of the new entry. Without `force`, that is certain: the
    /// search for local changes has compared it with the old entry, which has the same content.
    fn has_content_on_disk(&self, fd: &OwnedFd, name: &[u8], new: &Entry) -> Result<bool> {
        if !self.options.force {
            return Ok(true);
        }
        self.is_on_disk(fd, name, Some(new))
    }

    /// Sets extended attributes, mode and mtime of a file, or the mtime of a symlink.
    fn set_attributes(&self, fd: &OwnedFd, entry_path: &[u8], name: &[u8], new: &Entry) -> Result<()> {
        if let Node::File(node) = &new.node {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = match openat(fd, name, flags, Mode::empty()) {
                Ok(file) => file,
                // The mode denies reading, but the file can still be replaced.
                Err(Errno::ACCESS) => {
                    return self.write_file(fd, entry_path, name, node, new.modified, IfExists::Replace);
                }
                Err(error) => return Err(error).context("open", &self.full_path(entry_path)),
            };
            xattrs::write(&file, &self.written_xattrs(&node.xattrs), ExistingXattrs::Possible)
                .context("set the attributes of", &self.full_path(entry_path))?;
            fchmod(&file, self.mode(node.mode)).context("change the mode of", &self.full_path(entry_path))?;
        }
        if let Some(modified) = new.modified {
            utimensat(fd, name, &modified.file_times(), AtFlags::SYMLINK_NOFOLLOW)
                .context("set the times of", &self.full_path(entry_path))?;
        }
        Ok(())
    }

    /// Returns the stat entry of a file that was just written.
    fn stat_entry(&self, fd: &OwnedFd, entry_path: &[u8], name: &[u8]) -> Result<StatEntry> {
        let stat =
            statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).context("stat", &self.full_path(entry_path))?;
        Ok(StatEntry { name: name.to_vec(), fingerprint: fingerprint(&stat), reliable: true })
    }
}

/// Returns the id of a directory's times, for its stat record. If the times are not known, returns the id of the
/// directory itself. No times node has that id, so the record will not match any tree.
fn times_id(directory: &DirectoryNode) -> NodeId {
    directory.times.unwrap_or(directory.id)
}

/// Returns an unreliable stat entry, for an entry whose fingerprint is not known. The next scan reads the entry. `raw`
/// is its entry in the new tree.
fn unknown_entry(name: &[u8], raw: Option<ListedEntry<'_>>) -> StatEntry {
    let fingerprint = match raw.map(|raw| (NodeRef::decode(raw.node_ref), EntryTime::decode(raw.time))) {
        Some((Ok(NodeRef::Directory(node)), Ok(EntryTime::Directory(times)))) => {
            StatFingerprint::of_directory_content(mode_to_u32(FileType::Directory.as_raw_mode()), node, times)
        }
        _ => StatFingerprint::default(),
    };
    StatEntry { name: name.to_vec(), fingerprint, reliable: false }
}
