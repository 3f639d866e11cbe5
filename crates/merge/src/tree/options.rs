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
    /// Authors of individual entries of our tree, by path; the author of all other entries is `ours`.
    pub authors: HashMap<Vec<u8>, Author>,
    /// Lookup of histories: state that a strategy stored with an earlier version of a file, such as the operations of a
    /// CRDT.
    pub histories: HistorySource,
    /// Limits of rename detection.
    pub renames: RenameOptions,
    /// True to move a file that one side added to a directory, if the other side renamed that directory.
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
    /// Returns the set of changed directories to read. Stored histories, and strategies that require a review of every
    /// change, need all changes, also in directories that only one side changed.
    pub(super) fn diff_depth(&self) -> DiffDepth {
        let is_full = self.histories.is_set() || self.rules.requires_review(&self.strategies);
        if is_full { DiffDepth::Full } else { DiffDepth::Overlapping }
    }
}
