//! Snapshots of directories of the file system.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use crate::batch::Batch;
use crate::commit_options::NewSnapshot;
use crate::error::StoreError;
use crate::id::NodeId;
use crate::limit::LimitExceeded;
use crate::node::{FileNode, MODE_BITS, NodeRef, SymlinkNode};
use crate::page::{DirectoryWriter, EntryTime, NodeSink, PageHeader};
use crate::platform::{RawDir, link_count};
use crate::progress::Progress;
use crate::snapshot::{Snapshot, Timestamp};
use crate::store::Store;
use crate::tree::Tree;
use crate::tree_path::{DEPTH_MAX, join};
use crate::uncommitted_objects::UncommittedObjects;
use crate::virtual_tree::{commit_snapshot, file_node_ref, symlink_node_ref};
use crate::walk_limits::WalkUsage;

use super::error::{Context, DirectoryError, Result};
use super::ignore_rules::{IGNORE_FILE, IgnoreRules};
use super::parallel::{each, each_with_open_directory};
use super::path::{full_path, os_path};
use super::read::{
    DirectoryReader, PlainReader, QuiescentReader, ReadError, ReadOutcome, errno, fingerprint, is_reliable,
    now, read_file,
};
use super::skipped::{SkipReason, SkippedCollector, SkippedEntry};
use super::stat_index::{StatEntry, StatFingerprint, StatRecord};
use super::temporary_files::is_leftover;
use super::tracked_directory::{CheckedOutTree, TrackedDirectory};

/// Options of a snapshot of a directory.
#[derive(Debug, Clone)]
pub struct SnapshotOptions {
    /// Description of the snapshot.
    pub new: NewSnapshot,
    /// Honour `.workspaceignore` files.
    pub use_ignore_files: bool,
    /// Record the directory as a checkout of the snapshot, so that a checkout may replace its content. Not
    /// for a temporary snapshot: the content that a checkout replaced would be lost with it.
    pub record_as_checkout: bool,
    /// Set if no process writes to the directory during the snapshot: recently changed files are then read
    /// once instead of twice. Ignored if the caller passes a [`DirectoryReader`], which decides this itself.
    pub quiescent: bool,
    /// Fail with [`DirectoryError::Incomplete`], before anything is committed, if user data cannot be read.
    /// Otherwise it is skipped and reported.
    pub fail_if_incomplete: bool,
    /// Report every skipped socket, device and named pipe by name, not only the first thousand.
    pub all_special: bool,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self {
            new: NewSnapshot::default(),
            use_ignore_files: true,
            record_as_checkout: true,
            quiescent: false,
            fail_if_incomplete: false,
            all_special: false,
        }
    }
}

/// Result of a snapshot of a directory.
#[derive(Debug, Clone)]
pub struct SnapshotReport {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Number of regular files in it.
    pub files: u64,
    /// Number of directories in it, without the root.
    pub directories: u64,
    /// Number of symlinks in it.
    pub symlinks: u64,
    /// Total size of its files in bytes.
    pub bytes: u64,
    /// Number of files whose content had to be read.
    pub files_read: u64,
    /// First thousand skipped entries, with reasons. Ignored entries are not listed.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all skipped entries.
    pub skipped_count: u64,
}

/// Content of a directory as an uncommitted tree.
#[derive(Clone)]
pub struct DirectoryPreview {
    /// Tree that a snapshot would have.
    pub tree: Tree,
    /// First thousand entries that a snapshot would skip, with reasons.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all entries that a snapshot would skip.
    pub skipped_count: u64,
}

/// Takes a snapshot of a directory.
///
/// Files whose fingerprint has not changed since the last snapshot of, or checkout into, this directory are
/// not read.
pub fn snapshot_directory(
    store: &Store,
    directory: &Path,
    options: SnapshotOptions,
    progress: &dyn Progress,
) -> Result<SnapshotReport> {
    let reader = reader_for(&options);
    snapshot_directory_with_reader(store, directory, options, reader, progress)
}

