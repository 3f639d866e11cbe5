//! A program tried without risk.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::history::label;
use super::sandbox::Network;
use super::server::duration;

/// Run a program on a directory without risk, then keep or drop what it changed
///
/// The program runs in a sandbox on this machine, no server is needed. It sees this system read-only, each file at its own path,
/// and can change DIR and your home directory. What it changed in DIR is then listed, and on a terminal you are asked whether to
/// keep it; without a terminal nothing is kept unless --keep says so. What it wrote anywhere else is dropped. Keys, tokens,
/// histories and homes of other people are hidden from it: --list-hidden lists them, --show and --hide change that.
///
/// Keeping writes only what differs, and is refused when a file in its way was changed meanwhile; the changes then stay
/// aside, and --apply writes or drops them.
///
/// With --template the program runs on a copy of DIR at /workspace instead, without your home and without what
/// `.workspaceignore` files name; changes that cannot be kept are then a snapshot of the store.
///
/// Stdout is the program's; the list and the question go to stderr. With --json stdout is one object, and what the program
/// prints goes to stderr. The exit status is that of the program; 124 if its time was up, 125 if something else failed.
#[derive(Debug, Args)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has it"))]
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
    /// Run on a copy of the directory at /workspace, in a sandbox made from a template: base, which has the programs of this
    /// system, or one of this user's server
    #[arg(long, value_name = "TEMPLATE", conflicts_with_all = ["show", "hide"])]
    pub(crate) template: Option<String>,
    /// Let it see this path, which is hidden by default; may be repeated
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) show: Vec<PathBuf>,
    /// Hide this path from it; may be repeated
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) hide: Vec<PathBuf>,
    /// List the paths that are hidden, and run nothing
    #[arg(long, conflicts_with_all = ["template", "apply"])]
    pub(crate) list_hidden: bool,
    /// Write the changes of an earlier trial that are kept aside in this directory; with --drop, drop them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["template", "keep"], value_hint = ValueHint::DirPath)]
    pub(crate) apply: Option<PathBuf>,
    /// With --apply: write over what was changed meanwhile
    #[arg(long, requires = "apply", conflicts_with = "drop")]
    pub(crate) force: bool,
    /// Timeout
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// A variable for it; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = label)]
    pub(crate) envs: Vec<(String, String)>,
    /// Network access
    #[arg(long, value_enum, default_value_t = Network::None)]
    pub(crate) network: Network,
    /// Allowlist for `--network egress`: a host name (*.example.com for all its subdomains) or IPv4 addresses
    /// such as 10.1.0.0/16; may be repeated
    #[arg(long = "allow", value_name = "HOST|CIDR")]
    pub(crate) allowed: Vec<String>,
    /// The program and its arguments, as they are: no shell looks at them
    #[arg(value_name = "COMMAND", required_unless_present_any = ["apply", "list_hidden"], last = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<String>,
}
