//! Result and errors of a merge of trees.

use serde::Serialize;
use workspace_state::{StoreError, TreeError, TreePath, VirtualTree};

use super::conflict::{TreeConflict, TreeVersion};
use crate::merge::Decision;
use crate::registry::UnknownStrategy;

/// Result of merging two trees.
pub struct TreeMerge {
    /// Merged tree: a mutable tree in memory that started as our tree. It is not committed to the store.
    pub tree: VirtualTree,
    /// Conflicts, sorted by path.
    pub conflicts: Vec<TreeConflict>,
    /// Files whose content is the result of a merge strategy, sorted by path. Files with an unresolved conflict in
    /// their content are not included, nor are files whose content was taken from one side.
    pub merged: Vec<MergedFile>,
}

impl TreeMerge {
    /// Returns true if there are no conflicts, or conflict rules resolved all of them.
    pub fn is_resolved(&self) -> bool {
        self.conflicts.iter().all(|conflict| conflict.decided.is_some())
    }
}

/// File whose content is the result of a merge strategy. `base`, `ours` and `theirs` are the three versions of the
/// file, each with its own path, since a side may have renamed the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MergedFile {
    /// Path in the merged tree.
    pub path: TreePath,
    /// Name of the strategy ([`Strategy::name`](crate::Strategy::name)).
    pub strategy: &'static str,
    /// Version of the base; `None` if both sides added the file.
    pub base: Option<TreeVersion>,
    /// Version in our tree.
    pub ours: TreeVersion,
    /// Version in their tree.
    pub theirs: TreeVersion,
    /// Decision of the conflict rule about the conflicts in the file; `None` if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decision>,
    /// State of the strategy, such as the operations of a CRDT, to store with the merged version and to pass to later
    /// merges in [`TreeOptions::histories`](super::TreeOptions::histories).
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

/// Result with the error of a tree merge.
pub(super) type Result<T, E = TreeMergeError> = std::result::Result<T, E>;
