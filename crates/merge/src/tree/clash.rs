//! Separation of entries that have the same name.

use std::collections::BTreeMap;

use workspace_state::TreePath;

use super::changes::{Change, Changes};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::leaf::{Merger, Placed, Placement};
use super::paths::{below, join, moved, name, parent, touches};
use super::result::Result;

/// Suffix for the entry of theirs if the name is taken.
const THEIRS_SUFFIX: &str = "~theirs";
/// Longest file name on Linux, in bytes.
const NAME_MAX: usize = 255;

/// Renames one of a leaf and a directory that have the same path. The entry of ours keeps its name.
pub(super) fn separate(
    merger: &mut Merger<'_>,
    result: &mut Placement,
    ours: &Changes<'_>,
    theirs: &mut Changes<'_>,
) -> Result<()> {
    for path in clashes(result, ours, theirs) {
        let Some(placed) = result.get_mut(&path) else { continue };
        let mut conflict = TreeConflict::new(ConflictClass::FileDirectory, &path);
        let free_path;
        if let Some(present) = &placed.present {
            conflict.ours = Some(TreeVersion::new(&path, present.clone()));
            let entry = merger.theirs.entry(&path)?;
            conflict.theirs = entry.map(|entry| TreeVersion::new(&path, entry));
            free_path = merger.free_name(&path, result)?;
            move_directory(result, theirs, &path, &free_path);
        } else {
            let leaf = placed.leaf.take();
            conflict.ours = merger.ours.entry(&path)?.map(|entry| TreeVersion::new(&path, entry));
            conflict.theirs = merger.theirs.entry(&path)?.map(|entry| TreeVersion::new(&path, entry));
            free_path = merger.free_name(&path, result)?;
            result.insert(free_path.clone(), Placed { leaf, present: None });
        }
        merger.report(TreeConflict { beside: Some(TreePath(free_path)), ..conflict });
    }
    Ok(())
}

/// Returns the leaves of the result that are also directories, outermost first.
fn clashes(result: &Placement, ours: &Changes<'_>, theirs: &Changes<'_>) -> Vec<Vec<u8>> {
    let is_directory = |path: &[u8]| {
        let added = |side: &Changes<'_>, counts: fn(&Change) -> bool| {
            let here = side.directories.get_key_value(path).into_iter();
            here.chain(below(&side.directories, path))
                .any(|(path, change)| side.has_added(path) && counts(change))
        };
        // Entries of theirs in a directory are in the result, unless they wait for a review.
        below(result, path).any(|(_, placed)| placed.leaf.is_some())
            || added(ours, |_| true)
            || added(theirs, Change::is_empty_directory)
    };
    let leaves = result.iter().filter(|(_, placed)| placed.leaf.is_some());
    leaves.filter(|(path, _)| is_directory(path)).map(|(path, _)| path.clone()).collect()
}

/// Moves everything below a path. All of it is from theirs: ours has a leaf there.
fn move_directory(result: &mut Placement, theirs: &mut Changes<'_>, path: &[u8], to: &[u8]) {
    let paths: Vec<Vec<u8>> = below(result, path).map(|(path, _)| path.clone()).collect();
    for from in paths {
        let leaf = result.get_mut(&from).and_then(|placed| placed.leaf.take());
        if leaf.is_some() {
            result.insert(moved(&from, path, to), Placed { leaf, present: None });
        }
    }
    let directories = below(&theirs.directories, path).map(|(path, _)| path.clone());
    let directories: Vec<Vec<u8>> = [path.to_vec()].into_iter().chain(directories).collect();
    for from in directories.into_iter().filter(|from| theirs.has_added(from)).collect::<Vec<_>>() {
        if let Some(change) = theirs.directories.remove(&from) {
            theirs.directories.insert(moved(&from, path, to), change);
        }
    }
}

impl Merger<'_> {
    /// Returns an unused path next to `path`.
    pub(super) fn free_name<V>(&self, path: &[u8], result: &BTreeMap<Vec<u8>, V>) -> Result<Vec<u8>> {
        let mut number = 0;
        loop {
            let free_path = with_suffix(path, number);
            let taken = touches(result, &free_path)
                || self.ours.entry(&free_path)?.is_some()
                || self.theirs.entry(&free_path)?.is_some();
            if !taken {
                return Ok(free_path);
            }
            number += 1;
        }
    }
}

fn with_suffix(path: &[u8], number: usize) -> Vec<u8> {
    let end = if number == 0 { THEIRS_SUFFIX.to_owned() } else { format!("{THEIRS_SUFFIX}{number}") };
    let name = name(path);
    let name = &name[..name.len().min(NAME_MAX - end.len())];
    join(parent(path).unwrap_or_default(), &[name, end.as_bytes()].concat())
}
