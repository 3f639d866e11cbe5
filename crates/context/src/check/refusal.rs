//! Report of refused changes: changes of an agent that its access does not allow. They are reverted.

use std::fmt;

use serde::Serialize;
use workspace_state::{TreePath, shorten_path};

use crate::policy::Access;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// A new entry.
    Add,
    /// Other content, target, mode or extended attributes.
    Modify,
    /// An entry that no longer exists.
    Delete,
    /// An entry of another kind: a deletion and an addition.
    Replace,
}

/// Reason why a change was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalReason {
    /// The access at the path does not allow it.
    Access,
    /// The change put an entry in the place of one that is restored.
    InTheWay,
    /// The entry was renamed, and may not be added under its new name.
    NewNameRefused,
    /// The project has an entry of the same name, which may be hidden, and the addition got no other name.
    NameTaken,
    /// A new directory without entries, where entries may be hidden.
    EmptyDirectory,
}

/// A refused change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// Path of the change.
    pub path: TreePath,
    /// Kind of the change.
    pub change: Change,
    /// Access of the agent at the path.
    pub access: Access,
    /// Reason of the refusal.
    pub reason: RefusalReason,
}

/// An addition that is kept under another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RenamedAddition {
    /// Path that the agent added.
    pub from: TreePath,
    /// Path under which it is kept.
    pub to: TreePath,
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Add => "addition",
            Self::Modify => "change",
            Self::Delete => "deletion",
            Self::Replace => "replacement",
        })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the {} of `{}` was taken back: ", self.change, shorten_path(&self.path.0))?;
        match self.reason {
            RefusalReason::Access => write!(out, "your access there is `{}`", self.access),
            RefusalReason::InTheWay => {
                out.write_str("an entry that you may not delete or change is in the same place")
            }
            RefusalReason::NewNameRefused => out.write_str("you may not add it under its new name"),
            RefusalReason::NameTaken => out.write_str("the name exists by now; choose another"),
            RefusalReason::EmptyDirectory => {
                out.write_str("an empty directory is kept only where you may read everything; add a file")
            }
        }
    }
}
