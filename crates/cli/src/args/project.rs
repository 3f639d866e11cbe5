//! Commands on projects: files that many agents share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use workspace_api::projects;

use super::project_clone::{ProjectClone, ProjectPull, ProjectPush, ProjectStatus};
use super::project_workspace::{self, ProjectSync, ProjectWorkspaceCommand};
use super::server::{Server, duration};

pub(super) const EXAMPLES: &str = "\
Examples:
  workspace project create website
  workspace project import website ./site
  workspace sandbox create --project website --agent writer
  workspace complete SANDBOX
  workspace project log website";

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectCommand {
    Create(ProjectCreate),
    Ls(ProjectLs),
    Show(ProjectShow),
    Rm(ProjectRm),
    Import(ProjectImport),
    Export(ProjectExport),
    Log(ProjectLog),
    Diff(ProjectDiff),
    Rename(ProjectRename),
    Set(ProjectSet),
    Clone(ProjectClone),
    Status(ProjectStatus),
    Pull(ProjectPull),
    Push(ProjectPush),
    /// Manage workspaces of agents that run in containers of their own
    #[command(subcommand, after_help = project_workspace::EXAMPLES)]
    Workspace(ProjectWorkspaceCommand),
    Sync(ProjectSync),
    Refused(ProjectRefused),
}

/// List the changes that the policy of a project refused, or print the content of one
///
/// Without a completion, those of the newest completions are listed. Only for the owner of the project, and admins.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project refused website
  workspace project refused website COMPLETION
  workspace project refused website COMPLETION index.md > index.md")]
