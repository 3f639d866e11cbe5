//! The command `try`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::history::key_value;
use super::sandbox::Network;
use super::server::duration;

/// Run a program on a directory without risk, then keep or drop its changes
///
/// The program runs in a local sandbox; no server is needed. It sees the files of this system read-only at their own
/// paths, and can write to DIR and your home directory. When it has ended, its changes in DIR are listed. On a terminal
/// you are asked whether to keep them; without a terminal they are dropped unless you give --keep. Changes outside of
/// DIR are always dropped. Keys, tokens, shell histories and homes of other users are hidden from the program:
/// --list-hidden lists them, --show and --hide change the list.
///
/// Only changed files are written to DIR. If one of them was changed in DIR by another process in the meantime, nothing
/// is written, and the changes are saved; --apply writes or drops them later.
///
/// With --template, the program runs on a copy of DIR at /workspace instead. Your home directory and files that
/// `.workspaceignore` names are not in the sandbox. Changes that could not be written stay in the store as a snapshot.
///
/// Stdout belongs to the program; the list and the question go to stderr. With --json, stdout is one object, and the
/// output of the program goes to stderr. The exit status is that of the program; 124 if it timed out, 125 if something
/// else failed.
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
    /// Directory
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Keep the changes without asking, whatever the exit status is
    #[arg(long, conflicts_with = "drop")]
    pub(crate) keep: bool,
    /// Drop the changes without asking
    #[arg(long)]
    pub(crate) drop: bool,
    /// Run on a copy of the directory at /workspace, in a sandbox from a template: `base`, which has the programs of
    /// this system, or a template of your local server
    #[arg(long, value_name = "TEMPLATE", conflicts_with_all = ["show", "hide"])]
    pub(crate) template: Option<String>,
    /// Show a path that is hidden by default; may be repeated
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) show: Vec<PathBuf>,
    /// Hide a path from the program; may be repeated
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) hide: Vec<PathBuf>,
    /// List the hidden paths, and run nothing
    #[arg(long, conflicts_with_all = ["template", "apply"])]
    pub(crate) list_hidden: bool,
    /// Write the changes that an earlier trial saved in the directory SAVED, which its error message names; with --drop,
    /// drop them
    #[arg(long, value_name = "SAVED", conflicts_with_all = ["template", "keep"], value_hint = ValueHint::DirPath)]
    pub(crate) apply: Option<PathBuf>,
    /// With --apply: overwrite files that were changed in the meantime
    #[arg(long, requires = "apply", conflicts_with = "drop")]
    pub(crate) force: bool,
    /// Timeout
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Environment variable; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = key_value)]
    pub(crate) envs: Vec<(String, String)>,
    /// Network access
    #[arg(long, value_enum, default_value_t = Network::None)]
    pub(crate) network: Network,
    /// Allowlist for `--network egress`: a host name (*.example.com for all its subdomains) or IPv4 addresses
    /// such as 10.1.0.0/16; may be repeated
    #[arg(long = "allow", value_name = "HOST|CIDR")]
    pub(crate) allowed: Vec<String>,
    /// Program and its arguments; no shell interprets them
    #[arg(value_name = "COMMAND", required_unless_present_any = ["apply", "list_hidden"], last = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<String>,
}
