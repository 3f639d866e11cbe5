//! Directory/file conflicts: a leaf and a directory that have the same path.

use std::collections::BTreeMap;

use workspace_state::TreePath;

use super::changes::{EntryChange, SideChanges};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::leaf::{ResultEntries, ResultEntry, TreeMerger};
use super::paths::{below, contains_at_or_below, join, name, parent, replace_prefix};
use super::result::Result;

/// Suffix for their entry if the name is taken.
const THEIRS_SUFFIX: &str = "~theirs";
/// Maximum length of a file name on Linux, in bytes.
const NAME_MAX: usize = 255;

/// Gives another name to their entry where a leaf and a directory have the same path.
pub(super) fn separate(
    merger: &mut TreeMerger<'_>,
    result: &mut ResultEntries,
    ours: &SideChanges<'_>,
    theirs: &mut SideChanges<'_>,
) -> Result<()> {
    for path in clashes(result, ours, theirs) {
        let Some(result_entry) = result.get_mut(&path) else { continue };
        let mut conflict = TreeConflict::new(ConflictClass::FileDirectory, &path);
        let free_path;
        if let Some(existing) = &result_entry.existing {
            conflict.ours = Some(TreeVersion::new(&path, existing.clone()));
            let entry = merger.theirs.entry(&path)?;
            conflict.theirs = entry.map(|entry| TreeVersion::new(&path, entry));
            free_path = merger.free_name(&path, result)?;
            move_directory(result, theirs, &path, &free_path);
        } else {
            let leaf = result_entry.leaf.take();
            conflict.ours = merger.ours.entry(&path)?.map(|entry| TreeVersion::new(&path, entry));
            conflict.theirs = merger.theirs.entry(&path)?.map(|entry| TreeVersion::new(&path, entry));
            free_path = merger.free_name(&path, result)?;
            result.insert(free_path.clone(), ResultEntry { leaf, existing: None });
        }
        merger.report(TreeConflict { theirs_path: Some(TreePath(free_path)), ..conflict });
    }
    Ok(())
}

/// Returns the leaves of the result that are also directories, outermost first.
fn clashes(result: &ResultEntries, ours: &SideChanges<'_>, theirs: &SideChanges<'_>) -> Vec<Vec<u8>> {
    let is_directory = |path: &[u8]| {
        let added = |side: &SideChanges<'_>, is_relevant: fn(&EntryChange) -> bool| {
            let itself = side.directories.get_key_value(path).into_iter();
            itself
                .chain(below(&side.directories, path))
                .any(|(path, change)| side.has_added(path) && is_relevant(change))
        };
        // Their leaves in a directory are in the result, unless they are held for a review. Therefore only
        // empty directories of their side are looked up.
        below(result, path).any(|(_, result_entry)| result_entry.leaf.is_some())
            || added(ours, |_| true)
            || added(theirs, EntryChange::is_empty_directory)
    };
    let leaves = result.iter().filter(|(_, result_entry)| result_entry.leaf.is_some());
    leaves.filter(|(path, _)| is_directory(path)).map(|(path, _)| path.clone()).collect()
}

/// Moves all entries below a path. They are from their tree, since our tree has a leaf at this path.
fn move_directory(result: &mut ResultEntries, theirs: &mut SideChanges<'_>, path: &[u8], to: &[u8]) {
    let paths: Vec<Vec<u8>> = below(result, path).map(|(path, _)| path.clone()).collect();
    for from in paths {
        let leaf = result.get_mut(&from).and_then(|result_entry| result_entry.leaf.take());
        if leaf.is_some() {
            result.insert(replace_prefix(&from, path, to), ResultEntry { leaf, existing: None });
        }
    }
    let directories = below(&theirs.directories, path).map(|(path, _)| path.clone());
    let directories: Vec<Vec<u8>> = [path.to_vec()].into_iter().chain(directories).collect();
    for from in directories.into_iter().filter(|from| theirs.has_added(from)).collect::<Vec<_>>() {
        if let Some(change) = theirs.directories.remove(&from) {
            theirs.directories.insert(replace_prefix(&from, path, to), change);
        }
    }
}

impl TreeMerger<'_> {
    /// Returns a path with a suffix that neither side nor `result` uses.
    pub(super) fn free_name<V>(&self, path: &[u8], result: &BTreeMap<Vec<u8>, V>) -> Result<Vec<u8>> {
        let mut number = 0;
        loop {
            let free_path = with_suffix(path, number);
            let taken = contains_at_or_below(result, &free_path)
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
    let suffix = if number == 0 { THEIRS_SUFFIX.to_owned() } else { format!("{THEIRS_SUFFIX}{number}") };
    let name = name(path);
    let name = &name[..name.len().min(NAME_MAX - suffix.len())];
    join(parent(path).unwrap_or_default(), &[name, suffix.as_bytes()].concat())
}
