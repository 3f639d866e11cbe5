//! Running commands: output goes to files or to the server, the exit status to the server.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use workspace_agent_protocol::output::{End, KEEP_DEFAULT, Stream as Source};
use workspace_agent_protocol::v1::{CommandEnd, CommandProgress, CreatePtyRequest, RunCommandRequest};

use crate::buffer::Buffer;
use crate::guest::{CommandMessage, Guest};
use crate::output::Output;
use crate::process_tree;
use crate::script;
use crate::stream::Stream;
use crate::supervise::{self, Program, REPORT_LEN, Report, TerminalSize};

/// Time between SIGTERM and SIGKILL for a command that timed out.
const TERM_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Time without output after which the exit of a command is reported. Background processes may keep its
/// output open forever.
const OUTPUT_IDLE_TIMEOUT: Duration = Duration::from_millis(20);
/// Longest delay of the exit report while there is still output.
const EXIT_REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which remaining processes of a command are killed again.
const KILL_RETRY_INTERVAL: Duration = Duration::from_millis(20);
const MAILBOX_CAPACITY: usize = 64;
/// Limit in bytes for input that the command has not read yet. The server sends less than that before it
/// receives an acknowledgement.
const PENDING_INPUT_MAX: usize = 4 << 20;
/// Interval at which a signal is retried for a program that has not started yet.
const SIGNAL_RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Kept output of a terminal, in bytes: enough to redraw the screen and some scrollback.
const TERMINAL_OUTPUT_KEPT: u64 = 1 << 20;
/// Least kept output of a command that blocks on its readers, in bytes: twice the buffers and twice the
/// pipes.
const BLOCKING_OUTPUT_MIN: u64 = 512 << 10;
const WORKSPACE: &str = "/workspace";

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("there is a command `{0}` already")]
    Exists(String),
    #[error("cannot start a process: {0}")]
    Start(#[from] io::Error),
}

/// Parameters of a command or terminal.
struct CommandSpec {
    id: String,
    words: Vec<String>,
    /// Script that the arguments read, if the command is too long for an argument.
    script: Option<String>,
    directory: String,
    environment: HashMap<String, String>,
    timeout: Option<Duration>,
    /// Set if the command has standard input.
    input: bool,
    keep_output: u64,
    /// Set if the command blocks until its output is taken, instead of losing the oldest.
    block_output: bool,
    terminal: Option<TerminalSize>,
}

impl CommandSpec {
    fn of_command(request: RunCommandRequest) -> Self {
        let timeout = u64::try_from(request.timeout_ms).ok().filter(|timeout| *timeout > 0);
        let (words, script) = script::words("/bin/sh".to_owned(), request.command);
        Self {
            id: request.command_id,
            words,
            script,
            directory: request.cwd,
            environment: request.envs,
            timeout: timeout.map(Duration::from_millis),
            input: request.stdin,
            keep_output: keep(request.keep_output, request.block_output),
            block_output: request.block_output,
            terminal: None,
        }
    }

    fn of_terminal(request: CreatePtyRequest) -> Self {
        let mut environment = request.envs;
        environment.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
        let shell = shell(request.shell);
        let (words, script) = match request.command.is_empty() {
            true => (vec![shell], None),
            false => script::words(shell, request.command),
        };
        Self {
            id: request.pty_id,
            words,
            script,
            directory: request.cwd,
            environment,
            timeout: None,
            input: true,
            keep_output: TERMINAL_OUTPUT_KEPT,
            block_output: false,
            terminal: Some(TerminalSize::of(request.cols, request.rows)),
        }
    }
}

/// Returns the number of bytes of output to keep. A blocking command also needs room for what is in its pipes
/// when it ends.
fn keep(asked: u64, block: bool) -> u64 {
    let keep = if asked == 0 { KEEP_DEFAULT } else { asked };
    if block { keep.max(BLOCKING_OUTPUT_MIN) } else { keep }
}

