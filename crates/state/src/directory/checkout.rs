//! Checkouts: writing the content of a snapshot into a directory of the file system.
//!
//! The store records the *checkout state* of a directory: the tree that the directory holds, and the target of an
//! unfinished checkout. A checkout records its target, writes the differences (`switch.rs`) and records the new tree.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::fchmod;

use crate::error::StoreError;
use crate::failpoint;
use crate::platform::{self, RawDir};
use crate::progress::Progress;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::tree::Tree;

use super::checkout_options::{CheckoutOptions, CheckoutReport, EditCheck};
use super::error::{Context, DirectoryError, Result};
use super::switch::Switch;
use super::temporary_files::{new_checkout_id, remove_leftovers};
use super::tracked_directory::{CheckedOutTree, CheckoutState, TrackedDirectory};
use super::tree_listing::TreeIds;

/// Writes the content of `snapshot` into `directory`.
///
/// If the directory is a checkout of another snapshot, only the differences between the two snapshots are written. A
/// checkout that would overwrite local changes fails before anything is written, unless the options say otherwise.
/// Files that neither snapshot has are kept. The next checkout resumes an interrupted one.
pub fn checkout(
    store: &Store,
    snapshot: &Snapshot,
    directory: &Path,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    std::fs::create_dir_all(directory).context("create", directory)?;
    let tracked = TrackedDirectory::of(store, directory)?;
    let (root, former_mode) = tracked.open_with_owner_access()?;
    let result = checkout_opened(store, snapshot, &tracked, &root, options, progress);
    // Only a checkout that wrote the tree has set the final mode of the root.
    if let Some(mode) = former_mode
        && !result.as_ref().is_ok_and(|report| !report.up_to_date)
    {
        fchmod(&root, mode).context("change the mode of", &tracked.path)?;
    }
    result
}

/// Checks out into the directory that is open as `root`.
fn checkout_opened(
    store: &Store,
    snapshot: &Snapshot,
    tracked: &TrackedDirectory<'_>,
    root: &OwnedFd,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    // Protects the objects of both trees from garbage collection.
    let _guard = store.guard()?;
    let target = CheckedOutTree::of(snapshot);
    let checkout_ids = remove_leftovers(tracked, root, tracked.unfinished_checkouts(root)?)?;
    // The state of an empty directory is ignored: its former tree is gone, so everything is written again.
    let is_empty = is_empty(root).context("list", &tracked.path)?;
    let checkout_state = if is_empty { None } else { tracked.checkout_state(root)? };
    let mut from = checkout_state.as_ref().and_then(CheckoutState::checked_out_tree);
    tracked.drop_stale_records()?;
    let is_foreign = checkout_state.is_none() && !is_empty;
    if is_foreign && !options.force {
        return Err(foreign_directory(tracked, root)?);
    }
    if let Some(CheckedOutTree { tree, snapshot, .. }) = from
        && !options.force
        && store.snapshots_with_tree(&tree)?.is_empty()
    {
        return Err(DirectoryError::Unsaved { directory: tracked.path.clone(), snapshot });
    }
    let mut report = CheckoutReport::default();
    let checkout_id = new_checkout_id();
    let switch = || Switch::new(store, tracked, root, options, &checkout_id, progress);
    if let Some((tree, times)) =
        checkout_state.as_ref().and_then(|checkout_state| checkout_state.unfinished_target)
    {
        // The directory is between two trees: first finish the interrupted checkout, so that the directory holds its
        // target. Exception: a forced checkout back to the former tree. It compares every entry with that tree, so it
        // needs no known state to start from.
        let unfinished = CheckedOutTree { tree, times, snapshot: None };
        let unfinished = if ids(unfinished) == ids(target) { target } else { unfinished };
        if !(options.force && from.map(ids) == Some(ids(target))) {
            switch_trees(&switch(), from, unfinished, &checkout_ids, &mut report)?;
        }
        from = Some(unfinished);
        report.resumed = true;
    }
    if from.map(ids) != Some(ids(target)) || options.force {
        switch_trees(&switch(), from, target, &checkout_ids, &mut report)?;
    } else {
        report.up_to_date = !report.resumed;
    }
    if options.sync {
        platform::sync_filesystem(root).context("sync", &tracked.path)?;
    }
    Ok(report)
}

