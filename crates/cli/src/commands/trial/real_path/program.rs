//! Runs the program: forwards input, output and signals, and enforces the timeout.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{Read as _, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::sync::mpsc;
use workspace_host::HostError;
use workspace_host::read_only_host::{ExitStatus, ReadOnlyHostProgram, RunningProgram};

use crate::error::{CommandError, ErrorKind, Result};
use crate::screen::{self, RawMode};
use crate::session::{
    Attachment, CommandExit, Destination, InputState, OnSignal, OutputEvent, OutputStream, SIGKILL, Session,
    attach,
};
use crate::signals::Signals;
use crate::stdin::{READ_MAX, spawn_stdin_reader};

const SIGTERM: i32 = Signal::TERM.as_raw();
/// Time between SIGTERM and SIGKILL for a program that timed out.
const KILL_DELAY: Duration = Duration::from_secs(2);

/// Options of [`run`].
pub(super) struct RunOptions {
    pub(super) timeout: Option<Duration>,
    /// Destination of stdout of the program.
    pub(super) stdout: OutputTarget,
}

/// Stream of this process to which output of the program is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputTarget {
    Stdout,
    Stderr,
}

fn forward_error(error: impl std::fmt::Display) -> CommandError {
    CommandError::failed(format!("cannot forward input and output of the program: {error}"))
        .hint("the system may be out of file descriptors")
}

/// Runs the program of `host`, which sees the files of the host through overlays, until it and all its descendants have
/// exited. Returns the exit status, and the stdin that the program did not read.
pub(super) async fn run(
    host: ReadOnlyHostProgram,
    options: RunOptions,
    signals: &mut Signals,
) -> Result<(CommandExit, mpsc::Receiver<Vec<u8>>)> {
    let (input, to_program) = std::io::pipe().map_err(forward_error)?;
    let (from_program, output) = std::io::pipe().map_err(forward_error)?;
    let (errors_from_program, errors) = std::io::pipe().map_err(forward_error)?;
    let on_terminal = host.terminal.is_some();
    let starting = tokio::task::spawn_blocking(move || {
        // Moved here, so that this process closes its copies when the program has started.
        let (input, output, errors) = (input, output, errors);
        host.start([input.as_fd(), output.as_fd(), errors.as_fd()])
    });
    // Not cancelled by a signal: a program that is being started cannot be killed.
    let running = Arc::new(starting.await.map_err(forward_error)?.map_err(|error| host_error(&error))?);
    let _raw = if on_terminal { Some(RawMode::enter()?) } else { None };
    let mut readers = Vec::new();
    let writer: File = match &running.terminal {
        Some(terminal) => {
            drop((to_program, errors_from_program, from_program));
            let copy = |fd: &OwnedFd| fd.try_clone().map(File::from).map_err(forward_error);
            readers.push(forward_output(copy(terminal)?, OutputTarget::Stdout)?);
            copy(terminal)?
        }
        None => {
            readers.push(forward_output(OwnedFd::from(from_program).into(), options.stdout)?);
            readers.push(forward_output(OwnedFd::from(errors_from_program).into(), OutputTarget::Stderr)?);
            OwnedFd::from(to_program).into()
        }
    };
    let mut stdin = spawn_stdin_reader();
    let timed_out = Rc::new(Cell::new(false));
    let input = RefCell::new(Some(forward_input(writer)?));
    let program = HostProgram { running: running.clone(), input, timed_out: timed_out.clone() };
    let waiting = running.clone();
    let output = ExitWaiter { waiting: tokio::task::spawn_blocking(move || waiting.wait()), timed_out };
    let attachment = Attachment {
        stdin: Some(&mut stdin),
        destination: Destination::Stderr,
        signals,
        on_signal: OnSignal::ForwardInterrupt,
        timeout: options.timeout,
    };
    let exit = match attach(&program, output, attachment).await {
        Err(error) if !matches!(error.kind, ErrorKind::Interrupted(_)) => return Err(error),
        exit => exit,
    };
    if exit.is_err() {
        kill(&running).await;
    }
    // No process can write now, so the threads end, unless stdout or stderr of this process is a pipe that nobody
    // reads.
    let reading =
        tokio::task::spawn_blocking(move || readers.into_iter().for_each(|reader| drop(reader.join())));
    tokio::select! {
        _ = reading => {}
        signal = signals.next(), if exit.is_ok() => return Err(CommandError::interrupted(signal)),
    }
    Ok((exit?, stdin))
}

