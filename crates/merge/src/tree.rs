//! Merge of whole trees.
//!
//! Both sides are compared with the base, so the cost depends on the size of the changes. Directories that
//! only one side changed are taken without being read, if no change of the other side can affect them. Leaves
//! (files and symlinks) are merged as follows:
//!
//! 1. Each path of a changed leaf gets a slot with three versions ([`slot`]).
//! 2. Renames move versions between slots ([`renames`], [`relocate`], [`follow`]).
//! 3. Each slot is decided independently of the others ([`leaf`]).
//! 4. A leaf and a directory with the same path are separated ([`clash`]).
//! 5. The result is written to a virtual tree over ours ([`apply`]). Directories exist where leaves need them.
//!
//! No change is lost: each version that is not in the result is part of a conflict.

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
use leaf::{ResultEntries, TreeMerger};
use result::Result;

pub use choices::tree_choices;
pub use conflict::{ConflictClass, TreeConflict, TreeVersion};
pub use history::HistorySource;
pub use options::TreeOptions;
pub use renames::RenameOptions;
pub use result::{MergedFile, TreeMerge, TreeMergeError};

/// Merges two trees with a common base. All three have to be in the same store.
///
/// To merge more than two sides, commit the result and merge the next side into it. Without conflicts, the order
/// of the sides does not matter.
pub fn merge_trees(base: &Tree, ours: &Tree, theirs: &Tree, options: &TreeOptions) -> Result<TreeMerge> {
    let mut both = BothSides::new(base, [ours, theirs], options.diff_depth())?;
    let mut merger = TreeMerger::new(options, base, ours, theirs);
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

/// Detects renames and decides all slots.
fn decide_all(merger: &mut TreeMerger<'_>, both: &mut BothSides<'_>) -> Result<ResultEntries> {
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
