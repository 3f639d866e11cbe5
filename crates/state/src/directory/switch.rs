//! Changing a directory from one tree to another, touching only what differs.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RawDir, Timespec, Timestamps, fchmod, fstat, ftruncate,
    futimens, linkat, mkdirat, openat, readlinkat, renameat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::chunker::{BLOCK, is_zero};
use crate::failpoint;
use crate::node::{Extent, FileNode, NodeKind, NodeRef};
use crate::page::EntryTime;
use crate::progress::Progress;
use crate::snapshot::Timestamp;
use crate::store::Store;
use crate::tree::{DEPTH_MAX, DirectoryNode, Entry, Node, join};

use super::attributes;
use super::checkout::{CheckoutOptions, CheckoutReport, Ids};
use super::error::{Context, DirectoryError, Result};
use super::path::{open_as_owner, open_directory, open_file_as_owner, relative, shown};
use super::read::{is_settled, looks, now};
use super::stat_index::{Looks, StatEntry, StatRecord};
use super::state::Known;

const SET_ID: u16 = 0o6000;
/// What is needed to look into a directory, and to change it.
const READ: Access = Access::READ_OK.union(Access::EXEC_OK);
const WRITE: Access = READ.union(Access::WRITE_OK);
/// How files that are being written begin, where the filesystem cannot keep them nameless.
const TEMPORARY: &[u8] = b".workspace-new-";

/// An entry as the tree has it, not decoded: most are only compared.
struct Raw {
    reference: Vec<u8>,
    time: Vec<u8>,
}

