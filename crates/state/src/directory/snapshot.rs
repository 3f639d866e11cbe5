//! Snapshots and previews of directories. A preview is the tree that a snapshot would have, without a commit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::batch::Batch;
use crate::progress::Progress;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::tree::Tree;
use crate::uncommitted_objects::UncommittedObjects;
use crate::virtual_tree::commit_snapshot;

use super::error::Result;
use super::read::{DirectoryReader, PlainReader, QuiescentReader};
use super::scan::Scan;
use super::skipped::SkippedEntry;
use super::snapshot_options::SnapshotOptions;
use super::tracked_directory::{CheckedOutTree, TrackedDirectory};

/// Result of a snapshot of a directory.
#[derive(Debug, Clone)]
pub struct SnapshotReport {
    /// Committed snapshot.
    pub snapshot: Snapshot,
    /// Number of regular files in the snapshot.
    pub files: u64,
    /// Number of directories in the snapshot, without the root.
    pub directories: u64,
    /// Number of symlinks in the snapshot.
    pub symlinks: u64,
    /// Total size of the files in bytes.
    pub bytes: u64,
    /// Number of files whose content had to be read.
    pub files_read: u64,
    /// Number of entries that a `.workspaceignore` file excludes. An ignored directory counts as one entry.
    pub ignored_count: u64,
    /// First thousand skipped entries, with reasons. Ignored entries are not listed.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all skipped entries.
    pub skipped_count: u64,
}

/// Uncommitted tree with the content of a directory.
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
/// Does not read files whose fingerprint has not changed since the last snapshot of this directory or checkout into it.
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
    let changed = std::mem::take(&mut *scan.changed.lock());
    tracked.update_stat_records(&changed)?;
    if options.record_as_checkout {
        // The next checkout must still remove the temporary files of interrupted checkouts.
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
        ignored_count: counts.ignored.load(Ordering::Relaxed),
        skipped,
        skipped_count,
    })
}

/// Records a directory as a checkout of a snapshot that was taken of it, so that a later checkout may replace its
/// content. Has the effect of [`SnapshotOptions::record_as_checkout`] after the snapshot. Changes since the snapshot
/// count as local changes.
pub fn record_as_checkout(store: &Store, directory: &Path, snapshot: &Snapshot) -> Result<()> {
    let tracked = TrackedDirectory::of(store, directory)?;
    let root = tracked.open()?;
    let checkout_ids = tracked.unfinished_checkouts(&root)?;
    tracked.set_checkout_state(&root, Some(CheckedOutTree::of(snapshot)), None, checkout_ids)
}

/// Returns the tree that a snapshot of the directory would have. Reads as much as a snapshot, but writes nothing.
pub fn preview_directory(
    store: &Store,
    directory: &Path,
    options: &SnapshotOptions,
    progress: &dyn Progress,
) -> Result<DirectoryPreview> {
    preview_directory_with_reader(store, directory, options, reader_for(options), progress)
}

/// Returns the result of [`preview_directory`] for a directory whose files are accessed through `reader`.
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