/// Returns the number of bytes that a blocking command may print ahead of its reader: a quarter of the kept
/// output, because a reader that reconnects needs what was in flight, which can fill the buffers of both
/// ends.
fn window(spec: &CommandSpec) -> Option<u64> {
    spec.block_output.then_some(spec.keep_output / 4)
}

/// Returns the requested shell, or `/bin/sh` if it is not executable.
fn shell(wanted: String) -> String {
    let wanted = if wanted.is_empty() { "/bin/bash".to_owned() } else { wanted };
    let runs = rustix::fs::access(&wanted, rustix::fs::Access::EXEC_OK).is_ok();
    if runs { wanted } else { "/bin/sh".to_owned() }
}

/// Starts a command. An error of the program itself is reported later, as its exit.
pub(crate) fn start(guest: &Guest, request: RunCommandRequest) -> Result<(), CommandError> {
    start_spec(guest, CommandSpec::of_command(request))
}

/// Starts a terminal: a command whose output is the content of its screen.
pub(crate) fn start_terminal(guest: &Guest, request: CreatePtyRequest) -> Result<(), CommandError> {
    start_spec(guest, CommandSpec::of_terminal(request))
}

fn start_spec(guest: &Guest, spec: CommandSpec) -> Result<(), CommandError> {
    let (mailbox, inbox) = mpsc::channel(MAILBOX_CAPACITY);
    let id = spec.id.clone();
    if !guest.add(&id, mailbox, spec.input) {
        return Err(CommandError::Exists(id));
    }
    match Running::new(guest, spec, inbox) {
        Ok(running) => {
            guest.add_supervisor(&id, running.supervisor);
            tokio::spawn(running.run());
            Ok(())
        }
        Err(error) => {
            guest.forget(&id);
            Err(error.into())
        }
    }
}

struct Running {
    guest: Guest,
    id: String,
    program: String,
    directory: String,
    supervisor: Pid,
    inbox: mpsc::Receiver<CommandMessage>,
    stdin: Option<Stream>,
    /// Input that the command has not read yet.
    pending: Vec<u8>,
    /// Number of input bytes that were written or dropped.
    taken: u64,
    /// Signal for a program that has not started yet, and the time of the next attempt.
    unsent: Option<(Signal, Instant)>,
    /// Set if no more input follows.
    closing: bool,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    out: Buffer,
    err: Buffer,
    report: Option<Stream>,
    writer: Output,
    /// Number of bytes that a blocking command may print ahead of its reader, and the offset up to which
    /// output was taken.
    window: Option<u64>,
    output_taken: u64,
    /// Time at which to send SIGTERM, or to kill what is left.
    deadline: Option<Instant>,
    ending: Ending,
    end: Option<ExitStatus>,
    gone: bool,
}

/// Stage of ending a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    /// Received SIGTERM after its timeout.
    Terminating,
    /// Being killed; `timed_out` is set if the timeout is the reason.
    Killing {
        timed_out: bool,
    },
}

/// Exit status. It is reported only after the output before it was read.
#[derive(Debug, Clone)]
struct ExitStatus {
    exit_code: i32,
    failed: String,
    /// Time at which it is reported if there is no more output.
    quiet_at: Instant,
    /// Time at which it is reported in any case.
    latest_at: Instant,
    reported: bool,
}

/// Event of the main loop.
enum Event {
    Output(Source, io::Result<usize>),
    Report(io::Result<Report>),
    Message(CommandMessage),
    Input(io::Result<usize>),
    /// Bytes that were held back have to be written.
    Flush,
    RetrySignal,
    Deadline,
    ReportExit,
}