/// Takes a snapshot of a directory whose files are accessed through `reader`.
pub fn snapshot_directory_with_reader(
    store: &Store,
    directory: &Path,
    options: SnapshotOptions,
    reader: &dyn DirectoryReader,
    progress: &dyn Progress,
) -> Result<SnapshotReport> {
    let tracked = TrackedDirectory::of(store, directory)?;
    let root = tracked.open_for(reader)?;
    // The batch protects objects that the stat index refers to from garbage collection.
    let batch = store.batch()?;
    let scan = Scan::new(&tracked, &root, &batch, &options, reader, progress)?;
    let written = scan.run()?;
    let (skipped, skipped_count) = scan.skipped(&options)?;
    let parents = options.new.parents.clone();
    let snapshot =
        commit_snapshot(store, batch.finish()?, written.node.into(), written.times, parents, options.new)?;
    let changed = std::mem::take(&mut *scan.changed.lock().unwrap_or_else(PoisonError::into_inner));
    tracked.update_stat_records(&changed)?;
    if options.record_as_checkout {
        // The next checkout must still remove the temporary files of interrupted ones.
        let checkout_ids = tracked.unfinished_checkouts(&root)?;
        tracked.set_checkout_state(&root, Some(CheckedOutTree::of(&snapshot)), None, checkout_ids)?;
    }
    let counts = &scan.counts;
    Ok(SnapshotReport {
        snapshot,
        files: counts.files.load(Ordering::Relaxed),
        directories: counts.directories.load(Ordering::Relaxed),
        symlinks: counts.symlinks.load(Ordering::Relaxed),
        bytes: counts.bytes.load(Ordering::Relaxed),
        files_read: counts.read.load(Ordering::Relaxed),
        skipped,
        skipped_count,
    })
}

/// Records a directory as a checkout of a snapshot that was taken of it, so that a later checkout may replace its
/// content. Does afterwards what [`SnapshotOptions::record_as_checkout`] does. Changes since the snapshot count as
/// local changes.
pub fn record_as_checkout(store: &Store, directory: &Path, snapshot: &Snapshot) -> Result<()> {
    let tracked = TrackedDirectory::of(store, directory)?;
    let root = tracked.open()?;
    let checkout_ids = tracked.unfinished_checkouts(&root)?;
    tracked.set_checkout_state(&root, Some(CheckedOutTree::of(snapshot)), None, checkout_ids)
}

/// Returns the tree that a snapshot of the directory would have. Costs as much as a snapshot, but writes
/// nothing.
pub fn preview_directory(
    store: &Store,
    directory: &Path,
    options: &SnapshotOptions,
    progress: &dyn Progress,
) -> Result<DirectoryPreview> {
    preview_directory_with_reader(store, directory, options, reader_for(options), progress)
}

/// Returns the same as [`preview_directory`] for a directory whose files are accessed through `reader`.
pub fn preview_directory_with_reader(
    store: &Store,
    directory: &Path,
    options: &SnapshotOptions,
    reader: &dyn DirectoryReader,
    progress: &dyn Progress,
) -> Result<DirectoryPreview> {
    let tracked = TrackedDirectory::of(store, directory)?;
    let root = tracked.open_for(reader)?;
    let guard = Arc::new(store.guard()?);
    let batch = Batch::low_latency(store.clone(), Arc::clone(&guard));
    let scan = Scan::new(&tracked, &root, &batch, options, reader, progress)?;
    let written = scan.run()?;
    let (skipped, skipped_count) = scan.skipped(options)?;
    let store = store.with_uncommitted(UncommittedObjects::new(store, batch.finish()?, None, guard));
    let tree = Tree::open(&store, written.node.into(), Some(written.times))?;
    Ok(DirectoryPreview { tree, skipped, skipped_count })
}

/// Returns the default reader for these options.
fn reader_for(options: &SnapshotOptions) -> &'static dyn DirectoryReader {
    if options.quiescent { &QuiescentReader } else { &PlainReader }
}

/// Returns the path of the store if it is inside the directory: the store is never part of a snapshot.
fn store_path_inside(store: &Store, directory: &Path) -> Option<Vec<u8>> {
    let inside = store.path().strip_prefix(directory).ok()?;
    Some(inside.as_os_str().as_bytes().to_vec())
}

#[derive(Default)]
struct Counts {
    files: AtomicU64,
    directories: AtomicU64,
    symlinks: AtomicU64,
    bytes: AtomicU64,
    /// Files whose content was read.
    read: AtomicU64,
}

/// Walk over a directory that writes its content into a batch.
struct Scan<'a> {
    store: &'a Store,
    batch: &'a Batch,
    reader: &'a dyn DirectoryReader,
    tracked: &'a TrackedDirectory<'a>,
    root: &'a OwnedFd,
    /// True if fingerprints of the stat index are compared, so that unchanged files are not read.
    use_stat_index: bool,
    /// True if `.workspaceignore` files apply.
    ignore: bool,
    /// Path of the store, if it is inside the directory.
    store_path: Option<Vec<u8>>,
    /// Ids of unfinished checkouts: their temporary files are skipped.
    checkout_ids: Vec<String>,
    progress: &'a dyn Progress,
    counts: Counts,
    usage: WalkUsage,
    skipped: Mutex<SkippedCollector>,
    /// New stat records of directories by path; `None` for vanished ones.
    changed: Mutex<Vec<(Vec<u8>, Option<StatRecord>)>>,
}

