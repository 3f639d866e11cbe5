//! References: names that point to snapshots.

use clap::{Args, Subcommand};
use workspace_state::check_reference_name;

use super::server::ServerInsteadOfStore;

/// Parses the name of a new reference. Names that are only looked up are not checked: no reference has an
/// invalid one.
pub(super) fn name(text: &str) -> Result<String, String> {
    match check_reference_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; for instance `main`, `release-1.2` or `runs/42`")),
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  workspace ref set main 0199a
  workspace ref set main main~1
  workspace ref ls
  workspace ref get main
  workspace ref rm experiment";

#[derive(Debug, Subcommand)]
pub(crate) enum RefCommand {
    /// List references and their target snapshots, like `workspace refs`
    #[command(after_help = "\
Examples:
  workspace ref ls
  workspace --json ref ls
  workspace ref ls --server https://workspace.example.com")]
    Ls {
        #[command(flatten)]
        server: ServerInsteadOfStore,
    },
    /// Print the snapshot that a reference points to
    #[command(after_help = "\
Examples:
  workspace ref get main
  workspace ref get runs/42 --server https://workspace.example.com")]
    Get {
        /// Name of the reference
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        server: ServerInsteadOfStore,
    },
    Set(RefSet),
    Rm(RefRm),
}

/// Create a reference, or move it to another snapshot
///
/// The move is refused if another process moves the reference at the same time, or if it does not point to the snapshot
/// that --expect names.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace ref set main 0199a
  workspace ref set main main~1
  workspace ref set runs/42 main --new
  workspace ref set main 0199b --expect 0199a
  workspace ref set main 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0 --server http://127.0.0.1:8080")]
pub(crate) struct RefSet {
    /// Name of the reference
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// Target snapshot; with --server, its full id or a reference
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Fail if the reference exists
    #[arg(long, conflicts_with = "expect")]
    pub(crate) new: bool,
    /// Fail if the reference does not point to this snapshot
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) expect: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerInsteadOfStore,
}

/// Remove references; their snapshots stay
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  workspace ref rm experiment\n  workspace ref rm runs/41 runs/42")]
pub(crate) struct RefRm {
    /// Names of the references
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) server: ServerInsteadOfStore,
}

/// List, create or remove branches
///
/// A branch is a reference that moves: `workspace snapshot --ref NAME` takes a snapshot whose parent is the target of
/// the branch, and moves the branch to it. Without arguments, all references except tags are listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace branch
  workspace branch experiment main
  workspace branch experiment main~2 --force
  workspace branch --delete experiment")]
pub(crate) struct Branch {
    #[command(flatten)]
    pub(crate) args: BranchOrTagArgs,
}

/// List, create or remove tags
///
/// A tag is a reference that is not meant to move. Other commands know the tag NAME as the reference `tags/NAME`.
/// Without arguments, all tags are listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace tag
  workspace tag v1.0 main
  workspace checkout tags/v1.0 copy
  workspace tag --delete v1.0")]
pub(crate) struct Tag {
    #[command(flatten)]
    pub(crate) args: BranchOrTagArgs,
}

/// A name for a snapshot, or names to remove.
#[derive(Debug, Args)]
pub(crate) struct BranchOrTagArgs {
    /// Name to create
    #[arg(value_name = "NAME", value_parser = name, requires = "snapshot")]
    pub(crate) name: Option<String>,
    /// Target snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: Option<String>,
    /// Move the name if it exists
    #[arg(short, long, requires = "name")]
    pub(crate) force: bool,
    /// Remove this name; may be repeated
    #[arg(short, long, value_name = "NAME", conflicts_with = "name")]
    pub(crate) delete: Vec<String>,
}