pub(super) struct Switch<'a> {
    store: &'a Store,
    known: &'a Known<'a>,
    root: &'a OwnedFd,
    options: &'a CheckoutOptions,
    progress: &'a dyn Progress,
    edits: Mutex<Vec<PathBuf>>,
    records: Mutex<Vec<(Vec<u8>, Option<StatRecord>)>>,
    /// Where the first name of each linked file was put, and names that wait for it.
    links: Mutex<HashMap<u64, (Vec<u8>, FileNode)>>,
    linked: Mutex<Vec<(u64, Vec<u8>, Entry)>>,
    temporary: AtomicU64,
    written: AtomicU64,
    removed: AtomicU64,
    unchanged: AtomicU64,
    bytes: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Switch<'a> {
    pub(super) fn new(
        store: &'a Store,
        known: &'a Known<'a>,
        root: &'a OwnedFd,
        options: &'a CheckoutOptions,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            store,
            known,
            root,
            options,
            progress,
            edits: Mutex::default(),
            records: Mutex::default(),
            links: Mutex::default(),
            linked: Mutex::default(),
            temporary: AtomicU64::new(0),
            written: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Finds local changes that the switch would undo. Touches nothing.
    pub(super) fn check(&self, from: Option<Ids>, to: Ids) -> Result<()> {
        self.check_directory(b"", 0, from, Some(to))?;
        let mut paths = std::mem::take(&mut *locked(&self.edits));
        if paths.is_empty() {
            return Ok(());
        }
        paths.sort();
        Err(DirectoryError::LocalEdits { directory: self.known.path.clone(), paths })
    }

    fn check_directory(&self, path: &[u8], depth: usize, from: Option<Ids>, to: Option<Ids>) -> Result<()> {
        self.limit(path, depth)?;
        if from == to {
            return Ok(());
        }
        let (fd, lent) = match open_as_owner(self.root, path, READ) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                locked(&self.edits).push(relative(path).to_owned());
                return Ok(());
            }
            Err(error) => return Err(error).on("open", &self.shown(path)),
        };
        let checked = self.check_entries(&fd, path, depth, from, to);
        self.give_back(&fd, path, lent)?;
        checked
    }

    fn check_entries(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        depth: usize,
        from: Option<Ids>,
        to: Option<Ids>,
    ) -> Result<()> {
        let old = self.raw(from)?;
        let new = self.raw(to)?;
        let record = self.known.record(path)?;
        for (name, (before, after)) in pairs(&old, &new) {
            if same(before, after) {
                continue;
            }
            self.check_entry(fd, path, depth, name, before, after, record.as_ref())?;
        }
        // A directory that goes away takes nothing along that the tree does not know: see `remove`.
        Ok(())
    }

    /// Puts back the mode of a directory that was opened by its owner against it.
    fn give_back(&self, fd: &OwnedFd, path: &[u8], lent: Option<Mode>) -> Result<()> {
        lent.map_or(Ok(()), |mode| fchmod(fd, mode)).on("change", &self.shown(path))
    }

    #[expect(clippy::too_many_arguments, reason = "what is known about one name, used once")]
    fn check_entry(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        depth: usize,
        name: &[u8],
        before: Option<&Raw>,
        after: Option<&Raw>,
        record: Option<&StatRecord>,
    ) -> Result<()> {
        let here = join(path, name);
        let old = before.map(|raw| self.entry(name, raw)).transpose()?;
        let new = after.map(|raw| self.entry(name, raw)).transpose()?;
        let directory = |entry: &Option<Entry>| match entry.as_ref().map(|entry| &entry.node) {
            Some(Node::Directory(node)) => Some(node.clone()),
            _ => None,
        };
        let (old_directory, new_directory) = (directory(&old), directory(&new));
        let stat = match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Gone already: what was to be removed is, what was to be there will be written.
            Err(Errno::NOENT) => return Ok(()),
            other => other.on("stat", &self.shown(&here))?,
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_directory && (old_directory.is_some() || new_directory.is_some()) {
            if new.is_some() && new_directory.is_none() && self.has_unknown(&here, old_directory.as_ref())? {
                locked(&self.edits).push(relative(&here).to_owned());
            }
            return self.check_directory(
                &here,
                depth + 1,
                ids(old_directory.as_ref()),
                ids(new_directory.as_ref()),
            );
        }
        let trusted = record
            .and_then(|record| record.find(name))
            .is_some_and(|known| known.trusted && known.looks == looks(&stat) && before.is_some());
        if trusted || self.is_on_disk(fd, name, old.as_ref())? || self.is_on_disk(fd, name, new.as_ref())? {
            return Ok(());
        }
        locked(&self.edits).push(relative(&here).to_owned());
        Ok(())
    }

    /// Whether the directory on disk holds something its tree does not.
    fn has_unknown(&self, path: &[u8], tree: Option<&DirectoryNode>) -> Result<bool> {
        let (fd, lent) = open_as_owner(self.root, path, READ).on("open", &self.shown(path))?;
        let known = self.raw(ids(tree))?;
        let names = self.names(&fd, path);
        self.give_back(&fd, path, lent)?;
        Ok(names?.iter().any(|name| !known.contains_key(name)))
    }

    /// Whether what is on disk is what the tree says, times aside.
    fn is_on_disk(&self, fd: &OwnedFd, name: &[u8], entry: Option<&Entry>) -> Result<bool> {
        let at = || self.known.path.join(relative(name));
        match entry.map(|entry| &entry.node) {
            None | Some(Node::Directory(_)) => Ok(false),
            Some(Node::Symlink(link)) => match readlinkat(fd, name, Vec::new()) {
                Ok(target) => Ok(target.as_bytes() == link.target),
                Err(Errno::INVAL | Errno::NOENT) => Ok(false),
                Err(error) => Err(error).on("read", &at()),
            },
            Some(Node::File(node)) => {
                let file = match open_file_as_owner(fd, name) {
                    Ok(file) => file,
                    Err(Errno::LOOP | Errno::NOENT | Errno::NXIO) => return Ok(false),
                    Err(error) => return Err(error).on("open", &at()),
                };
                let stat = fstat(&file).on("stat", &at())?;
                let keep = if self.options.keep_set_id { 0o7777 } else { 0o7777 & !SET_ID };
                let fits = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                    && stat.st_size as u64 == node.size()
                    && (stat.st_mode as u16) & keep == node.mode & keep;
                if !fits || attributes::read(&file).on("read", &at())? != node.xattrs {
                    return Ok(false);
                }
                self.same_content(&File::from(file), node)
            }
        }
    }

    fn same_content(&self, file: &File, node: &FileNode) -> Result<bool> {
        let mut at = 0;
        for extent in &node.extents {
            let end = at + extent.len();
            while at < end {
                let mut buffer = vec![0; (end - at).min(1 << 20) as usize];
                if file.read_exact_at(&mut buffer, at).is_err() {
                    return Ok(false);
                }
                let same = match extent {
                    Extent::Hole { .. } => is_zero(&buffer),
                    // Chunks are smaller than the buffer.
                    Extent::Data { chunk, .. } => crate::id::ChunkId::of(&buffer) == *chunk,
                };
                if !same {
                    return Ok(false);
                }
                at += buffer.len() as u64;
            }
        }
        Ok(true)
    }

    /// Makes the directory hold `to`.
    pub(super) fn apply(&self, from: Option<Ids>, to: Ids) -> Result<()> {
        let (node, modified) = self.store.directory(to.0, Some(to.1))?;
        self.apply_directory(b"", 0, from, &node, modified)?;
        self.place_links()
    }

    fn apply_directory(
        &self,
        path: &[u8],
        depth: usize,
        from: Option<Ids>,
        to: &DirectoryNode,
        modified: Option<Timestamp>,
    ) -> Result<()> {
        self.limit(path, depth)?;
        let (fd, _) = open_as_owner(self.root, path, WRITE).on("open", &self.shown(path))?;
        let to_ids = ids(Some(to));
        let old = self.raw(from)?;
        let new = self.raw(to_ids)?;
        let record = self.known.record(path)?;
        let mode = fstat(&fd).on("stat", &self.shown(path))?.st_mode as u16 & 0o7777;
        if mode & 0o700 != 0o700 {
            fchmod(&fd, Mode::from_raw_mode(u32::from(mode | 0o700))).on("change", &self.shown(path))?;
        }
        self.remove_leftovers(&fd, path, &old, &new)?;
        let pairs: Vec<Pair<'_>> = pairs(&old, &new).collect();
        let entries: Vec<Option<StatEntry>> = self.each(&pairs, |(name, (before, after))| {
            self.apply_entry(&fd, path, depth, name, *before, *after, record.as_ref())
        })?;
        self.settle_directory(&fd, path, to, modified)?;
        let own = looks(&fstat(&fd).on("stat", &self.shown(path))?);
        let entries = entries.into_iter().flatten().collect();
        let record =
            StatRecord { node: to.id, times: to.times.unwrap_or(to.id), own, own_trusted: true, entries };
        locked(&self.records).push((path.to_vec(), Some(record)));
        Ok(())
    }

    /// In parallel where there is enough to do.
    fn each<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<R> + Sync + Send,
    ) -> Result<Vec<R>> {
        if items.len() > 1 { items.par_iter().map(work).collect() } else { items.iter().map(work).collect() }
    }

    fn settle_directory(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        to: &DirectoryNode,
        modified: Option<Timestamp>,
    ) -> Result<()> {
        attributes::write(fd, &to.xattrs, false).on("set the attributes of", &self.shown(path))?;
        fchmod(fd, self.mode(to.mode)).on("change", &self.shown(path))?;
        if let Some(modified) = modified {
            futimens(fd, &times(modified)).on("set the times of", &self.shown(path))?;
        }
        Ok(())
    }

    fn mode(&self, mode: u16) -> Mode {
        let mode = if self.options.keep_set_id { mode } else { mode & !SET_ID };
        Mode::from_raw_mode(u32::from(mode))
    }

    /// Brings one name to where it should be; what the stat index says about it then.
    #[expect(clippy::too_many_arguments, reason = "what is known about one name, used once")]
    fn apply_entry(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        depth: usize,
        name: &[u8],
        before: Option<&Raw>,
        after: Option<&Raw>,
        record: Option<&StatRecord>,
    ) -> Result<Option<StatEntry>> {
        let known = record.and_then(|record| record.find(name)).cloned();
        if same(before, after) {
            let intact = !self.options.force || self.looks_intact(fd, name, known.as_ref());
            let is_directory = known.as_ref().is_some_and(|known| known.looks.is_directory());
            if intact && (known.is_some() || !self.options.force) && !(self.options.force && is_directory) {
                self.unchanged.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(match known {
                    Some(known) => known,
                    None => self.unknown_entry(name, after)?,
                }));
            }
        }
        self.progress.advance(1);
        let old = before.map(|raw| self.entry(name, raw)).transpose()?;
        let Some(after) = after else {
            self.remove(fd, &join(path, name), name, old.as_ref())?;
            return Ok(None);
        };
        let new = self.entry(name, after)?;
        let here = join(path, name);
        let stat = match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error).on("stat", &self.shown(&here)),
        };
        match &new.node {
            Node::Directory(node) => self.apply_subdirectory(
                fd,
                &here,
                depth,
                name,
                old.as_ref(),
                node,
                new.modified,
                stat.as_ref(),
            ),
            _ => self.apply_leaf(fd, &here, name, old.as_ref(), &new, stat.as_ref()).map(Some),
        }
    }

    /// An entry that stays and of which the stat index knows nothing: to be looked at next time.
    fn unknown_entry(&self, name: &[u8], raw: Option<&Raw>) -> Result<StatEntry> {
        let looks = match raw.map(|raw| (NodeRef::decode(&raw.reference), EntryTime::decode(&raw.time))) {
            Some((Ok(NodeRef::Directory(node)), Ok(EntryTime::Directory(times)))) => {
                Looks::of_directory(FileType::Directory.as_raw_mode(), node, times)
            }
            _ => Looks::default(),
        };
        Ok(StatEntry { name: name.to_vec(), looks, trusted: false })
    }

    fn looks_intact(&self, fd: &OwnedFd, name: &[u8], known: Option<&StatEntry>) -> bool {
        known.is_some_and(|known| {
            known.trusted
                && statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| looks(&stat) == known.looks)
        })
    }

    #[expect(clippy::too_many_arguments, reason = "what is known about one name, used once")]
    fn apply_subdirectory(
        &self,
        fd: &OwnedFd,
        here: &[u8],
        depth: usize,
        name: &[u8],
        old: Option<&Entry>,
        node: &DirectoryNode,
        modified: Option<Timestamp>,
        stat: Option<&rustix::fs::Stat>,
    ) -> Result<Option<StatEntry>> {
        let is_directory =
            stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        if stat.is_some() && !is_directory {
            unlinkat(fd, name, AtFlags::empty()).on("remove", &self.shown(here))?;
        }
        if !is_directory {
            match mkdirat(fd, name, Mode::RWXU) {
                Err(Errno::EXIST) => return Err(self.collision(here)),
                other => other.on("create", &self.shown(here))?,
            }
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        let old = match old.map(|old| &old.node) {
            Some(Node::Directory(old)) if is_directory => ids(Some(old)),
            _ => None,
        };
        self.apply_directory(here, depth + 1, old, node, modified)?;
        let mode = FileType::Directory.as_raw_mode() | self.mode(node.mode).as_raw_mode();
        let looks = Looks::of_directory(mode, node.id, node.times.unwrap_or(node.id));
        Ok(Some(StatEntry { name: name.to_vec(), looks, trusted: true }))
    }

    /// A file or symlink.
    fn apply_leaf(
        &self,
        fd: &OwnedFd,
        here: &[u8],
        name: &[u8],
        old: Option<&Entry>,
        new: &Entry,
        stat: Option<&rustix::fs::Stat>,
    ) -> Result<StatEntry> {
        let mut replace = stat.is_some();
        if stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
            self.remove(fd, here, name, old)?;
            replace = false;
        } else if replace && self.only_attributes(old, new) && self.is_on_disk_content(fd, name, new)? {
            self.set_attributes(fd, here, name, new)?;
            self.unchanged.fetch_add(1, Ordering::Relaxed);
            return self.stat_entry(fd, here, name);
        }
        self.written.fetch_add(1, Ordering::Relaxed);
        if let (Some(link), Node::File(node)) = (new.link, &new.node) {
            // Whoever comes first writes the file; the others become names of it at the end, if they are
            // the same file at all.
            if is_further_name(&mut locked(&self.links), link, here, node) {
                locked(&self.linked).push((link, here.to_vec(), new.clone()));
                return Ok(StatEntry { name: name.to_vec(), looks: Looks::default(), trusted: false });
            }
        }
        match &new.node {
            Node::Symlink(link) => self.place_symlink(fd, here, name, &link.target, new.modified, replace)?,
            Node::File(node) => self.place_file(fd, here, name, node, new.modified, replace)?,
            Node::Directory(_) => unreachable!("directories are made elsewhere"),
        }
        self.stat_entry(fd, here, name)
    }

    fn only_attributes(&self, old: Option<&Entry>, new: &Entry) -> bool {
        match (old.map(|old| (&old.node, old.link)), &new.node) {
            (Some((Node::File(old), link)), Node::File(file)) => {
                old.same_content(file) && link == new.link && link.is_none()
            }
            (Some((Node::Symlink(old), _)), Node::Symlink(link)) => old.target == link.target,
            _ => false,
        }
    }

    /// With force, content may have been changed behind equal trees.
    fn is_on_disk_content(&self, fd: &OwnedFd, name: &[u8], new: &Entry) -> Result<bool> {
        if !self.options.force {
            return Ok(true);
        }
        self.is_on_disk(fd, name, Some(new))
    }

    fn set_attributes(&self, fd: &OwnedFd, here: &[u8], name: &[u8], new: &Entry) -> Result<()> {
        if let Node::File(node) = &new.node {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = match openat(fd, name, flags, Mode::empty()) {
                Ok(file) => file,
                // Not even readable to us: the owner may still change its mode by replacing it.
                Err(Errno::ACCESS) => return self.place_file(fd, here, name, node, new.modified, true),
                Err(error) => return Err(error).on("open", &self.shown(here)),
            };
            attributes::write(&file, &node.xattrs, false).on("set the attributes of", &self.shown(here))?;
            fchmod(&file, self.mode(node.mode)).on("change", &self.shown(here))?;
        }
        if let Some(modified) = new.modified {
            utimensat(fd, name, &times(modified), AtFlags::SYMLINK_NOFOLLOW)
                .on("set the times of", &self.shown(here))?;
        }
        Ok(())
    }

    fn stat_entry(&self, fd: &OwnedFd, here: &[u8], name: &[u8]) -> Result<StatEntry> {
        let stat = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).on("stat", &self.shown(here))?;
        Ok(StatEntry { name: name.to_vec(), looks: looks(&stat), trusted: true })
    }

    fn place_symlink(
        &self,
        fd: &OwnedFd,
        here: &[u8],
        name: &[u8],
        target: &[u8],
        modified: Option<Timestamp>,
        replace: bool,
    ) -> Result<()> {
        let temporary = self.temporary_name();
        let first: &[u8] = if replace { &temporary } else { name };
        match symlinkat(target, fd, first) {
            Err(Errno::EXIST) => return Err(self.collision(here)),
            other => other.on("create", &self.shown(here))?,
        }
        if let Some(modified) = modified {
            utimensat(fd, first, &times(modified), AtFlags::SYMLINK_NOFOLLOW)
                .on("set the times of", &self.shown(here))?;
        }
        if replace {
            renameat(fd, first, fd, name).on("replace", &self.shown(here))?;
        }
        Ok(())
    }

    /// Writes a file that has no name until it is whole.
    fn place_file(
        &self,
        fd: &OwnedFd,
        here: &[u8],
        name: &[u8],
        node: &FileNode,
        modified: Option<Timestamp>,
        replace: bool,
    ) -> Result<()> {
        let temporary = self.temporary_name();
        let mode = Mode::RUSR | Mode::WUSR;
        let nameless = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let (file, mut named) = match openat(fd, ".", nameless, mode) {
            Ok(file) => (file, false),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = openat(fd, temporary.as_slice(), flags, mode).on("create", &self.shown(here))?;
                (file, true)
            }
            Err(error) => return Err(error).on("create a file beside", &self.shown(here)),
        };
        let file = File::from(file);
        let placed = self.fill(&file, here, node, modified).and_then(|()| {
            failpoint::hit("checkout-file").on("write", &self.shown(here))?;
            if !named {
                let to: &[u8] = if replace { &temporary } else { name };
                match link_nameless(&file, fd, to) {
                    Err(Errno::EXIST) if !replace => return Err(self.collision(here)),
                    other => other.on("name", &self.shown(here))?,
                }
                named = replace;
            }
            if named {
                renameat(fd, temporary.as_slice(), fd, name).on("replace", &self.shown(here))?;
                named = false;
            }
            Ok(())
        });
        if placed.is_err() && named {
            // The error that is on its way says more than a failure to clean up would.
            unlinkat(fd, temporary.as_slice(), AtFlags::empty()).unwrap_or(());
        }
        placed
    }

    fn fill(&self, file: &File, here: &[u8], node: &FileNode, modified: Option<Timestamp>) -> Result<()> {
        let at_path = || self.shown(here);
        let mut at = 0;
        for extent in &node.extents {
            if let Extent::Data { chunk, len } = extent {
                let content = self.store.read_chunk(chunk)?;
                if content.len() as u64 != *len {
                    return Err(crate::error::StoreError::MissingChunk(*chunk).into());
                }
                write_sparsely(file, &content, at).on("write", &at_path())?;
            }
            at += extent.len();
        }
        let ends_in_hole = matches!(node.extents.last(), Some(Extent::Hole { .. }));
        if ends_in_hole || node.extents.len() == 1 {
            ftruncate(file, at).on("write", &at_path())?;
        }
        self.bytes.fetch_add(at, Ordering::Relaxed);
        attributes::write(file, &node.xattrs, true).on("set the attributes of", &at_path())?;
        fchmod(file, self.mode(node.mode)).on("change", &at_path())?;
        if let Some(modified) = modified {
            futimens(file, &times(modified)).on("set the times of", &at_path())?;
        }
        Ok(())
    }

    /// Further names of linked files, once the first is there.
    fn place_links(&self) -> Result<()> {
        let linked = std::mem::take(&mut *locked(&self.linked));
        for (label, path, entry) in linked {
            let first = locked(&self.links).get(&label).map(|(path, _)| path.clone());
            let (parent, name) = split(&path);
            let (fd, lent) = open_as_owner(self.root, parent, WRITE).on("open", &self.shown(parent))?;
            let modified = Timestamp(looks(&fstat(&fd).on("stat", &self.shown(parent))?).mtime);
            let done = match &first {
                Some(first) => self.link(first, &fd, name),
                None => Err(Errno::NOENT),
            };
            if done.is_err()
                && let Node::File(node) = &entry.node
            {
                self.place_file(&fd, &path, name, node, entry.modified, true)?;
            }
            futimens(&fd, &times(modified)).on("set the times of", &self.shown(parent))?;
            self.give_back(&fd, parent, lent)?;
        }
        Ok(())
    }

    fn link(&self, first: &[u8], fd: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let (parent, first_name) = split(first);
        let from = open_directory(self.root, parent)?;
        let temporary = self.temporary_name();
        linkat(&from, first_name, fd, temporary.as_slice(), AtFlags::empty())?;
        renameat(fd, temporary.as_slice(), fd, name)?;
        // Renaming one name of a file onto another does nothing, and leaves both.
        match unlinkat(fd, temporary.as_slice(), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    /// Removes what the old tree has at a name. What it does not know stays, and so do the directories
    /// around it, unless forced and in the way.
    fn remove(&self, fd: &OwnedFd, here: &[u8], name: &[u8], old: Option<&Entry>) -> Result<()> {
        let stat = match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error).on("stat", &self.shown(here)),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            unlinkat(fd, name, AtFlags::empty()).on("remove", &self.shown(here))?;
            self.removed.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let (below, _) = open_as_owner(fd, name, WRITE).on("open", &self.shown(here))?;
        if stat.st_mode & 0o700 != 0o700 {
            fchmod(&below, Mode::RWXU).on("change", &self.shown(here))?;
        }
        let tree = match old.map(|old| &old.node) {
            Some(Node::Directory(node)) => self.raw(ids(Some(node)))?,
            _ => BTreeMap::new(),
        };
        for child in self.names(&below, here)? {
            let old = tree.get(&child).map(|raw| self.entry(&child, raw)).transpose()?;
            if old.is_some() || self.options.force {
                self.remove(&below, &join(here, &child), &child, old.as_ref())?;
            }
        }
        locked(&self.records).push((here.to_vec(), None));
        match unlinkat(fd, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.removed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(error).on("remove", &self.shown(here)),
        }
    }

    /// Files that an interrupted checkout was writing. One that a tree knows is a file like any other.
    fn remove_leftovers(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        old: &BTreeMap<Vec<u8>, Raw>,
        new: &BTreeMap<Vec<u8>, Raw>,
    ) -> Result<()> {
        for name in self.names(fd, path)? {
            if name.starts_with(TEMPORARY) && !old.contains_key(&name) && !new.contains_key(&name) {
                unlinkat(fd, name.as_slice(), AtFlags::empty())
                    .on("remove", &self.shown(&join(path, &name)))?;
            }
        }
        Ok(())
    }

    fn names(&self, fd: &OwnedFd, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let listing = open_directory(fd, b"").on("open", &self.shown(path))?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(&listing, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.on("list", &self.shown(path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    /// Writes down what is known about the files now, and what was done.
    pub(super) fn finish(&self, report: &mut CheckoutReport) -> Result<()> {
        let mut records = std::mem::take(&mut *locked(&self.records));
        // What was written in the last tick of the clock could be changed without that showing.
        let now = now();
        for (_, record) in &mut records {
            if let Some(record) = record {
                record.own_trusted = record.own_trusted && is_settled(&record.own, now);
                for entry in &mut record.entries {
                    entry.trusted =
                        entry.trusted && (entry.looks.is_directory() || is_settled(&entry.looks, now));
                }
            }
        }
        // A directory may have been removed and made again as something else: the last word counts.
        let mut last: BTreeMap<Vec<u8>, Option<StatRecord>> = BTreeMap::new();
        for (path, record) in records {
            last.insert(path, record);
        }
        self.known.update(&last.into_iter().collect::<Vec<_>>())?;
        report.written += self.written.load(Ordering::Relaxed);
        report.removed += self.removed.load(Ordering::Relaxed);
        report.unchanged += self.unchanged.load(Ordering::Relaxed);
        report.bytes += self.bytes.load(Ordering::Relaxed);
        Ok(())
    }

    fn raw(&self, directory: Option<Ids>) -> Result<BTreeMap<Vec<u8>, Raw>> {
        let mut entries = BTreeMap::new();
        if let Some((node, times)) = directory {
            self.store.for_each_leaf(node, Some(times), &mut |page, times| {
                for at in 0..page.len() {
                    let time =
                        times.map_or_else(|| EntryTime::Unknown.encode(), |times| times.body(at).to_vec());
                    entries.insert(page.name(at).to_vec(), Raw { reference: page.body(at).to_vec(), time });
                }
                Ok(())
            })?;
        }
        Ok(entries)
    }

    fn entry(&self, name: &[u8], raw: &Raw) -> Result<Entry> {
        let wrong = |source| crate::error::StoreError::Undecodable {
            what: "an entry of a directory".to_owned(),
            source,
        };
        let reference = NodeRef::decode(&raw.reference).map_err(wrong)?;
        let time = EntryTime::decode(&raw.time).map_err(wrong)?;
        let mut entry = self.store.entry_of(name, reference, time)?;
        if let Node::Directory(node) = &mut entry.node {
            // A tree without times is switched to all the same; the node stands in for them.
            node.times = node.times.or(match time {
                EntryTime::Directory(times) => Some(times),
                _ => None,
            });
        }
        debug_assert!(entry.node.kind() != NodeKind::Directory || entry.link.is_none());
        Ok(entry)
    }

    fn temporary_name(&self) -> Vec<u8> {
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        let mut name = TEMPORARY.to_vec();
        name.extend_from_slice(format!("{}-{number}", std::process::id()).as_bytes());
        name
    }

    fn limit(&self, path: &[u8], depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(DirectoryError::TooDeep { path: self.shown(path) });
        }
        Ok(())
    }

    fn collision(&self, path: &[u8]) -> DirectoryError {
        DirectoryError::Collision { directory: self.known.path.clone(), path: relative(path).to_owned() }
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        shown(&self.known.path, path)
    }
}

/// A name, and what the old and the new tree have there.
type Pair<'m> = (&'m [u8], (Option<&'m Raw>, Option<&'m Raw>));

/// Names of both listings in order, with what each has.
fn pairs<'m>(
    old: &'m BTreeMap<Vec<u8>, Raw>,
    new: &'m BTreeMap<Vec<u8>, Raw>,
) -> impl Iterator<Item = Pair<'m>> {
    let gone = old.iter().filter(|(name, _)| !new.contains_key(*name));
    let gone = gone.map(|(name, raw)| (name.as_slice(), (Some(raw), None)));
    let there = new.iter().map(|(name, raw)| (name.as_slice(), (old.get(name), Some(raw))));
    // What goes makes room before what comes.
    gone.chain(there)
}

