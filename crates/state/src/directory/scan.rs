//! Scan of a directory: reads its content into a batch (new objects that are not committed yet), for a snapshot or a
//! preview.
//!
//! The stat index has a *stat record* of each directory: the node of the directory at the last snapshot or checkout,
//! and a fingerprint (mode, size, times, inode) of each entry. Files with an unchanged fingerprint are not read.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use crate::batch::Batch;
use crate::error::StoreError;
use crate::id::NodeId;
use crate::limit::LimitExceeded;
use crate::node::{FileNode, MODE_BITS, NodeRef, SymlinkNode};
use crate::page::{DirectoryWriter, EntryTime, ListHeader, NodeSink};
use crate::platform::{RawDir, link_count};
use crate::progress::Progress;
use crate::snapshot::Timestamp;
use crate::store::Store;
use crate::tree_path::{DEPTH_MAX, join};
use crate::virtual_tree::{file_node_ref, symlink_node_ref};
use crate::walk_limits::WalkUsage;

use super::error::{Context, DirectoryError, Result};
use super::ignore_rules::{IGNORE_FILE, IgnoreRules};
use super::parallel::{each, each_with_open_directory};
use super::path::{full_path, os_path};
use super::read::{DirectoryReader, ReadError, ReadOutcome, errno, fingerprint, is_reliable, read_file};
use super::skipped::{SkipReason, SkippedCollector, SkippedEntry};
use super::snapshot_options::SnapshotOptions;
use super::stat_index::{StatEntry, StatFingerprint, StatRecord};
use super::temporary_files::is_leftover;
use super::tracked_directory::TrackedDirectory;

/// Returns the path of the store relative to the directory; `None` if the store is not inside. The store is never part
/// of a snapshot.
fn store_path_inside(store: &Store, directory: &std::path::Path) -> Option<Vec<u8>> {
    let inside = store.path().strip_prefix(directory).ok()?;
    Some(inside.as_os_str().as_bytes().to_vec())
}

/// Numbers of entries, and the total size of the files, for the report.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) files: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) symlinks: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Number of files whose content was read.
    pub(super) read: AtomicU64,
    /// Number of entries that an ignore file excludes. An ignored directory counts as one entry.
    pub(super) ignored: AtomicU64,
}

/// Walk over a directory that writes its content into a batch.
pub(super) struct Scan<'a> {
    store: &'a Store,
    batch: &'a Batch,
    reader: &'a dyn DirectoryReader,
    tracked: &'a TrackedDirectory<'a>,
    /// Open directory that is scanned.
    root: &'a OwnedFd,
    /// True if the stat index has usable records of the directory.
    use_stat_index: bool,
    /// True if `.workspaceignore` files are applied.
    use_ignore_files: bool,
    /// Path of the store, if it is inside the directory.
    store_path: Option<Vec<u8>>,
    /// Ids of unfinished checkouts, whose temporary files are not part of the snapshot.
    checkout_ids: Vec<String>,
    progress: &'a dyn Progress,
    pub(super) counts: Counts,
    /// Memory use, counted against the walk limits of the store's handle.
    usage: WalkUsage,
    skipped: Mutex<SkippedCollector>,
    /// New stat records by path of their directory; `None` for a directory that no longer exists.
    pub(super) changed: Mutex<Vec<(Vec<u8>, Option<StatRecord>)>>,
}

/// Ids of the nodes of a directory that was written into the batch.
#[derive(Clone, Copy)]
pub(super) struct WrittenDirectory {
    pub(super) node: NodeId,
    /// Node with the modification times of the directory and its entries.
    pub(super) times: NodeId,
}

/// Entry on disk that belongs in the snapshot.
struct ScannedEntry {
    name: Vec<u8>,
    fingerprint: StatFingerprint,
    kind: FileType,
    /// Number of hard links, inside and outside of the scanned directory.
    links: u64,
}

