//! The command that prints events.

use clap::Args;

use super::server::Server;

/// Print the events of sandboxes and snapshots, oldest first
///
/// An admin key gets the events of all owners. Each line has the number of the event, its time, its type, the sandbox,
/// and details. With --follow the command waits for new events; if the connection breaks, it reconnects without losing
/// or repeating events.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace events
  workspace events -f --type sandbox.error
  workspace events --sandbox work --after 42
  workspace --json events | jq -r .type")]
pub(crate) struct Events {
    /// Wait for new events and print them
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only events of this sandbox; a deleted one by its full id
    #[arg(long, value_name = "SANDBOX")]
    pub(crate) sandbox: Option<String>,
    /// Only events of this type, such as sandbox.created
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Only events of this project and of its sandboxes
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Only events after the one with this number
    #[arg(long, value_name = "N")]
    pub(crate) after: Option<u64>,
    #[command(flatten)]
    pub(crate) server: Server,
}
