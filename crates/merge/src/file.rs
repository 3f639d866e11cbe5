//! Input and output of a merge of one file.

use serde::{Deserialize, Serialize};

use crate::conflict::Conflict;

/// Contents of a file in the three versions. No strategy has to run if two of them are equal.
#[derive(Debug, Clone, Copy)]
pub struct Versions<'a> {
    /// Common ancestor; `None` if both sides added the file.
    pub base: Option<&'a [u8]>,
    /// Content in the project.
    pub ours: &'a [u8],
    /// Content from the agent.
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

/// Author of a version, for rules that decide by time or priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Author {
    /// Time of the change in nanoseconds since 1970.
    pub time: i64,
    /// Priority of the author: higher wins.
    pub priority: i64,
}

/// Versions to merge, with everything that a strategy may need to know about them.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Path of the file in its tree.
    pub path: &'a str,
    /// Contents to merge.
    pub versions: Versions<'a>,
    /// Author of ours.
    pub ours: Author,
    /// Author of theirs.
    pub theirs: Author,
    /// State that strategies stored with earlier versions, such as the history of a CRDT.
    pub histories: Histories<'a>,
}

impl<'a> Input<'a> {
    /// Creates an input without authors and histories.
    pub fn new(path: &'a str, versions: Versions<'a>) -> Self {
        let (ours, theirs) = (Author::default(), Author::default());
        Self { path, versions, ours, theirs, histories: Histories::default() }
    }
}

/// State that a strategy stored with versions of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Histories<'a> {
    /// State of the base.
    pub base: Option<&'a [u8]>,
    /// State of ours.
    pub ours: Option<&'a [u8]>,
}

/// One of the two sides of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The project's version.
    Ours,
    /// The agent's version.
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
    Merged(Merged),
    /// Changes that exclude each other.
    Conflict(Conflict),
}

/// Merged content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merged {
    /// Bytes of the file.
    pub content: Vec<u8>,
    /// State that the strategy wants to have stored with this version.
    pub history: Option<Vec<u8>>,
}

impl Merged {
    /// Creates content without state to store.
    pub fn new(content: impl Into<Vec<u8>>) -> Self {
        Self { content: content.into(), history: None }
    }
}
