//! Checkouts: making a directory hold what a snapshot holds.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::fchmod;

use crate::failpoint;
use crate::id::{NodeId, TreeId};
use crate::platform::{self, RawDir};
use crate::progress::Progress;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::tree::Tree;

use super::error::{Context, DirectoryError, Result};
use super::leftovers::{new_mark, remove_leftovers};
use super::state::Known;
use super::switch::Switch;

/// Bytes that a file, directory or symlink takes beside its content, as a [`WriteLimit`] counts them.
pub(super) const ENTRY_BYTES: u64 = 4096;

/// Limit on what a checkout writes. It is asked before every piece, by several threads at once.
pub trait WriteLimit: fmt::Debug + Send + Sync {
    /// Counts so many bytes more. An error ends the checkout; what was written until then stays.
    fn take(&self, bytes: u64) -> io::Result<()>;
}

/// How a snapshot is checked out.
#[derive(Debug, Clone, Default)]
pub struct CheckoutOptions {
    /// Undo local changes, and replace what is in the way.
    pub force: bool,
    /// Keep set-uid and set-gid bits.
    pub keep_set_id: bool,
    /// Return only when everything is on disk.
    pub sync: bool,
    /// User and group that everything is to belong to; whoever does this, when not said.
    pub owner: Option<(u32, u32)>,
    /// Directories that together hold the same tree, the uppermost first: files share their blocks with those there, where
    /// the filesystem can.
    pub share: Vec<PathBuf>,
    /// The directory is to be a layer of an overlay that keeps its notes in user attributes: attributes of the tree
    /// that look like such notes are escaped, so that they stay data.
    pub escape: bool,
    /// Limit on what is written; none when not said.
    pub limit: Option<Arc<dyn WriteLimit>>,
}

/// What a checkout did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckoutReport {
    /// Files, symlinks and directories made or replaced.
    pub written: u64,
    /// Those removed.
    pub removed: u64,
    /// Those that were there already, among those that had to be looked at.
    pub unchanged: u64,
    /// Bytes of file content written.
    pub bytes: u64,
    /// Whether this went on with a checkout that had been interrupted.
    pub resumed: bool,
    /// Whether the directory was known to hold the snapshot, so that nothing was done. Local changes were not
    /// looked for; with force they would have been undone.
    pub already: bool,
}

/// A tree with its times.
pub(super) type Ids = (NodeId, NodeId);

/// Makes `directory` hold what `snapshot` holds.
///
/// A directory that holds another snapshot is changed only where the two differ. Files that were changed
/// since are not touched: the checkout is refused before anything is done, unless forced. Files that
/// neither snapshot knows stay. An interrupted checkout goes on where it stopped.
pub fn checkout(
    store: &Store,
    snapshot: &Snapshot,
    directory: &Path,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    std::fs::create_dir_all(directory).on("create", directory)?;
    let known = Known::of(store, directory)?;
    let (root, lent) = known.open_as_owner()?;
    let done = check_out(store, snapshot, &known, &root, options, progress);
    if let Some(mode) = lent
        && !done.as_ref().is_ok_and(|report| !report.already)
    {
        fchmod(&root, mode).on("change", &known.path)?;
    }
    done
}

