//! Types for the processes that use a workspace. They are compiled on every operating system.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Selection of the processes that use a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessScope {
    /// Processes that block a replacement of the workspace, because they would keep the old one.
    Blocking,
    /// Also processes whose working directory is the root of the workspace. They move to the new one.
    All,
}

/// Process that uses a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceProcess {
    /// PID inside the sandbox.
    pub pid: i32,
    /// Name of the program.
    pub command: String,
    /// First use of the workspace that was found. Error details of the REST API contain it as `why`.
    #[serde(rename = "why")]
    pub usage: WorkspaceUse,
}

/// Kind of use of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceUse {
    /// Working directory in the workspace.
    Cwd,
    /// Root directory in the workspace.
    Root,
    /// Open file in the workspace.
    Descriptor,
    /// Memory mapping of a file in the workspace, such as the program itself.
    Mapping,
    /// Unknown: the process cannot be inspected.
    Hidden,
}

impl fmt::Display for WorkspaceUse {
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
