//! Applies renames of files to the slots. A slot has the base, ours and theirs of one path. If one side renamed a file,
//! its other versions move to the slot of the new path, so that changes by the other side follow the rename.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use workspace_state::TreePath;

use super::changes::SideChanges;
use super::conflict::{ConflictClass, TreeConflict};
use super::leaf::TreeMerger;
use super::result::Result;
use super::slot::{Slot, Slots, are_equal};
use crate::file::Side;

/// Moves versions of renamed files to the slots of their new paths, and reports conflicts between renames.
pub(super) fn apply(
    merger: &mut TreeMerger<'_>,
    slots: &mut Slots,
    ours: &SideChanges<'_>,
    theirs: &SideChanges<'_>,
) -> Result<()> {
    let ours = &ours.renames;
    let mut theirs: BTreeMap<&Vec<u8>, &Vec<u8>> = theirs.renames.iter().collect();
    // A rename by their side that requires a review (a decision by a person) is held back: both paths keep our entries.
    theirs.retain(|from, to| ours.get(*from) == Some(to) || !merger.try_hold_for_review(from, to));
    let sources: BTreeSet<&Vec<u8>> = ours.keys().chain(theirs.keys().copied()).collect();
    let ours_targets = ours.values().cloned().collect();
    let theirs_targets = theirs.values().map(|to| (*to).clone()).collect();
    let mut applier =
        RenameApplier { merger, slots, theirs_paths: BTreeMap::new(), ours_targets, theirs_targets };
    for from in sources {
        match (ours.get(from), theirs.get(from).copied()) {
            (Some(our_target), Some(their_target)) if our_target == their_target => {
                applier.renamed_by_both(from, our_target);
            }
            (Some(our_target), Some(their_target)) => {
                applier.renamed_differently(from, our_target, their_target);
            }
            (Some(to), None) => applier.renamed_by(Side::Ours, from, to)?,
            (None, Some(to)) => applier.renamed_by(Side::Theirs, from, to)?,
            (None, None) => {}
        }
    }
    Ok(())
}

/// State of moving versions to the slots of their new paths.
struct RenameApplier<'a, 'm> {
    merger: &'a mut TreeMerger<'m>,
    slots: &'a mut Slots,
    /// Free paths to which [`Self::split`] moved entries of their side, by the path that entries of both sides had.
    theirs_paths: BTreeMap<Vec<u8>, Vec<u8>>,
    /// New paths of files that our side renamed.
    ours_targets: HashSet<Vec<u8>>,
    /// New paths of files that their side renamed.
    theirs_targets: HashSet<Vec<u8>>,
}

impl RenameApplier<'_, '_> {
    /// Returns the slot of a path; creates an empty slot if there is none.
    fn slot(&mut self, path: &[u8]) -> &mut Slot {
        self.slots.entry(path.to_vec()).or_default()
    }

    /// Handles a rename of one file to the same path by both sides.
    fn renamed_by_both(&mut self, from: &[u8], to: &[u8]) {
        let base = self.slot(from).base.take();
        self.slot(to).base = base;
    }

    /// Handles renames of one file to different paths by the two sides. The result has the file at both paths.
    fn renamed_differently(&mut self, from: &[u8], our_target: &[u8], their_target: &[u8]) {
        let base = self.slot(from).base.take();
        let (ours, theirs) = (self.slot(our_target).ours.clone(), self.slot(their_target).theirs.clone());
        let theirs_path_in_merged = Some(TreePath(their_target.to_vec()));
        let conflict = TreeConflict::new(ConflictClass::RenameRename, our_target);
        self.merger.report(TreeConflict { base, ours, theirs, theirs_path_in_merged, ..conflict });
    }

    /// Handles a rename by one side only: moves the base and the version of the other side to the new path.
    fn renamed_by(&mut self, side: Side, from: &[u8], to: &[u8]) -> Result<()> {
        let other = side.other();
        let slot = self.slot(from);
        let Some(base) = slot.base.clone() else { return Ok(()) };
        let Some(changed) = slot.side(other).clone() else {
            slot.base = None;
            self.report_removed(side, to, base);
            return Ok(());
        };
        if changed.entry.node.kind() != base.entry.node.kind() {
            // Replacing the file with an entry of another type counts as a removal of the file.
            slot.base = None;
            self.report_removed(side, to, base);
            return Ok(());
        }
        let is_changed = changed.entry.node != base.entry.node;
        let is_split = self.theirs_paths.contains_key(to);
        let target = self.slot(to);
        if target.side(other).is_some() && !is_split {
            // The other side has an equal entry at the new path, and did not change the file at the old path.
            if !is_changed && are_equal(target.ours.as_ref(), target.theirs.as_ref()) {
                return Ok(());
            }
            self.split(other, from, to)?;
        }
        let to = match (side, self.theirs_paths.get(to)) {
            (Side::Theirs, Some(theirs_path)) => theirs_path.clone(),
            _ => to.to_vec(),
        };
        let target = self.slot(&to);
        target.base = Some(base);
        *target.side_mut(other) = Some(changed);
        let source = self.slot(from);
        (source.base, *source.side_mut(other)) = (None, None);
        Ok(())
    }

    /// Reports that the other side removed a file that `side` renamed to `to`.
    fn report_removed(&mut self, side: Side, to: &[u8], base: super::TreeVersion) {
        let mut conflict = TreeConflict::new(ConflictClass::RenameDelete, to);
        let version = self.slot(to).side(side).clone();
        match side {
            Side::Ours => conflict.ours = version,
            Side::Theirs => conflict.theirs = version,
        }
        self.merger.report(TreeConflict { base: Some(base), ..conflict });
    }

    /// Separates the entries of both sides at `to` by moving their entry to a free path, and reports a conflict. One of
    /// the entries is a file that was renamed from `from` to `to`; `other` is the side that did not make this rename.
    fn split(&mut self, other: Side, from: &[u8], to: &[u8]) -> Result<()> {
        let is_rename = match other {
            Side::Ours => self.ours_targets.contains(to),
            Side::Theirs => self.theirs_targets.contains(to),
        };
        let class = if is_rename { ConflictClass::RenameRename } else { ConflictClass::RenameAdd };
        let free_path = self.merger.free_path(to, self.slots)?;
        let base = self.slot(from).base.clone();
        let target = self.slot(to);
        let theirs = target.theirs.take();
        let ours = target.ours.clone();
        let theirs_path_in_merged = Some(TreePath(free_path.clone()));
        let conflict = TreeConflict {
            base,
            ours,
            theirs: theirs.clone(),
            theirs_path_in_merged,
            ..TreeConflict::new(class, to)
        };
        self.slot(&free_path).theirs = theirs;
        self.theirs_paths.insert(to.to_vec(), free_path);
        self.merger.report(conflict);
        Ok(())
    }
}
