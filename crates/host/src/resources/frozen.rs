//! What comes of stopping everything in a sandbox, on whatever system.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How processes are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// By the kernel's freezer, all at once.
    Cgroup,
    /// One after the other, until none runs.
    Signals,
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cgroup => "cgroup",
            Self::Signals => "signals",
        })
    }
}

/// What was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// How.
    pub way: Way,
    /// How many processes, the guest agent not counted; none where nobody says.
    pub processes: Option<usize>,
}
