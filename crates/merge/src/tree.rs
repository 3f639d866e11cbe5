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
use both::BothSides;
use leaf::{Merger, Placement};

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
    /// State that strategies stored with earlier versions.
    pub histories: HistorySource,
    /// Limits of rename detection.
    pub renames: RenameOptions,
    /// Enables moving an added file along when the other side renamed its directory.
    pub directory_renames: bool,
    /// Size limit in bytes. A larger file is not read: it conflicts if both sides changed it.
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
    /// Returns whether directories that only one side changed have to be read as well.
    fn needs_full_diff(&self) -> bool {
        self.histories.is_there() || self.policy.requires_review(&self.strategies)
    }
}

/// Result of merging two trees.
pub struct TreeMerge {
    /// Merged tree: an uncommitted virtual tree over ours, which can be previewed, changed and committed.
    pub tree: VirtualTree,
    /// Conflicts, sorted by path.
    pub conflicts: Vec<TreeConflict>,
    /// Files with changes of both sides, sorted by path.
    pub merged: Vec<MergedFile>,
}

impl TreeMerge {
    /// Returns whether no conflict is left for a reviewer.
    pub fn is_settled(&self) -> bool {
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
    /// Winner of the conflicts in the file, if a rule decided them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decision>,
    /// State that the strategy wants to have stored with the merged version. Later merges should get it
    /// through [`TreeOptions::histories`].
    #[serde(skip)]
    pub history: Option<Vec<u8>>,
}

/// Error of a merge of trees. Conflicts are not errors.
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
