//! Three versions of a file.

use serde::{Deserialize, Serialize};

use crate::conflict::Conflict;

/// Three versions of a file's content. Those who are the same are merged before any strategy is asked.
#[derive(Debug, Clone, Copy)]
pub struct Versions<'a> {
    /// What both sides started from; none if both added the file.
    pub base: Option<&'a [u8]>,
    /// The project's.
    pub ours: &'a [u8],
    /// The agent's.
    pub theirs: &'a [u8],
}

impl<'a> Versions<'a> {
    /// The version of a side.
    pub fn of(&self, side: Side) -> &'a [u8] {
        match side {
            Side::Ours => self.ours,
            Side::Theirs => self.theirs,
        }
    }
}

/// Who made a version, for rules that decide by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Author {
    /// When, in nanoseconds since 1970.
    pub time: i64,
    /// Higher wins.
    pub priority: i64,
}

/// What is to be merged.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The file's path in its tree.
    pub path: &'a str,
    /// The versions.
    pub versions: Versions<'a>,
    /// Whose ours is.
    pub ours: Author,
    /// Whose theirs is.
    pub theirs: Author,
    /// What strategies keep beside versions, such as the history of a CRDT.
    pub histories: Histories<'a>,
}

impl<'a> Input<'a> {
    /// Versions of a file of which nothing else is known.
    pub fn new(path: &'a str, versions: Versions<'a>) -> Self {
        let (ours, theirs) = (Author::default(), Author::default());
        Self { path, versions, ours, theirs, histories: Histories::default() }
    }
}

/// What a strategy keeps beside versions of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Histories<'a> {
    /// Of the base.
    pub base: Option<&'a [u8]>,
    /// Of ours.
    pub ours: Option<&'a [u8]>,
}

/// Whose version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The project's.
    Ours,
    /// The agent's.
    Theirs,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Ours => Self::Theirs,
            Self::Theirs => Self::Ours,
        }
    }
}

/// What a strategy made of three versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Everything of both sides is in it.
    Merged(Merged),
    /// Both sides cannot be had.
    Conflict(Conflict),
}

/// Content that was merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merged {
    /// The content.
    pub content: Vec<u8>,
    /// What the strategy keeps beside this version.
    pub history: Option<Vec<u8>>,
}

impl Merged {
    /// Content with nothing kept beside it.
    pub fn new(content: impl Into<Vec<u8>>) -> Self {
        Self { content: content.into(), history: None }
    }
}
