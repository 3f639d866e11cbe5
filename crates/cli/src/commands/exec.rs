//! `workspace exec`

use std::collections::BTreeMap;
use std::time::Duration;

use workspace_api::processes::BackgroundCommand;

use crate::args::Exec;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{
    Client, CommandOptions, RemoteCommand, ServerUrl, block_on, find_sandbox, shell_exec_line, terminal,
};
use crate::session::{Attachment, CommandExit, Destination, OnClosedStdout, OnSignal, attach};
use crate::signals::Signals;
use crate::stdin::spawn_stdin_reader;
use crate::text;

/// Exit status of a command that timed out, as with `timeout`.
const EXIT_TIMED_OUT: u8 = 124;
/// Added to the signal number for the exit status of a program that a signal killed.
const EXIT_SIGNAL_BASE: i32 = 128;

pub(crate) fn run(context: &mut Context, args: &Exec) -> Result<Outcome> {
    if !args.detach {
        reject_json(context, "the output of a program")?;
    }
    let client = Client::new(ServerUrl::new(&args.server).map_err(CommandError::with_own_failure_status)?);
    block_on(exec(context, &client, args)).map_err(CommandError::with_own_failure_status)
}

async fn exec(context: &mut Context, client: &Client, args: &Exec) -> Result<Outcome> {
    let sandbox = find_sandbox(client, &args.sandbox).await?;
    let (command_line, cwd, envs) = (shell_exec_line(&args.words), args.cwd.clone(), to_map(&args.envs));
    if args.terminal {
        let (command_line, user) = (Some(command_line), args.user.clone());
        let options = terminal::TerminalOptions { command_line, cwd, envs, shell: None, user };
        return Ok(report_exit(&terminal::run(client, &sandbox, options).await?));
    }
    let options = CommandOptions {
        command_line,
        tag: args.tag.clone(),
        cwd,
        envs,
        timeout: milliseconds(args.timeout),
        stdin: args.interactive,
        is_detached: args.detach,
        user: args.user.clone(),
    };
    if args.detach {
        let command = RemoteCommand::start(client, &sandbox, options).await?;
        return print_command_id(context, &command.id);
    }
    let signals = &mut Signals::new()?;
    let exit = run_attached(context, client, &sandbox, options, (signals, OnSignal::Forward)).await?;
    Ok(report_exit(&exit))
}

/// Runs an attached command to completion.
pub(super) async fn run_attached(
    context: &mut Context,
    client: &Client,
    sandbox: &str,
    options: CommandOptions,
    (signals, on_signal): (&mut Signals, OnSignal),
) -> Result<CommandExit> {
    let mut stdin = options.stdin.then(spawn_stdin_reader);
    let command = RemoteCommand::start(client, sandbox, options).await?;
    let attachment = Attachment {
        stdin: stdin.as_mut(),
        destination: Destination::Streams(&mut context.output, OnClosedStdout::Stop),
        signals,
        on_signal,
        timeout: None,
    };
    attach(&command, command.output(), attachment).await
}

fn print_command_id(context: &mut Context, id: &str) -> Result<Outcome> {
    if context.output.is_json() {
        context.output.record(&BackgroundCommand { command_id: id.to_owned() })?;
    } else {
        context.output.line(id)?;
    }
    Ok(Outcome::Done)
}

/// Maps the exit status of a command to the outcome of this program, and prints why it ended if it did not exit by
/// itself.
pub(super) fn report_exit(exit: &CommandExit) -> Outcome {
    print_failure(exit.failure_reason.as_deref(), exit.timed_out);
    exit_outcome(exit.exit_code, exit.timed_out)
}

/// Prints why a command ended, if it did not exit by itself.
pub(super) fn print_failure(failure_reason: Option<&str>, timed_out: bool) {
    if let Some(reason) = failure_reason {
        text::print_stderr(&format!("error: {reason}"));
    }
    if timed_out {
        text::print_stderr(
            "error: the program timed out and was killed\nhint: `--timeout` sets a longer timeout",
        );
    }
}

/// Maps the exit of a command to the outcome of this program, without a message.
pub(super) fn exit_outcome(exit_code: i32, timed_out: bool) -> Outcome {
    Outcome::Exit(if timed_out { EXIT_TIMED_OUT } else { exit_status(exit_code) })
}

/// Maps an exit code to an exit status, which has eight bits. Codes outside of that range count as killed by SIGKILL.
fn exit_status(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::try_from(EXIT_SIGNAL_BASE + 9).unwrap_or(u8::MAX))
}

/// Returns a timeout in milliseconds, as the API takes it; 0 for none.
pub(super) fn milliseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(0, |timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
}

/// Collects the values of an option such as `--env` into a map; the last of equal names wins.
pub(super) fn to_map(pairs: &[(String, String)]) -> BTreeMap<String, String> {
    pairs.iter().cloned().collect()
}

/// Rejects `--json` for commands whose output cannot be JSON. `what` is the subject of the message.
pub(super) fn reject_json(context: &Context, what: &str) -> Result<()> {
    if context.output.is_json() {
        return Err(CommandError::usage(format!("{what} is not JSON")).hint("omit `--json`"));
    }
    Ok(())
}
