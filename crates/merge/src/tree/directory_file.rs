//! Directory/file conflicts: a leaf (file or symlink) and a directory that have the same path.

use std::collections::{BTreeMap, VecDeque};

use workspace_state::TreePath;

use super::changes::{EntryChange, SideChanges};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::leaf::{ResultEntries, ResultEntry, TreeMerger};
use super::paths::{below, contains_at_or_below, is_below, join, name, parent, replace_prefix};
use super::result::Result;

/// Suffix of the new name of their entry; further digits follow if that name is taken.
const THEIRS_SUFFIX: &str = "~theirs";
/// Maximum length of a file name on Linux, in bytes.
const NAME_MAX: usize = 255;

/// Gives another name to their entry at each path that is both a leaf and a directory, and reports a conflict.
pub(super) fn separate(
    merger: &mut TreeMerger<'_>,
    result: &mut ResultEntries,
    ours: &SideChanges<'_>,
    theirs: &mut SideChanges<'_>,
) -> Result<()> {
    let mut clashes = VecDeque::from(clashes(result, ours, theirs));
    while let Some(path) = clashes.pop_front() {
        let Some(result_entry) = result.get_mut(&path) else { continue };
        let mut conflict = TreeConflict::new(ConflictClass::FileDirectory, &path);
        let free_path;
        if let Some(existing) = &result_entry.existing {
            // Our side has the leaf: their directory gets another name.
            conflict.ours = Some(TreeVersion::new(&path, existing.clone()));
            let entry = merger.theirs.entry(&path)?;
            conflict.theirs = entry.map(|entry| TreeVersion::new(&path, entry));
            free_path = merger.free_path(&path, result)?;
            move_directory(result, theirs, &path, &free_path);
            // A leaf in this directory may clash, too: if their side renamed the directory `a`, whose subdirectory
            // `a/c` our side replaced by a file, this file follows the rename. Such a clash is moved with the
            // directory.
            for clash in clashes.iter_mut().filter(|clash| is_below(clash, &path)) {
                *clash = replace_prefix(clash, &path, &free_path);
            }
        } else {
            // Their side has the leaf, which gets another name.
            let leaf = result_entry.leaf.take();
            conflict.ours = merger.ours.entry(&path)?.map(|entry| TreeVersion::new(&path, entry));
            conflict.theirs = merger.theirs.entry(&path)?.map(|entry| TreeVersion::new(&path, entry));
            free_path = merger.free_path(&path, result)?;
            result.insert(free_path.clone(), ResultEntry { leaf, existing: None });
        }
        merger.report(TreeConflict { theirs_path_in_merged: Some(TreePath(free_path)), ..conflict });
    }
    Ok(())
}

/// Returns the paths of leaves of the result that are also directories, outermost first.
fn clashes(result: &ResultEntries, ours: &SideChanges<'_>, theirs: &SideChanges<'_>) -> Vec<Vec<u8>> {
    let is_directory = |path: &[u8]| {
        let added = |side: &SideChanges<'_>, is_relevant: fn(&EntryChange) -> bool| {
            let itself = side.directories.get_key_value(path).into_iter();
            itself
                .chain(below(&side.directories, path))
                .any(|(path, change)| side.has_added(path) && is_relevant(change))
        };
        // A directory that their side added is found by its leaves in the result. If none is there, because all wait
        // for a review, the directory is not created, so it cannot clash. Only empty directories have to be looked up.
        below(result, path).any(|(_, result_entry)| result_entry.leaf.is_some())
            || added(ours, |_| true)
            || added(theirs, EntryChange::is_empty_directory)
    };
    let leaves = result.iter().filter(|(_, result_entry)| result_entry.leaf.is_some());
    leaves.filter(|(path, _)| is_directory(path)).map(|(path, _)| path.clone()).collect()
}

/// Moves the directory of their side at a path, with its entries, to the path `to`. All entries below `path` are from
/// their tree, since our tree has a leaf at this path.
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
    /// Returns `path` with a suffix that makes it free: neither side nor `result` has an entry at or below it.
    pub(super) fn free_path<V>(&self, path: &[u8], result: &BTreeMap<Vec<u8>, V>) -> Result<Vec<u8>> {
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

/// Appends the suffix with a number to the last name of a path; 0 for no number. Shortens names that become too long.
fn with_suffix(path: &[u8], number: usize) -> Vec<u8> {
    let suffix = if number == 0 { THEIRS_SUFFIX.to_owned() } else { format!("{THEIRS_SUFFIX}{number}") };
    let name = truncate(name(path), NAME_MAX - suffix.len());
    join(parent(path).unwrap_or_default(), &[name, suffix.as_bytes()].concat())
}

/// Returns the longest prefix of at most `max` bytes that does not end inside a UTF-8 character.
fn truncate(name: &[u8], max: usize) -> &[u8] {
    let Some(next) = name.get(max) else { return name };
    let is_continuation = |byte: u8| byte & 0b1100_0000 == 0b1000_0000;
    if !is_continuation(*next) {
        return &name[..max];
    }
    // A UTF-8 character has at most three continuation bytes. If there are more in a row, the name is not UTF-8.
    let start = (max.saturating_sub(3)..max).rev().find(|index| !is_continuation(name[*index]));
    &name[..start.unwrap_or(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_not_cut_inside_a_character() {
        for character in ["x", "\u{e9}", "\u{6587}", "\u{1f600}"] {
            for offset in 0..4 {
                let long = "x".repeat(offset) + &character.repeat(255 / character.len());
                for number in [0, 1, 10] {
                    let path = with_suffix(format!("d/{long}").as_bytes(), number);
                    let text = String::from_utf8(path).unwrap();
                    let (stem, _) = text.strip_prefix("d/").unwrap().split_once(THEIRS_SUFFIX).unwrap();
                    assert!(long.starts_with(stem) && text.len() <= 2 + NAME_MAX, "{text}");
                    assert!(stem.len() > NAME_MAX - 16, "{text}");
                }
            }
        }
        // A name that is not UTF-8 may be cut anywhere.
        assert_eq!(with_suffix(&[0x80; 255], 0), [&[0x80_u8; 248][..], b"~theirs"].concat());
        assert_eq!(with_suffix(b"d/short", 2), b"d/short~theirs2");
    }
}