impl Running {
    fn new(guest: &Guest, spec: CommandSpec, inbox: mpsc::Receiver<CommandMessage>) -> io::Result<Self> {
        let window = window(&spec);
        let directory = if spec.directory.is_empty() { WORKSPACE.to_owned() } else { spec.directory };
        let environment = environment(spec.environment);
        let environment = environment.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        let words: Vec<&str> = spec.words.iter().map(String::as_str).collect();
        let program = Program::new(&words, spec.script.as_deref(), &directory, environment, spec.terminal)?;
        let writer = guest.output(&spec.id, spec.keep_output)?;
        let started = supervise::start(&program)?;
        Ok(Self {
            guest: guest.clone(),
            id: spec.id,
            program: spec.words.into_iter().next().unwrap_or_default(),
            directory,
            supervisor: started.supervisor,
            inbox,
            stdin: if spec.input { Some(Stream::writer(started.stdin)?) } else { None },
            pending: Vec::new(),
            taken: 0,
            unsent: None,
            closing: false,
            stdout: Some(Stream::reader(started.stdout)?),
            stderr: started.stderr.map(Stream::reader).transpose()?,
            out: Buffer::new(),
            err: Buffer::new(),
            report: Some(Stream::reader(started.report)?),
            writer,
            window,
            output_taken: 0,
            deadline: spec.timeout.map(|timeout| Instant::now() + timeout),
            ending: Ending::No,
            end: None,
            gone: false,
        })
    }

    async fn run(mut self) {
        while !self.is_over() {
            match self.next().await {
                Event::Output(stream, read) => self.on_output(stream, read.ok()),
                Event::Flush => self.flush(Instant::now()),
                Event::Report(report) => self.on_report(report.ok()),
                Event::Message(message) => self.handle(message),
                Event::Input(written) => self.on_input_written(written.ok()),
                Event::RetrySignal => self.retry_signal(),
                Event::Deadline => self.on_deadline(),
                Event::ReportExit => self.report_exit(),
            }
        }
        self.report_exit();
    }

    /// Returns whether all processes and pipes are gone.
    fn is_over(&self) -> bool {
        self.gone && self.stdout.is_none() && self.stderr.is_none() && self.report.is_none()
    }

    /// Returns whether reading of output is paused until some of it is taken. Output of a command that ended
    /// is always read.
    fn is_blocked(&self) -> bool {
        let full = |window| self.writer.written() >= self.output_taken + window;
        let is_full = self.window.is_some_and(full) || self.writer.is_full();
        is_full && self.end.is_none() && self.ending == Ending::No
    }

    async fn next(&mut self) -> Event {
        let blocked = self.is_blocked();
        let unreported = self.end.as_ref().filter(|end| !end.reported);
        let (quiet, latest) = (unreported.map(|end| end.quiet_at), unreported.map(|end| end.latest_at));
        let unsent = self.unsent.map(|(_, again)| again);
        let held = [self.out.until(), self.err.until()].into_iter().flatten().min();
        let (stdout, stderr, out, err) = (&self.stdout, &self.stderr, &mut self.out, &mut self.err);
        let output = async {
            if blocked {
                return std::future::pending().await;
            }
            // Random order, so that neither stream starves the other.
            tokio::select! {
                read = read(stdout, out) => Event::Output(Source::Stdout, read),
                read = read(stderr, err) => Event::Output(Source::Stderr, read),
            }
        };
        tokio::select! {
            // A program that prints without end must not starve other events; the idle timeout comes last,
            // since it applies only without output.
            biased;
            Some(message) = self.inbox.recv() => Event::Message(message),
            () = at(unsent) => Event::RetrySignal,
            () = at(self.deadline) => Event::Deadline,
            report = read_report(&mut self.report) => Event::Report(report),
            () = at(latest) => Event::ReportExit,
            written = write(&mut self.stdin, &self.pending) => Event::Input(written),
            output = output => output,
            () = at(held) => Event::Flush,
            () = at(quiet) => Event::ReportExit,
        }
    }