/// Entry of a directory node that is about to be written.
enum EntryUpdate {
    /// A file or symlink that is unchanged since the stat record.
    Unchanged,
    /// A file or symlink that was read.
    New {
        /// Encoded node reference.
        node_ref: Vec<u8>,
        /// Encoded [`EntryTime`].
        time: Vec<u8>,
        fingerprint: StatFingerprint,
        /// True if any later change is certain to change the fingerprint.
        reliable: bool,
    },
    Directory(WrittenDirectory),
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        tracked: &'a TrackedDirectory<'a>,
        root: &'a OwnedFd,
        batch: &'a Batch,
        options: &SnapshotOptions,
        reader: &'a dyn DirectoryReader,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        let store = tracked.store;
        let skipped = if options.all_special {
            SkippedCollector::naming_all_special()
        } else {
            SkippedCollector::default()
        };
        Ok(Self {
            store,
            batch,
            reader,
            tracked,
            root,
            use_stat_index: tracked.drop_stale_records()?,
            use_ignore_files: options.use_ignore_files,
            store_path: store_path_inside(store, &tracked.path),
            checkout_ids: tracked.unfinished_checkouts(root)?,
            progress,
            counts: Counts::default(),
            usage: WalkUsage::new(store.walk_limits()),
            skipped: Mutex::new(skipped),
            changed: Mutex::default(),
        })
    }

    /// Reads the directory and writes it into the batch.
    pub(super) fn run(&self) -> Result<WrittenDirectory> {
        self.progress.begin("reading entries", None);
        let written = crate::pool::run(|| self.scan_directory(b"", 0, &IgnoreRules::default(), None));
        self.progress.end();
        written?.ok_or_else(|| DirectoryError::Io {
            action: "open",
            path: self.tracked.path.clone(),
            source: Errno::NOENT.into(),
        })
    }

    /// Returns the skipped entries, sorted by path, and their number. Fails if user data was skipped and the options do
    /// not allow that.
    pub(super) fn skipped(&self, options: &SnapshotOptions) -> Result<(Vec<SkippedEntry>, u64)> {
        let skipped = std::mem::take(&mut *self.skipped.lock());
        if options.fail_if_incomplete { skipped.finish_if_complete() } else { Ok(skipped.finish()) }
    }
}