fn same(before: Option<&Raw>, after: Option<&Raw>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => before.reference == after.reference && before.time == after.time,
        _ => false,
    }
}

fn ids(directory: Option<&DirectoryNode>) -> Option<Ids> {
    directory.and_then(|node| node.times.map(|times| (node.id, times)))
}

/// Whether another name of this file was met before. The first is remembered.
fn is_further_name(
    links: &mut HashMap<u64, (Vec<u8>, FileNode)>,
    link: u64,
    path: &[u8],
    node: &FileNode,
) -> bool {
    match links.get(&link) {
        Some((_, first)) => first == node,
        None => {
            links.insert(link, (path.to_vec(), node.clone()));
            false
        }
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn times(modified: Timestamp) -> Timestamps {
    let time = Timespec {
        tv_sec: modified.0.div_euclid(1_000_000_000),
        tv_nsec: modified.0.rem_euclid(1_000_000_000) as _,
    };
    Timestamps { last_access: time, last_modification: time }
}

/// Gives a nameless file its name; fails if the name is taken.
fn link_nameless(file: &File, directory: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(rustix::fs::CWD, itself, directory, name, AtFlags::SYMLINK_FOLLOW)
}

/// Writes content without its blocks of zeros.
fn write_sparsely(file: &File, content: &[u8], offset: u64) -> std::io::Result<()> {
    if content.len() < BLOCK || !content.chunks(BLOCK).any(is_zero) {
        return file.write_all_at(content, offset);
    }
    let mut at = offset;
    let mut rest = content;
    while !rest.is_empty() {
        // Blocks are those of the file, not of the content.
        let len = (BLOCK - (at % BLOCK as u64) as usize).min(rest.len());
        let (block, tail) = rest.split_at(len);
        if !(len == BLOCK && is_zero(block)) {
            file.write_all_at(block, at)?;
        }
        at += len as u64;
        rest = tail;
    }
    Ok(())
}
