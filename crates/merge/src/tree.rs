//! Merging whole trees.
//!
//! Both sides are compared with the base, so the cost is that of what differs; where nothing speaks against it,
//! directories that only one side changed are taken without being read. Leaves (files and symlinks) are what is
//! merged: for each path that a side touched there is a slot with three versions, which renames move from one path to
//! another. Each slot is decided alone, then things that want one name are told apart, and what came out is put into
//! a virtual tree over ours. Directories follow what is in them.
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
use crate::merge::Decided;
use crate::policy::Policy;
use crate::strategy::{Strategies, UnknownStrategy};
use both::Both;
use leaf::{Merger, Placement};

pub use choices::tree_choices;
pub use conflict::{ConflictClass, TreeConflict, TreeVersion};
pub use history::HistorySource;
pub use renames::RenameOptions;

/// How trees are merged.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// Ways to merge files.
    pub strategies: Strategies,
    /// Which way is for which file, and what becomes of conflicts.
    pub policy: Policy,
    /// Who made ours.
    pub ours: Author,
    /// Who made theirs.
    pub theirs: Author,
    /// Who made what ours has, where that is not who made ours as a whole: by path.
    pub authors: HashMap<Vec<u8>, Author>,
    /// What strategies keep beside versions.
    pub histories: HistorySource,
    /// How hard renames are looked for.
    pub renames: RenameOptions,
    /// Whether what one side added to a directory follows it to where the other renamed it.
    pub directory_renames: bool,
    /// A file of which a version is larger is not looked into: it is in conflict if both sides changed it.
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
    /// Whether what only one side changed may be more than taken.
    fn has_to_see_everything(&self) -> bool {
        self.histories.is_there() || self.policy.wants_review(&self.strategies)
    }
}

/// Two trees that became one.
pub struct TreeMerge {
    /// What it holds now: over ours, not committed. It can be previewed, changed and committed.
    pub tree: VirtualTree,
    /// What could not be merged, by path.
    pub conflicts: Vec<TreeConflict>,
    /// Files with content of both sides, by path.
    pub merged: Vec<MergedFile>,
}

impl TreeMerge {
    /// Whether nobody has to decide anything.
    pub fn is_settled(&self) -> bool {
        self.conflicts.iter().all(|conflict| conflict.decided.is_some())
    }
}

/// A file that a strategy merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MergedFile {
    /// Where it is.
    pub path: TreePath,
    /// By which strategy.
    pub strategy: &'static str,
    /// What it was; none if both sides added it.
    pub base: Option<TreeVersion>,
    /// What ours has.
    pub ours: TreeVersion,
    /// What theirs has.
    pub theirs: TreeVersion,
    /// Who won where both could not be had, and a rule decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    /// What the strategy keeps beside this version: [`TreeOptions::histories`] should give it in later merges.
    #[serde(skip)]
    pub history: Option<Vec<u8>>,
}

/// Why trees were not merged.
#[derive(Debug, thiserror::Error)]
pub enum TreeMergeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The result could not be put together.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A rule names a strategy that is not there.
    #[error(transparent)]
    Strategy(#[from] UnknownStrategy),
}

type Result<T, E = TreeMergeError> = std::result::Result<T, E>;

/// Merges two trees that come from one base, all of one store.
///
/// More than two sides are merged one after another: commit the result, and merge the next side onto it. Changes
/// that exclude each other nowhere give the same tree in any order.
pub fn merge_trees(base: &Tree, ours: &Tree, theirs: &Tree, options: &TreeOptions) -> Result<TreeMerge> {
    let mut both = Both::new(base, [ours, theirs], options.has_to_see_everything())?;
    let mut merger = Merger::new(options, base, ours, theirs);
    let result = if both.are_apart {
        merger.decide(slot::slots_of_theirs(&both.ours, &both.theirs))?
    } else {
        decide_all(&mut merger, &mut both)?
    };
    collisions::tell(&mut merger, &result, &both.ours, &both.theirs);
    let tree = apply::apply(&mut merger, result, &both.ours, &both.theirs)?;
    let (conflicts, merged) = merger.finish();
    Ok(TreeMerge { tree, conflicts, merged })
}

/// Decides everything that either side touched, renames followed.
fn decide_all(merger: &mut Merger<'_>, both: &mut Both<'_>) -> Result<Placement> {
    let Both { ours, theirs, .. } = both;
    let options = merger.options;
    renames::find(options.renames, ours, theirs)?;
    renames::find(options.renames, theirs, ours)?;
    if options.policy.wants_review(&options.strategies) {
        renames::find_of(options.renames, theirs, |path| merger.is_critical(path))?;
    }
    let mut slots = slot::slots(ours, theirs);
    if merger.options.directory_renames {
        relocate::relocate(merger, &mut slots, ours, theirs)?;
    }
    follow::follow(merger, &mut slots, ours, theirs)?;
    let mut result = merger.decide(slots)?;
    clash::tell_apart(merger, &mut result, ours, theirs)?;
    Ok(result)
}