/// Undoes a checkout that was interrupted, or that stopped halfway at local changes: restores the tree from before the
/// checkout. Keeps entries with local changes. Does nothing if the last checkout was finished.
pub fn undo_checkout(
    store: &Store,
    directory: &Path,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<()> {
    let tracked = TrackedDirectory::of(store, directory)?;
    let root = tracked.open()?;
    let _guard = store.guard()?;
    let Some(state) = tracked.checkout_state(&root)? else { return Ok(()) };
    let (Some(former), Some((tree, times))) = (state.checked_out_tree(), state.unfinished_target) else {
        return Ok(());
    };
    let checkout_ids = remove_leftovers(&tracked, &root, tracked.unfinished_checkouts(&root)?)?;
    tracked.drop_stale_records()?;
    let options = CheckoutOptions { edits: EditCheck::Keep, ..options.clone() };
    let checkout_id = new_checkout_id();
    let switch = Switch::new(store, &tracked, &root, &options, &checkout_id, progress);
    // The state still names the unfinished checkout, so an interrupted undo can be repeated.
    let all_checkout_ids = [checkout_ids.as_slice(), std::slice::from_ref(&checkout_id)].concat();
    tracked.set_checkout_state(&root, Some(former), state.unfinished_target, all_checkout_ids)?;
    crate::pool::run(|| switch.apply(Some((tree.root(), times)), ids(former)))?;
    switch.finish(&mut CheckoutReport::default())?;
    tracked.set_checkout_state(&root, Some(former), None, checkout_ids)
}

/// Changes a directory from the content of `from` to the content of `to`, without making it a checkout of either.
///
/// The recorded checkout state of the directory is kept, so differences to its tree count as local changes. Fails like
/// a checkout. If it is interrupted, the next checkout finishes it.
pub fn apply_changes(
    store: &Store,
    from: &Snapshot,
    to: &Snapshot,
    directory: &Path,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    let tracked = TrackedDirectory::of(store, directory)?;
    let root = tracked.open()?;
    let before = tracked.recorded_state(&root)?;
    let checkout_ids = tracked.unfinished_checkouts(&root)?;
    tracked.set_checkout_state(&root, Some(CheckedOutTree::of(from)), None, checkout_ids)?;
    let result = checkout(store, to, directory, options, progress);
    let is_between = tracked
        .recorded_state(&root)?
        .is_some_and(|checkout_state| checkout_state.unfinished_target.is_some());
    if result.is_ok() || !is_between {
        tracked.restore_state(&root, before)?;
    }
    result
}

/// Writes a tree into an empty directory. Records neither a checkout state nor stat records (fingerprints of the
/// files). Fails for a tree that was opened without times.
pub fn materialize(
    tree: &Tree,
    directory: &Path,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    let store = tree.store();
    let refused = || StoreError::Refused("a tree without times cannot be written to a directory".to_owned());
    let ids = tree.ids().ok_or_else(refused)?;
    let tracked = TrackedDirectory::of(store, directory)?;
    let root = tracked.open()?;
    if !is_empty(&root).context("list", &tracked.path)? {
        return Err(DirectoryError::NotEmpty { directory: tracked.path });
    }
    let checkout_id = new_checkout_id();
    let switch = Switch::new(store, &tracked, &root, options, &checkout_id, progress);
    progress.begin("writing entries", None);
    let result = crate::pool::run(|| switch.apply(None, ids));
    progress.end();
    result?;
    if options.sync {
        platform::sync_filesystem(&root).context("sync", &tracked.path)?;
    }
    Ok(switch.report())
}

/// Changes the directory from one tree to the other. Records the target as unfinished before, and as the tree of the
/// directory afterwards. `checkout_ids` are the ids of earlier checkouts whose temporary files could not be removed.
fn switch_trees(
    switch: &Switch<'_>,
    from: Option<CheckedOutTree>,
    to: CheckedOutTree,
    checkout_ids: &[String],
    report: &mut CheckoutReport,
) -> Result<()> {
    let (tracked, progress) = (switch.tracked, switch.progress);
    if !switch.options.force && switch.options.edits != EditCheck::Keep {
        crate::pool::run(|| switch.check(from.map(ids), ids(to)))?;
    }
    let all_checkout_ids = [checkout_ids, &[switch.checkout_id.to_owned()]].concat();
    tracked.set_checkout_state(switch.root, from, Some((to.tree, to.times)), all_checkout_ids)?;
    failpoint::hit("checkout-started").context("check out into", &tracked.path)?;
    progress.begin("checking out entries", None);
    let result = crate::pool::run(|| switch.apply(from.map(ids), ids(to)));
    progress.end();
    result?;
    switch.finish(report)?;
    failpoint::hit("checkout-applied").context("check out into", &tracked.path)?;
    tracked.set_checkout_state(switch.root, Some(to), None, checkout_ids.to_vec())
}

/// Returns the ids of the root node and of its times.
fn ids(checked_out: CheckedOutTree) -> TreeIds {
    (checked_out.tree.root(), checked_out.times)
}

/// Returns the error for a directory that is not empty and has no usable checkout state. If it has a recorded state,
/// its snapshot was removed from the store, and garbage collection has deleted the objects.
fn foreign_directory(tracked: &TrackedDirectory<'_>, root: &OwnedFd) -> Result<DirectoryError> {
    let directory = tracked.path.clone();
    let Some(recorded) =
        tracked.recorded_state(root)?.filter(|state| state.tree.or(state.unfinished_target).is_some())
    else {
        return Ok(DirectoryError::NotEmpty { directory });
    };
    // If the snapshot still exists, the removed one is the target of an unfinished checkout, whose id is not recorded.
    let snapshot = match recorded.snapshot {
        Some(id) if tracked.store.find_snapshot(&id)?.is_none() => Some(id),
        _ => None,
    };
    Ok(DirectoryError::Unsaved { directory, snapshot })
}

/// Returns true if the directory has no entries.
fn is_empty(directory: &OwnedFd) -> Result<bool, rustix::io::Errno> {
    let mut buffer = Vec::with_capacity(4096);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
