//! Options for the merge of trees.

use std::collections::HashMap;

use super::both_sides::DiffDepth;
use super::history::HistorySource;
use super::renames::RenameOptions;
use crate::file::Author;
use crate::path_rules::PathRules;
use crate::registry::Strategies;

/// Options for the merge of trees.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// Strategies for files.
    pub strategies: Strategies,
    /// Settings by path: strategies and conflict rules.
    pub rules: PathRules,
    /// Author of our side.
    pub ours: Author,
    /// Author of their side.
    pub theirs: Author,
    /// Authors of individual entries of our tree, by path; entries not listed here belong to `ours`.
    pub authors: HashMap<Vec<u8>, Author>,
    /// Lookup of the merge state, for example the operations of a CRDT, that a strategy stored with an earlier
    /// version of a file.
    pub histories: HistorySource,
    /// Limits of rename detection.
    pub renames: RenameOptions,
    /// True to move files that one side added to a directory which the other side renamed.
    pub directory_renames: bool,
    /// Maximum size in bytes of a file whose content is merged. A larger file is a conflict if both sides
    /// changed it.
    pub content_max: u64,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            strategies: Strategies::default(),
            rules: PathRules::default(),
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
    /// Returns the depth at which trees are compared. Stored histories and files that are always reviewed need every
    /// change, also in directories that only one side changed.
    pub(super) fn diff_depth(&self) -> DiffDepth {
        let is_full = self.histories.is_set() || self.rules.requires_review(&self.strategies);
        if is_full { DiffDepth::Full } else { DiffDepth::Overlapping }
    }
}
