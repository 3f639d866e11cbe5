//! Options for the merge of trees.

use std::collections::HashMap;

use super::both_sides::DiffDepth;
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
    /// Rules that select strategies and resolve conflicts.
    pub policy: Policy,
    /// Author of our side.
    pub ours: Author,
    /// Author of their side.
    pub theirs: Author,
    /// Authors of single entries of our tree, by path; `ours` is the author of all others.
    pub authors: HashMap<Vec<u8>, Author>,
    /// Histories that strategies stored with earlier versions.
    pub histories: HistorySource,
    /// Limits of rename detection.
    pub renames: RenameOptions,
    /// Move added files if the other side renamed their directory.
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
    /// Returns which changed directories must be read.
    pub(super) fn diff_depth(&self) -> DiffDepth {
        let is_full = self.histories.is_set() || self.policy.requires_review(&self.strategies);
        if is_full { DiffDepth::Full } else { DiffDepth::Overlapping }
    }
}
