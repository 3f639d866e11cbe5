//! Merge of whole trees.
//!
//! Both sides are compared with the base, so the cost depends on the size of the changes. A directory that
//! only one side changed is taken over without being read, unless a change of the other side can affect it.
//! Leaves (files and symlinks) are merged as follows:
//!
//! 1. Each path of a changed leaf gets a slot: the base, ours and theirs of the path ([`slot`]).
//! 2. Renames move versions between slots ([`renames`], [`directory_renames`], [`file_renames`]).
//! 3. Each slot is merged independently ([`leaf`]).
//! 4. A leaf and a directory with the same path are separated ([`directory_file`]).
//! 5. The result is written to a virtual tree, a mutable tree in memory that starts as our tree ([`apply`]).
//!    Missing parent directories are created.
//!
//! No change is lost: each version that is not in the result is part of a conflict.

mod apply;
mod attributes;
mod both_sides;
mod changes;
mod choices;
mod collisions;
mod conflict;
mod directory_file;
mod directory_renames;
mod file_renames;
mod history;
mod leaf;
mod options;
mod paths;
mod renames;
mod result;
mod similarity;
mod slot;

use workspace_state::Tree;

use both_sides::BothSides;
use leaf::{ResultEntries, TreeMerger};
use result::Result;

pub use choices::tree_choices;
pub use conflict::{ConflictClass, TreeConflict, TreeVersion};
pub use history::HistorySource;
pub use options::TreeOptions;
pub use renames::{RenameCandidate, RenameOptions, pair_similar_files};
pub use result::{MergedFile, TreeMerge, TreeMergeError};

/// Merges two trees with a common base. All three trees must be in the same store.
///
/// To merge more than two sides, commit the result and merge the next side into it. Without conflicts, the
/// order of the sides does not matter.
pub fn merge_trees(base: &Tree, ours: &Tree, theirs: &Tree, options: &TreeOptions) -> Result<TreeMerge> {
    let mut both = BothSides::new(base, [ours, theirs], options.diff_depth())?;
    let mut merger = TreeMerger::new(options, base, ours, theirs);
    // The virtual tree starts as our tree, so if the changes are disjoint, only the changes of their side are merged.
    let result = if both.are_disjoint {
        merger.merge_slots(slot::slots_of_theirs(&both.ours, &both.theirs))?
    } else {
        merge_overlapping(&mut merger, &mut both)?
    };
    collisions::report(&mut merger, &result, &both.ours, &both.theirs);
    let tree = apply::apply(&mut merger, result, &both.ours, &both.theirs)?;
    let (conflicts, merged) = merger.finish();
    Ok(TreeMerge { tree, conflicts, merged })
}

/// Merges trees with overlapping changes: detects renames, then merges the slots of all changed paths.
fn merge_overlapping(merger: &mut TreeMerger<'_>, both: &mut BothSides<'_>) -> Result<ResultEntries> {
    let BothSides { ours, theirs, .. } = both;
    let options = merger.options;
    renames::find(options.renames, ours, theirs)?;
    renames::find(options.renames, theirs, ours)?;
    if options.rules.requires_review(&options.strategies) {
        // A rename that needs a review is held back even if our side did not change the file.
        renames::find_selected(options.renames, theirs, |path| merger.path_requires_review(path))?;
    }
    let mut slots = slot::slots(ours, theirs);
    if merger.options.directory_renames {
        directory_renames::apply(merger, &mut slots, ours, theirs)?;
    }
    file_renames::apply(merger, &mut slots, ours, theirs)?;
    let mut result = merger.merge_slots(slots)?;
    directory_file::separate(merger, &mut result, ours, theirs)?;
    Ok(result)
}
