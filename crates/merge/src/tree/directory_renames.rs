//! Directory rename detection: files that one side added to a directory that the other side renamed.
//!
//! The new path of a renamed directory is the directory that received most of its files. Files that the other
//! side added to the old directory are moved to this directory, and reported as conflicts, since its path is a guess.
//! A move of a file moves its version to another slot (base, ours and theirs of one path).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use workspace_state::Node;

use super::changes::{EntryChange, SideChanges};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::leaf::TreeMerger;
use super::paths::{ancestors, name, parent, replace_prefix};
use super::result::Result;
use super::slot::Slots;
use crate::file::Side;

/// Moves files that one side added to directories that the other side renamed.
pub(super) fn apply(
    merger: &mut TreeMerger<'_>,
    slots: &mut Slots,
    ours: &mut SideChanges<'_>,
    theirs: &mut SideChanges<'_>,
) -> Result<()> {
    // Only renamed directories to which the other side added files are relevant.
    let (mut renamed_by_ours, mut renamed_by_theirs) = (
        find_renamed_directories(ours, &theirs.directories_with_additions()),
        find_renamed_directories(theirs, &ours.directories_with_additions()),
    );
    // Directories that both sides renamed are left alone.
    let renamed_by_both: Vec<Vec<u8>> =
        renamed_by_ours.keys().filter(|path| renamed_by_theirs.contains_key(*path)).cloned().collect();
    for path in renamed_by_both {
        renamed_by_ours.remove(&path);
        renamed_by_theirs.remove(&path);
    }
    let renamed =
        RenamedDirectories { side: Side::Ours, by_other: &renamed_by_theirs, by_same: &renamed_by_ours };
    renamed.relocate_additions(merger, slots, ours)?;
    mark_moved_directories_of_ours(&renamed_by_theirs, ours, theirs);
    let renamed =
        RenamedDirectories { side: Side::Theirs, by_other: &renamed_by_ours, by_same: &renamed_by_theirs };
    renamed.relocate_additions(merger, slots, theirs)?;
    relocate_directories_of_theirs(&renamed_by_ours, theirs);
    Ok(())
}

/// New path of a renamed directory.
enum RenameTarget {
    Path(Vec<u8>),
    /// No single new path: several directories received the same, largest number of files.
    Ambiguous,
}

/// Returns the old and new paths of directories that the side `renaming` renamed and whose attributes the other side
/// changed.
pub(super) fn changed_and_renamed(
    renaming: &SideChanges<'_>,
    other: &SideChanges<'_>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let changed = other.directories.iter().filter(|(_, change)| change.is_edit());
    let changed: Vec<&[u8]> = changed.map(|(path, _)| &path[..]).collect();
    let renamed_directories =
        find_renamed_directories(renaming, &changed.iter().copied().flat_map(with_ancestors).collect());
    let renamed = changed.iter().filter_map(|from| {
        // A renamed directory without files is detected only if a directory above it was renamed.
        let innermost = with_ancestors(from).find_map(|path| renamed_directories.get_key_value(path));
        match innermost? {
            (old, RenameTarget::Path(to)) => Some((from.to_vec(), replace_prefix(from, old, to))),
            (_, RenameTarget::Ambiguous) => None,
        }
    });
    renamed.filter(|(_, to)| renaming.has_added(to)).collect()
}

/// Iterates over a path and its parent directories, innermost first, without the root.
fn with_ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::once(path).chain(ancestors(path))
}

/// Returns the old and new paths of those of `directories` that a side renamed.
fn find_renamed_directories(
    side: &SideChanges<'_>,
    directories: &HashSet<&[u8]>,
) -> BTreeMap<Vec<u8>, RenameTarget> {
    if !directories.iter().any(|directory| side.has_removed(directory)) {
        return BTreeMap::new();
    }
    // Number of moved entries, by old and new directory.
    let mut counts: BTreeMap<&[u8], BTreeMap<&[u8], u64>> = BTreeMap::new();
    for (from, to) in &side.renames {
        if let Some(directory) = parent(from) {
            count_move(side, &mut counts, directory, parent(to).unwrap_or_default(), 1);
        }
    }
    for (from, moved) in &side.directory_moves {
        // `renames` does not contain the entries of a directory that was moved as a whole.
        let Node::Directory(directory) = &moved.new.node else { continue };
        count_move(side, &mut counts, from, &moved.to, directory.entries);
    }
    let renamed = counts.into_iter().filter(|(from, _)| directories.contains(from)).map(|(from, counts)| {
        let maximum = counts.values().max().copied().unwrap_or_default();
        let mut best = counts.into_iter().filter(|(_, count)| *count == maximum).map(|(to, _)| to);
        let target = match (best.next(), best.next()) {
            (Some(to), None) => RenameTarget::Path(to.to_vec()),
            _ => RenameTarget::Ambiguous,
        };
        (from.to_vec(), target)
    });
    renamed.collect()
}

/// Counts a move of entries from one directory to another. If both directories have the same name, the move also counts
/// as one between their parents, and so on. Only directories that the side removed are counted.
fn count_move<'p>(
    side: &SideChanges<'_>,
    counts: &mut BTreeMap<&'p [u8], BTreeMap<&'p [u8], u64>>,
    mut from: &'p [u8],
    mut to: &'p [u8],
    entries: u64,
) {
    loop {
        if side.has_removed(from) {
            *counts.entry(from).or_default().entry(to).or_default() += entries;
        }
        if name(from) != name(to) {
            return;
        }
        match (parent(from), to.is_empty()) {
            (Some(directory), false) => (from, to) = (directory, parent(to).unwrap_or_default()),
            _ => return,
        }
    }
}

