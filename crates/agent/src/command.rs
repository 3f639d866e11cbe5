//! Running a command: its output goes to files, its end to the server.

use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use workspace_agent_protocol::output::{End, Stream, Writer};
use workspace_agent_protocol::v1::{CommandEnd, CommandProgress, RunCommandRequest};

use crate::guest::{Guest, Order};
use crate::supervise::{self, Program, REPORT, Report};
use crate::tree;

/// Read at once from a pipe.
const PIECE: usize = 64 << 10;
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

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("there is a command `{0}` already")]
    Exists(String),
    #[error("cannot start a process: {0}")]
    Start(#[from] io::Error),
}

/// Starts a command. Whether it can be run at all shows later, in its progress.
pub(crate) fn start(guest: &Guest, request: &RunCommandRequest) -> Result<(), CommandError> {
    let (orders, inbox) = mpsc::channel(ORDERS);
    let id = &request.command_id;
    if !guest.add(id, orders) {
        return Err(CommandError::Exists(id.clone()));
    }
    match Running::new(guest, request, inbox) {
        Ok(running) => {
            guest.supervised(id, running.supervisor);
            tokio::spawn(running.run());
            Ok(())
        }
        Err(error) => {
            guest.forget(id);
            Err(error.into())
        }
    }
}

struct Running {
    guest: Guest,
    id: String,
    directory: String,
    supervisor: Pid,
    inbox: mpsc::Receiver<Order>,
    stdin: Option<Sender>,
    /// What its input has not taken yet.
    pending: Vec<u8>,
    /// No input follows.
    closing: bool,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    report: Option<Receiver>,
    writer: Writer,
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
    Output(Stream, io::Result<usize>),
    Report(io::Result<Report>),
    Order(Order),
    Input(io::Result<usize>),
    Deadline,
    Quiet,
}

impl Running {
    fn new(guest: &Guest, request: &RunCommandRequest, inbox: mpsc::Receiver<Order>) -> io::Result<Self> {
        let directory = if request.cwd.is_empty() { "/workspace" } else { &request.cwd };
        let text = |(name, value)| -> (&OsStr, &OsStr) { (OsStr::new(name), OsStr::new(value)) };
        let environment = environment(request);
        let program =
            Program::shell(&request.command, directory, environment.iter().map(|(n, v)| text((n, v))))?;
        let writer = Writer::create(guest.output()?, &request.command_id, request.keep_output)?;
        let started = supervise::start(&program)?;
        let timeout = u64::try_from(request.timeout_ms).ok().filter(|timeout| *timeout > 0);
        Ok(Self {
            guest: guest.clone(),
            id: request.command_id.clone(),
            directory: directory.to_owned(),
            supervisor: started.supervisor,
            inbox,
            stdin: if request.stdin { Some(Sender::from_owned_fd(started.stdin)?) } else { None },
            pending: Vec::new(),
            closing: false,
            stdout: Some(Receiver::from_owned_fd(started.stdout)?),
            stderr: Some(Receiver::from_owned_fd(started.stderr)?),
            report: Some(Receiver::from_owned_fd(started.report)?),
            writer,
            deadline: timeout.map(|timeout| Instant::now() + Duration::from_millis(timeout)),
            ending: Ending::No,
            end: None,
            gone: false,
        })
    }

    async fn run(mut self) {
        let (mut out, mut err) = (vec![0; PIECE], vec![0; PIECE]);
        while !self.is_over() {
            match self.next(&mut out, &mut err).await {
                Event::Output(stream, read) => {
                    let data = if stream == Stream::Stdout { &out } else { &err };
                    self.took(stream, read.ok().map(|read| &data[..read]));
                }
                Event::Report(report) => self.reported(report.ok()),
                Event::Order(order) => self.obey(order),
                Event::Input(written) => self.gave(written.ok()),
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

    async fn next(&mut self, out: &mut [u8], err: &mut [u8]) -> Event {
        let quiet = self.end.as_ref().filter(|end| !end.done).map(|end| end.quiet.min(end.latest));
        tokio::select! {
            // What it printed comes before how it ended.
            biased;
            read = read(&mut self.stdout, out) => Event::Output(Stream::Stdout, read),
            read = read(&mut self.stderr, err) => Event::Output(Stream::Stderr, read),
            report = read_report(&mut self.report) => Event::Report(report),
            Some(order) = self.inbox.recv() => Event::Order(order),
            written = write(&mut self.stdin, &self.pending) => Event::Input(written),
            () = at(self.deadline) => Event::Deadline,
            () = at(quiet) => Event::Quiet,
        }
    }

    /// Keeps what came from a stream; nothing comes from one that is closed.
    fn took(&mut self, stream: Stream, read: Option<&[u8]>) {
        match read {
            Some(data) if !data.is_empty() => {
                // A full disk leaves a gap that readers are told of; the command goes on.
                drop(self.writer.write(stream, now(), data));
                if let Some(end) = &mut self.end {
                    end.quiet = Instant::now() + SILENCE;
                }
                self.tell_progress();
            }
            _ => {
                let pipe = if stream == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
                *pipe = None;
                if self.end.is_some() && self.stdout.is_none() && self.stderr.is_none() {
                    self.tell_end();
                }
            }
        }
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
                (127, format!("cannot run /bin/sh: {}", io::Error::from_raw_os_error(errno)))
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
                    tree::signal(self.supervisor, signal);
                }
            }
            Order::Input(data) => {
                if self.stdin.is_some() && !self.closing {
                    self.pending.extend_from_slice(&data);
                }
            }
            Order::CloseInput => {
                self.closing = true;
                self.close_input_if_done();
            }
            Order::Gone => {
                self.gone = true;
                self.stdin = None;
                self.deadline = None;
            }
        }
    }

    fn gave(&mut self, written: Option<usize>) {
        match written {
            Some(written) => drop(self.pending.drain(..written)),
            // Nobody reads it any more.
            None => {
                self.stdin = None;
                self.pending.clear();
            }
        }
        self.close_input_if_done();
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
        let Some(end) = self.end.as_mut().filter(|end| !end.done) else { return };
        end.done = true;
        let end = End { exit_code: end.exit_code, timed_out };
        drop(self.writer.end(now(), end));
        self.tell_progress();
    }
}

/// The variables of the agent, of which there are few, and those asked for.
fn environment(request: &RunCommandRequest) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = std::env::vars().collect();
    all.retain(|(name, _)| !request.envs.contains_key(name));
    all.extend(request.envs.iter().map(|(name, value)| (name.clone(), value.clone())));
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

async fn read(pipe: &mut Option<Receiver>, buffer: &mut [u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.read(buffer).await,
        None => std::future::pending().await,
    }
}

async fn read_report(pipe: &mut Option<Receiver>) -> io::Result<Report> {
    let Some(pipe) = pipe else { return std::future::pending().await };
    let mut bytes = [0; REPORT];
    // Written at once, so that it comes at once: nothing is lost when this is given up halfway.
    pipe.read_exact(&mut bytes).await?;
    Report::decode(bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

async fn write(pipe: &mut Option<Sender>, data: &[u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) if !data.is_empty() => pipe.write(data).await,
        _ => std::future::pending().await,
    }
}
