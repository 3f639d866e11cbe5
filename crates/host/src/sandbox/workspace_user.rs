//! Who uses the workspace of a sandbox, on whatever system.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which processes count as users of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Users {
    /// Those that would stay with the old one if it were replaced.
    Bound,
    /// Those as well whose working directory is its root, and who go along.
    All,
}

/// A process that uses the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its number, inside.
    pub pid: i32,
    /// What it calls itself.
    pub command: String,
    /// How it uses it.
    pub why: Why,
}

/// How a process uses the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A directory inside is its working directory, or the workspace itself where those count.
    Cwd,
    /// The same for its root.
    Root,
    /// Something inside is open.
    Descriptor,
    /// Something inside is mapped into its memory, such as the program that it runs.
    Mapping,
    /// It does not let itself be looked into.
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
