//! A program without a terminal: what it prints is passed on as it comes, and so is what it is given.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use tokio::sync::mpsc;
use workspace_sandbox::{AfterInput, End, Piece, RunRequest, SandboxError, Service, Stream};

use super::{Over, SCOPE};
use crate::error::{CommandError, Result};
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
    pub(crate) envs: BTreeMap<String, String>,
    /// Timeout; none by default.
    pub(crate) timeout: Option<Duration>,
    /// Send all output to stderr.
    pub(crate) aside: bool,
}

/// Runs it to its end. The first interruption is passed on, the second ends it.
pub(crate) async fn run(
    service: &Service,
    sandbox: &str,
    options: CommandOptions,
    signals: &mut Signals,
) -> Result<(Over, mpsc::Receiver<Vec<u8>>)> {
    let request = RunRequest {
        command: options.line,
        envs: options.envs,
        timeout: Some(options.timeout.unwrap_or_default()),
        stdin: true,
        block: true,
        cwd: None,
    };
    let handle = service.run(&SCOPE, sandbox, request).await?;
    let mut output = handle.output(0).await?;
    let mut shown = Shown { aside: options.aside, closed: false };
    let mut given = stdin();
    let over = {
        let passing = pass(service, sandbox, &handle.id, &mut given);
        tokio::pin!(passing);
        let (mut passed, mut interrupted) = (false, false);
        loop {
            tokio::select! {
                pieces = output.next() => {
                    let pieces = pieces?.ok_or_else(lost)?;
                    let was_open = !shown.closed;
                    if let Some(end) = shown.show(pieces) {
                        break Over::Ended(end);
                    }
                    if was_open && shown.closed {
                        // What it would have got, had it written to that pipe itself.
                        kill(service, sandbox, &handle.id, SIGPIPE).await?;
                    }
                }
                signal = signals.next() => {
                    if signal != SIGINT {
                        break Over::Asked(signal);
                    }
                    let again = std::mem::replace(&mut interrupted, true);
                    kill(service, sandbox, &handle.id, if again { SIGKILL } else { signal }).await?;
                }
                done = &mut passing, if !passed => {
                    done?;
                    passed = true;
                }
            }
        }
    };
    Ok((over, given))
}

/// Creates the error for a sandbox whose guest agent was ended from outside.
pub(crate) fn lost() -> CommandError {
    CommandError::failed("the sandbox is gone before the program ended")
        .hint("nothing was changed; try again")
}

/// Sends a signal. What has ended needs none.
async fn kill(service: &Service, sandbox: &str, command: &str, signal: i32) -> Result<()> {
    match service.kill(&SCOPE, sandbox, command, signal).await {
        Err(SandboxError::CommandEnded { .. }) => Ok(()),
        done => Ok(done?),
    }
}

/// Gives it all that comes, then closes its input.
async fn pass(
    service: &Service,
    sandbox: &str,
    command: &str,
    given: &mut mpsc::Receiver<Vec<u8>>,
) -> Result<()> {
    while let Some(piece) = given.recv().await {
        if !give(
            async |data| service.input(&SCOPE, sandbox, command, data, AfterInput::KeepOpen).await,
            &piece,
        )
        .await?
        {
            return Ok(());
        }
    }
    match service.input(&SCOPE, sandbox, command, Vec::new(), AfterInput::Close).await {
        Err(SandboxError::CommandEnded { .. } | SandboxError::InputClosed { .. }) => Ok(()),
        done => Ok(done?),
    }
}

/// Gives a piece, however slowly it is read. Whether more is taken.
pub(super) async fn give(
    to: impl AsyncFn(Vec<u8>) -> workspace_sandbox::Result<()>,
    piece: &[u8],
) -> Result<bool> {
    let mut left = piece;
    loop {
        match to(left.to_vec()).await {
            Ok(()) => return Ok(true),
            Err(SandboxError::InputFull { written, .. }) => left = &left[written.min(left.len())..],
            Err(SandboxError::CommandEnded { .. } | SandboxError::InputClosed { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Destination of output.
struct Shown {
    aside: bool,
    /// True once the reader closed it.
    closed: bool,
}

impl Shown {
    /// Shows pieces; how the program ended, if it did.
    fn show(&mut self, pieces: Vec<Piece>) -> Option<End> {
        for piece in pieces {
            match piece {
                Piece::Data { stream: Stream::Stdout, data, .. } if !self.aside => self.print(&data),
                Piece::Data { data, .. } => {
                    // A failure to write to stderr cannot be reported.
                    let _ = std::io::stderr().write_all(&data);
                }
                Piece::Gap { from, to } => {
                    let missing = text::shown_bytes(to - from);
                    text::print_stderr(&format!("warning: {missing} of its output were lost here"));
                }
                Piece::End(end) => return Some(end),
            }
        }
        None
    }

    fn print(&mut self, data: &[u8]) {
        if !self.closed {
            let mut out = std::io::stdout();
            self.closed = out.write_all(data).and_then(|()| out.flush()).is_err();
        }
    }
}
