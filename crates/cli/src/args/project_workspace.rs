//! Commands on workspaces of agents that run in containers of their own.

use clap::{Args, Subcommand};

use super::server::Server;

pub(super) const EXAMPLES: &str = "\
Examples:
  workspace project workspace create website --agent writer
  docker run --user 1000:1000 -v PATH:/workspace my-agent
  workspace project workspace complete website writer -m \"write the first page\"
  workspace project workspace rm website writer";

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectWorkspaceCommand {
    Create(ProjectWorkspaceCreate),
    Ls(ProjectWorkspaceLs),
    Show(ProjectWorkspaceShow),
    Changes(ProjectWorkspaceChanges),
    Complete(ProjectWorkspaceComplete),
    Rebase(ProjectWorkspaceRebase),
    Rm(ProjectWorkspaceRm),
}

/// Create the workspace of an agent, and print its path
///
/// The workspace is a directory of the server's machine with the files that the agent may see. Mount it in a container
/// of your own. If the agent has a workspace of the project, its path is printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project workspace create website --agent writer
  workspace --json project workspace create website --agent writer | jq -r .user")]
pub(crate) struct ProjectWorkspaceCreate {
    /// Name or id of the project
    pub(crate) project: String,
    /// Agent [default: that of the key, or its name]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Provider: clone or copy [default: the first of these that works]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
    /// Sequence or id of a former head whose files the workspace starts with, instead of the present ones
    #[arg(long, value_name = "SEQUENCE")]
    pub(crate) at: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List the workspaces of a project
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project workspace ls website
  workspace --json project workspace ls website | jq -r .path")]
pub(crate) struct ProjectWorkspaceLs {
    /// Name or id of the project
    pub(crate) project: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Show the workspace of an agent
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project workspace show website writer")]
pub(crate) struct ProjectWorkspaceShow {
    /// Name or id of the project
    pub(crate) project: String,
    /// Agent
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List the changes in the workspace of an agent
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project workspace changes website writer
  workspace --json project workspace changes website writer | jq '.modified[].content'")]
pub(crate) struct ProjectWorkspaceChanges {
    /// Name or id of the project
    pub(crate) project: String,
    /// Agent
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Merge the work in the workspace of an agent into its project
///
/// The workspace stays. Changes that the policy refuses, and conflicts, are listed, and the exit status is 3 if there
/// are any. If processes keep writing to the workspace, nothing is merged: stop them, or try again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project workspace complete website writer -m \"write the first page\"
  workspace project workspace complete website writer --no-wait")]
pub(crate) struct ProjectWorkspaceComplete {
    /// Name or id of the project
    pub(crate) project: String,
    /// Agent
    pub(crate) agent: String,
    /// Message for the history
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub(crate) message: String,
    /// Do not wait until the changes have landed
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Merge the changes in the workspace of an agent with the present head of its project
///
/// The files are replaced in place, while processes may run. Conflicts that no rule decides are listed: then nothing is
/// replaced, and the exit status is 3. If processes keep writing to the workspace, nothing is replaced: stop them, or try
/// again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project workspace rebase website writer
  workspace --json project workspace rebase website writer | jq -r '.conflicts[].path'")]
pub(crate) struct ProjectWorkspaceRebase {
    /// Name or id of the project
    pub(crate) project: String,
    /// Agent
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Delete workspaces of agents, with their directories
///
/// A workspace with changes that were not completed is not deleted, unless --discard is given. End its container first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project workspace rm website writer
  workspace project workspace rm website writer editor --discard")]
pub(crate) struct ProjectWorkspaceRm {
    /// Name or id of the project
    pub(crate) project: String,
    /// Agents
    #[arg(required = true, value_name = "AGENT")]
    pub(crate) agents: Vec<String>,
    /// Delete changes that were not completed, too
    #[arg(long)]
    pub(crate) discard: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Move the workspaces of agents that have no changes to the present head
///
/// Workspaces with changes stay as they are. Sync before the agents start: a process that writes to a file at the very
/// moment in which it is replaced loses that write.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace project sync website")]
pub(crate) struct ProjectSync {
    /// Name or id of the project
    pub(crate) project: String,
    #[command(flatten)]
    pub(crate) server: Server,
}
