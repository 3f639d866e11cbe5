//! `workspace logs`

mod newest_output;

use std::collections::VecDeque;
use std::io::Write as _;

use workspace_api::processes::{CommandList, CommandRecord};
use workspace_api::sandboxes::Logs as SandboxLogs;
use workspace_state::Timestamp;

use crate::args::Logs;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::remote::{Client, OutputFollower, ServerUrl, block_on, check_id, copy_script, find_sandbox};
use crate::session::{OutputEvent, OutputStream as _, Stream, warn_of_gap};
use crate::time;
use newest_output::NewestOutput;

/// State of a command that has not ended.
const RUNNING: &str = "running";
/// Nanoseconds of a millisecond.
const NANOS_PER_MILLI: i64 = 1_000_000;
/// Default number of lines of all commands.
const DEFAULT_TAIL: u16 = 100;
/// Number of newest commands whose output is printed. The server has the same limit for merged output.
const COMMANDS_MAX: u32 = 200;

pub(crate) fn run(context: &mut Context, args: &Logs) -> Result<Outcome> {
    super::exec::reject_json(context, "what commands printed")?;
    let client = Client::new(ServerUrl::new(&args.server)?);
    block_on(async {
        let sandbox = find_sandbox(&client, &args.sandbox).await?;
        match &args.command {
            Some(command) => {
                print_one(context, &client, (&sandbox, check_id("command", command)?), args).await
            }
            None => print_all(context, &client, &sandbox, args).await,
        }
    })
}

/// Prints the last lines of all commands. The server merges them, but it would include the archives that `workspace cp`
/// sent through the output of its commands. If there are any, this program merges the output of the other commands.
async fn print_all(context: &mut Context, client: &Client, sandbox: &str, args: &Logs) -> Result<Outcome> {
    let path = format!("/api/v1/sandboxes/{sandbox}/process?limit={COMMANDS_MAX}");
    let mut commands = client.get::<CommandList>(&path).await?.items;
    let count = commands.len();
    commands.retain(|command| !copy_script::is_copy(&command.command));
    if commands.len() == count {
        return print_all_by_server(context, client, sandbox, args).await;
    }
    let mut newest = NewestOutput::new();
    for command in &commands {
        let end = match command.state.as_str() {
            RUNNING => retained_end(client, sandbox, &command.command_id).await?,
            _ => u64::MAX,
        };
        let output = OutputFollower::of_command(client, sandbox, &command.command_id);
        let add = |time, data| {
            if is_recent_enough(time, args.since) {
                newest.add(time, data);
            }
        };
        output.read_retained(end, add).await?;
    }
    let mut tail = Tail::new(args.tail.unwrap_or(DEFAULT_TAIL).into());
    newest.into_pieces().for_each(|data| tail.push(Stream::Stdout, &data));
    let mut ends_line = true;
    for (_, line) in &tail.lines {
        context.output.bytes(line)?;
        ends_line = line.ends_with(b"\n");
    }
    if !ends_line {
        context.output.bytes(b"\n")?;
    }
    Ok(Outcome::Done)
}

/// Prints the last lines of all commands, as the server merged them.
async fn print_all_by_server(
    context: &mut Context,
    client: &Client,
    sandbox: &str,
    args: &Logs,
) -> Result<Outcome> {
    let mut path = format!("/api/v1/sandboxes/{sandbox}/logs?tail={}", args.tail.unwrap_or(DEFAULT_TAIL));
    if let Some(since) = args.since {
        path.push_str(&format!("&since={}", time::rfc3339(since)));
    }
    let text = client.get::<SandboxLogs>(&path).await?.logs;
    context.output.bytes(text.as_bytes())?;
    if !text.is_empty() && !text.ends_with('\n') {
        context.output.bytes(b"\n")?;
    }
    Ok(Outcome::Done)
}

/// Returns the offset after the output that a command has printed so far; `u64::MAX` if it has ended, so that its
/// output is read to the end.
async fn retained_end(client: &Client, sandbox: &str, command: &str) -> Result<u64> {
    let path = format!("/api/v1/sandboxes/{sandbox}/process/{command}");
    let record: CommandRecord = client.get(&path).await?;
    let is_running = record.command.state == RUNNING;
    Ok(if is_running { record.retained_output.map_or(0, |range| range.to) } else { u64::MAX })
}

/// Prints the output of one command: what it has printed now, and with `--follow` all that it prints later.
async fn print_one(
    context: &mut Context,
    client: &Client,
    (sandbox, command): (&str, &str),
    args: &Logs,
) -> Result<Outcome> {
    let end = retained_end(client, sandbox, command).await?;
    let mut follower = OutputFollower::of_command(client, sandbox, command);
    // Lines that are held back for `--tail`; `None` without it, and once they are printed.
    let mut unprinted = args.tail.map(|lines| Tail::new(lines.into()));
    loop {
        // With `--tail`, the last lines up to now are printed first, and then each line as it comes.
        let stops_at_end = unprinted.is_some() || !args.follow;
        let event = match stops_at_end {
            true => follower.next_before(end).await?,
            false => Some(follower.next().await?),
        };
        match event {
            Some(OutputEvent::Data { stream, data, time }) if is_recent_enough(time, args.since) => {
                match &mut unprinted {
                    Some(tail) => tail.push(stream, &data),
                    None => print(context, stream, &data)?,
                }
            }
            Some(OutputEvent::Data { .. }) => {}
            Some(OutputEvent::Gap { from, to }) => warn_of_gap(from, to),
            None if args.follow => print_tail(context, &mut unprinted)?,
            None | Some(OutputEvent::Exited(_)) => {
                print_tail(context, &mut unprinted)?;
                return Ok(Outcome::Done);
            }
        }
    }
}

/// Returns true if output of this time, in milliseconds since 1970, is not older than `since`.
fn is_recent_enough(time: i64, since: Option<Timestamp>) -> bool {
    since.is_none_or(|since| time.saturating_mul(NANOS_PER_MILLI) >= since.0)
}

/// Prints the last lines, which were held back because more lines could follow them.
fn print_tail(context: &mut Context, unprinted: &mut Option<Tail>) -> Result<()> {
    for (stream, data) in unprinted.take().map(|tail| tail.lines).into_iter().flatten() {
        print(context, stream, &data)?;
    }
    Ok(())
}

fn print(context: &mut Context, stream: Stream, data: &[u8]) -> Result<()> {
    if stream == Stream::Stdout {
        context.output.bytes(data)?;
        return context.output.flush();
    }
    let written = std::io::stderr().write_all(data);
    written.map_err(|error| CommandError::output_failed(&error))
}

/// Last lines of output.
struct Tail {
    /// Maximum number of lines.
    max: usize,
    lines: VecDeque<(Stream, Vec<u8>)>,
}

impl Tail {
    fn new(max: usize) -> Self {
        Self { max, lines: VecDeque::new() }
    }

    fn push(&mut self, stream: Stream, data: &[u8]) {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            match self.lines.back_mut() {
                Some((last, line)) if *last == stream && !line.ends_with(b"\n") => {
                    line.extend_from_slice(piece);
                }
                _ => self.lines.push_back((stream, piece.to_vec())),
            }
            if self.lines.len() > self.max {
                self.lines.pop_front();
            }
        }
    }
}
