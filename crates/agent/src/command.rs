//! Running a command: its output goes to files, its end to the server.

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
use crate::guest::{Guest, Order};
use crate::output::Output;
use crate::script;
use crate::stream::Stream;
use crate::supervise::{self, Program, REPORT, Report, Size};
use crate::tree;

/// Between asking a command that ran out of time to end, and killing it.
const GRACE: Duration = Duration::from_secs(2);
/// How long a command that ended may be silent before its end is told: what it left behind may hold its output
/// open for ever.
const SILENCE: Duration = Duration::from_millis(20);
/// And how long its end waits at most, whatever is still printed.
const LATEST: Duration = Duration::from_secs(1);
/// Between two attempts to kill what is left of a command.
const AGAIN: Duration = Duration::from_millis(20);
const ORDERS: usize = 64;
/// How much input may wait for a command to read it. The server gives less than that before it hears that some was
/// taken.
const PENDING_MAX: usize = 4 << 20;
/// Between two looks for a program that was to get a signal and has not begun.
const SIGNAL_AGAIN: Duration = Duration::from_millis(5);
/// What is kept of a terminal's output: enough to show its screen again, and what was there before.
const KEEP_SCREEN: u64 = 1 << 20;
/// What is kept at least of a command that waits for its readers: twice the pieces and twice the pipes.
const KEEP_LEAST: u64 = 512 << 10;
const WORKSPACE: &str = "/workspace";

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("there is a command `{0}` already")]
    Exists(String),
    #[error("cannot start a process: {0}")]
    Start(#[from] io::Error),
}

/// What to run.
struct Task {
    id: String,
    words: Vec<String>,
    /// Script that the words read, if the command is too long to be one of them.
    script: Option<String>,
    directory: String,
    environment: HashMap<String, String>,
    timeout: Option<Duration>,
    /// Whether it can be given something to read.
    input: bool,
    keep_output: u64,
    /// Whether it waits for its output to be taken instead of losing the oldest.
    block_output: bool,
    terminal: Option<Size>,
}

impl Task {
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
            keep_output: KEEP_SCREEN,
            block_output: false,
            terminal: Some(Size::of(request.cols, request.rows)),
        }
    }
}

/// How much output is kept. For a command that waits, also what is in its pipes when it ends.
fn keep(asked: u64, block: bool) -> u64 {
    let keep = if asked == 0 { KEEP_DEFAULT } else { asked };
    if block { keep.max(KEEP_LEAST) } else { keep }
}

/// How much is printed before some of it is taken: a quarter of what is kept, because whoever took it may come back
/// for what was on its way to him, which can fill the buffers of both ends.
fn window(task: &Task) -> Option<u64> {
    task.block_output.then_some(task.keep_output / 4)
}

/// The one asked for, or else one that is there.
fn shell(wanted: String) -> String {
    let wanted = if wanted.is_empty() { "/bin/bash".to_owned() } else { wanted };
    let runs = rustix::fs::access(&wanted, rustix::fs::Access::EXEC_OK).is_ok();
    if runs { wanted } else { "/bin/sh".to_owned() }
}

/// Starts a command. Whether it can be run at all shows later, in its progress.
pub(crate) fn start(guest: &Guest, request: RunCommandRequest) -> Result<(), CommandError> {
    start_task(guest, Task::of_command(request))
}

/// Starts a terminal: a command like others, whose output is what its screen shows.
pub(crate) fn start_terminal(guest: &Guest, request: CreatePtyRequest) -> Result<(), CommandError> {
    start_task(guest, Task::of_terminal(request))
}

