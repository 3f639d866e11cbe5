//! Slots: the three versions of an entry.

use std::collections::BTreeMap;

use workspace_state::Entry;

use super::changes::{Change, Changes};
use super::conflict::TreeVersion;
use crate::file::Side;

/// The three versions of the entry that belongs at a path. Renames move versions here from other paths.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) base: Option<TreeVersion>,
    pub(super) ours: Option<TreeVersion>,
    pub(super) theirs: Option<TreeVersion>,
    /// Entry of ours at this path, before renames are followed.
    pub(super) present: Option<Entry>,
}

impl Slot {
    /// Returns the version of a side.
    pub(super) fn side(&self, side: Side) -> &Option<TreeVersion> {
        match side {
            Side::Ours => &self.ours,
            Side::Theirs => &self.theirs,
        }
    }

    pub(super) fn side_mut(&mut self, side: Side) -> &mut Option<TreeVersion> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }
}

/// Returns whether two versions are equal, or both absent.
pub(super) fn same(a: Option<&TreeVersion>, b: Option<&TreeVersion>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.entry.node == b.entry.node,
        (None, None) => true,
        _ => false,
    }
}

/// Slots by path.
pub(super) type Slots = BTreeMap<Vec<u8>, Slot>;

/// Creates a slot for each leaf that either side changed.
pub(super) fn slots(ours: &Changes<'_>, theirs: &Changes<'_>) -> Slots {
    let mut slots = slots_of_theirs(ours, theirs);
    for path in ours.leaves.keys() {
        if !slots.contains_key(path) {
            slots.insert(path.clone(), slot(path, ours, theirs));
        }
    }
    slots
}

/// Creates a slot for each leaf that theirs changed.
pub(super) fn slots_of_theirs(ours: &Changes<'_>, theirs: &Changes<'_>) -> Slots {
    theirs.leaves.keys().map(|path| (path.clone(), slot(path, ours, theirs))).collect()
}

fn slot(path: &[u8], ours: &Changes<'_>, theirs: &Changes<'_>) -> Slot {
    let (by_ours, by_theirs) = (ours.leaves.get(path), theirs.leaves.get(path));
    let base = by_ours.or(by_theirs).and_then(|change| change.old.clone());
    let side = |change: Option<&Change>| match change {
        Some(change) => change.new.clone(),
        None => base.clone(),
    };
    let (ours, theirs) = (side(by_ours), side(by_theirs));
    let version = |entry: Option<Entry>| entry.map(|entry| TreeVersion::new(path, entry));
    let present = ours.clone();
    Slot { base: version(base), ours: version(ours), theirs: version(theirs), present }
}