    /// Writes bytes from a stream; `None` or 0 means that it was closed.
    fn on_output(&mut self, stream: Source, read: Option<usize>) {
        let buffer = if stream == Source::Stdout { &mut self.out } else { &mut self.err };
        match read {
            Some(read) if read > 0 => {
                // A full disk leaves a gap that readers see; the command continues.
                buffer.advance(read, |data| drop(self.writer.write(stream, now(), data)));
                if let Some(end) = &mut self.end {
                    end.quiet_at = Instant::now() + OUTPUT_IDLE_TIMEOUT;
                }
                self.report_progress();
            }
            _ => {
                buffer.flush(|data| drop(self.writer.write(stream, now(), data)));
                self.report_progress();
                let pipe = if stream == Source::Stdout { &mut self.stdout } else { &mut self.stderr };
                *pipe = None;
                if self.end.is_some() && self.stdout.is_none() && self.stderr.is_none() {
                    self.report_exit();
                }
            }
        }
    }

    /// Writes bytes whose hold time is over.
    fn flush(&mut self, now_is: Instant) {
        for (stream, buffer) in [(Source::Stdout, &mut self.out), (Source::Stderr, &mut self.err)] {
            if buffer.until().is_some_and(|until| until <= now_is) {
                buffer.flush(|data| drop(self.writer.write(stream, now(), data)));
            }
        }
        self.report_progress();
    }

    fn on_report(&mut self, report: Option<Report>) {
        self.report = None;
        let (exit_code, failed) = match report {
            Some(Report::Ended(code)) => (code, String::new()),
            Some(Report::NoDirectory(errno)) => {
                let error = io::Error::from_raw_os_error(errno);
                (126, format!("cannot enter `{}`: {error}", self.directory))
            }
            Some(Report::NoProgram(errno)) => {
                let error = io::Error::from_raw_os_error(errno);
                (127, format!("cannot run {}: {error}", self.program))
            }
            // The supervisor was killed; `reaper.rs` kills the rest of the command.
            None => (128 + libc::SIGKILL, String::new()),
        };
        if self.end.is_none() {
            let now = Instant::now();
            let end = ExitStatus {
                exit_code,
                failed,
                quiet_at: now + OUTPUT_IDLE_TIMEOUT,
                latest_at: now + EXIT_REPORT_TIMEOUT,
                reported: false,
            };
            self.end = Some(end);
        }
        if self.stdout.is_none() && self.stderr.is_none() {
            self.report_exit();
        }
    }

