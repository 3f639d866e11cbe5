//! Hard links: created at the end, when the files they share exist.
//!
//! Names of one file have the same *link label* in the tree, here called its label.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, fstat, futimens, linkat, renameat, unlinkat};
use rustix::io::Errno;

use crate::directory::error::{Context, Result};
use crate::directory::parallel::each;
use crate::directory::path::{READ_ACCESS, WRITE_ACCESS};
use crate::directory::read::fingerprint;
use crate::directory::stat_index::StatFingerprint;
use crate::directory::tree_listing::{ListedEntry, Listing, TreeIds};
use crate::entry::{Entry, Node};
use crate::mutex::lock;
use crate::node::NodeRef;
use crate::page::EntryTime;
use crate::platform::IfExists;
use crate::snapshot::Timestamp;
use crate::tree_path::join;

use super::{LinkGroup, Switch};

/// Unchanged names by label.
type UnchangedNames = HashMap<u64, Vec<(Vec<u8>, Entry)>>;

/// Search for unchanged names of files that were written under another name.
struct LinkSearch<'g> {
    /// The written files, by label.
    groups: &'g HashMap<u64, LinkGroup>,
    /// Paths that were written.
    written: HashSet<&'g [u8]>,
}

impl Switch<'_> {
    /// Records a name of a hard-linked file. Returns true if an equal file with this label has another name
    /// already: the first name is written, others are linked later.
    pub(super) fn add_link_name(
        &self,
        label: u64,
        entry_path: &[u8],
        node: &Node,
        modified: Option<Timestamp>,
    ) -> bool {
        let mut links = lock(&self.links);
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

    /// Links the names of each file. Written names are linked to unchanged ones, if there are any.
    pub(super) fn write_links(&self, to: TreeIds) -> Result<()> {
        let linked = self.link_groups(to);
        // The directories already had their final modes. Where these deny access, linking has changed them
        // temporarily.
        let restored = self.access.restore();
        linked?;
        self.update_restored(&restored?.into_iter().collect());
        Ok(())
    }

    fn link_groups(&self, to: TreeIds) -> Result<()> {
        let groups = std::mem::take(&mut *lock(&self.links));
        let mut unchanged = self.unchanged_names(to, &groups)?;
        let mut linked = HashMap::new();
        for (label, group) in &groups {
            let intact_name = self.intact_name(unchanged.remove(label).unwrap_or_default())?;
            self.join_group(intact_name.as_deref(), group)?;
            let first = intact_name.as_ref().unwrap_or(&group.names[0].0);
            if let Some(fingerprint) = self.fingerprint_of(first)? {
                lock(&self.labels).push((fingerprint.inode, *label));
            }
            if intact_name.is_none() && group.names.len() > 1 {
                linked.extend(group.names.iter().map(|(path, modified)| (path.as_slice(), *modified)));
            }
        }
        self.refresh_records(&linked)
    }

    /// Links all names of a group to its first name, or to the unchanged `intact_name`.
    fn join_group(&self, intact_name: Option<&[u8]>, group: &LinkGroup) -> Result<()> {
        let Some(((written, _), waiting)) = group.names.split_first() else { return Ok(()) };
        let mut first = written.as_slice();
        if let Some(intact_name) = intact_name
            && self.with_parent(written, |fd, name| Ok(self.link(intact_name, fd, name).is_ok()))?
        {
            first = intact_name;
        }
        for (path, modified) in waiting {
            self.with_parent(path, |fd, name| match self.link(first, fd, name) {
                Ok(()) => Ok(()),
                // Not every file system supports hard links, and their number is limited.
                Err(_) => {
                    self.write_file_or_symlink(fd, path, name, &group.node, *modified, IfExists::Replace)
                }
            })?;
        }
        Ok(())
    }

    /// Runs `work` on a name in its directory without changing the directory's mtime.
    fn with_parent<R>(&self, path: &[u8], work: impl FnOnce(&OwnedFd, &[u8]) -> Result<R>) -> Result<R> {
        let (parent, name) = split(path);
        let fd = self.access.open(parent, WRITE_ACCESS).context("open", &self.full_path(parent))?;
        let before = Timestamp(fingerprint(&fstat(&fd).context("stat", &self.full_path(parent))?).mtime);
        let done = work(&fd, name)?;
        futimens(&fd, &before.file_times()).context("set the times of", &self.full_path(parent))?;
        Ok(done)
    }

    /// Finds names of the new tree that were not written although another name of the same file was. They may
    /// be anywhere, even in unchanged directories: this reads the whole tree, but only if needed.
    fn unchanged_names(&self, to: TreeIds, groups: &HashMap<u64, LinkGroup>) -> Result<UnchangedNames> {
        if groups.is_empty() || self.unchanged.load(Ordering::Relaxed) == 0 {
            return Ok(UnchangedNames::new());
        }
        let written = groups.values().flat_map(|group| &group.names).map(|(path, _)| path.as_slice());
        let search = LinkSearch { groups, written: written.collect() };
        let unchanged = Mutex::default();
        self.find_unchanged(b"", to, &search, &unchanged)?;
        Ok(std::mem::take(&mut *lock(&unchanged)))
    }

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
            lock(unchanged).entry(label).or_default().push((entry_path, entry));
        }
        Ok(())
    }

    /// Returns the first unchanged name that still equals the entry on disk: edited files are not linked.
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

    /// Makes `name` in the directory `fd` a hard link to `first`, replacing what is there.
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

    fn fingerprint_of(&self, path: &[u8]) -> Result<Option<StatFingerprint>> {
        let (parent, name) = split(path);
        let Ok(fd) = self.access.open(parent, READ_ACCESS) else { return Ok(None) };
        Ok(self.stat(&fd, path, name)?.map(|stat| fingerprint(&stat)))
    }

    /// Updates the stat records of linked names and of their directories: linking changed their fingerprints.
    fn refresh_records(&self, linked: &HashMap<&[u8], Option<Timestamp>>) -> Result<()> {
        let parents: HashSet<&[u8]> = linked.keys().map(|path| split(path).0).collect();
        for (path, record) in lock(&self.records).iter_mut() {
            let Some(record) = record.as_mut().filter(|_| parents.contains(path.as_slice())) else {
                continue;
            };
            let Ok(fd) = self.access.open(path, READ_ACCESS) else { continue };
            record.own_fingerprint = fingerprint(&fstat(&fd).context("stat", &self.full_path(path))?);
            for entry in &mut record.entries {
                let Some(modified) = linked.get(join(path, &entry.name).as_slice()) else { continue };
                let Some(stat) = self.stat(&fd, path, &entry.name)? else { continue };
                entry.fingerprint = fingerprint(&stat);
                // If the mtime differs, another process has written to it.
                entry.reliable = modified.is_some_and(|modified| modified.0 == entry.fingerprint.mtime);
            }
        }
        Ok(())
    }

    /// Updates the stat records of directories whose mode was restored.
    fn update_restored(&self, restored: &HashMap<Vec<u8>, StatFingerprint>) {
        for (path, record) in lock(&self.records).iter_mut() {
            if let (Some(record), Some(own_fingerprint)) = (record, restored.get(path)) {
                record.own_fingerprint = *own_fingerprint;
            }
        }
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}
