//! Directory rename detection: files that one side added to a directory that the other renamed.
//!
//! A directory was renamed to the one that received most of its files. Files that the other side added to it
//! are moved there too, and a conflict reports it, since the target is a guess.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::changes::{Change, Changes};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::leaf::Merger;
use super::paths::{above, moved, name, parent};
use super::result::Result;
use super::slot::Slots;
use crate::file::Side;

/// Moves files that were added to renamed directories.
pub(super) fn relocate(
    merger: &mut Merger<'_>,
    slots: &mut Slots,
    ours: &mut Changes<'_>,
    theirs: &mut Changes<'_>,
) -> Result<()> {
    // Only directories to which the other side added something matter.
    let (mut by_ours, mut by_theirs) = (
        renamed_directories_of(ours, &theirs.directories_with_additions()),
        renamed_directories_of(theirs, &ours.directories_with_additions()),
    );
    let both: Vec<Vec<u8>> = by_ours.keys().filter(|path| by_theirs.contains_key(*path)).cloned().collect();
    for path in both {
        by_ours.remove(&path);
        by_theirs.remove(&path);
    }
    let additions = Additions { gone: &by_theirs, own: &by_ours, side: Side::Ours };
    additions.relocate(merger, slots, ours)?;
    directories_of_ours(&by_theirs, ours, theirs);
    let additions = Additions { gone: &by_ours, own: &by_theirs, side: Side::Theirs };
    additions.relocate(merger, slots, theirs)?;
    directories_of_theirs(&by_ours, theirs);
    Ok(())
}

/// New path of a renamed directory.
enum Renamed {
    To(Vec<u8>),
    /// Ambiguous: equally many files were moved to different directories.
    Ambiguous,
}

/// Returns the old and new paths of directories that one side renamed and whose attributes the other changed.
pub(super) fn changed_and_renamed(by: &Changes<'_>, other: &Changes<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let changed = other.directories.iter().filter(|(_, change)| change.is_edit());
    let changed: Vec<&[u8]> = changed.map(|(path, _)| &path[..]).collect();
    let gone = renamed_directories_of(by, &changed.iter().copied().flat_map(with_above).collect());
    let renamed = changed.iter().filter_map(|from| {
        // An empty directory moved with its parent.
        let found = with_above(from).find_map(|path| gone.get_key_value(path));
        match found? {
            (old, Renamed::To(to)) => Some((from.to_vec(), moved(from, old, to))),
            (_, Renamed::Ambiguous) => None,
        }
    });
    renamed.filter(|(_, to)| by.has_added(to)).collect()
}

fn with_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::once(path).chain(above(path))
}

/// Returns the new paths of those wanted directories that a side removed.
fn renamed_directories_of(side: &Changes<'_>, wanted: &HashSet<&[u8]>) -> BTreeMap<Vec<u8>, Renamed> {
    if !wanted.iter().any(|directory| side.has_removed(directory)) {
        return BTreeMap::new();
    }
    let mut counts: BTreeMap<&[u8], BTreeMap<&[u8], u64>> = BTreeMap::new();
    for (from, to) in &side.renames {
        if let Some(directory) = parent(from) {
            count(side, &mut counts, directory, parent(to).unwrap_or_default(), 1);
        }
    }
    for (from, moved) in &side.moved {
        count(side, &mut counts, from, &moved.to, moved.new.node.size());
    }
    let decided = counts.into_iter().filter(|(from, _)| wanted.contains(from)).map(|(from, counts)| {
        let most = counts.values().max().copied().unwrap_or_default();
        let mut best = counts.into_iter().filter(|(_, count)| *count == most).map(|(to, _)| to);
        let gone = match (best.next(), best.next()) {
            (Some(to), None) => Renamed::To(to.to_vec()),
            _ => Renamed::Ambiguous,
        };
        (from.to_vec(), gone)
    });
    decided.collect()
}

/// Counts a move of files between directories. As long as the names agree, it also counts for the parents.
fn count<'p>(
    side: &Changes<'_>,
    counts: &mut BTreeMap<&'p [u8], BTreeMap<&'p [u8], u64>>,
    mut from: &'p [u8],
    mut to: &'p [u8],
    files: u64,
) {
    loop {
        if side.has_removed(from) {
            *counts.entry(from).or_default().entry(to).or_default() += files;
        }
        if name(from) != name(to) {
            return;
        }
        match (parent(from), to.is_empty()) {
            (Some(above), false) => (from, to) = (above, parent(to).unwrap_or_default()),
            _ => return,
        }
    }
}