fn start_task(guest: &Guest, task: Task) -> Result<(), CommandError> {
    let (orders, inbox) = mpsc::channel(ORDERS);
    let id = task.id.clone();
    if !guest.add(&id, orders, task.input) {
        return Err(CommandError::Exists(id));
    }
    match Running::new(guest, task, inbox) {
        Ok(running) => {
            guest.supervised(&id, running.supervisor);
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
    inbox: mpsc::Receiver<Order>,
    stdin: Option<Stream>,
    /// What its input has not taken yet.
    pending: Vec<u8>,
    /// Bytes of input that do not wait any more.
    taken: u64,
    /// A signal for a program that has not begun, and when to try again.
    unsent: Option<(Signal, Instant)>,
    /// No input follows.
    closing: bool,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    out: Buffer,
    err: Buffer,
    report: Option<Stream>,
    writer: Output,
    /// How much it prints before somebody takes it, for one that waits; and how much was taken.
    window: Option<u64>,
    output_taken: u64,
    /// When to ask it to end, or to kill what is left of it.
    deadline: Option<Instant>,
    ending: Ending,
    end: Option<Told>,
    gone: bool,
}

/// How far a command is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    /// It ran out of time and was asked to end.
    Asked,
    /// It is being killed; `timed_out` says why.
    Killing {
        timed_out: bool,
    },
}

/// How it ended, and whether the server may know: not before what it printed was read.
#[derive(Debug, Clone)]
struct Told {
    exit_code: i32,
    failed: String,
    /// Told when nothing came until then,
    quiet: Instant,
    /// and then at the latest.
    latest: Instant,
    done: bool,
}

/// What happened.
enum Event {
    Output(Source, io::Result<usize>),
    Report(io::Result<Report>),
    Order(Order),
    Input(io::Result<usize>),
    /// Bytes that were held back are to be kept.
    Flush,
    SendAgain,
    Deadline,
    Quiet,
}

impl Running {
    fn new(guest: &Guest, task: Task, inbox: mpsc::Receiver<Order>) -> io::Result<Self> {
        let window = window(&task);
        let directory = if task.directory.is_empty() { WORKSPACE.to_owned() } else { task.directory };
        let environment = environment(task.environment);
        let environment = environment.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        let words: Vec<&str> = task.words.iter().map(String::as_str).collect();
        let program = Program::new(&words, task.script.as_deref(), &directory, environment, task.terminal)?;
        let writer = guest.output(&task.id, task.keep_output)?;
        let started = supervise::start(&program)?;
        Ok(Self {
            guest: guest.clone(),
            id: task.id,
            program: task.words.into_iter().next().unwrap_or_default(),
            directory,
            supervisor: started.supervisor,
            inbox,
            stdin: if task.input { Some(Stream::writer(started.stdin)?) } else { None },
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
            deadline: task.timeout.map(|timeout| Instant::now() + timeout),
            ending: Ending::No,
            end: None,
            gone: false,
        })
    }

    async fn run(mut self) {
        while !self.is_over() {
            match self.next().await {
                Event::Output(stream, read) => self.took(stream, read.ok()),
                Event::Flush => self.flush(Instant::now()),
                Event::Report(report) => self.reported(report.ok()),
                Event::Order(order) => self.obey(order),
                Event::Input(written) => self.gave(written.ok()),
                Event::SendAgain => self.send_again(),
                Event::Deadline => self.ran_out_of_time(),
                Event::Quiet => self.tell_end(),
            }
        }
        self.tell_end();
    }

    /// Nothing is left of it, and nothing more can come.
    fn is_over(&self) -> bool {
        self.gone && self.stdout.is_none() && self.stderr.is_none() && self.report.is_none()
    }

    /// Whether nothing more is read of what it prints until somebody takes some of it. Nobody need read for it to
    /// end: what it printed last has room.
    fn is_blocked(&self) -> bool {
        let full = |window| self.writer.written() >= self.output_taken + window;
        let is_full = self.window.is_some_and(full) || self.writer.is_full();
        is_full && self.end.is_none() && self.ending == Ending::No
    }

    async fn next(&mut self) -> Event {
        let blocked = self.is_blocked();
        let untold = self.end.as_ref().filter(|end| !end.done);
        let (quiet, latest) = (untold.map(|end| end.quiet), untold.map(|end| end.latest));
        let unsent = self.unsent.map(|(_, again)| again);
        let held = [self.out.until(), self.err.until()].into_iter().flatten().min();
        let (stdout, stderr, out, err) = (&self.stdout, &self.stderr, &mut self.out, &mut self.err);
        let output = async {
            if blocked {
                return std::future::pending().await;
            }
            // By chance, so that neither keeps the other waiting.
            tokio::select! {
                read = read(stdout, out) => Event::Output(Source::Stdout, read),
                read = read(stderr, err) => Event::Output(Source::Stderr, read),
            }
        };
        tokio::select! {
            // A program that prints without end must not keep anything else from happening; only silence is what
            // is left when there is no output.
            biased;
            Some(order) = self.inbox.recv() => Event::Order(order),
            () = at(unsent) => Event::SendAgain,
            () = at(self.deadline) => Event::Deadline,
            report = read_report(&mut self.report) => Event::Report(report),
            () = at(latest) => Event::Quiet,
            written = write(&mut self.stdin, &self.pending) => Event::Input(written),
            output = output => output,
            () = at(held) => Event::Flush,
            () = at(quiet) => Event::Quiet,
        }
    }

    /// Keeps what came from a stream; nothing comes from one that is closed.
    fn took(&mut self, stream: Source, read: Option<usize>) {
        let buffer = if stream == Source::Stdout { &mut self.out } else { &mut self.err };
        match read {
            Some(read) if read > 0 => {
                // A full disk leaves a gap that readers are told of; the command goes on.
                buffer.took(read, |data| drop(self.writer.write(stream, now(), data)));
                if let Some(end) = &mut self.end {
                    end.quiet = Instant::now() + SILENCE;
                }
                self.tell_progress();
            }
            _ => {
                buffer.flush(|data| drop(self.writer.write(stream, now(), data)));
                self.tell_progress();
                let pipe = if stream == Source::Stdout { &mut self.stdout } else { &mut self.stderr };
                *pipe = None;
                if self.end.is_some() && self.stdout.is_none() && self.stderr.is_none() {
                    self.tell_end();
                }
            }
        }
    }

    /// Keeps what was held back until now.
    fn flush(&mut self, now_is: Instant) {
        for (stream, buffer) in [(Source::Stdout, &mut self.out), (Source::Stderr, &mut self.err)] {
            if buffer.until().is_some_and(|until| until <= now_is) {
                buffer.flush(|data| drop(self.writer.write(stream, now(), data)));
            }
        }
        self.tell_progress();
    }

    fn reported(&mut self, report: Option<Report>) {
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
            // Whoever killed the supervisor has the rest of it on his conscience: see `reaper.rs`.
            None => (128 + libc::SIGKILL, String::new()),
        };
        if self.end.is_none() {
            let now = Instant::now();
            let end = Told { exit_code, failed, quiet: now + SILENCE, latest: now + LATEST, done: false };
            self.end = Some(end);
        }
        if self.stdout.is_none() && self.stderr.is_none() {
            self.tell_end();
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Signal(libc::SIGKILL) => self.kill(false),
            Order::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.send(signal);
                }
            }
            Order::Input(data) => self.give(&data),
            Order::OutputTaken(taken) => self.output_taken = self.output_taken.max(taken),
            // The next look finds the room.
            Order::OutputStored => {}
            Order::CloseInput => {
                self.closing = true;
                self.close_input_if_done();
                self.tell_progress();
            }
            Order::Resize(size) => {
                if let Some(terminal) = &self.stdout {
                    // Only a terminal has a size, and it may be gone already.
                    drop(size.set(terminal));
                }
            }
            Order::Gone => {
                self.gone = true;
                self.drop_input();
                self.deadline = None;
                self.unsent = None;
            }
        }
    }

    /// Sends a signal to all of it. What was started a moment ago may not be there yet, but gets it.
    fn send(&mut self, signal: Signal) {
        let lost = !tree::signal(self.supervisor, signal) && self.end.is_none();
        self.unsent = lost.then(|| (signal, Instant::now() + SIGNAL_AGAIN));
    }

    fn send_again(&mut self) {
        if let Some((signal, _)) = self.unsent.take() {
            self.send(signal);
        }
    }

    fn give(&mut self, data: &[u8]) {
        let open = self.stdin.is_some() && !self.closing;
        let fits = self.pending.len() + data.len() <= PENDING_MAX;
        if open && fits {
            self.pending.extend_from_slice(data);
            return;
        }
        if open {
            eprintln!("workspace-agent: {} takes no more input for now; some is dropped", self.id);
        }
        self.taken += data.len() as u64;
        self.tell_progress();
    }

    fn gave(&mut self, written: Option<usize>) {
        match written {
            Some(written) => {
                self.pending.drain(..written);
                self.taken += written as u64;
            }
            // Nobody reads it any more.
            None => self.drop_input(),
        }
        self.close_input_if_done();
        self.tell_progress();
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

    fn ran_out_of_time(&mut self) {
        match self.ending {
            // Ended in time; what it left behind may stay.
            Ending::No if self.end.is_some() => self.deadline = None,
            Ending::No => {
                self.ending = Ending::Asked;
                tree::signal(self.supervisor, Signal::TERM);
                self.deadline = Some(Instant::now() + GRACE);
            }
            Ending::Asked => self.kill(true),
            Ending::Killing { timed_out } => self.kill(timed_out),
        }
    }

    /// Kills all of it, again and again until nothing is left.
    fn kill(&mut self, timed_out: bool) {
        self.ending = Ending::Killing { timed_out };
        tree::kill(self.supervisor);
        // Somebody inside may have stopped it (`kill -STOP -1`), and then it would not say that the command ended.
        tree::send(self.supervisor, Signal::CONT);
        self.deadline = Some(Instant::now() + AGAIN);
    }

    fn tell_progress(&self) {
        self.guest.set_progress(self.progress());
    }

    fn progress(&self) -> CommandProgress {
        let end = self.end.as_ref().filter(|end| end.done);
        CommandProgress {
            command_id: self.id.clone(),
            written: self.writer.written(),
            // Counted by who passes it on.
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
        matches!(self.ending, Ending::Asked | Ending::Killing { timed_out: true })
    }

    /// Says how it ended, once.
    fn tell_end(&mut self) {
        let timed_out = self.timed_out();
        for (stream, buffer) in [(Source::Stdout, &mut self.out), (Source::Stderr, &mut self.err)] {
            buffer.flush(|data| drop(self.writer.write(stream, now(), data)));
        }
        let Some(end) = self.end.as_mut().filter(|end| !end.done) else { return };
        end.done = true;
        let end = End { exit_code: end.exit_code, timed_out };
        drop(self.writer.end(now(), end));
        self.tell_progress();
    }
}

/// The variables of the agent, of which there are few, and those asked for.
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

/// Written at once, so that it comes at once.
async fn read_report(pipe: &mut Option<Stream>) -> io::Result<Report> {
    let Some(pipe) = pipe else { return std::future::pending().await };
    let mut bytes = [0; REPORT];
    let read = pipe.read(&mut bytes).await?;
    let whole = (read == REPORT).then_some(bytes);
    whole.and_then(Report::decode).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
}

async fn write(pipe: &mut Option<Stream>, data: &[u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) if !data.is_empty() => pipe.write(data).await,
        _ => std::future::pending().await,
    }
}