    fn handle(&mut self, message: CommandMessage) {
        match message {
            CommandMessage::Signal(libc::SIGKILL) => self.kill(false),
            CommandMessage::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.send(signal);
                }
            }
            CommandMessage::Input(data) => self.queue_input(&data),
            CommandMessage::OutputTaken(taken) => self.output_taken = self.output_taken.max(taken),
            // The next iteration finds the free space.
            CommandMessage::OutputStored => {}
            CommandMessage::CloseInput => {
                self.closing = true;
                self.close_input_if_done();
                self.report_progress();
            }
            CommandMessage::Resize(size) => {
                if let Some(terminal) = &self.stdout {
                    // Only a terminal has a size, and it may be closed already.
                    drop(size.set(terminal));
                }
            }
            CommandMessage::SupervisorExited => {
                self.gone = true;
                self.drop_input();
                self.deadline = None;
                self.unsent = None;
            }
        }
    }

    /// Sends a signal to all processes of the command. If the program has not started yet, the signal is
    /// retried.
    fn send(&mut self, signal: Signal) {
        let lost = !process_tree::signal(self.supervisor, signal) && self.end.is_none();
        self.unsent = lost.then(|| (signal, Instant::now() + SIGNAL_RETRY_INTERVAL));
    }

    fn retry_signal(&mut self) {
        if let Some((signal, _)) = self.unsent.take() {
            self.send(signal);
        }
    }

    fn queue_input(&mut self, data: &[u8]) {
        let open = self.stdin.is_some() && !self.closing;
        let fits = self.pending.len() + data.len() <= PENDING_INPUT_MAX;
        if open && fits {
            self.pending.extend_from_slice(data);
            return;
        }
        if open {
            eprintln!("workspace-agent: dropped input of {}: its buffer is full", self.id);
        }
        self.taken += data.len() as u64;
        self.report_progress();
    }

    fn on_input_written(&mut self, written: Option<usize>) {
        match written {
            Some(written) => {
                self.pending.drain(..written);
                self.taken += written as u64;
            }
            // The read end is closed.
            None => self.drop_input(),
        }
        self.close_input_if_done();
        self.report_progress();
    }

    fn drop_input(&mut self) {
        self.stdin = None;
        self.taken += std::mem::take(&mut self.pending).len() as u64;
    }

    fn close_input_if_done(&mut self) {
        if self.closing && self.pending.is_empty() {
            self.stdin = None;
        }
    }

    fn on_deadline(&mut self) {
        match self.ending {
            // It exited in time; background processes may stay.
            Ending::No if self.end.is_some() => self.deadline = None,
            Ending::No => {
                self.ending = Ending::Terminating;
                process_tree::signal(self.supervisor, Signal::TERM);
                self.deadline = Some(Instant::now() + TERM_GRACE_PERIOD);
            }
            Ending::Terminating => self.kill(true),
            Ending::Killing { timed_out } => self.kill(timed_out),
        }
    }

    /// Kills all processes of the command, repeatedly until none is left.
    fn kill(&mut self, timed_out: bool) {
        self.ending = Ending::Killing { timed_out };
        process_tree::kill(self.supervisor);
        // A command may have stopped its supervisor (`kill -STOP -1`), which then could not report the exit.
        process_tree::send(self.supervisor, Signal::CONT);
        self.deadline = Some(Instant::now() + KILL_RETRY_INTERVAL);
    }

    fn report_progress(&self) {
        self.guest.set_progress(self.progress());
    }

    fn progress(&self) -> CommandProgress {
        let end = self.end.as_ref().filter(|end| end.reported);
        CommandProgress {
            command_id: self.id.clone(),
            written: self.writer.written(),
            // Filled in by `Guest`, which counts it.
            input_received: 0,
            input_taken: self.taken,
            input_closed: self.stdin.is_none() || self.closing,
            output_window: self.window.unwrap_or(0),
            end: end.map(|end| CommandEnd {
                exit_code: end.exit_code,
                timed_out: self.timed_out(),
                failed: end.failed.clone(),
            }),
        }
    }

    fn timed_out(&self) -> bool {
        matches!(self.ending, Ending::Terminating | Ending::Killing { timed_out: true })
    }

    /// Reports the exit status, once.
    fn report_exit(&mut self) {
        let timed_out = self.timed_out();
        for (stream, buffer) in [(Source::Stdout, &mut self.out), (Source::Stderr, &mut self.err)] {
            buffer.flush(|data| drop(self.writer.write(stream, now(), data)));
        }
        let Some(end) = self.end.as_mut().filter(|end| !end.reported) else { return };
        end.reported = true;
        let end = End { exit_code: end.exit_code, timed_out };
        drop(self.writer.end(now(), end));
        self.report_progress();
    }
}

/// Returns the environment of the agent, which is small, extended by the requested variables.
fn environment(asked: HashMap<String, String>) -> HashMap<String, String> {
    let mut all: HashMap<String, String> = std::env::vars().collect();
    all.extend(asked);
    all
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn read(pipe: &Option<Stream>, buffer: &mut Buffer) -> io::Result<usize> {
    match pipe {
        Some(pipe) => buffer.read(pipe).await,
        None => std::future::pending().await,
    }
}

/// Reads a report, which is written with a single call and so arrives as a whole.
async fn read_report(pipe: &mut Option<Stream>) -> io::Result<Report> {
    let Some(pipe) = pipe else { return std::future::pending().await };
    let mut bytes = [0; REPORT_LEN];
    let read = pipe.read(&mut bytes).await?;
    let whole = (read == REPORT_LEN).then_some(bytes);
    whole.and_then(Report::decode).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
}

async fn write(pipe: &mut Option<Stream>, data: &[u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) if !data.is_empty() => pipe.write(data).await,
        _ => std::future::pending().await,
    }
}