/// Running [`ReadOnlyHostProgram`]. Threads forward its output.
struct HostProgram {
    running: Arc<RunningProgram>,
    /// `None` once stdin of the program is closed.
    input: RefCell<Option<mpsc::Sender<Vec<u8>>>>,
    timed_out: Rc<Cell<bool>>,
}

impl Session for HostProgram {
    async fn write_input(&self, data: Vec<u8>) -> Result<InputState> {
        let input = self.input.borrow().clone();
        let Some(input) = input else { return Ok(InputState::Closed) };
        Ok(if input.send(data).await.is_ok() { InputState::Open } else { InputState::Closed })
    }

    async fn close_input(&self) -> Result<()> {
        self.input.take();
        Ok(())
    }

    async fn kill(&self, signal: i32) -> Result<()> {
        self.running.signal(signal).map_err(|error| host_error(&error))
    }

    async fn time_out(&self) -> Result<()> {
        self.timed_out.set(true);
        self.kill(SIGTERM).await?;
        tokio::time::sleep(KILL_DELAY).await;
        self.kill(SIGKILL).await?;
        kill(&self.running).await;
        Ok(())
    }

    async fn resize(&self) {
        if let Some(terminal) = &self.running.terminal {
            let (ws_col, ws_row) = screen::size();
            let _ = tcsetwinsize(terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 });
        }
    }
}

/// Kills the program and all its descendants.
async fn kill(running: &Arc<RunningProgram>) {
    let running = running.clone();
    drop(tokio::task::spawn_blocking(move || running.kill()).await);
}

/// Waits for the exit of the program. Threads forward its output, so the only event is [`OutputEvent::Exited`].
struct ExitWaiter {
    waiting: tokio::task::JoinHandle<Result<Option<ExitStatus>, HostError>>,
    timed_out: Rc<Cell<bool>>,
}

impl OutputStream for ExitWaiter {
    async fn next(&mut self) -> Result<OutputEvent> {
        let ended = (&mut self.waiting).await.map_err(forward_error)?.map_err(|error| host_error(&error))?;
        let (exit_code, failure_reason) = match ended {
            Some(ExitStatus { exit_code, start_error }) => (exit_code, start_error),
            None if self.timed_out.get() => (128 + SIGKILL, None),
            None => return Err(crate::local::sandbox_ended()),
        };
        Ok(OutputEvent::Exited(CommandExit { exit_code, timed_out: false, failure_reason }))
    }
}

/// Writes input to the program in a thread, because a pipe may block. Stdin of the program is closed when the sender is
/// dropped.
fn forward_input(mut to: File) -> Result<mpsc::Sender<Vec<u8>>> {
    let (sender, mut input) = mpsc::channel::<Vec<u8>>(1);
    let thread = std::thread::Builder::new().spawn(move || {
        while let Some(data) = input.blocking_recv() {
            if to.write_all(&data).is_err() {
                return;
            }
        }
    });
    thread.map_err(forward_error)?;
    Ok(sender)
}

/// Forwards output of the program in a thread. If the output of this process is closed, the thread closes the pipe from
/// the program, too, so that the program gets SIGPIPE.
fn forward_output(mut from: File, to: OutputTarget) -> Result<JoinHandle<()>> {
    // The standard library's stdout is locked by the output of this command.
    let to = match to {
        OutputTarget::Stdout => std::io::stdout().as_fd().try_clone_to_owned(),
        OutputTarget::Stderr => std::io::stderr().as_fd().try_clone_to_owned(),
    };
    let mut to = File::from(to.map_err(forward_error)?);
    let thread = std::thread::Builder::new().spawn(move || {
        let mut buffer = vec![0; READ_MAX];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) if to.write_all(&buffer[..count]).is_err() => return,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // A terminal reports an error when no process has it open.
                Err(_) => return,
                Ok(_) => {}
            }
        }
    });
    thread.map_err(forward_error)
}

/// Adds hints to an error of starting the program, of a signal to it, or of waiting for it.
fn host_error(error: &HostError) -> CommandError {
    use workspace_host::HostErrorKind;
    let failed = CommandError::failed(error.to_string());
    match error.kind() {
        HostErrorKind::NoUserNamespaces | HostErrorKind::NoIsolation => {
            failed.hint("a server elsewhere can run it: `workspace sandbox create --dir DIR --server URL`")
        }
        HostErrorKind::Overlay | HostErrorKind::NoOverlay => {
            failed.hint("`workspace try --template base -- …` works on a copy at /workspace instead").hint(
                "XDG_CACHE_HOME selects another directory for the changes, for instance on another filesystem",
            )
        }
        _ => failed.hint("nothing was changed; the system log (`dmesg`) may have details"),
    }
}
