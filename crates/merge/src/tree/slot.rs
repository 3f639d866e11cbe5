//! Slots: the three versions (base, ours and theirs) of the leaf (file or symlink) at a path.

use std::collections::BTreeMap;

use workspace_state::Entry;

use super::changes::{EntryChange, SideChanges};
use super::conflict::TreeVersion;
use crate::file::Side;

/// Three versions that are merged to the leaf at a path of the result. Renames move versions between slots.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) base: Option<TreeVersion>,
    pub(super) ours: Option<TreeVersion>,
    pub(super) theirs: Option<TreeVersion>,
    /// Leaf of our tree at this path. Unlike `ours`, it stays in this slot if a rename moves versions.
    pub(super) existing: Option<Entry>,
}

impl Slot {
    /// Returns the version of a side.
    pub(super) fn side(&self, side: Side) -> &Option<TreeVersion> {
        match side {
            Side::Ours => &self.ours,
            Side::Theirs => &self.theirs,
        }
    }

    /// Returns the version of a side, to change it.
    pub(super) fn side_mut(&mut self, side: Side) -> &mut Option<TreeVersion> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }
}

/// Returns true if two versions have equal content and attributes, or both are absent. Paths and times may differ.
pub(super) fn are_equal(a: Option<&TreeVersion>, b: Option<&TreeVersion>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.entry.node == b.entry.node,
        (None, None) => true,
        _ => false,
    }
}

/// Slots by path.
pub(super) type Slots = BTreeMap<Vec<u8>, Slot>;

/// Creates a slot for each leaf that either side changed.
pub(super) fn slots(ours: &SideChanges<'_>, theirs: &SideChanges<'_>) -> Slots {
    let mut slots = slots_of_theirs(ours, theirs);
    for path in ours.leaves.keys() {
        if !slots.contains_key(path) {
            slots.insert(path.clone(), slot(path, ours, theirs));
        }
    }
    slots
}

/// Creates a slot for each leaf that their side changed.
pub(super) fn slots_of_theirs(ours: &SideChanges<'_>, theirs: &SideChanges<'_>) -> Slots {
    theirs.leaves.keys().map(|path| (path.clone(), slot(path, ours, theirs))).collect()
}

/// Creates the slot of a path. A side without a change has the version of the base.
fn slot(path: &[u8], ours: &SideChanges<'_>, theirs: &SideChanges<'_>) -> Slot {
    let (our_change, their_change) = (ours.leaves.get(path), theirs.leaves.get(path));
    let base = our_change.or(their_change).and_then(|change| change.old.clone());
    let side = |change: Option<&EntryChange>| match change {
        Some(change) => change.new.clone(),
        None => base.clone(),
    };
    let (ours, theirs) = (side(our_change), side(their_change));
    let version = |entry: Option<Entry>| entry.map(|entry| TreeVersion::new(path, entry));
    let existing = ours.clone();
    Slot { base: version(base), ours: version(ours), theirs: version(theirs), existing }
}
