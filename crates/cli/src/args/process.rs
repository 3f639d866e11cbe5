//! Commands and terminals in sandboxes.

use std::time::Duration;

use clap::{Args, ValueHint};
use workspace_state::Timestamp;

use super::history::label;
use super::sandbox::SandboxOptions;
use super::server::{Server, duration};
use crate::time;

/// Run a program in a sandbox of its own
///
/// The sandbox is made for it and removed when it ends, or when this is interrupted. The exit status is that of the
/// program; 124 if its time was up, 125 if it could not be run. A sandbox lives an hour unless --timeout says more.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace run -- echo hello
  workspace run --env NAME=value --timeout 5m -- sh -c 'echo $NAME'
  workspace run -i -- sort < words
  workspace run -t -- bash
  workspace run --network egress --allow pypi.org --allow '*.pythonhosted.org' -- pip install requests
  workspace run --keep --name work -- true")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) options: SandboxOptions,
    /// Timeout
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Do not remove the sandbox; its id goes to stderr
    #[arg(long)]
    pub(crate) keep: bool,
    /// Pass on what comes from stdin
    #[arg(short, long = "interactive")]
    pub(crate) interactive: bool,
    /// Run it in a terminal, which this one becomes; has -i in it
    #[arg(short, long, conflicts_with = "timeout")]
    pub(crate) terminal: bool,
    #[command(flatten)]
    pub(crate) server: Server,
    /// The program and its arguments, as they are: no shell looks at them
    #[arg(value_name = "COMMAND", required = true, last = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<String>,
}

/// Run a program in a sandbox that is there
///
/// Ctrl-C is passed on as SIGINT, the second one as SIGKILL. The exit status is that of the program; 124 if its time
/// was up, 125 if it could not be run. A lost connection is made anew, and nothing of the output is lost or repeated.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace exec work -- make test
  workspace exec -i work -- sh -c 'cat > notes' < notes
  workspace exec -t work -- top
  command=$(workspace exec -d work -- ./server); workspace logs -f work $command")]
pub(crate) struct Exec {
    /// Pass on what comes from stdin
    #[arg(short, long = "interactive", conflicts_with = "detach")]
    pub(crate) interactive: bool,
    /// Run it in a terminal, which this one becomes; has -i in it
    #[arg(short, long, conflicts_with_all = ["timeout", "detach"])]
    pub(crate) terminal: bool,
    /// Working directory [default: /workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// A variable for it; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = label)]
    pub(crate) envs: Vec<(String, String)>,
    /// Timeout [default: none; the command ends with the sandbox]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Do not wait for it; print its id
    #[arg(short, long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) server: Server,
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// The program and its arguments, as they are: no shell looks at them
    #[arg(value_name = "COMMAND", required = true, last = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<String>,
}

/// Open a terminal in a sandbox
///
/// All keys go to what runs inside, Ctrl-C too. The exit status is that of the shell; 125 if it could not be run. When the
/// server is started again, the terminal is connected again.
#[derive(Debug, Args)]
#[command(
    name = "shell",
    after_help = "Examples:\n  workspace shell work\n  workspace shell work --shell /bin/sh --cwd /tmp"
)]
pub(crate) struct ShellArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// Shell [default: /bin/bash, or /bin/sh where that does not exist]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) shell: Option<String>,
    /// Working directory [default: /workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// A variable for it; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = label)]
    pub(crate) envs: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List sandboxes, or what runs and ran in one
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  workspace ps\n  workspace ps work\n  workspace ps -q")]
pub(crate) struct Ps {
    /// A sandbox, whose commands are listed
    #[arg(value_name = "ID")]
    pub(crate) sandbox: Option<String>,
    /// Ids alone
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Print what commands in a sandbox printed
///
/// Without COMMAND, the last lines of all of them, in the order of time. With it, all that is kept of one, stderr
/// to stderr.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace logs work
  workspace logs work --tail 20 --since 10m
  workspace logs -f work cmd-0199a")]
pub(crate) struct Logs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// Id of a command, as `workspace ps ID` lists them
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Go on until the command ends
    #[arg(short, long, requires = "command")]
    pub(crate) follow: bool,
    /// Only the last N lines [default: 100, or all of one command]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) tail: Option<u16>,
    /// Only what was printed at or after TIME: a date, a time, or an age such as 90m or 36h
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) server: Server,
}

fn since(text: &str) -> Result<Timestamp, String> {
    time::parse(text, &time::now()).ok_or_else(|| format!("expected {}", time::FORMS))
}

/// Copy files and directories into a sandbox or out of it
///
/// A path in a sandbox is ID:PATH; relative ones begin in /workspace. What is copied goes into DST if that is a directory,
/// and else becomes DST. A local path with a colon is written ./a:b.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace cp project work:
  workspace cp a.txt b.txt work:/tmp
  workspace cp work:results ./results
  workspace cp work:/tmp/a.txt .")]
pub(crate) struct Cp {
    /// Sources and destination
    #[arg(value_name = "SRC… DST", num_args = 2.., required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}