impl Scan<'_> {
    /// Reads a directory and everything below it; `None` if it no longer exists or must be skipped. `recorded` is its
    /// fingerprint in the stat record of its parent.
    fn scan_directory(
        &self,
        path: &[u8],
        depth: usize,
        ignores: &IgnoreRules,
        recorded: Option<StatFingerprint>,
    ) -> Result<Option<WrittenDirectory>> {
        if depth > DEPTH_MAX {
            return Err(DirectoryError::TooDeep { path: full_path(&self.tracked.path, path) });
        }
        self.check_cancelled()?;
        let opened = self.reader.open_directory(self.root.as_fd(), path);
        let fd = match opened.map_err(|error| errno(&error)) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if depth > 0 => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) if depth > 0 => {
                self.skip(path, SkipReason::NoPermission)?;
                return Ok(None);
            }
            Err(error) => return Err(error).context("open", &full_path(&self.tracked.path, path)),
        };
        let stat = fstat(&fd).context("stat", &full_path(&self.tracked.path, path))?;
        let xattrs = self.reader.xattrs(fd.as_fd());
        let xattrs = xattrs.context("read the attributes of", &full_path(&self.tracked.path, path))?;
        let own_fingerprint = fingerprint(&stat);
        let header = ListHeader::Directory { mode: (stat.st_mode as u16) & MODE_BITS, xattrs };
        let (scanned, ignores) = self.list(&fd, path, ignores)?;
        let old = if self.use_stat_index { self.usable_record(path, recorded)? } else { None };
        let mut updates = self.scan_files(&fd, path, &scanned, old.as_ref())?;
        drop(fd);
        self.scan_subdirectories(path, depth, &ignores, &scanned, old.as_ref(), &mut updates)?;
        self.forget_vanished(path, old.as_ref(), &scanned)?;
        self.write_directory(path, old.as_ref(), scanned, updates, &header, own_fingerprint).map(Some)
    }

    /// Fails if the store's handle is cancelled. Reads of the store check this too, but unchanged entries are not read
    /// from the store.
    fn check_cancelled(&self) -> Result<()> {
        Ok(self.store.cancel_flag().check().map_err(StoreError::from)?)
    }

    /// Returns the stat record of a directory; `None` if there is no usable one. `recorded` is the fingerprint of the
    /// directory in the record of its parent. If it does not match, the two records come from different operations, and
    /// garbage collection may have deleted the objects of this record.
    fn usable_record(&self, path: &[u8], recorded: Option<StatFingerprint>) -> Result<Option<StatRecord>> {
        let record = self.tracked.stat_record(path)?;
        Ok(record.filter(|record| {
            let fits = |recorded: StatFingerprint| {
                recorded
                    == StatFingerprint::of_directory_content(recorded.mode, record.node, record.times_node)
            };
            path.is_empty() || recorded.is_some_and(fits)
        }))
    }

    /// Returns the entries of a directory that belong in the snapshot, sorted by name, and the ignore rules that apply
    /// to them. `ignores` are the rules of the parent.
    fn list(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        ignores: &IgnoreRules,
    ) -> Result<(Vec<ScannedEntry>, IgnoreRules)> {
        let directory_path = || full_path(&self.tracked.path, path);
        // Each entry counts against the walk limits with its whole path, because later readers of the snapshot may keep
        // all paths in memory.
        let size = |name: &[u8]| path.len() + 1 + name.len();
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.context("list", &directory_path())?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && !is_leftover(name, &self.checkout_ids) {
                self.check_cancelled()?;
                self.usage.add(size(name)).map_err(|exceeded| self.too_large(exceeded))?;
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        let ignores = if self.use_ignore_files
            && names.binary_search_by(|name| name.as_slice().cmp(IGNORE_FILE)).is_ok()
        {
            match super::read::read_plain(fd, IGNORE_FILE)
                .context("read", &full_path(&self.tracked.path, &join(path, IGNORE_FILE)))?
            {
                Some(rules) => ignores.with(path, &rules),
                None => ignores.clone(),
            }
        } else {
            ignores.clone()
        };
        let mut scanned = Vec::with_capacity(names.len());
        for name in names {
            self.check_cancelled()?;
            let size = size(&name);
            match self.inspect(fd, path, name, &ignores)? {
                Some(found) => scanned.push(found),
                None => self.usage.remove(size),
            }
        }
        self.progress.advance(scanned.len() as u64);
        Ok((scanned, ignores))
    }

    /// Reads the status of an entry. Returns `None` if the entry does not belong in the snapshot.
    fn inspect(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        name: Vec<u8>,
        ignores: &IgnoreRules,
    ) -> Result<Option<ScannedEntry>> {
        let entry_path = || join(path, &name);
        let stat = match self.reader.stat(fd.as_fd(), &name).map_err(|error| errno(&error)) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => {
                self.skip(&entry_path(), SkipReason::NoPermission)?;
                return Ok(None);
            }
            Err(error) => return Err(error).context("stat", &full_path(&self.tracked.path, &entry_path())),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !ignores.is_empty() && ignores.is_ignored(&entry_path(), kind == FileType::Directory) {
            self.counts.ignored.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        if self.store_path.as_ref().is_some_and(|store| *store == entry_path()) {
            return Ok(None);
        }
        if let Some(reason) = skip_reason(kind) {
            self.skip(&entry_path(), reason)?;
            return Ok(None);
        }
        Ok(Some(ScannedEntry { name, fingerprint: fingerprint(&stat), kind, links: link_count(&stat) }))
    }

    /// Processes the files and symlinks of a directory, and reads changed ones. `old` is the stat record of the
    /// directory. Returns the updates in the order of `scanned`; `None` for directories and entries to leave out.
    fn scan_files(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        scanned: &[ScannedEntry],
        old: Option<&StatRecord>,
    ) -> Result<Vec<Option<EntryUpdate>>> {
        let process = |scanned: &ScannedEntry| -> Result<Option<EntryUpdate>> {
            if scanned.kind == FileType::Directory {
                return Ok(None);
            }
            let recorded = old.and_then(|old| old.find(&scanned.name));
            if recorded
                .is_some_and(|recorded| recorded.reliable && recorded.fingerprint == scanned.fingerprint)
            {
                self.count(scanned);
                return Ok(Some(EntryUpdate::Unchanged));
            }
            let update = if scanned.kind == FileType::Symlink {
                self.read_symlink(fd, path, scanned, old)?
            } else {
                self.read_changed_file(fd, path, scanned, old)?
            };
            if update.is_some() {
                self.count(scanned);
            }
            Ok(update)
        };
        // For unchanged files, parallel processing costs more than it saves.
        let changed = scanned.iter().filter(|scanned| {
            scanned.kind != FileType::Directory
                && old
                    .and_then(|old| old.find(&scanned.name))
                    .is_none_or(|recorded| recorded.fingerprint != scanned.fingerprint)
        });
        if changed.take(2).count() > 1 {
            each_with_open_directory(scanned, process)
        } else {
            scanned.iter().map(process).collect()
        }
    }

    /// Scans all subdirectories, and adds their updates.
    fn scan_subdirectories(
        &self,
        path: &[u8],
        depth: usize,
        ignores: &IgnoreRules,
        scanned: &[ScannedEntry],
        old: Option<&StatRecord>,
        updates: &mut [Option<EntryUpdate>],
    ) -> Result<()> {
        let is_directory = |index: &usize| scanned[*index].kind == FileType::Directory;
        let directories: Vec<usize> = (0..scanned.len()).filter(is_directory).collect();
        let written = each(&directories, |index| {
            let name = &scanned[*index].name;
            let recorded = old.and_then(|old| old.find(name)).map(|recorded| recorded.fingerprint);
            self.scan_directory(&join(path, name), depth + 1, ignores, recorded)
        })?;
        for (index, written) in directories.into_iter().zip(written) {
            self.counts.directories.fetch_add(u64::from(written.is_some()), Ordering::Relaxed);
            updates[index] = written.map(EntryUpdate::Directory);
        }
        Ok(())
    }

    /// Counts a file or symlink for the report.
    fn count(&self, scanned: &ScannedEntry) {
        if scanned.kind == FileType::Symlink {
            self.counts.symlinks.fetch_add(1, Ordering::Relaxed);
        } else {
            self.counts.files.fetch_add(1, Ordering::Relaxed);
            self.counts.bytes.fetch_add(scanned.fingerprint.size, Ordering::Relaxed);
        }
    }

    /// Reads a new or changed file into the batch; `None` if it no longer exists or must be skipped.
    fn read_changed_file(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        scanned: &ScannedEntry,
        old: Option<&StatRecord>,
    ) -> Result<Option<EntryUpdate>> {
        let file_path = || full_path(&self.tracked.path, &join(path, &scanned.name));
        self.counts.read.fetch_add(1, Ordering::Relaxed);
        let (node, fingerprint, links, reliable) = match read_file(self.batch, self.reader, fd, &scanned.name)
        {
            Ok(ReadOutcome::File { node, fingerprint, links, reliable }) => {
                (node, fingerprint, links, reliable)
            }
            Ok(ReadOutcome::Vanished) => return Ok(None),
            Ok(ReadOutcome::Changing) => {
                self.skip(&join(path, &scanned.name), SkipReason::Changing)?;
                return Ok(None);
            }
            Err(ReadError::System(Errno::ACCESS | Errno::PERM)) => {
                self.skip(&join(path, &scanned.name), SkipReason::NoPermission)?;
                return Ok(None);
            }
            Err(ReadError::System(error)) => return Err(error).context("read", &file_path()),
            Err(ReadError::Store(error)) => return Err(error.into()),
        };
        let link_label = self.label(scanned, fingerprint, links, old)?;
        self.file_update(&node, fingerprint, link_label, reliable).map(Some)
    }

    /// Returns the link label of a file or symlink: the number that all names of a hard-linked file share in a
    /// snapshot. `links` is the number of its names.
    fn label(
        &self,
        scanned: &ScannedEntry,
        fingerprint: StatFingerprint,
        links: u64,
        old: Option<&StatRecord>,
    ) -> Result<Option<u64>> {
        if links > 1 {
            Ok(Some(self.tracked.label_of(fingerprint.inode)?))
        } else {
            self.single_name_label(scanned, fingerprint, old)
        }
    }

    /// Returns the link label of a file with a single name, usually `None`. A checked-out file keeps the label that it
    /// has in the snapshot as long as its fingerprint does not change. In the snapshot, it may have had other names
    /// that were outside of the directory.
    fn single_name_label(
        &self,
        scanned: &ScannedEntry,
        fingerprint: StatFingerprint,
        old: Option<&StatRecord>,
    ) -> Result<Option<u64>> {
        let Some(record) = old else { return Ok(None) };
        if record.find(&scanned.name).is_none_or(|recorded| recorded.fingerprint != fingerprint) {
            return Ok(None);
        }
        let found = self.store.find_entry(record.node, Some(record.times_node), &scanned.name)?;
        let time = found.and_then(|(_, times, index)| EntryTime::decode(times?.body(index)).ok());
        Ok(match time {
            Some(EntryTime::Modified { link_label, .. }) => link_label,
            _ => None,
        })
    }

    /// Writes the node of a file that was read.
    fn file_update(
        &self,
        node: &FileNode,
        fingerprint: StatFingerprint,
        link_label: Option<u64>,
        reliable: bool,
    ) -> Result<EntryUpdate> {
        let node_ref = file_node_ref(&node.encode(), |node| self.batch.put_node(node))?;
        let time = EntryTime::Modified { time: Timestamp(fingerprint.mtime), link_label }.encode();
        Ok(EntryUpdate::New { node_ref, time, fingerprint, reliable })
    }

    /// Reads a symlink; `None` if it no longer exists.
    fn read_symlink(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        scanned: &ScannedEntry,
        old: Option<&StatRecord>,
    ) -> Result<Option<EntryUpdate>> {
        let target = self.reader.read_link(fd.as_fd(), &scanned.name);
        let target = match target.map_err(|error| errno(&error)) {
            Ok(target) => target,
            Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(error) => {
                return Err(error)
                    .context("read", &full_path(&self.tracked.path, &join(path, &scanned.name)));
            }
        };
        let node = SymlinkNode { target }.encode();
        let node_ref = symlink_node_ref(&node, |node| self.batch.put_node(node))?;
        let link_label = self.label(scanned, scanned.fingerprint, scanned.links, old)?;
        let time = EntryTime::Modified { time: Timestamp(scanned.fingerprint.mtime), link_label }.encode();
        let reliable = is_reliable(&scanned.fingerprint, Timestamp::now().0);
        Ok(Some(EntryUpdate::New { node_ref, time, fingerprint: scanned.fingerprint, reliable }))
    }

    /// Writes the node of a directory into the batch and records a new stat record, unless the node would be equal to
    /// the node of the stat record `old`.
    fn write_directory(
        &self,
        path: &[u8],
        old: Option<&StatRecord>,
        scanned: Vec<ScannedEntry>,
        updates: Vec<Option<EntryUpdate>>,
        header: &ListHeader,
        own_fingerprint: StatFingerprint,
    ) -> Result<WrittenDirectory> {
        let entries: Vec<(ScannedEntry, EntryUpdate)> = scanned
            .into_iter()
            .zip(updates)
            .filter_map(|(scanned, update)| Some((scanned, update?)))
            .collect();
        let base = old.map(|record| Base { store: self.store, record });
        if let Some(base) = &base
            && base.is_same(own_fingerprint, &entries)
        {
            return Ok(WrittenDirectory { node: base.record.node, times: base.record.times_node });
        }
        let mut writer = DirectoryWriter::new(self.batch, entries.len() as u64);
        let mut record = Vec::with_capacity(entries.len());
        for (scanned, update) in entries {
            let (fingerprint, reliable) = match &update {
                EntryUpdate::Unchanged => {
                    let base = base.as_ref().unwrap_or_else(|| unreachable!("unchanged entries have a base"));
                    base.copy(&scanned.name, &mut writer)?;
                    (scanned.fingerprint, true)
                }
                EntryUpdate::New { node_ref, time, fingerprint, reliable } => {
                    writer.push(&scanned.name, node_ref, time)?;
                    (*fingerprint, *reliable)
                }
                EntryUpdate::Directory(written) => {
                    let node_ref = NodeRef::Directory(written.node).encode();
                    writer.push(&scanned.name, &node_ref, &EntryTime::Directory(written.times).encode())?;
                    (
                        StatFingerprint::of_directory_content(
                            scanned.fingerprint.mode,
                            written.node,
                            written.times,
                        ),
                        true,
                    )
                }
            };
            record.push(StatEntry { name: scanned.name, fingerprint, reliable });
        }
        let (node, times) = writer.finish(header, Some(Timestamp(own_fingerprint.mtime)))?;
        let own_reliable = is_reliable(&own_fingerprint, Timestamp::now().0);
        let record = StatRecord { node, times_node: times, own_fingerprint, own_reliable, entries: record };
        self.changed.lock().push((path.to_vec(), Some(record)));
        Ok(WrittenDirectory { node, times })
    }

    /// Queues the removal of stat records, of subdirectories that no longer exist and of everything below them.
    fn forget_vanished(&self, path: &[u8], old: Option<&StatRecord>, scanned: &[ScannedEntry]) -> Result<()> {
        let Some(old) = old else { return Ok(()) };
        let is_vanished =
            |entry: &&StatEntry| match scanned.binary_search_by(|scanned| scanned.name.cmp(&entry.name)) {
                Ok(index) => scanned[index].kind != FileType::Directory,
                Err(_) => true,
            };
        let mut queue = Vec::new();
        for entry in directories(old).filter(is_vanished) {
            queue.push(self.count_path(join(path, &entry.name))?);
        }
        while let Some(vanished) = queue.pop() {
            self.check_cancelled()?;
            if let Some(record) = self.tracked.stat_record(&vanished)? {
                for entry in directories(&record) {
                    queue.push(self.count_path(join(&vanished, &entry.name))?);
                }
            }
            self.changed.lock().push((vanished, None));
        }
        Ok(())
    }

    /// Records a skipped entry. Counts its path against the walk limits if it is kept.
    fn skip(&self, path: &[u8], reason: SkipReason) -> Result<()> {
        let skipped = SkippedEntry { path: os_path(path).to_owned(), reason };
        let is_named = self.skipped.lock().push(skipped);
        if is_named { self.count_bytes(path.len()) } else { Ok(()) }
    }

    /// Counts the memory of a path against the walk limits.
    fn count_path(&self, path: Vec<u8>) -> Result<Vec<u8>> {
        self.count_bytes(path.len())?;
        Ok(path)
    }

    /// Counts memory against the walk limits.
    fn count_bytes(&self, bytes: usize) -> Result<()> {
        self.usage.add_metadata(bytes).map_err(|exceeded| self.too_large(exceeded))
    }

    fn too_large(&self, exceeded: LimitExceeded) -> DirectoryError {
        DirectoryError::TooLarge { directory: self.tracked.path.clone(), exceeded }
    }
}

/// Returns the subdirectories in a stat record.
fn directories(record: &StatRecord) -> impl Iterator<Item = &StatEntry> {
    record.entries.iter().filter(|entry| entry.fingerprint.is_directory())
}

/// Returns the reason to skip an entry of this type; `None` for files, symlinks and directories.
fn skip_reason(kind: FileType) -> Option<SkipReason> {
    match kind {
        FileType::Socket => Some(SkipReason::Socket),
        FileType::Fifo => Some(SkipReason::Fifo),
        FileType::CharacterDevice | FileType::BlockDevice => Some(SkipReason::Device),
        _ => None,
    }
}

/// Node of a directory at the last snapshot or checkout, from its stat record. Unchanged entries are copied from it.
struct Base<'a> {
    store: &'a Store,
    record: &'a StatRecord,
}

