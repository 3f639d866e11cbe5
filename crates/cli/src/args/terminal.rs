//! Commands on terminals that other programs connect to.

use clap::{Args, Subcommand};

use super::history::key_value;
use super::server::Server;

pub(super) const EXAMPLES: &str = "\
Examples:
  terminal=$(workspace terminal create work)
  workspace terminal ticket work $terminal --read-only
  workspace terminal rm work $terminal";

#[derive(Debug, Subcommand)]
pub(crate) enum TerminalCommand {
    Create(TerminalCreate),
    Ticket(TerminalTicket),
    /// Close a terminal, and kill its program
    #[command(after_help = "Examples:\n  workspace terminal rm work pty-0199a")]
    Rm {
        /// Sandbox: its id, a prefix of it, or its name
        #[arg(value_name = "SANDBOX")]
        sandbox: String,
        /// Id of the terminal
        #[arg(value_name = "TERMINAL")]
        terminal: String,
        #[command(flatten)]
        server: Server,
    },
}

/// Open a terminal in a sandbox and print its id
///
/// It stays open until its program exits, whether a client is connected or not.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace terminal create work
  workspace terminal create work --shell /bin/sh --cwd /tmp --cols 120 --rows 40
  workspace --json terminal create work | jq -r .websocketUrl")]
pub(crate) struct TerminalCreate {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Shell, replaced by /bin/sh if it cannot be executed [default: /bin/bash]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) shell: Option<String>,
    /// Working directory [default: /workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Environment variable; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = key_value)]
    pub(crate) envs: Vec<(String, String)>,
    /// User in the sandbox, by name or id; others than `sandbox` need a sandbox with --root kept [default: sandbox]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Number of columns; clients may change it
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) cols: u16,
    /// Number of rows; clients may change it
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) rows: u16,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Print the URL of a WebSocket to a terminal, with a ticket instead of a key
///
/// Browsers cannot send a key when they open a WebSocket. The ticket is valid for one connection within 30 seconds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace terminal ticket work pty-0199a
  workspace terminal ticket work pty-0199a --read-only
  workspace --json terminal ticket work pty-0199a | jq -r .ticket")]
pub(crate) struct TerminalTicket {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Id of the terminal
    #[arg(value_name = "TERMINAL")]
    pub(crate) terminal: String,
    /// Show the output only: the server refuses input and new sizes
    #[arg(long)]
    pub(crate) read_only: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
