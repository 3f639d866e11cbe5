//! Creates hard links at the end of a switch (the change of a directory from one tree to another), when all files
//! exist.
//!
//! All names of a hard-linked file have the same *link label* in a tree, here called label. A *group* is a file that
//! the switch wrote, with the names that it wrote or still has to link. An *unchanged name* is a name of the same file
//! that is equal in both trees, so the switch did not write it.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, fstat, futimens, linkat, renameat, unlinkat};
use rustix::io::Errno;

use crate::directory::error::{Context, Result};
use crate::directory::parallel::each;
use crate::directory::path::{READ_ACCESS, WRITE_ACCESS};
use crate::directory::read::fingerprint;
use crate::directory::stat_index::StatFingerprint;
use crate::directory::tree_listing::{ListedEntry, Listing, TreeIds};
use crate::entry::{Entry, Node};
use crate::node::NodeRef;
use crate::page::EntryTime;
use crate::platform::IfExists;
use crate::snapshot::Timestamp;
use crate::tree_path::join;

use super::{LinkGroup, Switch};

/// Unchanged names by label: path, and entry of the new tree.
type UnchangedNames = HashMap<u64, Vec<(Vec<u8>, Entry)>>;

/// Parameters of the search for unchanged names of files that were written under another name.
struct LinkSearch<'g> {
    /// The written files, by label.
    groups: &'g HashMap<u64, LinkGroup>,
    /// Paths that were written.
    written: HashSet<&'g [u8]>,
}