/// Ids of a directory that was read and written into the batch.
#[derive(Clone, Copy)]
struct WrittenDirectory {
    node: NodeId,
    times: NodeId,
}

/// An entry found in a directory.
struct ScannedEntry {
    name: Vec<u8>,
    fingerprint: StatFingerprint,
    kind: FileType,
    /// Number of hard links, inside or outside of this tree.
    links: u64,
}

/// An entry of a directory that is about to be written.
enum EntryUpdate {
    /// The same as in the node of the stat record.
    Unchanged,
    New {
        node_ref: Vec<u8>,
        time: Vec<u8>,
        fingerprint: StatFingerprint,
        reliable: bool,
    },
    Directory(WrittenDirectory),
}

impl<'a> Scan<'a> {
    fn new(
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
            ignore: options.use_ignore_files,
            store_path: store_path_inside(store, &tracked.path),
            checkout_ids: tracked.unfinished_checkouts(root)?,
            progress,
            counts: Counts::default(),
            usage: WalkUsage::new(store.walk_limits()),
            skipped: Mutex::new(skipped),
            changed: Mutex::default(),
        })
    }

    fn run(&self) -> Result<WrittenDirectory> {
        self.progress.begin("reading entries", None);
        let written = crate::pool::run(|| self.scan_directory(b"", 0, &IgnoreRules::default(), None));
        self.progress.end();
        written?.ok_or_else(|| DirectoryError::Io {
            action: "open",
            path: self.tracked.path.clone(),
            source: Errno::NOENT.into(),
        })
    }

    /// Returns the skipped entries, sorted, and their number. Fails if the snapshot must be complete and is
    /// not.
    fn skipped(&self, options: &SnapshotOptions) -> Result<(Vec<SkippedEntry>, u64)> {
        let skipped = std::mem::take(&mut *self.skipped.lock().unwrap_or_else(PoisonError::into_inner));
        if options.fail_if_incomplete { skipped.finish_if_complete() } else { Ok(skipped.finish()) }
    }
}

