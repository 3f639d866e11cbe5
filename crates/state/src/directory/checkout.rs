//! Checkouts: writing the content of a snapshot into a directory.

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
/// A directory that holds another snapshot is changed only where the two differ. A checkout that would
/// overwrite local changes fails before anything is written, unless the options say otherwise. Files that neither snapshot has
/// are left alone. An interrupted checkout is resumed by the next one.
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
    // An empty directory has nothing left of its former tree: everything is written anew.
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
        // The directory is between two trees: finish that checkout first, so that it holds one of them. Not
        // if the target is the former tree and every entry is checked anyway (`force`): then the checkout
        // counts as finished.
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

/// Undoes a checkout that was interrupted, or that found local changes halfway: the directory gets the content of before
/// it. Entries with local changes stay as they are. Does nothing if the last checkout was finished.
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
    // The checkout stays the unfinished one, so that this can be repeated if it is interrupted, too.
    let all_checkout_ids = [checkout_ids.as_slice(), std::slice::from_ref(&checkout_id)].concat();
    tracked.set_checkout_state(&root, Some(former), state.unfinished_target, all_checkout_ids)?;
    crate::pool::run(|| switch.apply(Some((tree.root(), times)), ids(former)))?;
    switch.finish(&mut CheckoutReport::default())?;
    tracked.set_checkout_state(&root, Some(former), None, checkout_ids)
}

/// Changes a directory from the content of `from` to that of `to`, without making it a checkout of either.
///
/// The recorded checkout state of the directory is kept: differences to it count as local changes. Fails and
/// can be interrupted like a checkout; an interrupted one is finished by the next checkout.
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

/// Writes a tree into an empty directory. No checkout state and no stat records are kept. Fails for a tree that
/// was opened without times.
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

/// Switches from one tree to the other, and records the target before and after. `checkout_ids` are those of earlier
/// checkouts whose temporary files could not be removed.
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

fn ids(content: CheckedOutTree) -> TreeIds {
    (content.tree.root(), content.times)
}

/// Returns the error for a directory whose content is not in the store. It may have been: then the snapshot was
/// removed, and its objects were collected.
fn foreign_directory(tracked: &TrackedDirectory<'_>, root: &OwnedFd) -> Result<DirectoryError> {
    let directory = tracked.path.clone();
    let Some(recorded) =
        tracked.recorded_state(root)?.filter(|state| state.tree.or(state.unfinished_target).is_some())
    else {
        return Ok(DirectoryError::NotEmpty { directory });
    };
    // If it still exists, the target of an unfinished checkout was removed.
    let snapshot = match recorded.snapshot {
        Some(id) if tracked.store.find_snapshot(&id)?.is_none() => Some(id),
        _ => None,
    };
    Ok(DirectoryError::Unsaved { directory, snapshot })
}

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
