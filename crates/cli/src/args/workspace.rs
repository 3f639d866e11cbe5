//! Workspaces of sandboxes: initial content, commits, restores, forks and changes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use super::history::label;
use super::server::{Server, duration};

/// Initial content of a workspace.
#[derive(Debug, Args)]
pub(crate) struct InitialContent {
    /// Begin with what this snapshot of the server holds; its whole id [default: an empty workspace]
    #[arg(long, value_name = "SNAPSHOT", group = "content")]
    pub(crate) snapshot: Option<String>,
    /// Begin with what this directory holds, without what .workspaceignore files name; it becomes a snapshot of the server
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, group = "content")]
    pub(crate) dir: Option<PathBuf>,
    /// Provider of the workspace [default: chosen by the server]
    #[arg(long, value_enum)]
    pub(crate) provider: Option<Provider>,
    /// When the files of --snapshot or --dir are written for it [default: auto]
    #[arg(long, value_enum, requires = "content")]
    pub(crate) materialize: Option<Materialize>,
}

/// Provider of a workspace.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Provider {
    /// Changes lie over files that all share
    Overlay,
    /// Files share their blocks until they are written to
    Clone,
    /// Every file is written
    Copy,
}

/// When files are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Materialize {
    /// Few at once; many are loaded as they are read, and written meanwhile
    Auto,
    /// They are loaded as they are read
    Lazy,
    /// All before the sandbox runs
    Full,
}

/// Make what a sandbox holds a snapshot of the server, and print its id
///
/// Everything in the sandbox stands still while it is read, and then goes on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox commit work -m \"tests pass\"
  id=$(workspace sandbox commit work --label step=3 --buffered)")]
pub(crate) struct SandboxCommit {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// Why it was made
    #[arg(short, long, value_name = "MSG")]
    pub(crate) message: Option<String>,
    /// A label; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Do not wait for the server's disk: survives a killed server, not a crash of its machine
    #[arg(long)]
    pub(crate) buffered: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Make a sandbox hold a snapshot of the server, in place
///
/// What runs in it goes on, also in /workspace itself. Processes in a directory below it, or that have something of it open or
/// mapped, are ended, and named on stderr.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox restore work 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0
  workspace sandbox restore work 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0 --no-force")]
pub(crate) struct SandboxRestore {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// The snapshot; its whole id
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Do nothing if processes would have to be ended
    #[arg(long)]
    pub(crate) no_force: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Make sandboxes that hold what a sandbox holds now, and print their ids
///
/// All of them, or none. They are like the sandbox, without a name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox fork work
  workspace sandbox fork work --count 8 --timeout 10m --label try=1")]
pub(crate) struct SandboxFork {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// Number of new sandboxes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) count: u32,
    /// Lifetime [default: set by the server, an hour]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// A label in addition to those of the sandbox; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Message of the snapshot that they are created from
    #[arg(short, long, value_name = "MSG")]
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List what a sandbox changed since its workspace was made, or restored
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace sandbox changes work
  workspace sandbox changes work --insight
  workspace --json sandbox changes work | jq -r '.entries[].path'")]
pub(crate) struct SandboxChanges {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// The insight diff: sizes, lines and risks of each change
    #[arg(long)]
    pub(crate) insight: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