impl Switch<'_> {
    /// Adds a name of a hard-linked file to its group. Returns true if an equal file with this label is already written
    /// under another name, so that the caller need not write it. If a file with this label has another content, the
    /// name is not added.
    pub(super) fn add_link_name(
        &self,
        label: u64,
        entry_path: &[u8],
        node: &Node,
        modified: Option<Timestamp>,
    ) -> bool {
        let mut links = self.links.lock();
        let name = (entry_path.to_vec(), modified);
        match links.get_mut(&label) {
            Some(group) if group.node == *node => {
                group.names.push(name);
                true
            }
            Some(_) => false,
            None => {
                links.insert(label, LinkGroup { node: node.clone(), names: vec![name] });
                false
            }
        }
    }

    /// Links the names of each group. If a file has an unchanged name, all its written names are linked to that name.
    pub(super) fn write_links(&self, to: TreeIds) -> Result<()> {
        let linked = self.link_groups(to);
        // The directories had their final modes before. If a mode denies access, it was changed temporarily.
        let restored = self.access.restore();
        linked?;
        self.update_restored(&restored?.into_iter().collect());
        Ok(())
    }

    /// Links the names of all groups, and records the labels of the inodes.
    fn link_groups(&self, to: TreeIds) -> Result<()> {
        let groups = std::mem::take(&mut *self.links.lock());
        let mut unchanged = self.unchanged_names(to, &groups)?;
        let mut linked = HashMap::new();
        for (label, group) in &groups {
            let intact_name = self.intact_name(unchanged.remove(label).unwrap_or_default())?;
            self.link_names(intact_name.as_deref(), group)?;
            let first = intact_name.as_ref().unwrap_or(&group.names[0].0);
            if let Some(fingerprint) = self.fingerprint_of(first)? {
                self.labels.lock().push((fingerprint.inode, *label));
            }
            if intact_name.is_none() && group.names.len() > 1 {
                linked.extend(group.names.iter().map(|(path, modified)| (path.as_slice(), *modified)));
            }
        }
        self.refresh_records(&linked)
    }

    /// Links all names of a group to the unchanged `intact_name`, or else to its first name. Writes a separate file if
    /// linking fails.
    fn link_names(&self, intact_name: Option<&[u8]>, group: &LinkGroup) -> Result<()> {
        let Some(((written, _), other_names)) = group.names.split_first() else { return Ok(()) };
        let mut first = written.as_slice();
        if let Some(intact_name) = intact_name
            && self.with_parent(written, |fd, name| Ok(self.link(intact_name, fd, name).is_ok()))?
        {
            first = intact_name;
        }
        for (path, modified) in other_names {
            self.with_parent(path, |fd, name| match self.link(first, fd, name) {
                Ok(()) => Ok(()),
                // Some file systems do not support hard links, and the number of links to a file is limited.
                Err(_) => {
                    self.write_file_or_symlink(fd, path, name, &group.node, *modified, IfExists::Replace)
                }
            })?;
        }
        Ok(())
    }

    /// Opens the parent directory of `path` and calls `work` with it and the last component. Restores the mtime of the
    /// directory.
    fn with_parent<R>(&self, path: &[u8], work: impl FnOnce(&OwnedFd, &[u8]) -> Result<R>) -> Result<R> {
        let (parent, name) = split(path);
        let fd = self.access.open(parent, WRITE_ACCESS).context("open", &self.full_path(parent))?;
        let before = Timestamp(fingerprint(&fstat(&fd).context("stat", &self.full_path(parent))?).mtime);
        let done = work(&fd, name)?;
        futimens(&fd, &before.file_times()).context("set the times of", &self.full_path(parent))?;
        Ok(done)
    }

    /// Finds the unchanged names of all groups. They may be anywhere in the tree, even in unchanged directories, so
    /// this reads the whole tree. Returns none, without reading, if there are no groups or no unchanged entries.
    fn unchanged_names(&self, to: TreeIds, groups: &HashMap<u64, LinkGroup>) -> Result<UnchangedNames> {
        if groups.is_empty() || self.unchanged.load(Ordering::Relaxed) == 0 {
            return Ok(UnchangedNames::new());
        }
        let written = groups.values().flat_map(|group| &group.names).map(|(path, _)| path.as_slice());
        let search = LinkSearch { groups, written: written.collect() };
        let unchanged = Mutex::default();
        self.find_unchanged(b"", to, &search, &unchanged)?;
        Ok(std::mem::take(&mut *unchanged.lock()))
    }

    /// Finds the unchanged names at or below a directory.
    fn find_unchanged(
        &self,
        path: &[u8],
        directory: TreeIds,
        search: &LinkSearch<'_>,
        unchanged: &Mutex<UnchangedNames>,
    ) -> Result<()> {
        let listing = Listing::of(self.store, Some(directory))?;
        let mut subdirectories = Vec::new();
        for raw in listing.iter() {
            match (EntryTime::decode(raw.time), NodeRef::decode(raw.node_ref)) {
                (Ok(EntryTime::Directory(times)), Ok(NodeRef::Directory(node))) => {
                    subdirectories.push((join(path, raw.name), (node, times)));
                }
                (Ok(EntryTime::Modified { link_label: Some(label), .. }), Ok(_)) => {
                    self.add_unchanged(path, raw, label, search, unchanged)?;
                }
                _ => {}
            }
        }
        each(&subdirectories, |(path, directory)| self.find_unchanged(path, *directory, search, unchanged))
            .map(drop)
    }

    /// Adds an entry to `unchanged` if it is an unchanged name of a group.
    fn add_unchanged(
        &self,
        path: &[u8],
        raw: ListedEntry<'_>,
        label: u64,
        search: &LinkSearch<'_>,
        unchanged: &Mutex<UnchangedNames>,
    ) -> Result<()> {
        let Some(group) = search.groups.get(&label) else { return Ok(()) };
        let entry_path = join(path, raw.name);
        if search.written.contains(entry_path.as_slice()) {
            return Ok(());
        }
        let entry = self.decode_entry(raw)?;
        if entry.node == group.node {
            unchanged.lock().entry(label).or_default().push((entry_path, entry));
        }
        Ok(())
    }

    /// Returns the first unchanged name whose file on disk equals its entry; `None` if all were changed locally. Other
    /// names must not be linked to a locally changed file.
    fn intact_name(&self, mut unchanged: Vec<(Vec<u8>, Entry)>) -> Result<Option<Vec<u8>>> {
        unchanged.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (path, entry) in unchanged {
            let (parent, name) = split(&path);
            let Ok(fd) = self.access.open(parent, READ_ACCESS) else { continue };
            let Some(stat) = self.stat(&fd, &path, name)? else { continue };
            let same_time = entry.modified.is_none_or(|modified| modified.0 == fingerprint(&stat).mtime);
            if same_time && self.is_on_disk(&fd, name, Some(&entry))? {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Makes `name` in the directory `fd` a hard link to the path `first`. Replaces an existing entry.
    fn link(&self, first: &[u8], fd: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let (parent, first_name) = split(first);
        let first_directory = self.access.open(parent, READ_ACCESS)?;
        let temporary = self.temporary_name();
        linkat(&first_directory, first_name, fd, temporary.as_slice(), AtFlags::empty())?;
        let renamed = renameat(fd, temporary.as_slice(), fd, name);
        // Renaming a file onto another of its hard links does nothing and leaves both names.
        match unlinkat(fd, temporary.as_slice(), AtFlags::empty()) {
            Err(Errno::NOENT) => renamed,
            other => renamed.and(other),
        }
    }

    /// Returns the fingerprint of the file at `path`; `None` if it cannot be found.
    fn fingerprint_of(&self, path: &[u8]) -> Result<Option<StatFingerprint>> {
        let (parent, name) = split(path);
        let Ok(fd) = self.access.open(parent, READ_ACCESS) else { return Ok(None) };
        Ok(self.stat(&fd, path, name)?.map(|stat| fingerprint(&stat)))
    }

    /// Updates the stat records of linked names and of their directories, because linking changed their fingerprints.
    /// `linked` has the modification time of each name in the tree.
    fn refresh_records(&self, linked: &HashMap<&[u8], Option<Timestamp>>) -> Result<()> {
        let parents: HashSet<&[u8]> = linked.keys().map(|path| split(path).0).collect();
        for (path, record) in self.records.lock().iter_mut() {
            let Some(record) = record.as_mut().filter(|_| parents.contains(path.as_slice())) else {
                continue;
            };
            let Ok(fd) = self.access.open(path, READ_ACCESS) else { continue };
            record.own_fingerprint = fingerprint(&fstat(&fd).context("stat", &self.full_path(path))?);
            for entry in &mut record.entries {
                let Some(modified) = linked.get(join(path, &entry.name).as_slice()) else { continue };
                let Some(stat) = self.stat(&fd, path, &entry.name)? else { continue };
                entry.fingerprint = fingerprint(&stat);
                // If the mtime differs, another process has written to the file.
                entry.reliable = modified.is_some_and(|modified| modified.0 == entry.fingerprint.mtime);
            }
        }
        Ok(())
    }

    /// Updates the stat records of directories whose mode was restored.
    fn update_restored(&self, restored: &HashMap<Vec<u8>, StatFingerprint>) {
        for (path, record) in self.records.lock().iter_mut() {
            if let (Some(record), Some(own_fingerprint)) = (record, restored.get(path)) {
                record.own_fingerprint = *own_fingerprint;
            }
        }
    }
}

/// Splits a path into its parent and its last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}
