//! Types for the result of freezing a sandbox. They are compiled on every operating system.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Method of stopping processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FreezeMethod {
    /// Cgroup freezer, which stops all processes at the same time.
    Cgroup,
    /// `SIGSTOP`, sent to one process after the other until none is running.
    Signals,
}

impl fmt::Display for FreezeMethod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cgroup => "cgroup",
            Self::Signals => "signals",
        })
    }
}

/// Frozen sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// Method that was used.
    pub method: FreezeMethod,
    /// Number of stopped processes, without the guest agent. `None` if a container runtime froze
    /// the sandbox: it does not report the number.
    pub processes: Option<usize>,
}
