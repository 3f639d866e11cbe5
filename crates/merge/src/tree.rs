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
mod paths;
mod relocate;
mod renames;
mod similarity;
mod slot;

use std::collections::HashMap;

use serde::Serialize;
use workspace_state::{StoreError, Tree, TreeError, TreePath, VirtualTree};

use crate::file::Author;
use crate::merge::Decision;
use crate::policy::Policy;
use crate::registry::{Strategies, UnknownStrategy};
use both::{BothSides, DiffDepth};
use leaf::{ResultEntries, TreeMerger};

pub use choices::tree_choices;
pub use conflict::{ConflictClass, TreeConflict, TreeVersion};
pub use history::HistorySource;
pub use renames::RenameOptions;

/// Options for the merge of trees.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// Strategies for files.
    pub strategies: Strategies,
    /// Rules that select strategies and decide conflicts.
    pub policy: Policy,
    /// Author of ours.
    pub ours: Author,
    /// Author of theirs.
    pub theirs: Author,
    /// Authors of single entries of ours, by path; `ours` is the author of all others.
    pub authors: HashMap<Vec<u8>, Author>,
    /// Histories that strategies stored with earlier versions.
    pub histories: HistorySource,
    /// Limits of rename detection.
    pub renames: RenameOptions,
    /// Moves added files along if the other side renamed their directory.
    pub directory_renames: bool,
    /// Maximum size in bytes of a file whose content is merged. A larger file is a conflict if both sides
    /// changed it.
    pub content_max: u64,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            strategies: Strategies::default(),
            policy: Policy::default(),
            ours: Author::default(),
            theirs: Author::default(),
            authors: HashMap::new(),
            histories: HistorySource::default(),
            renames: RenameOptions::default(),
            directory_renames: true,
            content_max: 128 << 20,
        }
    }
}

impl TreeOptions {
    /// Returns which changed directories have to be read.
    fn diff_depth(&self) -> DiffDepth {
        let is_full = self.histories.is_set() || self.policy.requires_review(&self.strategies);
        if is_full { DiffDepth::Full } else { DiffDepth::Overlapping }
    }
}

/// Result of merging two trees.
pub struct TreeMerge {
    /// Merged tree: an uncommitted virtual tree over ours.
    pub tree: VirtualTree,
    /// Conflicts, sorted by path.
    pub conflicts: Vec<TreeConflict>,
    /// Files that a strategy merged, sorted by path.
    pub merged: Vec<MergedFile>,
}

impl TreeMerge {
    /// Returns whether rules resolved all conflicts.
    pub fn is_resolved(&self) -> bool {
        self.conflicts.iter().all(|conflict| conflict.decided.is_some())
    }
}

/// File that a strategy merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MergedFile {
    /// Path in the merged tree.
    pub path: TreePath,
    /// Name of the strategy.
    pub strategy: &'static str,
    /// Entry of the base; `None` if both sides added the file.
    pub base: Option<TreeVersion>,
    /// Entry of ours.
    pub ours: TreeVersion,
    /// Entry of theirs.
    pub theirs: TreeVersion,
    /// Decision of a rule about the conflicts in the file; `None` if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decision>,
    /// History to store with the merged version and to pass to later merges in [`TreeOptions::histories`].
    #[serde(skip)]
    pub history: Option<Vec<u8>>,
}

/// Error of [`merge_trees`]. Conflicts are not errors.
#[derive(Debug, thiserror::Error)]
pub enum TreeMergeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The merged tree could not be written.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A rule names an unknown strategy.
    #[error(transparent)]
    Strategy(#[from] UnknownStrategy),
}

type Result<T, E = TreeMergeError> = std::result::Result<T, E>;

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
