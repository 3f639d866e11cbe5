//! Pausing and resuming sandboxes.

use std::time::Duration;

use clap::{Args, ValueEnum};
use workspace_api::pauses;

use super::server::{Server, duration};

/// Pause a sandbox
///
/// Processes end, and only /workspace is kept, also when the machine restarts. With --memory, processes are frozen
/// instead, and continue where they were. A paused sandbox is deleted after a week, unless the server has another
/// limit.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox pause work
  workspace sandbox pause --memory work")]
pub(crate) struct SandboxPause {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Keep processes and their memory
    #[arg(long)]
    pub(crate) memory: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Resume a paused sandbox
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox resume work
  workspace sandbox resume --timeout 2h work")]
pub(crate) struct SandboxResume {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Lifetime from now [default: the time that was left at the pause]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Treatment of a sandbox whose lifetime is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnTimeout {
    /// Delete it
    Delete,
    /// Pause it; only /workspace is kept
    Pause,
}

impl From<OnTimeout> for pauses::OnTimeout {
    fn from(on_timeout: OnTimeout) -> Self {
        match on_timeout {
            OnTimeout::Delete => Self::Delete,
            OnTimeout::Pause => Self::Pause,
        }
    }
}
