//! Merge of whole trees.
//!
//! Both sides are compared with the base, so the cost depends on the size of the changes. Directories that
//! only one side changed are taken without being read, if nothing on the other side can affect them. Leaves
//! (files and symlinks) are merged: each path that a side changed gets a slot with three versions, and
//! renames move versions between slots. Each slot is decided alone, then entries with the same name are
//! separated, and the result is written to a virtual tree over ours. Directories follow their content.
//!
//! Nothing is lost: a version that is not in the result is named by a conflict.

mod apply;
mod attributes;
mod both;
mod changes;
mod choices;
mod clash;
mod collisions;
mod conflict;
mod follow;
mod history;
mod leaf;
mod options;
mod paths;
mod relocate;
mod renames;
mod result;
mod similarity;
mod slot;

use workspace_state::Tree;

use both::BothSides;
use leaf::{Merger, Placement};
use result::Result;

pub use choices::tree_choices;
pub use conflict::{ConflictClass, TreeConflict, TreeVersion};
pub use history::HistorySource;
pub use options::TreeOptions;
pub use renames::RenameOptions;
pub use result::{MergedFile, TreeMerge, TreeMergeError};

/// Merges two trees with a common base. All three have to be in the same store.
///
/// More than two sides are merged one after another: commit the result, then merge the next side onto it.
/// Changes that do not conflict give the same tree in any order.
pub fn merge_trees(base: &Tree, ours: &Tree, theirs: &Tree, options: &TreeOptions) -> Result<TreeMerge> {
    let mut both = BothSides::new(base, [ours, theirs], options.needs_full_diff())?;
    let mut merger = Merger::new(options, base, ours, theirs);
    let result = if both.are_disjoint {
        merger.decide(slot::slots_of_theirs(&both.ours, &both.theirs))?
    } else {
        decide_all(&mut merger, &mut both)?
    };
    collisions::report(&mut merger, &result, &both.ours, &both.theirs);
    let tree = apply::apply(&mut merger, result, &both.ours, &both.theirs)?;
    let (conflicts, merged) = merger.finish();
    Ok(TreeMerge { tree, conflicts, merged })
}

/// Decides all changed slots, following renames.
fn decide_all(merger: &mut Merger<'_>, both: &mut BothSides<'_>) -> Result<Placement> {
    let BothSides { ours, theirs, .. } = both;
    let options = merger.options;
    renames::find(options.renames, ours, theirs)?;
    renames::find(options.renames, theirs, ours)?;
    if options.policy.requires_review(&options.strategies) {
        renames::find_selected(options.renames, theirs, |path| merger.is_critical(path))?;
    }
    let mut slots = slot::slots(ours, theirs);
    if merger.options.directory_renames {
        relocate::relocate(merger, &mut slots, ours, theirs)?;
    }
    follow::follow(merger, &mut slots, ours, theirs)?;
    let mut result = merger.decide(slots)?;
    clash::separate(merger, &mut result, ours, theirs)?;
    Ok(result)
}
