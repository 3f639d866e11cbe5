//! Checkouts: writing the content of a snapshot into a directory.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::fchmod;

use crate::failpoint;
use crate::id::TreeId;
use crate::platform::{self, RawDir};
use crate::progress::Progress;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::tree::Tree;

use super::checkout_options::{CheckoutOptions, CheckoutReport};
use super::error::{Context, DirectoryError, Result};
use super::switch::Switch;
use super::temporary_files::{new_checkout_id, remove_leftovers};
use super::tracked_directory::TrackedDirectory;
use super::tree_listing::TreeIds;

/// Writes the content of `snapshot` into `directory`.
///
/// A directory that holds another snapshot is changed only where the two differ. A checkout that would
/// overwrite local changes fails before anything is written, unless forced. Files that neither snapshot has
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
    let result = check_out(store, snapshot, &tracked, &root, options, progress);
    // Only a checkout that wrote the tree has set the final mode of the root.
    if let Some(mode) = former_mode
        && !result.as_ref().is_ok_and(|report| !report.up_to_date)
    {
        fchmod(&root, mode).context("change the mode of", &tracked.path)?;
    }
    result
}

fn check_out(
    store: &Store,
    snapshot: &Snapshot,
    tracked: &TrackedDirectory<'_>,
    root: &OwnedFd,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    // Protects the objects of both trees from garbage collection.
    let _guard = store.guard()?;
    let target: TreeIds = (snapshot.tree.root(), snapshot.times);
    let checkout_ids = remove_leftovers(tracked, root, tracked.unfinished_checkouts(root)?)?;
    // An empty directory has nothing left of its former tree: everything is written anew.
    let is_empty = is_empty(root).context("list", &tracked.path)?;
    let checkout_state = if is_empty { None } else { tracked.checkout_state(root)? };
    let mut from: Option<TreeIds> = checkout_state
        .as_ref()
        .and_then(|checkout_state| checkout_state.tree)
        .map(|(tree, times)| (tree.root(), times));
    // Called for its side effect: deletes the stat records of a tree that is no longer in the store.
    tracked.has_usable_index()?;
    let is_foreign = checkout_state.is_none() && !is_empty;
    if is_foreign && !options.force {
        return Err(DirectoryError::NotEmpty { directory: tracked.path.clone() });
    }
    if let Some((tree, _)) = checkout_state.as_ref().and_then(|checkout_state| checkout_state.tree)
        && !options.force
        && store.snapshots_with_tree(&tree)?.is_empty()
    {
        return Err(DirectoryError::Unsaved { directory: tracked.path.clone() });
    }
    let mut report = CheckoutReport::default();
    let checkout_id = new_checkout_id();
    let switch = || Switch::new(store, tracked, root, options, &checkout_id, progress);
    if let Some((tree, times)) = checkout_state.as_ref().and_then(|checkout_state| checkout_state.towards) {
        // The directory is between two trees: finish that checkout first, so that it holds one of them. Not
        // if the target is the former tree and every entry is checked anyway (`force`): then the checkout
        // counts as finished.
        let towards = (tree.root(), times);
        if !(options.force && from == Some(target)) {
            run(&switch(), from, towards, &checkout_ids, &mut report)?;
        }
        from = Some(towards);
        report.resumed = true;
    }
    if from != Some(target) || options.force {
        run(&switch(), from, target, &checkout_ids, &mut report)?;
    } else {
        report.up_to_date = !report.resumed;
    }
    if options.sync {
        platform::sync_filesystem(root).context("sync", &tracked.path)?;
    }
    Ok(report)
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
    tracked.set_checkout_state(&root, Some((from.tree, from.times)), None, checkout_ids)?;
    let result = checkout(store, to, directory, options, progress);
    let is_between =
        tracked.recorded_state(&root)?.is_some_and(|checkout_state| checkout_state.towards.is_some());
    if result.is_ok() || !is_between {
        tracked.restore_state(&root, before)?;
    }
    result
}

/// Writes a tree into an empty directory. Unlike after a [`checkout`], the store records nothing about the
/// directory: no checkout state and no stat records.
pub fn materialize(
    tree: &Tree,
    directory: &Path,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    let store = tree.store();
    let tracked = TrackedDirectory::of(store, directory)?;
    let root = tracked.open()?;
    if !is_empty(&root).context("list", &tracked.path)? {
        return Err(DirectoryError::NotEmpty { directory: tracked.path });
    }
    let checkout_id = new_checkout_id();
    let switch = Switch::new(store, &tracked, &root, options, &checkout_id, progress);
    progress.begin("writing entries", None);
    let result = crate::pool::run(|| switch.apply(None, tree.ids()));
    progress.end();
    result?;
    if options.sync {
        platform::sync_filesystem(&root).context("sync", &tracked.path)?;
    }
    Ok(switch.report())
}

/// Switches from one tree to the other. Ids of earlier checkouts that are still needed are kept.
fn run(
    switch: &Switch<'_>,
    from: Option<TreeIds>,
    to: TreeIds,
    checkout_ids: &[String],
    report: &mut CheckoutReport,
) -> Result<()> {
    let (tracked, progress) = (switch.tracked, switch.progress);
    if !switch.options.force {
        crate::pool::run(|| switch.check(from, to))?;
    }
    let ids = |(tree, times): TreeIds| (TreeId::from(tree), times);
    let all_checkout_ids = [checkout_ids, &[switch.checkout_id.to_owned()]].concat();
    tracked.set_checkout_state(switch.root, from.map(ids), Some(ids(to)), all_checkout_ids)?;
    failpoint::hit("checkout-started").context("check out into", &tracked.path)?;
    progress.begin("checking out entries", None);
    let result = crate::pool::run(|| switch.apply(from, to));
    progress.end();
    result?;
    switch.finish(report)?;
    failpoint::hit("checkout-applied").context("check out into", &tracked.path)?;
    tracked.set_checkout_state(switch.root, Some(ids(to)), None, checkout_ids.to_vec())
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
