//! Result and errors of a merge of trees.

use serde::Serialize;
use workspace_state::{StoreError, TreeError, TreePath, VirtualTree};

use super::conflict::{TreeConflict, TreeVersion};
use crate::merge::Decision;
use crate::registry::UnknownStrategy;

/// Result of merging two trees.
pub struct TreeMerge {
    /// Merged tree: an uncommitted virtual tree over our tree.
    pub tree: VirtualTree,
    /// Conflicts, sorted by path.
    pub conflicts: Vec<TreeConflict>,
    /// Files that a strategy merged, sorted by path.
    pub merged: Vec<MergedFile>,
}

impl TreeMerge {
    /// Returns true if conflict rules resolved all conflicts.
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
    /// Entry in our tree.
    pub ours: TreeVersion,
    /// Entry in their tree.
    pub theirs: TreeVersion,
    /// Decision of the conflict rule about the conflicts in the file; `None` if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decision>,
    /// History to store with the merged version and to pass to later merges in
    /// [`TreeOptions::histories`](super::TreeOptions::histories).
    #[serde(skip)]
    pub history: Option<Vec<u8>>,
}

/// Error of [`merge_trees`](super::merge_trees). Conflicts are not errors.
#[derive(Debug, thiserror::Error)]
pub enum TreeMergeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The merged tree could not be written.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The settings of a file name an unknown strategy.
    #[error(transparent)]
    Strategy(#[from] UnknownStrategy),
}

pub(super) type Result<T, E = TreeMergeError> = std::result::Result<T, E>;
