//! Commands and terminals in a sandbox of this process.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::mpsc;
use workspace_sandbox::{
    AfterInput, CommandLine, Output, OutputPiece, RunRequest, SandboxError, Service, Size, TerminalRequest,
};

use super::ALL_OWNERS;
use crate::error::{CommandError, Result};
use crate::screen::{self, RawMode};
use crate::session::{
    Attachment, CommandExit, Destination, InputState, OnSignal, OutputEvent, OutputStream, Session, Stream,
    attach,
};
use crate::signals::Signals;

/// Command to run.
#[derive(Debug, Default)]
pub(crate) struct CommandOptions {
    /// Command line for `/bin/sh`.
    pub(crate) command_line: String,
    pub(crate) envs: BTreeMap<String, String>,
    /// Timeout; none by default.
    pub(crate) timeout: Option<Duration>,
}

/// Runs a command to completion. It gets stdin if the attachment has it.
pub(crate) async fn run(
    service: &Service,
    sandbox: &str,
    options: CommandOptions,
    attachment: Attachment<'_>,
) -> Result<CommandExit> {
    let request = RunRequest {
        command: CommandLine::Shell(options.command_line),
        tag: None,
        envs: options.envs,
        // Zero is no timeout; `None` would be the default of the service.
        timeout: Some(options.timeout.unwrap_or_default()),
        stdin: attachment.stdin.is_some(),
        // No output is dropped: the command blocks until its output is read.
        block_on_unread_output: true,
        cwd: None,
        user: None,
    };
    let handle = service.run(&ALL_OWNERS, sandbox, request).await?;
    let output = LocalOutput::new(handle.output(0).await?);
    attach(&LocalCommand { service, sandbox, id: &handle.id }, output, attachment).await
}

/// Runs a command to completion in a terminal that is connected to this one. It gets all input, including Ctrl-C.
pub(crate) async fn run_in_terminal(
    service: &Service,
    sandbox: &str,
    options: CommandOptions,
    stdin: &mut mpsc::Receiver<Vec<u8>>,
    signals: &mut Signals,
) -> Result<CommandExit> {
    let _raw = RawMode::enter()?;
    let mut envs = options.envs;
    screen::set_term(&mut envs);
    let command = Some(options.command_line);
    let request = TerminalRequest { size: size(), shell: None, command, cwd: None, envs, user: None };
    let handle = service.open_terminal(&ALL_OWNERS, sandbox, request).await?;
    let output = LocalOutput::new(handle.output(0).await?);
    let attachment = Attachment {
        stdin: Some(stdin),
        destination: Destination::Terminal,
        signals,
        on_signal: OnSignal::Return,
        timeout: options.timeout,
    };
    attach(&LocalTerminal { service, sandbox, id: &handle.id }, output, attachment).await
}

/// Creates the error for a sandbox that ended before its program.
pub(crate) fn sandbox_ended() -> CommandError {
    CommandError::failed("the sandbox ended before the program did").hint("nothing was changed; try again")
}

struct LocalCommand<'a> {
    service: &'a Service,
    sandbox: &'a str,
    id: &'a str,
}

impl Session for LocalCommand<'_> {
    async fn write_input(&self, data: Vec<u8>) -> Result<InputState> {
        let write = async |data| {
            self.service.input(&ALL_OWNERS, self.sandbox, self.id, data, AfterInput::KeepOpen).await
        };
        write_all(write, &data).await
    }

    async fn close_input(&self) -> Result<()> {
        match self.service.input(&ALL_OWNERS, self.sandbox, self.id, Vec::new(), AfterInput::Close).await {
            Err(SandboxError::CommandEnded { .. } | SandboxError::InputClosed { .. }) => Ok(()),
            result => Ok(result?),
        }
    }

    async fn kill(&self, signal: i32) -> Result<()> {
        match self.service.kill(&ALL_OWNERS, self.sandbox, self.id, signal).await {
            Err(SandboxError::CommandEnded { .. }) => Ok(()),
            result => Ok(result?),
        }
    }
}

struct LocalTerminal<'a> {
    service: &'a Service,
    sandbox: &'a str,
    id: &'a str,
}

impl Session for LocalTerminal<'_> {
    async fn write_input(&self, data: Vec<u8>) -> Result<InputState> {
        let write = async |data| self.service.write_terminal(&ALL_OWNERS, self.sandbox, self.id, data).await;
        write_all(write, &data).await
    }

    async fn kill(&self, _signal: i32) -> Result<()> {
        Ok(self.service.close_terminal(&ALL_OWNERS, self.sandbox, self.id).await?)
    }

    async fn resize(&self) {
        // A terminal that is closed has no size.
        drop(self.service.resize_terminal(&ALL_OWNERS, self.sandbox, self.id, size()).await);
    }
}

fn size() -> Size {
    let (cols, rows) = screen::size();
    Size { cols, rows }
}

/// Writes all input, with retries while the buffer of the command is full.
async fn write_all(
    write: impl AsyncFn(Vec<u8>) -> workspace_sandbox::Result<()>,
    data: &[u8],
) -> Result<InputState> {
    let mut rest = data;
    loop {
        match write(rest.to_vec()).await {
            Ok(()) => return Ok(InputState::Open),
            Err(SandboxError::InputFull { written, .. }) => rest = &rest[written.min(rest.len())..],
            Err(SandboxError::CommandEnded { .. } | SandboxError::InputClosed { .. }) => {
                return Ok(InputState::Closed);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Output of a command or terminal.
struct LocalOutput {
    output: Output,
    /// Pieces that were read and not returned yet.
    pieces: VecDeque<OutputPiece>,
}

impl LocalOutput {
    fn new(output: Output) -> Self {
        Self { output, pieces: VecDeque::new() }
    }
}

impl OutputStream for LocalOutput {
    async fn next(&mut self) -> Result<OutputEvent> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Ok(event(piece));
            }
            self.pieces = self.output.next().await?.ok_or_else(sandbox_ended)?.into();
        }
    }
}

/// Converts a piece of output to an event.
fn event(piece: OutputPiece) -> OutputEvent {
    match piece {
        OutputPiece::Data { stream, data, time, .. } => {
            let stream = match stream {
                workspace_sandbox::Stream::Stdout => Stream::Stdout,
                _ => Stream::Stderr,
            };
            OutputEvent::Data { stream, data, time }
        }
        OutputPiece::Gap { from, to } => OutputEvent::Gap { from, to },
        OutputPiece::Exit(workspace_sandbox::CommandExit {
            exit_code, timed_out, failure_reason, ..
        }) => OutputEvent::Exited(CommandExit { exit_code, timed_out, failure_reason }),
    }
}
