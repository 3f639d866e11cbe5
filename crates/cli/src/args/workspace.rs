//! Workspaces of sandboxes: initial content, commits, restores, rebases, forks and changes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use super::history::key_value;
use super::sandbox::OnEnd;
use super::server::{Server, duration};

/// Initial content of a workspace.
#[derive(Debug, Args)]
pub(crate) struct InitialContent {
    /// Snapshot on the server with the initial files; its full id [default: an empty workspace]
    #[arg(long, value_name = "SNAPSHOT", group = "content")]
    pub(crate) snapshot: Option<String>,
    /// Local directory with the initial files, which is uploaded as a snapshot; .workspaceignore files apply
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, group = "content")]
    pub(crate) dir: Option<PathBuf>,
    /// Provider of the workspace [default: chosen by the server]
    #[arg(long, value_enum)]
    pub(crate) provider: Option<Provider>,
    /// Time at which the files of --snapshot or --dir are written to disk [default: auto]
    #[arg(long, value_enum, requires = "content")]
    pub(crate) materialize: Option<Materialize>,
}

/// Provider of a workspace.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Provider {
    /// An overlay over files that sandboxes share
    Overlay,
    /// Reflink copies, which share blocks until they are written
    Clone,
    /// Full copies
    Copy,
}

/// Time at which files are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Materialize {
    /// Small trees before the sandbox starts; large ones are loaded on first read and written in the background
    Auto,
    /// Never; files are loaded on first read
    Lazy,
    /// All files before the sandbox starts
    Full,
}

/// Take a snapshot of a sandbox's workspace and print its id
///
/// The snapshot is stored on the server. All processes in the sandbox are paused while files are read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox commit work -m \"tests pass\"
  id=$(workspace sandbox commit work --label step=3 --buffered)")]
pub(crate) struct SandboxCommit {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Message
    #[arg(short, long, value_name = "MSG")]
    pub(crate) message: Option<String>,
    /// Label; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = key_value)]
    pub(crate) labels: Vec<(String, String)>,
    /// Do not sync to disk: the snapshot survives a killed server, but not a crash of its machine
    #[arg(long)]
    pub(crate) buffered: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Restore a snapshot in a running sandbox
///
/// Processes keep running, also those whose working directory is /workspace. Processes that have a file of the
/// workspace open or mapped, or whose working directory is below /workspace, are ended and listed on stderr.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox restore work 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0
  workspace sandbox restore work 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0 --no-force")]
pub(crate) struct SandboxRestore {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Full id of a snapshot on the server
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Fail instead of ending processes
    #[arg(long)]
    pub(crate) no_force: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Merge the changes in a sandbox with the newest files of its project
///
/// Others may have changed the project since the sandbox was created. Their changes and those in /workspace are merged,
/// file by file. If some conflict, they are listed, and nothing is changed (status 3). Processes keep running, also
/// those whose working directory is /workspace. If others use files of the workspace, the command fails, unless --force
/// ends them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox rebase work
  workspace sandbox rebase work --force
  workspace --json sandbox rebase work | jq -r '.conflicts[].path'")]
pub(crate) struct SandboxRebase {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// End processes that have a file of the workspace open or mapped, or work in a directory below /workspace
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Create copies of a sandbox from its current files and print their ids
///
/// Copies have the options of the sandbox, but no name. Processes are not copied. Either all copies are created, or
/// none.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox fork work
  workspace sandbox fork work --count 8 --timeout 10m --label try=1")]
pub(crate) struct SandboxFork {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Number of new sandboxes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) count: u32,
    /// Lifetime [default: set by the server, an hour]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Treatment of changes that are not completed when a copy is removed or expires [default: that of the sandbox]
    #[arg(long, value_enum)]
    pub(crate) on_end: Option<OnEnd>,
    /// Label in addition to those of the sandbox; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = key_value)]
    pub(crate) labels: Vec<(String, String)>,
    /// Message of the snapshot from which the copies are created
    #[arg(short, long, value_name = "MSG")]
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List the changes in a sandbox since its workspace was created or restored
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox changes work
  workspace sandbox changes work --insight
  workspace --json sandbox changes work | jq -r '.entries[].path'")]
pub(crate) struct SandboxChanges {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Print the insight diff: size, lines and risks of each change
    #[arg(long)]
    pub(crate) insight: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
