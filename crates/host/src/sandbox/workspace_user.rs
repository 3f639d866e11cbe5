//! Processes that use a workspace, on any system.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Processes that count as users of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Users {
    /// Those that would keep the old workspace if it were replaced.
    Bound,
    /// Also those whose working directory is the root of the workspace; they move to the new one.
    All,
}

/// Process that uses the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// PID inside.
    pub pid: i32,
    /// Name of the program.
    pub command: String,
    /// Kind of use.
    pub why: Why,
}

/// Kind of use of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Working directory in the workspace, or at its root if those count.
    Cwd,
    /// Root directory in the workspace.
    Root,
    /// Open file in the workspace.
    Descriptor,
    /// Memory mapping of a file in the workspace, such as the program itself.
    Mapping,
    /// Not known: the process cannot be inspected.
    Hidden,
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cwd => "cwd",
            Self::Root => "root",
            Self::Descriptor => "descriptor",
            Self::Mapping => "mapping",
            Self::Hidden => "hidden",
        })
    }
}
