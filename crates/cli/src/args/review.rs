//! Commands on reviews: conflicts and critical changes of projects that wait for a decision.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::server::Server;

pub(super) const EXAMPLES: &str = "\
Examples:
  workspace review ls website
  workspace review show website rev-0190c2f1a5c07cc0a1b2c3d4e5f60718
  workspace review resolve website rev-0190c2f1a5c07cc0a1b2c3d4e5f60718 --edit";

#[derive(Debug, Subcommand)]
pub(crate) enum ReviewCommand {
    Ls(ReviewLs),
    Show(ReviewShow),
    Resolve(ReviewResolve),
}

/// List the reviews of a project that wait for a decision, oldest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace review ls website
  workspace review ls website --assigned alice
  workspace --json review ls website --all | jq -r .id")]
pub(crate) struct ReviewLs {
    /// Name or id of the project
    pub(crate) project: String,
    /// List decided reviews, too
    #[arg(long, conflicts_with = "state")]
    pub(crate) all: bool,
    /// Only reviews in this state
    #[arg(long, value_enum)]
    pub(crate) state: Option<StateFilter>,
    /// Only reviews that this person or agent may resolve
    #[arg(long, value_name = "NAME")]
    pub(crate) assigned: Option<String>,
    /// Only reviews of this path
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Only reviews of the completion with this id
    #[arg(long, value_name = "COMPLETION")]
    pub(crate) completion: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// State of the reviews to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateFilter {
    Open,
    Escalated,
    Resolved,
    Expired,
}

/// Show a review: the versions side by side, and what led to them
///
/// The left side is the head of the project, the right side the version of the agent.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace review show website rev-0190c2f1a5c07cc0a1b2c3d4e5f60718
  workspace review show website rev-0190c2f1a5c07cc0a1b2c3d4e5f60718 --side theirs > theirs.md")]
pub(crate) struct ReviewShow {
    /// Name or id of the project
    pub(crate) project: String,
    /// Id of the review
    pub(crate) review: String,
    /// Print the content of this version only
    #[arg(long, value_enum)]
    pub(crate) side: Option<SideName>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Version of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SideName {
    /// The version that the agent started from
    Base,
    /// The version that the head had when the review was opened
    Ours,
    /// The version of the agent
    Theirs,
    /// The version of the present head
    Head,
}

impl SideName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Ours => "ours",
            Self::Theirs => "theirs",
            Self::Head => "head",
        }
    }
}

/// Resolve a review
///
/// The decision is a new change in the history of the project. If the head has changed the path since the review was
/// opened, pass the version that you have seen with --expect; `workspace review show` prints it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace review resolve website rev-0190c2f1a5c07cc0a1b2c3d4e5f60718 --theirs
  workspace review resolve website rev-0190c2f1a5c07cc0a1b2c3d4e5f60718 --strategy json -m \"both keys\"
  workspace review resolve website rev-0190c2f1a5c07cc0a1b2c3d4e5f60718 --edit")]
pub(crate) struct ReviewResolve {
    /// Name or id of the project
    pub(crate) project: String,
    /// Id of the review
    pub(crate) review: String,
    #[command(flatten)]
    pub(crate) choice: ResolveChoice,
    /// Version of the head that you have seen: its `version`, or a sequence
    #[arg(long, value_name = "VERSION")]
    pub(crate) expect: Option<String>,
    /// Message for the history
    #[arg(short, long, default_value = "")]
    pub(crate) message: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Choice of a reviewer.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ResolveChoice {
    /// Keep the version of the head
    #[arg(long)]
    pub(crate) ours: bool,
    /// Take the version of the agent
    #[arg(long)]
    pub(crate) theirs: bool,
    /// Merge both versions by this strategy
    #[arg(long, value_name = "NAME")]
    pub(crate) strategy: Option<String>,
    /// Take the content of this file; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Remove the file from the project
    #[arg(long)]
    pub(crate) delete: bool,
    /// Edit the file with conflict markers in $VISUAL, $EDITOR or vi
    #[arg(long)]
    pub(crate) edit: bool,
}