/// Files that one side added.
struct Additions<'a> {
    /// Renames by the other side.
    gone: &'a BTreeMap<Vec<u8>, Renamed>,
    /// Renames by the same side.
    own: &'a BTreeMap<Vec<u8>, Renamed>,
    side: Side,
}

impl Additions<'_> {
    fn relocate(&self, merger: &mut Merger<'_>, slots: &mut Slots, side: &mut Changes<'_>) -> Result<()> {
        if self.gone.is_empty() {
            return Ok(());
        }
        let added = side.leaves.iter().filter(|(_, change)| change.old.is_none() && change.new.is_some());
        let added: Vec<Vec<u8>> = added.map(|(path, _)| path.clone()).collect();
        let mut wanted: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        for path in added {
            match nearest(self.gone, &path) {
                None => {}
                Some((_, Renamed::Ambiguous)) => {
                    self.report(merger, slots, ConflictClass::DirectoryRename, &path, &path);
                }
                Some((from, Renamed::To(to))) => {
                    let target = moved(&path, from, to);
                    let is_renamed_too =
                        parent(&target).is_some_and(|directory| self.own.contains_key(directory));
                    // Entries of ours stay in place until the rename has been reviewed.
                    let waits = self.side == Side::Ours && merger.requires_review(&path, &target);
                    if !is_renamed_too && !waits {
                        wanted.entry(target).or_default().push(path);
                    }
                }
            }
        }
        let renamed = side.renames.iter().map(|(from, to)| (to.clone(), from.clone()));
        let renamed: HashMap<Vec<u8>, Vec<u8>> = renamed.collect();
        for (target, paths) in wanted {
            let is_taken = paths.len() > 1 || side.tree.entry(&target)?.is_some();
            for path in paths {
                if is_taken {
                    self.report(merger, slots, ConflictClass::DirectoryRename, &path, &path);
                } else {
                    self.report(merger, slots, ConflictClass::FileLocation, &path, &target);
                    self.put(slots, &path, &target);
                    if let Some(from) = renamed.get(&path) {
                        side.renames.insert(from.clone(), target.clone());
                    }
                }
            }
        }
        Ok(())
    }

    fn report(
        &self,
        merger: &mut Merger<'_>,
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

    fn put(&self, slots: &mut Slots, path: &[u8], target: &[u8]) {
        let version = slots.get_mut(path).and_then(|slot| slot.side_mut(self.side).take());
        *slots.entry(target.to_vec()).or_default().side_mut(self.side) = version;
    }
}

/// Returns the innermost renamed directory above a path.
fn nearest<'g>(gone: &'g BTreeMap<Vec<u8>, Renamed>, path: &[u8]) -> Option<(&'g [u8], &'g Renamed)> {
    above(path).find_map(|directory| gone.get_key_value(directory)).map(|(from, gone)| (&from[..], gone))
}

/// Moves directories that theirs added into renamed directories.
fn directories_of_theirs(gone: &BTreeMap<Vec<u8>, Renamed>, theirs: &mut Changes<'_>) {
    for (path, target) in added_in(gone, theirs) {
        if let Some(change) = theirs.directories.remove(&path) {
            theirs.directories.entry(target).or_insert(change);
        }
    }
}

/// Marks directories that ours added to renamed directories as removed by theirs, so that they are dropped
/// when empty.
fn directories_of_ours(gone: &BTreeMap<Vec<u8>, Renamed>, ours: &Changes<'_>, theirs: &mut Changes<'_>) {
    for (path, _) in added_in(gone, ours) {
        let old = ours.directories.get(&path).and_then(|change| change.new.clone());
        theirs.directories.entry(path).or_insert(Change { old, new: None });
    }
}

fn added_in(gone: &BTreeMap<Vec<u8>, Renamed>, side: &Changes<'_>) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    if gone.is_empty() {
        return BTreeSet::new();
    }
    let added = side.directories.keys().filter(|path| side.has_added(path));
    let targets = added.filter_map(|path| match nearest(gone, path)? {
        (from, Renamed::To(to)) => Some((path.clone(), moved(path, from, to))),
        (_, Renamed::Ambiguous) => None,
    });
    targets.collect()
}
