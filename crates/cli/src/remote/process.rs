//! Runs commands, and forwards their input and output until they end.

use std::collections::BTreeMap;
use std::io::Write as _;

use workspace_api::error_codes;
use workspace_api::processes::{KillCommand, Overflow, RunCommand, BackgroundCommand};

use super::Client;
use super::input::Input;
use super::output::{End, Follower, OutputEvent, To};
use crate::error::{CommandError, Kind, Result};
use crate::output::Output;
use crate::signals::Signals;
use crate::stdin::stdin;
use crate::text;

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGPIPE: i32 = 13;

/// Command to run.
#[derive(Debug, Default)]
pub(crate) struct CommandOptions {
    /// A line for `/bin/sh`.
    pub(crate) line: String,
    pub(crate) cwd: Option<String>,
    pub(crate) envs: BTreeMap<String, String>,
    /// Milliseconds; 0 for as long as the sandbox lives.
    pub(crate) timeout: u64,
    /// Forward stdin of this program.
    pub(crate) stdin: bool,
    /// Run it without following its output.
    pub(crate) unread: bool,
}

/// Starts a command and returns its id.
pub(crate) async fn start(client: &Client, sandbox: &str, options: &CommandOptions) -> Result<String> {
    let body = RunCommand {
        command: options.line.clone(),
        cwd: options.cwd.clone(),
        envs: options.envs.clone(),
        timeout: Some(options.timeout),
        stdin: options.stdin,
        // A follower reads at its own pace and needs all output.
        overflow: if options.unread { Overflow::Drop } else { Overflow::Block },
        // Its output is asked for by its id, as after a lost connection: nothing depends on the first one.
        background: true,
        ..RunCommand::default()
    };
    let path = format!("/api/v1/sandboxes/{sandbox}/process/run");
    let started: BackgroundCommand = client.post(&path, &body).await?;
    Ok(started.command_id)
}

/// Sends a signal to a command. A command that has ended is no error.
pub(crate) async fn kill(client: &Client, sandbox: &str, command: &str, signal: i32) -> Result<()> {
    let path = format!("/api/v1/sandboxes/{sandbox}/process/{command}/kill");
    match client.try_post(&path, &KillCommand { signal: Some(signal) }).await {
        Ok(()) => Ok(()),
        Err(failure) if failure.is(error_codes::COMMAND_NOT_RUNNING) => Ok(()),
        Err(failure) => Err(client.explain(failure)),
    }
}

/// Reaction to a signal to this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Pass it on, and end when the command does.
    PassOn,
    /// End; the caller ends the command.
    End,
}

/// End of attending a command.
pub(crate) enum Over {
    /// The command ended.
    Ended(End),
    /// This program was asked to end, by that signal.
    Asked(i32),
}

/// Forwards output and input of a command until it ends.
pub(crate) async fn attend(
    client: &Client,
    (sandbox, command): (&str, &str),
    with_stdin: bool,
    (signals, asked): (&mut Signals, Asked),
    output: &mut Output,
) -> Result<Over> {
    let mut follower = Follower::new(client, sandbox, command);
    let to = Input::new(client, sandbox, command);
    let passing = async {
        if with_stdin {
            to.pass(stdin()).await?;
        }
        Ok::<(), CommandError>(())
    };
    tokio::pin!(passing);
    let (mut passed, mut interrupted) = (!with_stdin, false);
    loop {
        tokio::select! {
            did = follower.next() => match show(did?, output) {
                Ok(Some(end)) => return Ok(Over::Ended(end)),
                Ok(None) => {}
                Err(error) => {
                    if error.kind == Kind::OutputClosed {
                        // What it would have got, had it written to that pipe itself.
                        kill(client, sandbox, command, SIGPIPE).await?;
                    }
                    return Err(error);
                }
            },
            signal = signals.next() => {
                if asked == Asked::End {
                    return Ok(Over::Asked(signal));
                }
                let again = signal == SIGINT && std::mem::replace(&mut interrupted, true);
                kill(client, sandbox, command, if again { SIGKILL } else { signal }).await?;
            }
            done = &mut passing, if !passed => {
                done?;
                passed = true;
            }
        }
    }
}

/// Prints an event. Returns the end of the command, if it ended.
fn show(did: OutputEvent, output: &mut Output) -> Result<Option<End>> {
    match did {
        OutputEvent::Printed { to: To::Stdout, data, .. } => {
            output.bytes(&data)?;
            output.finish()?;
        }
        OutputEvent::Printed { to: To::Stderr, data, .. } => {
            // A failure to write to stderr cannot be reported.
            let _ = std::io::stderr().write_all(&data);
        }
        OutputEvent::Gap { from, to } => warn_of_gap(from, to),
        OutputEvent::Ended(end) => return Ok(Some(end)),
    }
    Ok(None)
}

/// Warns of missing output.
pub(crate) fn warn_of_gap(from: u64, to: u64) {
    let missing = text::shown_bytes(to - from);
    text::print_stderr(&format!(
        "warning: {missing} are missing here: the command printed faster than they were taken, and the server keeps OUTPUT_KEEP"
    ));
}
