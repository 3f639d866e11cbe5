//! Options for the merge of trees.

use std::collections::HashMap;

use super::history::HistorySource;
use super::renames::RenameOptions;
use crate::file::Author;
use crate::policy::Policy;
use crate::registry::Strategies;

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
    pub(super) fn needs_full_diff(&self) -> bool {
        self.histories.is_there() || self.policy.requires_review(&self.strategies)
    }
}
