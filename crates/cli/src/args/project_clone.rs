//! Commands on projects in ordinary directories.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::server::Server;

/// Create a directory with the files of a project
///
/// `.workspace` in the directory remembers project and sequence; it never enters the project. Change the files, then
/// `workspace project push`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project clone website ./site")]
pub(crate) struct ProjectClone {
    /// Name or id of the project
    pub(crate) project: String,
    /// Directory, which must be empty or absent
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Show the changes in the directory of a project
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project status
  workspace --json project status ./site")]
pub(crate) struct ProjectStatus {
    /// Directory of the project, or one in it
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Merge the head of a project into its directory
///
/// If your changes conflict with those of others, the conflicts are listed and nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project pull
  workspace project pull ./site --conflicts=markers")]
pub(crate) struct ProjectPull {
    /// Directory of the project, or one in it
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Treatment of conflicts
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Conflicts::Refuse)]
    pub(crate) conflicts: Conflicts,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Treatment of conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conflicts {
    /// Change nothing
    Refuse,
    /// Merge the rest, and mark conflicting lines in text files; other files stay as they are in the directory
    Markers,
}

/// Merge the changes in the directory of a project into the project
///
/// They are merged on the server, like those of a sandbox. Then the head is merged into the directory. Conflicts, and
/// changes that the policy refuses, are listed; the directory then stays as it is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project push -m \"fix the links\"
  workspace project push ./site --agent writer")]
pub(crate) struct ProjectPush {
    /// Directory of the project, or one in it
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Message for the history
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub(crate) message: String,
    /// Agent that did the work [default: the name of the key]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}
