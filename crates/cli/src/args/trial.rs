//! A program tried without risk.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::history::label;
use super::sandbox::Network;
use super::server::duration;

/// Run a program over a copy of a directory, then keep or drop what it changed
///
/// The program runs in a sandbox on this machine, no server is needed. It finds what DIR holds in /workspace, without what
/// `.workspaceignore` files name, and can change nothing outside. What it changed is then listed, and on a terminal you are asked
/// whether to keep it; without a terminal nothing is kept unless --keep says so. Keeping writes only what differs, and is
/// refused when a file in its way was changed meanwhile; the changes are then a snapshot of the store. All else that
/// was made for this is gone at the end.
///
/// Stdout is the program's; the list and the question go to stderr. With --json stdout is one object, and what the program
/// prints goes to stderr. The exit status is that of the program; 124 if its time was up, 125 if something else failed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace try -- make clean
  workspace try --dir project -- sh -c 'sed -i s/old/new/ *.txt'
  workspace try --network egress --allow registry.npmjs.org -- npm install
  workspace try --keep --timeout 5m -- ./migrate
  workspace --json try -- ./agent | jq .totals")]
pub(crate) struct Try {
    /// The directory
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Keep what it changes, however it ends; do not ask
    #[arg(long, conflicts_with = "drop")]
    pub(crate) keep: bool,
    /// Drop what it changes; do not ask
    #[arg(long)]
    pub(crate) drop: bool,
    /// What the sandbox is made from: base, which is this system, or a template of this user's server
    #[arg(long, value_name = "TEMPLATE", default_value = "base")]
    pub(crate) template: String,
    /// How long it may run
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// A variable for it; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = label)]
    pub(crate) envs: Vec<(String, String)>,
    /// What it may reach
    #[arg(long, value_enum, default_value_t = Network::None)]
    pub(crate) network: Network,
    /// All that it may reach with `--network egress`: a host name (*.example.com for all below it) or IPv4 addresses
    /// such as 10.1.0.0/16; may be repeated
    #[arg(long = "allow", value_name = "HOST|CIDR")]
    pub(crate) allowed: Vec<String>,
    /// The program and its arguments, as they are: no shell looks at them
    #[arg(value_name = "COMMAND", required = true, last = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<String>,
}