impl Base<'_> {
    /// Returns true if a directory with these entries has the same node.
    fn is_same(&self, own_fingerprint: StatFingerprint, entries: &[(ScannedEntry, EntryUpdate)]) -> bool {
        // Inode and size of a directory are not part of its node.
        let same_own = self.record.own_reliable
            && (own_fingerprint.mode, own_fingerprint.mtime, own_fingerprint.ctime)
                == (
                    self.record.own_fingerprint.mode,
                    self.record.own_fingerprint.mtime,
                    self.record.own_fingerprint.ctime,
                );
        same_own
            && entries.len() == self.record.entries.len()
            && entries.iter().zip(&self.record.entries).all(|((scanned, update), old)| {
                scanned.name == old.name
                    && match update {
                        EntryUpdate::Unchanged => true,
                        EntryUpdate::New { .. } => false,
                        EntryUpdate::Directory(written) => {
                            old.fingerprint
                                == StatFingerprint::of_directory_content(
                                    scanned.fingerprint.mode,
                                    written.node,
                                    written.times,
                                )
                        }
                    }
            })
    }

    /// Copies an unchanged entry from the recorded node to the new one.
    fn copy(&self, name: &[u8], writer: &mut DirectoryWriter<'_, Batch>) -> Result<()> {
        let missing = || StoreError::MissingNode(self.record.node);
        let (list, times, index) = self
            .store
            .find_entry(self.record.node, Some(self.record.times_node), name)?
            .ok_or_else(missing)?;
        let times = times.ok_or_else(missing)?;
        Ok(writer.push(name, list.body(index), times.body(index))?)
    }
}
