//! A command in a sandbox, connected with stdin, stdout, stderr, the terminal and the signals of this program.
//!
//! [`attach`] is the loop for all of them. A [`Session`] is a command or a terminal of a sandbox, which is local
//! (`crate::local`) or on a server (`crate::remote`).

use std::cell::Cell;
use std::io::Write as _;
use std::time::Duration;

use futures_util::StreamExt as _;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::error::{CommandError, ErrorKind, Result};
use crate::output::Output;
use crate::signals::{self, Signals};
use crate::stdin::READ_MAX;
use crate::text;

const SIGINT: i32 = Signal::INT.as_raw();
pub(crate) const SIGKILL: i32 = Signal::KILL.as_raw();
const SIGPIPE: i32 = Signal::PIPE.as_raw();

/// Input, signals and terminal size of a running command. Its output is a separate [`OutputStream`], because it is
/// read while input is written.
pub(crate) trait Session {
    /// Maximum number of bytes in one call of [`Self::write_input`]; at least [`READ_MAX`].
    const INPUT_MAX: usize = READ_MAX;

    /// Writes to stdin of the command, and waits until all of it is accepted.
    async fn write_input(&self, data: Vec<u8>) -> Result<InputState>;

    /// Closes stdin of the command. The input of a terminal has no end.
    async fn close_input(&self) -> Result<()> {
        Ok(())
    }

    /// Sends a signal to the command. A terminal is closed, whatever the signal is. A command that has ended is no
    /// error.
    async fn kill(&self, signal: i32) -> Result<()>;

    /// Kills the command after its timeout.
    async fn time_out(&self) -> Result<()> {
        self.kill(SIGKILL).await
    }

    /// Sets the size of the command's terminal to that of the terminal of this program.
    async fn resize(&self) {}
}

/// State of a command's stdin after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputState {
    Open,
    /// The command reads no more input.
    Closed,
}

/// Output of a command from its first byte to its end.
pub(crate) trait OutputStream {
    /// Waits for the next event. [`OutputEvent::Exited`] is the last one.
    async fn next(&mut self) -> Result<OutputEvent>;
}

/// Event of a running command.
#[derive(Debug)]
pub(crate) enum OutputEvent {
    /// Output, and its time in milliseconds since 1970.
    Data { stream: Stream, data: Vec<u8>, time: i64 },
    /// Output between these offsets was dropped, because it was read too late.
    Gap { from: u64, to: u64 },
    /// The command exited, could not be started, or was lost with its sandbox.
    Exited(CommandExit),
}

/// Output stream that a command wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Exit status of a command.
#[derive(Debug, Clone)]
pub(crate) struct CommandExit {
    pub(crate) exit_code: i32,
    pub(crate) timed_out: bool,
    /// Reason why the command could not be started, or was lost with its sandbox; `None` if it exited.
    pub(crate) failure_reason: Option<String>,
}

/// Connection of a command with this program.
pub(crate) struct Attachment<'a> {
    /// Bytes for stdin of the command; `None` if it has none.
    pub(crate) stdin: Option<&'a mut mpsc::Receiver<Vec<u8>>>,
    pub(crate) destination: Destination<'a>,
    pub(crate) signals: &'a mut Signals,
    pub(crate) on_signal: OnSignal,
    /// Time limit that [`attach`] enforces; `None` if there is none, or if the sandbox enforces it.
    pub(crate) timeout: Option<Duration>,
}

/// Destination of a command's output.
pub(crate) enum Destination<'a> {
    /// Stdout and stderr of this program.
    Streams(&'a mut Output, OnClosedStdout),
    /// Stderr of this program, for both streams.
    Stderr,
    /// Stderr of this program; stdout of the command is dropped.
    OnlyStderr,
    /// The terminal of this program. A closed terminal is reported by a signal, so write errors are ignored.
    Terminal,
}

/// Reaction to a reader that closed stdout of this program. The command gets SIGPIPE in any case, as if it had written
/// to that pipe itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnClosedStdout {
    /// Return the error of the write.
    Stop,
    /// Drop stdout of the command, and wait for its end.
    Drain,
}

/// Reaction to a signal to this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnSignal {
    /// Forward all signals to the command; the second SIGINT as SIGKILL.
    Forward,
    /// Forward SIGINT, the second one as SIGKILL; return at any other signal.
    ForwardInterrupt,
    /// Return. The caller ends the command.
    Return,
}