pub(crate) struct ProjectRefused {
    /// Name or id of the project
    pub(crate) project: String,
    /// Id of a completion [default: the newest ones]
    pub(crate) completion: Option<String>,
    /// Path of a refused file, whose content is printed as the agent had it
    pub(crate) path: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Create an empty project, and print its id
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project create website
  workspace project create notes --merge periodic --interval 30s")]
pub(crate) struct ProjectCreate {
    /// Name: letters, digits, `.`, `_` and `-`
    pub(crate) name: String,
    /// Occasions at which the changes of sandboxes are merged [default: completion]
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) merge: Option<MergeMode>,
    /// Time between two merges of a sandbox, for `--merge periodic` [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "merge")]
    pub(crate) interval: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List projects
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project ls
  workspace --json project ls | jq -r .name")]
pub(crate) struct ProjectLs {
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Show a project
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project show website")]
pub(crate) struct ProjectShow {
    /// Name or id of the project
    pub(crate) project: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Delete projects with their history
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project rm website")]
pub(crate) struct ProjectRm {
    /// Names or ids of the projects
    #[arg(required = true, value_name = "PROJECT")]
    pub(crate) projects: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Replace the files of a project
///
/// SOURCE is a directory, a tar archive (also compressed with gzip or zstd), `-` for an archive on stdin, a git
/// repository or a bundle. Of a directory, files that `.workspaceignore` excludes are left out. A git repository
/// (`.git`) stays outside, unless the project keeps it. The import is one change in the history; with `--history`, each
/// commit is one. Nothing that a git repository configures is executed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project import website ./site -m \"first version\"
  workspace project import website ./site --expect 3
  tar c -C site . | workspace project import website -
  workspace project import website ./repository --git=v1.2
  workspace project import website https://example.org/site.git --history")]
pub(crate) struct ProjectImport {
    /// Name or id of the project
    pub(crate) project: String,
    /// Directory, archive, git repository, bundle or URL
    pub(crate) source: OsString,
    /// Import a commit of a git repository, with its message
    #[arg(long, value_name = "REV", num_args = 0..=1, require_equals = true, default_missing_value = "HEAD")]
    pub(crate) git: Option<String>,
    /// Import the commits that first parents lead to, with author, time and message; continues an earlier import
    #[arg(long, conflicts_with_all = ["message", "expect"])]
    pub(crate) history: bool,
    /// Message for the history [default of a commit: its message]
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub(crate) message: String,
    /// Fail unless the project has this sequence or head
    #[arg(long, value_name = "SEQUENCE")]
    pub(crate) expect: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Write the files of a project to a directory, an archive or git
///
/// A git repository gets one commit per sequence, with author, message and time, and the trailer `Workspace-Sequence`.
/// The next export continues after the last one, and only changed files are transferred.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project export website ./site
  workspace project export website ./old --at 3
  workspace project export website --tar - | tar t
  workspace project export website --git ./repository
  workspace project export website --bundle website.bundle")]
pub(crate) struct ProjectExport {
    /// Name or id of the project
    pub(crate) project: String,
    /// Directory, which must not exist
    #[arg(value_name = "DIR", required_unless_present_any = ["tar", "git", "bundle"], conflicts_with_all = ["tar", "git", "bundle"])]
    pub(crate) directory: Option<PathBuf>,
    /// Write a tar archive; `-` for stdout
    #[arg(long, value_name = "FILE", conflicts_with_all = ["git", "bundle"])]
    pub(crate) tar: Option<PathBuf>,
    /// Write the history to a new git repository, or to a branch of an existing one
    #[arg(long, value_name = "DIR", conflicts_with = "bundle")]
    pub(crate) git: Option<PathBuf>,
    /// Write the history to a git bundle
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
    /// Branch of the git repository [default: that of HEAD, or main]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tar", "directory"])]
    pub(crate) branch: Option<String>,
    /// Sequence or id of a former head, instead of the present files; for git, the last one that is exported
    #[arg(long, value_name = "SEQUENCE")]
    pub(crate) at: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List the changes of a project, newest first
///
/// With `--graph`, a completion that others overtook is drawn as a branch: from the sequence whose files it was made
/// on, to the sequence as which it landed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project log website
  workspace project log website --graph -n 20
  workspace project log website --author writer
  workspace --json project log website | jq -r .snapshot")]
pub(crate) struct ProjectLog {
    /// Name or id of the project
    pub(crate) project: String,
    /// Only changes of this agent or person
    #[arg(long, value_name = "NAME")]
    pub(crate) author: Option<String>,
    /// Only changes of this kind: import, merge, write, rollback or resolve
    #[arg(long, value_name = "KIND")]
    pub(crate) operation: Option<String>,
    /// Draw the history as a picture
    #[arg(long, conflicts_with_all = ["author", "operation"])]
    pub(crate) graph: bool,
    /// Maximum number of changes
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Only changes before this sequence
    #[arg(long, value_name = "SEQUENCE")]
    pub(crate) before: Option<u64>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Show the differences between two states of a project
///
/// Without `--from`, the changes that made `--to` are shown. Sequence 0 is the empty project.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project diff website
  workspace project diff website --from 3 --patch
  workspace project diff website --from 0 --to 2 --insight")]
pub(crate) struct ProjectDiff {
    /// Name or id of the project
    pub(crate) project: String,
    /// Sequence or id of the old head [default: the one before --to]
    #[arg(long, value_name = "SEQUENCE")]
    pub(crate) from: Option<String>,
    /// Sequence or id of the new head [default: the present one]
    #[arg(long, value_name = "SEQUENCE")]
    pub(crate) to: Option<String>,
    /// Print a patch in the format of git
    #[arg(long)]
    pub(crate) patch: bool,
    /// Print line counts, sizes and risk notes
    #[arg(long, conflicts_with = "patch")]
    pub(crate) insight: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Rename a project
///
/// Its sandboxes and completions stay. Events from before have the old name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project rename website website-2")]
pub(crate) struct ProjectRename {
    /// Name or id of the project
    pub(crate) project: String,
    /// New name: letters, digits, `.`, `_` and `-`
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Change the settings of a project
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project set website --merge periodic --interval 30s
  workspace project set website --merge completion")]
pub(crate) struct ProjectSet {
    /// Name or id of the project
    pub(crate) project: String,
    /// Occasions at which the changes of sandboxes are merged
    #[arg(long, value_name = "MODE", value_enum, required = true)]
    pub(crate) merge: MergeMode,
    /// Time between two merges of a sandbox, for `--merge periodic` [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) interval: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Occasions at which the changes of sandboxes are merged into their project.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum MergeMode {
    /// When a sandbox is completed, removed or expires
    Completion,
    /// Also at intervals, when no command runs
    Periodic,
    /// Also after each command that changed files
    Write,
}

impl From<MergeMode> for projects::MergeMode {
    fn from(mode: MergeMode) -> Self {
        match mode {
            MergeMode::Completion => Self::Completion,
            MergeMode::Periodic => Self::Periodic,
            MergeMode::Write => Self::Write,
        }
    }
}

/// Merge the work in a sandbox into its project
///
/// The sandbox must have been created with `--project`. Its files are committed and merged; the sandbox stays. Changes
/// that the policy refuses, and conflicts, are listed, and the exit status is 3 if there are any.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace complete work -m \"fix the parser\"
  workspace complete work --no-wait")]
pub(crate) struct Complete {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Message for the history
    #[arg(short, long, default_value = "")]
    pub(crate) message: String,
    /// Do not wait until the changes have landed
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List the versions of a file of a project, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace history website docs/index.md")]
pub(crate) struct History {
    /// Name or id of the project
    pub(crate) project: String,
    /// Path of the file
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Restore the files that a project had at a sequence
///
/// The result is a new change; nothing is removed from the history.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace rollback website 3
  workspace rollback website 3 docs/index.md -m \"undo the last edit\"")]
pub(crate) struct Rollback {
    /// Name or id of the project
    pub(crate) project: String,
    /// Sequence, or id of a former head
    pub(crate) sequence: String,
    /// File or directory; without it, the whole project
    pub(crate) path: Option<String>,
    /// Message for the history
    #[arg(short, long, default_value = "")]
    pub(crate) message: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

pub(super) const POLICY_EXAMPLES: &str = "\
Examples:
  workspace policy show website > policy.json
  workspace policy set website policy.json
  workspace policy explain website writer docs/index.md";

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    Show(PolicyShow),
    Set(PolicySet),
    Explain(PolicyExplain),
}

/// Print the access policy of a project as JSON
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace policy show website > policy.json")]
pub(crate) struct PolicyShow {
    /// Name or id of the project
    pub(crate) project: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Set the access policy of a project from a JSON file
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace policy set website policy.json
  echo '{\"rules\": [{\"agent\": \"guest-*\", \"path\": \"**\", \"access\": \"R\"}]}' | workspace policy set website -")]
pub(crate) struct PolicySet {
    /// Name or id of the project
    pub(crate) project: String,
    /// File; `-` for standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Print which rule decides about a path, and why
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace policy explain website writer docs/index.md")]
pub(crate) struct PolicyExplain {
    /// Name or id of the project
    pub(crate) project: String,
    /// Agent
    pub(crate) agent: String,
    /// Path in the project
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) server: Server,
}
