//! Commands on notes and on the searches of a server.

use clap::{Args, Subcommand};

use super::server::Server;

pub(super) const NOTE_EXAMPLES: &str = "\
Examples:
  workspace note add work \"The parser loses the last line; read until EOF.\"
  workspace note ls work
  workspace --json note ls work | jq -r .text";

#[derive(Debug, Subcommand)]
pub(crate) enum NoteCommand {
    Add(NoteAdd),
    Ls(NoteLs),
}

/// Add a note about a step in a sandbox, and print its id
///
/// The note belongs to the next snapshot of the sandbox, or to that of its command if there is one already, and is
/// deleted with it. `workspace diff --why` prints it with the files that changed in that snapshot.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace note add work \"The parser loses the last line; read until EOF.\"
  workspace note add work \"All tests pass.\" --command cmd-0199a --data '{\"tokens\": 812}'")]
pub(crate) struct NoteAdd {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Text
    pub(crate) text: String,
    /// Id of the command that the note is about
    #[arg(long, value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Custom data, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub(crate) data: Option<serde_json::Map<String, serde_json::Value>>,
    #[command(flatten)]
    pub(crate) server: Server,
}

fn object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

/// List the notes of a sandbox, oldest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace note ls work
  workspace note ls work --newest --command cmd-0199a
  workspace --json note ls work | jq -r .text")]
pub(crate) struct NoteLs {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Only notes about this command
    #[arg(long, value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// List the newest first
    #[arg(long)]
    pub(crate) newest: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

pub(super) const SEARCH_EXAMPLES: &str = "\
Examples:
  workspace episodes ls
  workspace episodes subtree 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0";

#[derive(Debug, Subcommand)]
pub(crate) enum EpisodesCommand {
    /// List searches: their first steps, newest first
    #[command(after_help = "\
Examples:
  workspace episodes ls
  workspace episodes ls --oldest
  workspace --json episodes ls | jq -r .id")]
    Ls {
        /// List the oldest first
        #[arg(long)]
        oldest: bool,
        #[command(flatten)]
        server: Server,
    },
    Subtree(EpisodesSubtree),
}

/// Print a step and the steps after it as a tree
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace episodes subtree 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0
  workspace episodes subtree 0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0 --depth 2")]
pub(crate) struct EpisodesSubtree {
    /// Full id of the step
    #[arg(value_name = "EPISODE")]
    pub(crate) episode: String,
    /// Maximum number of levels below the step
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// Maximum number of steps
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) server: Server,
}