/// Attaches this program to a command until it ends. A signal that is not forwarded is the error
/// [`ErrorKind::Interrupted`]; the command runs on then.
pub(crate) async fn attach<S: Session>(
    session: &S,
    output: impl OutputStream,
    attachment: Attachment<'_>,
) -> Result<CommandExit> {
    let Attachment { stdin, mut destination, signals, on_signal, timeout } = attachment;
    let mut resized = signal(SignalKind::window_change()).map_err(|error| signals::handler_error(&error))?;
    // The stream keeps the future of the next event, so nothing is lost when another branch is chosen.
    let events = futures_util::stream::unfold(output, async |mut output| Some((output.next().await, output)));
    let input = forward_input(session, stdin);
    let timed_out = Cell::new(false);
    let timeout = enforce_timeout(session, timeout, &timed_out);
    tokio::pin!(events, input, timeout);
    // Futures that have ended must not be polled again.
    let (mut input_ended, mut timeout_ended) = (false, false);
    let mut interrupted = false;
    loop {
        tokio::select! {
            Some(event) = events.next() => match event? {
                OutputEvent::Exited(exit) => {
                    return Ok(CommandExit { timed_out: exit.timed_out || timed_out.get(), ..exit });
                }
                event => destination.write(event, session).await?,
            },
            result = &mut input, if !input_ended => {
                result?;
                input_ended = true;
            }
            signal = signals.next() => match on_signal.signal_to_forward(signal, &mut interrupted) {
                Some(signal) => session.kill(signal).await?,
                None => return Err(CommandError::interrupted(signal)),
            },
            _ = resized.recv() => session.resize().await,
            result = &mut timeout, if !timeout_ended => {
                result?;
                timeout_ended = true;
            }
        }
    }
}

/// Forwards all input, then closes stdin of the command.
async fn forward_input<S: Session>(session: &S, stdin: Option<&mut mpsc::Receiver<Vec<u8>>>) -> Result<()> {
    let Some(stdin) = stdin else { return Ok(()) };
    while let Some(mut data) = stdin.recv().await {
        // All input that is waiting goes into one request.
        while data.len() + READ_MAX <= S::INPUT_MAX
            && let Ok(more) = stdin.try_recv()
        {
            data.extend_from_slice(&more);
        }
        if session.write_input(data).await? == InputState::Closed {
            return Ok(());
        }
    }
    session.close_input().await
}

/// Sets `timed_out` and kills the command after its timeout. Returns immediately without a timeout.
async fn enforce_timeout(
    session: &impl Session,
    timeout: Option<Duration>,
    timed_out: &Cell<bool>,
) -> Result<()> {
    let Some(timeout) = timeout else { return Ok(()) };
    tokio::time::sleep(timeout).await;
    timed_out.set(true);
    session.time_out().await
}

impl OnSignal {
    /// Returns the signal for the command; `None` if this program should return. `interrupted` is true once a SIGINT
    /// was forwarded.
    fn signal_to_forward(self, signal: i32, interrupted: &mut bool) -> Option<i32> {
        match self {
            Self::Return => None,
            Self::ForwardInterrupt if signal != SIGINT => None,
            _ if signal == SIGINT && std::mem::replace(interrupted, true) => Some(SIGKILL),
            _ => Some(signal),
        }
    }
}

impl Destination<'_> {
    async fn write(&mut self, event: OutputEvent, session: &impl Session) -> Result<()> {
        let (stream, data) = match event {
            OutputEvent::Data { stream, data, .. } => (stream, data),
            OutputEvent::Gap { from, to } => {
                // A warning would garble the screen of the program.
                if !matches!(self, Self::Terminal) {
                    warn_of_gap(from, to);
                }
                return Ok(());
            }
            OutputEvent::Exited(_) => return Ok(()),
        };
        match self {
            Self::Streams(output, on_closed) if stream == Stream::Stdout => {
                let Err(error) = output.bytes(&data).and_then(|()| output.flush()) else { return Ok(()) };
                let drains = *on_closed == OnClosedStdout::Drain;
                if drains || error.kind == ErrorKind::OutputClosed {
                    session.kill(SIGPIPE).await?;
                }
                if !drains {
                    return Err(error);
                }
                *self = Self::OnlyStderr;
            }
            Self::OnlyStderr if stream == Stream::Stdout => {}
            Self::Terminal => {
                let mut out = std::io::stdout();
                let _ = out.write_all(&data).and_then(|()| out.flush());
            }
            Self::Streams(..) | Self::Stderr | Self::OnlyStderr => {
                // A failure to write to stderr cannot be reported.
                let _ = std::io::stderr().write_all(&data);
            }
        }
        Ok(())
    }
}

/// Warns of output that is missing.
pub(crate) fn warn_of_gap(from: u64, to: u64) {
    let missing = text::format_bytes(to - from);
    text::print_stderr(&format!(
        "warning: {missing} of output are missing here: the command printed faster than its output was read, and a \
         server keeps OUTPUT_KEEP of it"
    ));
}
