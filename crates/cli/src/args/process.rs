//! Commands and terminals in sandboxes.

use std::time::Duration;

use clap::{Args, ValueHint};
use workspace_state::Timestamp;

use super::history::key_value;
use super::sandbox::SandboxOptions;
use super::server::{Server, duration};
use crate::time;

/// Run a program in a new sandbox
///
/// The sandbox is removed when the program ends or this command is interrupted. It lives for an hour, or longer with
/// --timeout. The exit status is that of the program; 124 if it timed out, 125 if it could not be run.
///
/// If you name no server and none runs at the default address, the program runs in a temporary local sandbox instead
/// (Linux only). Options for sandboxes that other commands use, and for limits, need a server.
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
    /// Tag of the command, by which `workspace ps SANDBOX --tag TAG` finds it
    #[arg(long, conflicts_with = "terminal")]
    pub(crate) tag: Option<String>,
    /// Do not remove the sandbox; print its id on stderr
    #[arg(long)]
    pub(crate) keep: bool,
    /// Forward stdin to the program
    #[arg(short, long = "interactive")]
    pub(crate) interactive: bool,
    /// Connect the program with this terminal; includes -i
    #[arg(short, long, conflicts_with = "timeout")]
    pub(crate) terminal: bool,
    #[command(flatten)]
    pub(crate) server: Server,
    /// Program and its arguments; no shell interprets them
    #[arg(value_name = "COMMAND", required = true, last = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<String>,
}

/// Run a program in an existing sandbox
///
/// Ctrl-C sends SIGINT to the program, the second Ctrl-C SIGKILL. The exit status is that of the program; 124 if it
/// timed out, 125 if it could not be run. If the connection breaks, the command reconnects without losing or repeating
/// output.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace exec work -- make test
  workspace exec -i work -- sh -c 'cat > notes' < notes
  workspace exec -t work -- top
  workspace exec --user root work -- apt-get install -y jq
  workspace exec --tag tests work -- make test; workspace ps work --tag tests
  command=$(workspace exec -d work -- ./server); workspace logs -f work $command")]
pub(crate) struct Exec {
    /// Forward stdin to the program
    #[arg(short, long = "interactive", conflicts_with = "detach")]
    pub(crate) interactive: bool,
    /// Connect the program with this terminal; includes -i
    #[arg(short, long, conflicts_with_all = ["timeout", "detach"])]
    pub(crate) terminal: bool,
    /// Working directory [default: /workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Environment variable; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = key_value)]
    pub(crate) envs: Vec<(String, String)>,
    /// User in the sandbox, by name or id; others than `sandbox` need a sandbox with --root kept [default: sandbox]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Timeout [default: the lifetime of the sandbox]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Tag of the command, by which `workspace ps SANDBOX --tag TAG` finds it
    #[arg(long, conflicts_with = "terminal")]
    pub(crate) tag: Option<String>,
    /// Run the program in the background, and print the id of the command
    #[arg(short, long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) server: Server,
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Program and its arguments; no shell interprets them
    #[arg(value_name = "COMMAND", required = true, last = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<String>,
}

/// Open a terminal in a sandbox
///
/// All input goes to the sandbox, including Ctrl-C. The exit status is that of the shell; 125 if it could not be run.
/// The terminal reconnects after a restart of the server.
#[derive(Debug, Args)]
#[command(
    name = "shell",
    after_help = "Examples:\n  workspace shell work\n  workspace shell work --shell /bin/sh --cwd /tmp"
)]
pub(crate) struct ShellArgs {
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
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List sandboxes, or the commands of a sandbox
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace ps
  workspace ps work
  workspace ps work --tag tests
  workspace ps work --processes
  workspace ps -q")]
pub(crate) struct Ps {
    /// Sandbox whose commands are listed: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: Option<String>,
    /// Only commands with this tag
    #[arg(long, requires = "sandbox")]
    pub(crate) tag: Option<String>,
    /// List the processes that the commands and terminals of the sandbox started
    #[arg(short, long, requires = "sandbox", conflicts_with = "tag")]
    pub(crate) processes: bool,
    /// Print only ids
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Send a signal to a command in a sandbox
///
/// All processes of the command get the signal, also those that it left behind when it exited.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  command=$(workspace exec -d work -- ./server); workspace kill work $command
  workspace kill work cmd-0199a --signal KILL
  workspace ps work --tag tests -q | xargs -n 1 workspace kill work")]
pub(crate) struct Kill {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Id of the command, as `workspace ps SANDBOX` lists them
    #[arg(value_name = "COMMAND")]
    pub(crate) command: String,
    /// Signal, by name or number
    #[arg(short, long, value_name = "SIGNAL", default_value = "TERM", value_parser = signal)]
    pub(crate) signal: i32,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Parses the number of a signal, or its name with or without `SIG`.
fn signal(text: &str) -> Result<i32, String> {
    // The numbers in the sandbox, which runs Linux, whatever this machine runs.
    const SIGNALS: [(&str, i32); 9] = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("KILL", 9),
        ("USR1", 10),
        ("USR2", 12),
        ("TERM", 15),
        ("CONT", 18),
        ("STOP", 19),
    ];
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let number = || text.parse().ok().filter(|number| (1..=64).contains(number));
    named.or_else(number).ok_or_else(|| {
        let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
        format!("expected a number from 1 to 64, or {}", names.join(", "))
    })
}

/// Print the output of commands in a sandbox
///
/// Without COMMAND, prints the last lines of all commands in the order of time. With COMMAND, prints all output of that
/// command that is still kept; its stderr goes to stderr. Without --follow, output that is printed later is not waited
/// for.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace logs work
  workspace logs work --tail 20 --since 10m
  workspace logs -f work cmd-0199a")]
pub(crate) struct Logs {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Id of a command, as `workspace ps SANDBOX` lists them
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Follow the output until the command ends
    #[arg(short, long, requires = "command")]
    pub(crate) follow: bool,
    /// Only the last N lines [default: 100, or all of one command]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) tail: Option<u16>,
    /// Only output from TIME on: a date, a time, or an age such as 90m or 36h
    #[arg(long, value_name = "TIME", value_parser = time_or_age)]
    pub(crate) since: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Parses a time, or an age before the present time.
pub(super) fn time_or_age(text: &str) -> Result<Timestamp, String> {
    time::parse(text, &time::now()).ok_or_else(|| format!("expected {}", time::FORMATS))
}

/// Copy files and directories into a sandbox or out of it
///
/// A path in a sandbox is written SANDBOX:PATH; a relative PATH starts in /workspace. If DST is a directory, the
/// sources are copied into it; otherwise the copy gets the name DST. Write a local path with a colon as ./a:b.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in
            [("TERM", 15), ("SIGKILL", 9), ("int", 2), ("sigusr1", 10), ("64", 64), ("1", 1)]
        {
            assert_eq!(signal(text), Ok(number), "{text}");
        }
        for text in ["", "SIG", "0", "65", "-9", "TERMINATE"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }
}