/// Renamed directories that matter for the files that one side added.
struct RenamedDirectories<'a> {
    /// Side that added the files.
    side: Side,
    /// Directories that the other side renamed. Files that `side` added to them move to the new path.
    by_other: &'a BTreeMap<Vec<u8>, RenameTarget>,
    /// Directories that `side` itself renamed.
    by_same: &'a BTreeMap<Vec<u8>, RenameTarget>,
}

impl RenamedDirectories<'_> {
    /// Moves added files to the new paths of their directories, and reports a conflict for each.
    fn relocate_additions(
        &self,
        merger: &mut TreeMerger<'_>,
        slots: &mut Slots,
        side: &mut SideChanges<'_>,
    ) -> Result<()> {
        if self.by_other.is_empty() {
            return Ok(());
        }
        let added = side.leaves.iter().filter(|(_, change)| change.old.is_none() && change.new.is_some());
        let added: Vec<Vec<u8>> = added.map(|(path, _)| path.clone()).collect();
        let mut paths_by_target: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        for path in added {
            match innermost_renamed(self.by_other, &path) {
                None => {}
                Some((_, RenameTarget::Ambiguous)) => {
                    self.report(merger, slots, ConflictClass::DirectoryRename, &path, &path);
                }
                Some((from, RenameTarget::Path(to))) => {
                    let target = replace_prefix(&path, from, to);
                    let is_renamed_too =
                        parent(&target).is_some_and(|directory| self.by_same.contains_key(directory));
                    // Our files stay in place if the rename requires a review (a decision by a person).
                    let is_held = self.side == Side::Ours && merger.rename_requires_review(&path, &target);
                    if !is_renamed_too && !is_held {
                        paths_by_target.entry(target).or_default().push(path);
                    }
                }
            }
        }
        let old_paths = side.renames.iter().map(|(from, to)| (to.clone(), from.clone()));
        let old_paths: HashMap<Vec<u8>, Vec<u8>> = old_paths.collect();
        for (target, paths) in paths_by_target {
            let is_taken = paths.len() > 1 || side.tree.entry(&target)?.is_some();
            for path in paths {
                if is_taken {
                    self.report(merger, slots, ConflictClass::DirectoryRename, &path, &path);
                } else {
                    self.report(merger, slots, ConflictClass::FileLocation, &path, &target);
                    self.move_version(slots, &path, &target);
                    if let Some(from) = old_paths.get(&path) {
                        side.renames.insert(from.clone(), target.clone());
                    }
                }
            }
        }
        Ok(())
    }

    fn report(
        &self,
        merger: &mut TreeMerger<'_>,
        slots: &Slots,
        class: ConflictClass,
        path: &[u8],
        target: &[u8],
    ) {
        let version: Option<TreeVersion> = slots.get(path).and_then(|slot| slot.side(self.side).clone());
        let mut conflict = TreeConflict::new(class, target);
        match self.side {
            Side::Ours => conflict.ours = version,
            Side::Theirs => conflict.theirs = version,
        }
        merger.report(conflict);
    }

    /// Moves the version of the side from the slot of `path` to the slot of `target`.
    fn move_version(&self, slots: &mut Slots, path: &[u8], target: &[u8]) {
        let version = slots.get_mut(path).and_then(|slot| slot.side_mut(self.side).take());
        *slots.entry(target.to_vec()).or_default().side_mut(self.side) = version;
    }
}

/// Returns the innermost renamed directory above a path, with its new path.
fn innermost_renamed<'g>(
    renamed_directories: &'g BTreeMap<Vec<u8>, RenameTarget>,
    path: &[u8],
) -> Option<(&'g [u8], &'g RenameTarget)> {
    ancestors(path)
        .find_map(|directory| renamed_directories.get_key_value(directory))
        .map(|(from, target)| (&from[..], target))
}

/// Changes the paths of directories that their side added in renamed directories.
fn relocate_directories_of_theirs(
    renamed_directories: &BTreeMap<Vec<u8>, RenameTarget>,
    theirs: &mut SideChanges<'_>,
) {
    for (path, target) in added_directories_in(renamed_directories, theirs) {
        if let Some(change) = theirs.directories.remove(&path) {
            theirs.directories.entry(target).or_insert(change);
        }
    }
}

/// Marks directories that our side added in renamed directories as removed by their side. Their files move to the new
/// path, and a removed directory is dropped from the result if it is empty.
fn mark_moved_directories_of_ours(
    renamed_directories: &BTreeMap<Vec<u8>, RenameTarget>,
    ours: &SideChanges<'_>,
    theirs: &mut SideChanges<'_>,
) {
    for (path, _) in added_directories_in(renamed_directories, ours) {
        let old = ours.directories.get(&path).and_then(|change| change.new.clone());
        theirs.directories.entry(path).or_insert(EntryChange { old, new: None });
    }
}

/// Returns the paths of directories that a side added in renamed directories, each with its new path.
fn added_directories_in(
    renamed_directories: &BTreeMap<Vec<u8>, RenameTarget>,
    side: &SideChanges<'_>,
) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    if renamed_directories.is_empty() {
        return BTreeSet::new();
    }
    let added = side.directories.keys().filter(|path| side.has_added(path));
    let targets = added.filter_map(|path| match innermost_renamed(renamed_directories, path)? {
        (from, RenameTarget::Path(to)) => Some((path.clone(), replace_prefix(path, from, to))),
        (_, RenameTarget::Ambiguous) => None,
    });
    targets.collect()
}
