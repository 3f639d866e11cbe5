//! Input and output of a merge of one file.

use serde::{Deserialize, Serialize};

use crate::conflict::Conflict;

/// Contents of a file in the three versions.
#[derive(Debug, Clone, Copy)]
pub struct Versions<'a> {
    /// Common ancestor; `None` if both sides added the file.
    pub base: Option<&'a [u8]>,
    /// Content of the current side, as in `git merge`.
    pub ours: &'a [u8],
    /// Content of the side that is merged into the current one.
    pub theirs: &'a [u8],
}

impl<'a> Versions<'a> {
    /// Returns the content of a side.
    pub fn of(&self, side: Side) -> &'a [u8] {
        match side {
            Side::Ours => self.ours,
            Side::Theirs => self.theirs,
        }
    }
}

/// Time and priority of the author of a version, for conflict rules that decide by them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Author {
    /// Time of the change in nanoseconds since 1970.
    pub time: i64,
    /// Priority of the author: higher wins.
    pub priority: i64,
}

/// Input of a strategy: the versions of a file, their authors and their stored histories.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Path of the file in its tree.
    pub path: &'a str,
    /// Contents to merge.
    pub versions: Versions<'a>,
    /// Author of our version.
    pub our_author: Author,
    /// Author of their version.
    pub their_author: Author,
    /// Histories that the strategy stored with the base and with our version.
    pub histories: Histories<'a>,
}

impl<'a> Input<'a> {
    /// Creates an input without authors and histories.
    pub fn new(path: &'a str, versions: Versions<'a>) -> Self {
        let [our_author, their_author] = [Author::default(); 2];
        Self { path, versions, our_author, their_author, histories: Histories::default() }
    }
}

/// Histories that a strategy stored with versions of a file. A history is the state that the strategy needs in
/// addition to the content, such as the operations of a CRDT. Their version has none: it is an edit of the base, so
/// the strategy derives its operations from the difference between the two.
#[derive(Debug, Clone, Copy, Default)]
pub struct Histories<'a> {
    /// History of the base; `None` if none was stored.
    pub base: Option<&'a [u8]>,
    /// History of our version; `None` if none was stored.
    pub ours: Option<&'a [u8]>,
}

/// One of the two sides of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The current side.
    Ours,
    /// The side that is merged into the current one.
    Theirs,
}

impl Side {
    /// Returns the opposite side.
    pub fn other(self) -> Self {
        match self {
            Self::Ours => Self::Theirs,
            Self::Theirs => Self::Ours,
        }
    }
}

/// Result of a strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Content with the changes of both sides.
    Merged(MergedContent),
    /// Changes of both sides that cannot be combined.
    Conflict(Conflict),
}

/// Merged content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergedContent {
    /// Bytes of the file.
    pub content: Vec<u8>,
    /// History to store with this version and to pass to later merges; `None` if the strategy has none.
    pub history: Option<Vec<u8>>,
}

impl MergedContent {
    /// Creates content without a history.
    pub fn new(content: impl Into<Vec<u8>>) -> Self {
        Self { content: content.into(), history: None }
    }
}