fn check_out(
    store: &Store,
    snapshot: &Snapshot,
    known: &Known<'_>,
    root: &OwnedFd,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    // From here on, a collection leaves alone what the two trees hold.
    let _guard = store.guard()?;
    let target: Ids = (snapshot.tree.root(), snapshot.times);
    let marks = remove_leftovers(known, root, known.marks(root)?)?;
    // In an empty directory nothing is left of what it held: all of it is written anew.
    let is_empty = is_empty(root).on("list", &known.path)?;
    let held = if is_empty { None } else { known.held(root)? };
    let mut from: Option<Ids> =
        held.as_ref().and_then(|held| held.tree).map(|(tree, times)| (tree.root(), times));
    known.has_usable_index()?;
    let foreign = held.is_none() && !is_empty;
    if foreign && !options.force {
        return Err(DirectoryError::NotEmpty { directory: known.path.clone() });
    }
    if let Some((tree, _)) = held.as_ref().and_then(|held| held.tree)
        && !options.force
        && store.snapshots_with_tree(&tree)?.is_empty()
    {
        return Err(DirectoryError::Unsaved { directory: known.path.clone() });
    }
    let mut report = CheckoutReport::default();
    let mark = new_mark();
    let switch = || Switch::new(store, known, root, options, &mark, progress);
    if let Some((tree, times)) = held.as_ref().and_then(|held| held.towards) {
        // Somewhere between two trees: finish that first, then both are known to be one. Unless it is to go back, and
        // every entry is looked at anyway: then as if it had been finished.
        let towards = (tree.root(), times);
        if !(options.force && from == Some(target)) {
            run(&switch(), from, towards, &marks, &mut report)?;
        }
        from = Some(towards);
        report.resumed = true;
    }
    if from != Some(target) || options.force {
        run(&switch(), from, target, &marks, &mut report)?;
    } else {
        report.already = !report.resumed;
    }
    if options.sync {
        platform::sync_filesystem(root).on("sync", &known.path)?;
    }
    Ok(report)
}

/// Brings a directory that holds what `from` holds to what `to` holds, without making it a checkout of either.
///
/// What the store knew the directory to hold stays noted: where the directory differs from that, it has local changes.
/// Refused and interrupted as a checkout is; one that was interrupted is finished by the next checkout.
pub fn apply_changes(
    store: &Store,
    from: &Snapshot,
    to: &Snapshot,
    directory: &Path,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    let known = Known::of(store, directory)?;
    let root = known.open()?;
    let before = known.noted(&root)?;
    let marks = known.marks(&root)?;
    known.set_held(&root, Some((from.tree, from.times)), None, marks)?;
    let done = checkout(store, to, directory, options, progress);
    let is_between = known.noted(&root)?.is_some_and(|held| held.towards.is_some());
    if done.is_ok() || !is_between {
        known.restore_note(&root, before)?;
    }
    done
}

/// Writes a tree into an empty directory. Nothing is remembered about it: it is no checkout, and its files count
/// for no stat index.
pub fn materialize(
    tree: &Tree,
    directory: &Path,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckoutReport> {
    let store = tree.store();
    let known = Known::of(store, directory)?;
    let root = known.open()?;
    if !is_empty(&root).on("list", &known.path)? {
        return Err(DirectoryError::NotEmpty { directory: known.path });
    }
    let mark = new_mark();
    let switch = Switch::new(store, &known, &root, options, &mark, progress);
    progress.begin("writing entries", None);
    let done = crate::pool::run(|| switch.apply(None, tree.ids()));
    progress.end();
    done?;
    if options.sync {
        platform::sync_filesystem(&root).on("sync", &known.path)?;
    }
    Ok(switch.report())
}

/// Switches from one tree to the other. The marks of earlier checkouts that are still needed stay noted.
fn run(
    switch: &Switch<'_>,
    from: Option<Ids>,
    to: Ids,
    marks: &[String],
    report: &mut CheckoutReport,
) -> Result<()> {
    let (known, progress) = (switch.known, switch.progress);
    if !switch.options.force {
        crate::pool::run(|| switch.check(from, to))?;
    }
    let ids = |(tree, times): Ids| (TreeId::from(tree), times);
    let with_mine = [marks, &[switch.mark.to_owned()]].concat();
    known.set_held(switch.root, from.map(ids), Some(ids(to)), with_mine)?;
    failpoint::hit("checkout-started").on("check out into", &known.path)?;
    progress.begin("checking out entries", None);
    let done = crate::pool::run(|| switch.apply(from, to));
    progress.end();
    done?;
    switch.finish(report)?;
    failpoint::hit("checkout-applied").on("check out into", &known.path)?;
    known.set_held(switch.root, Some(ids(to)), None, marks.to_vec())
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
