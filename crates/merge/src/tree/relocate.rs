//! Directories that one side renamed, and what the other put into them.
//!
//! A directory has gone to where most of its files went. What the other side added to it is put there as well, and a
//! conflict says so: nobody has said that it belongs there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Result;
use super::changes::{Change, Changes};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::leaf::Merger;
use super::paths::{above, moved, name, parent};
use super::slot::Slots;
use crate::file::Side;

/// Moves what was added to directories that are elsewhere now.
pub(super) fn relocate(
    merger: &mut Merger<'_>,
    slots: &mut Slots,
    ours: &mut Changes<'_>,
    theirs: &mut Changes<'_>,
) -> Result<()> {
    // What matters are those that the other side added something to.
    let (mut by_ours, mut by_theirs) = (gone_to(ours, &theirs.filled()), gone_to(theirs, &ours.filled()));
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

/// Where a directory went.
enum Gone {
    To(Vec<u8>),
    /// As many files went to one place as to another.
    Apart,
}

/// Where directories are now that one side renamed and the other gave other attributes.
pub(super) fn changed_and_renamed(by: &Changes<'_>, other: &Changes<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let changed = other.directories.iter().filter(|(_, change)| change.is_edit());
    let changed: Vec<&[u8]> = changed.map(|(path, _)| &path[..]).collect();
    let gone = gone_to(by, &changed.iter().copied().flat_map(with_above).collect());
    let renamed = changed.iter().filter_map(|from| {
        // An empty one went where the one around it went.
        let found = with_above(from).find_map(|path| gone.get_key_value(path));
        match found? {
            (old, Gone::To(to)) => Some((from.to_vec(), moved(from, old, to))),
            (_, Gone::Apart) => None,
        }
    });
    renamed.filter(|(_, to)| by.has_added(to)).collect()
}

fn with_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::once(path).chain(above(path))
}

/// Where those of some directories went that a side has not any more.
fn gone_to(side: &Changes<'_>, wanted: &HashSet<&[u8]>) -> BTreeMap<Vec<u8>, Gone> {
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
            (Some(to), None) => Gone::To(to.to_vec()),
            _ => Gone::Apart,
        };
        (from.to_vec(), gone)
    });
    decided.collect()
}

/// A file that went from one directory to another says the same of the directories above, as far as their names agree.
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

/// What one side added.
struct Additions<'a> {
    /// Where the other side's directories went.
    gone: &'a BTreeMap<Vec<u8>, Gone>,
    /// Where its own went.
    own: &'a BTreeMap<Vec<u8>, Gone>,
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
                Some((_, Gone::Apart)) => {
                    self.tell(merger, slots, ConflictClass::DirectoryRename, &path, &path);
                }
                Some((from, Gone::To(to))) => {
                    let place = moved(&path, from, to);
                    let is_renamed_too =
                        parent(&place).is_some_and(|directory| self.own.contains_key(directory));
                    // What ours has stays where it is until somebody has looked at the rename.
                    let waits = self.side == Side::Ours && merger.wants_review(&path, &place);
                    if !is_renamed_too && !waits {
                        wanted.entry(place).or_default().push(path);
                    }
                }
            }
        }
        let renamed = side.renames.iter().map(|(from, to)| (to.clone(), from.clone()));
        let renamed: HashMap<Vec<u8>, Vec<u8>> = renamed.collect();
        for (place, paths) in wanted {
            let is_taken = paths.len() > 1 || side.tree.entry(&place)?.is_some();
            for path in paths {
                if is_taken {
                    self.tell(merger, slots, ConflictClass::DirectoryRename, &path, &path);
                } else {
                    self.tell(merger, slots, ConflictClass::FileLocation, &path, &place);
                    self.put(slots, &path, &place);
                    if let Some(from) = renamed.get(&path) {
                        side.renames.insert(from.clone(), place.clone());
                    }
                }
            }
        }
        Ok(())
    }

    fn tell(&self, merger: &mut Merger<'_>, slots: &Slots, class: ConflictClass, path: &[u8], place: &[u8]) {
        let version: Option<TreeVersion> = slots.get(path).and_then(|slot| slot.side(self.side).clone());
        let mut conflict = TreeConflict::new(class, place);
        match self.side {
            Side::Ours => conflict.ours = version,
            Side::Theirs => conflict.theirs = version,
        }
        merger.tell(conflict);
    }

    fn put(&self, slots: &mut Slots, path: &[u8], place: &[u8]) {
        let version = slots.get_mut(path).and_then(|slot| slot.side_mut(self.side).take());
        *slots.entry(place.to_vec()).or_default().side_mut(self.side) = version;
    }
}

/// The innermost directory above a path that is elsewhere now.
fn nearest<'g>(gone: &'g BTreeMap<Vec<u8>, Gone>, path: &[u8]) -> Option<(&'g [u8], &'g Gone)> {
    above(path).find_map(|directory| gone.get_key_value(directory)).map(|(from, gone)| (&from[..], gone))
}

/// Directories that theirs added are made where their files went.
fn directories_of_theirs(gone: &BTreeMap<Vec<u8>, Gone>, theirs: &mut Changes<'_>) {
    for (path, place) in added_in(gone, theirs) {
        if let Some(change) = theirs.directories.remove(&path) {
            theirs.directories.entry(place).or_insert(change);
        }
    }
}

/// Directories that ours added go when nothing is left in them, as if theirs had removed them.
fn directories_of_ours(gone: &BTreeMap<Vec<u8>, Gone>, ours: &Changes<'_>, theirs: &mut Changes<'_>) {
    for (path, _) in added_in(gone, ours) {
        let old = ours.directories.get(&path).and_then(|change| change.new.clone());
        theirs.directories.entry(path).or_insert(Change { old, new: None });
    }
}

fn added_in(gone: &BTreeMap<Vec<u8>, Gone>, side: &Changes<'_>) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    if gone.is_empty() {
        return BTreeSet::new();
    }
    let added = side.directories.keys().filter(|path| side.has_added(path));
    let places = added.filter_map(|path| match nearest(gone, path)? {
        (from, Gone::To(to)) => Some((path.clone(), moved(path, from, to))),
        (_, Gone::Apart) => None,
    });
    places.collect()
}
