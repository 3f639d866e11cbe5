//! Collection of the versions of renamed files in the slot of the new name.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use workspace_state::TreePath;

use super::changes::Changes;
use super::conflict::{ConflictClass, TreeConflict};
use super::leaf::Merger;
use super::result::Result;
use super::slot::{Slot, Slots, same};
use crate::file::Side;

/// Moves versions to the paths to which the other side renamed them.
pub(super) fn follow(
    merger: &mut Merger<'_>,
    slots: &mut Slots,
    ours: &Changes<'_>,
    theirs: &Changes<'_>,
) -> Result<()> {
    let ours = &ours.renames;
    let mut theirs: BTreeMap<&Vec<u8>, &Vec<u8>> = theirs.renames.iter().collect();
    theirs.retain(|from, to| ours.get(*from) == Some(to) || !merger.hold_rename_for_review(from, to));
    let sources: BTreeSet<&Vec<u8>> = ours.keys().chain(theirs.keys().copied()).collect();
    let ours_targets = ours.values().cloned().collect();
    let theirs_targets = theirs.values().map(|to| (*to).clone()).collect();
    let mut following = Following { merger, slots, beside: BTreeMap::new(), ours_targets, theirs_targets };
    for from in sources {
        match (ours.get(from), theirs.get(from).copied()) {
            (Some(here), Some(there)) if here == there => following.same(from, here),
            (Some(here), Some(there)) => following.two_names(from, here, there),
            (Some(to), None) => following.one(Side::Ours, from, to)?,
            (None, Some(to)) => following.one(Side::Theirs, from, to)?,
            (None, None) => {}
        }
    }
    Ok(())
}

struct Following<'a, 'm> {
    merger: &'a mut Merger<'m>,
    slots: &'a mut Slots,
    /// Path for the entry of theirs, by new name, if both sides use the same new name.
    beside: BTreeMap<Vec<u8>, Vec<u8>>,
    /// New names given by each side.
    ours_targets: HashSet<Vec<u8>>,
    theirs_targets: HashSet<Vec<u8>>,
}

impl Following<'_, '_> {
    fn slot(&mut self, path: &[u8]) -> &mut Slot {
        self.slots.entry(path.to_vec()).or_default()
    }

    /// Handles a rename to the same name by both sides.
    fn same(&mut self, from: &[u8], to: &[u8]) {
        let base = self.slot(from).base.take();
        self.slot(to).base = base;
    }

    /// Handles renames to different names: both are kept.
    fn two_names(&mut self, from: &[u8], here: &[u8], there: &[u8]) {
        let base = self.slot(from).base.take();
        let (ours, theirs) = (self.slot(here).ours.clone(), self.slot(there).theirs.clone());
        let beside = Some(TreePath(there.to_vec()));
        let conflict = TreeConflict::new(ConflictClass::RenameRename, here);
        self.merger.report(TreeConflict { base, ours, theirs, beside, ..conflict });
    }

    /// Handles a rename by one side only.
    fn one(&mut self, side: Side, from: &[u8], to: &[u8]) -> Result<()> {
        let other = side.other();
        let slot = self.slot(from);
        let Some(base) = slot.base.clone() else { return Ok(()) };
        let Some(changed) = slot.side(other).clone() else {
            slot.base = None;
            self.removed(side, to, base);
            return Ok(());
        };
        if changed.entry.node.kind() != base.entry.node.kind() {
            // The other side replaced the file with an entry of another type: for the file that is a removal.
            slot.base = None;
            self.removed(side, to, base);
            return Ok(());
        }
        let is_changed = changed.entry.node != base.entry.node;
        let is_split = self.beside.contains_key(to);
        let target = self.slot(to);
        if target.side(other).is_some() && !is_split {
            if !is_changed && same(target.ours.as_ref(), target.theirs.as_ref()) {
                return Ok(());
            }
            self.split(other, from, to)?;
        }
        let to = match (side, self.beside.get(to)) {
            (Side::Theirs, Some(beside)) => beside.clone(),
            _ => to.to_vec(),
        };
        let target = self.slot(&to);
        target.base = Some(base);
        *target.side_mut(other) = Some(changed);
        let source = self.slot(from);
        (source.base, *source.side_mut(other)) = (None, None);
        Ok(())
    }

    fn removed(&mut self, side: Side, to: &[u8], base: super::TreeVersion) {
        let mut conflict = TreeConflict::new(ConflictClass::RenameDelete, to);
        let version = self.slot(to).side(side).clone();
        match side {
            Side::Ours => conflict.ours = version,
            Side::Theirs => conflict.theirs = version,
        }
        self.merger.report(TreeConflict { base: Some(base), ..conflict });
    }

    /// Separates two entries of the same name, at least one of which was renamed to it.
    fn split(&mut self, other: Side, from: &[u8], to: &[u8]) -> Result<()> {
        let is_rename = match other {
            Side::Ours => self.ours_targets.contains(to),
            Side::Theirs => self.theirs_targets.contains(to),
        };
        let class = if is_rename { ConflictClass::RenameRename } else { ConflictClass::RenameAdd };
        let free_path = self.merger.free_name(to, self.slots)?;
        let base = self.slot(from).base.clone();
        let target = self.slot(to);
        let theirs = target.theirs.take();
        let ours = target.ours.clone();
        let beside = Some(TreePath(free_path.clone()));
        let conflict =
            TreeConflict { base, ours, theirs: theirs.clone(), beside, ..TreeConflict::new(class, to) };
        self.slot(&free_path).theirs = theirs;
        self.beside.insert(to.to_vec(), free_path);
        self.merger.report(conflict);
        Ok(())
    }
}