impl Scan<'_> {
    /// Reads a directory and everything below; `None` if it vanished. `recorded` is its fingerprint in the stat record
    /// of its parent.
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
        let header = PageHeader::Directory { mode: (stat.st_mode as u16) & MODE_BITS, xattrs };
        let (scanned, ignores) = self.list(&fd, path, ignores)?;
        let old = if self.use_stat_index { self.usable_record(path, recorded)? } else { None };
        let mut updates = self.scan_files(&fd, path, &scanned, old.as_ref())?;
        drop(fd);
        self.scan_subdirectories(path, depth, &ignores, &scanned, old.as_ref(), &mut updates)?;
        self.forget_vanished(path, old.as_ref(), &scanned)?;
        self.write_directory(path, old.as_ref(), scanned, updates, &header, own_fingerprint).map(Some)
    }

    /// Fails if the store's handle is cancelled. Needed here because unchanged entries do not access the
    /// store.
    fn check_cancelled(&self) -> Result<()> {
        Ok(self.store.cancel_flag().check().map_err(StoreError::from)?)
    }

    /// Returns the stat record of a directory. A record that does not belong to the same tree as those of its
    /// parents was left by another operation, and its objects may have been collected: it is ignored.
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

    /// Returns the entries of a directory that belong in the snapshot, sorted, and the ignore rules inside
    /// it.
    fn list(
        &self,
        fd: &OwnedFd,
        path: &[u8],
        ignores: &IgnoreRules,
    ) -> Result<(Vec<ScannedEntry>, IgnoreRules)> {
        let directory_path = || full_path(&self.tracked.path, path);
        // Entries count against the walk limits with their whole path: later readers of the snapshot may hold all
        // paths in memory.
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
        let ignores =
            if self.ignore && names.binary_search_by(|name| name.as_slice().cmp(IGNORE_FILE)).is_ok() {
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

    /// Inspects an entry; `None` if it does not belong in the snapshot.
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

    /// Processes all entries that are not directories: changed ones are read.
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

    /// Scans all subdirectories.
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

    fn count(&self, scanned: &ScannedEntry) {
        if scanned.kind == FileType::Symlink {
            self.counts.symlinks.fetch_add(1, Ordering::Relaxed);
        } else {
            self.counts.files.fetch_add(1, Ordering::Relaxed);
            self.counts.bytes.fetch_add(scanned.fingerprint.size, Ordering::Relaxed);
        }
    }

    /// Reads a new or changed file into the batch; `None` if it vanished or is skipped.
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
        let link = self.label(scanned, fingerprint, links, old)?;
        self.file_update(&node, fingerprint, link, reliable).map(Some)
    }

    /// Returns the link label of a file or symlink: the number that its names share in the snapshot, if there are
    /// several.
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
            self.lone_label(scanned, fingerprint, old)
        }
    }

    /// Returns the label of a file with a single name. It has a label if it had other names outside of the directory
    /// when the snapshot was taken, and keeps the label as long as it is the file that was checked out.
    fn lone_label(
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
            Some(EntryTime::Modified { link, .. }) => link,
            _ => None,
        })
    }

    fn file_update(
        &self,
        node: &FileNode,
        fingerprint: StatFingerprint,
        link: Option<u64>,
        reliable: bool,
    ) -> Result<EntryUpdate> {
        let node_ref = file_node_ref(&node.encode(), |node| self.batch.put_node(node))?;
        let time = EntryTime::Modified { time: Timestamp(fingerprint.mtime), link }.encode();
        Ok(EntryUpdate::New { node_ref, time, fingerprint, reliable })
    }

    /// Reads a symlink; `None` if it vanished.
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
        let link = self.label(scanned, scanned.fingerprint, scanned.links, old)?;
        let time = EntryTime::Modified { time: Timestamp(scanned.fingerprint.mtime), link }.encode();
        let reliable = is_reliable(&scanned.fingerprint, now());
        Ok(Some(EntryUpdate::New { node_ref, time, fingerprint: scanned.fingerprint, reliable }))
    }

    /// Writes the directory's node, unless it equals that of the stat record.
    fn write_directory(
        &self,
        path: &[u8],
        old: Option<&StatRecord>,
        scanned: Vec<ScannedEntry>,
        updates: Vec<Option<EntryUpdate>>,
        header: &PageHeader,
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
        let own_reliable = is_reliable(&own_fingerprint, now());
        let record = StatRecord { node, times_node: times, own_fingerprint, own_reliable, entries: record };
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_vec(), Some(record)));
        Ok(WrittenDirectory { node, times })
    }

    /// Removes the stat records of vanished directories and of everything below them.
    fn forget_vanished(&self, path: &[u8], old: Option<&StatRecord>, scanned: &[ScannedEntry]) -> Result<()> {
        let Some(old) = old else { return Ok(()) };
        let is_gone =
            |entry: &&StatEntry| match scanned.binary_search_by(|scanned| scanned.name.cmp(&entry.name)) {
                Ok(index) => scanned[index].kind != FileType::Directory,
                Err(_) => true,
            };
        let mut queue = Vec::new();
        for entry in directories(old).filter(is_gone) {
            queue.push(self.count_held(join(path, &entry.name))?);
        }
        while let Some(gone) = queue.pop() {
            self.check_cancelled()?;
            if let Some(record) = self.tracked.stat_record(&gone)? {
                for entry in directories(&record) {
                    queue.push(self.count_held(join(&gone, &entry.name))?);
                }
            }
            self.changed.lock().unwrap_or_else(PoisonError::into_inner).push((gone, None));
        }
        Ok(())
    }

    fn skip(&self, path: &[u8], reason: SkipReason) -> Result<()> {
        let skipped = SkippedEntry { path: os_path(path).to_owned(), reason };
        let is_named = self.skipped.lock().unwrap_or_else(PoisonError::into_inner).push(skipped);
        if is_named { self.count_bytes(path.len()) } else { Ok(()) }
    }

    /// Counts a path that is held in memory from now on.
    fn count_held(&self, path: Vec<u8>) -> Result<Vec<u8>> {
        self.count_bytes(path.len())?;
        Ok(path)
    }

    fn count_bytes(&self, bytes: usize) -> Result<()> {
        self.usage.add_metadata(bytes).map_err(|exceeded| self.too_large(exceeded))
    }

    fn too_large(&self, exceeded: LimitExceeded) -> DirectoryError {
        DirectoryError::TooLarge { directory: self.tracked.path.clone(), exceeded }
    }
}

fn directories(record: &StatRecord) -> impl Iterator<Item = &StatEntry> {
    record.entries.iter().filter(|entry| entry.fingerprint.is_directory())
}

fn skip_reason(kind: FileType) -> Option<SkipReason> {
    match kind {
        FileType::Socket => Some(SkipReason::Socket),
        FileType::Fifo => Some(SkipReason::Fifo),
        FileType::CharacterDevice | FileType::BlockDevice => Some(SkipReason::Device),
        _ => None,
    }
}

/// The node of a directory at the last snapshot or checkout, from its stat record.
struct Base<'a> {
    store: &'a Store,
    record: &'a StatRecord,
}

impl Base<'_> {
    /// Returns true if writing the directory would result in the same node.
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
        let (page, times, index) = self
            .store
            .find_entry(self.record.node, Some(self.record.times_node), name)?
            .ok_or_else(missing)?;
        let times = times.ok_or_else(missing)?;
        Ok(writer.push(name, page.body(index), times.body(index))?)
    }
}
