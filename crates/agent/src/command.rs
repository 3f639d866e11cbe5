//! Running commands: output goes to files or to the server, the exit status to the server.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use workspace_agent_protocol::output::{ExitStatus, RETENTION_DEFAULT, Stream};
use workspace_agent_protocol::v1::{CommandEnd, CommandProgress, CreatePtyRequest, RunCommandRequest};

use crate::agent_state::{AgentState, CommandMessage};
use crate::buffer::Buffer;
use crate::clock::now;
use crate::output::OutputSink;
use crate::process_tree;
use crate::program_start::{
    self, Program, ProgramLookup, ProgramSupervisor, REPORT_LEN, Report, TerminalSize, UnconfirmedProgram,
};
use crate::script;
use crate::stream::NonBlockingFd;
use crate::user::{User, UserError};

/// Time between SIGTERM and SIGKILL for a command that timed out.
const TERM_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Time without output after which the exit of a command is reported. Background processes may keep its
/// output open forever.
const OUTPUT_IDLE_TIMEOUT: Duration = Duration::from_millis(20);
/// Maximum delay of the exit report while there is still output.
const EXIT_REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before the PID is reported on its own. A command that exits or prints earlier reports it with that message.
const PID_REPORT_DELAY: Duration = Duration::from_millis(10);
/// Interval at which remaining processes of a command are killed again.
const KILL_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of messages that are queued for a command.
const MAILBOX_CAPACITY: usize = 64;
/// Maximum size in bytes of input that the command has not read yet. The server sends less than that before
/// it receives an acknowledgement.
const PENDING_INPUT_MAX: usize = 4 << 20;
/// Interval at which a signal is retried for a program that has not started yet.
const SIGNAL_RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of output that are kept for a terminal: enough to redraw the screen and some scrollback.
const TERMINAL_RETENTION: u64 = 1 << 20;
/// Minimum bytes of output that are kept for a command with backpressure. A quarter of them is its window. The rest has
/// room for two read buffers and two pipes of 64 KiB each, which are read after the exit even if the window is full.
const BLOCKING_RETENTION_MIN: u64 = 512 << 10;
/// Working directory of commands whose request names none.
const DEFAULT_DIRECTORY: &str = "/workspace";

/// Reason why a command was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("command `{0}` already exists")]
    Exists(String),
    #[error("the sandbox is paused")]
    Paused,
    #[error("cannot start a process: {0}")]
    Start(#[from] io::Error),
    #[error(transparent)]
    User(#[from] UserError),
}

/// Parameters of a command or terminal.
struct CommandSpec {
    id: String,
    /// Program and arguments.
    args: Vec<String>,
    /// Lookup of the program: in `PATH`, or as a path.
    lookup: ProgramLookup,
    /// Text of the command, if it is too long for an argument; the arguments then tell the shell to read it from a
    /// descriptor.
    script: Option<String>,
    /// Working directory.
    directory: String,
    environment: HashMap<String, String>,
    timeout: Option<Duration>,
    /// True if standard input stays open for input from the server.
    has_stdin: bool,
    /// Bytes of output to keep.
    output_retention: u64,
    /// True if the command blocks while clients have not received its output. Otherwise the oldest output is dropped.
    has_backpressure: bool,
    /// Size of the terminal; `None` without a terminal.
    terminal: Option<TerminalSize>,
    /// User that runs it; `None` for the user of the agent.
    user: Option<User>,
}

impl CommandSpec {
    fn of_command(request: RunCommandRequest, user: Option<User>) -> Self {
        let timeout = u64::try_from(request.timeout_ms).ok().filter(|timeout| *timeout > 0);
        let (args, script, lookup) = if request.argv.is_empty() {
            let (args, script) = script::shell_args("/bin/sh".to_owned(), request.command);
            (args, script, ProgramLookup::ExactPath)
        } else {
            (request.argv, None, ProgramLookup::PathVariable)
        };
        Self {
            id: request.command_id,
            args,
            lookup,
            script,
            directory: request.cwd,
            environment: request.envs,
            timeout: timeout.map(Duration::from_millis),
            has_stdin: request.stdin,
            output_retention: retention(request.keep_output, request.block_output),
            has_backpressure: request.block_output,
            terminal: None,
            user,
        }
    }

    fn of_terminal(request: CreatePtyRequest, user: Option<User>) -> Self {
        let mut environment = request.envs;
        environment.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
        let shell = shell(request.shell);
        let (args, script) = match request.command.is_empty() {
            true => (vec![shell], None),
            false => script::shell_args(shell, request.command),
        };
        Self {
            id: request.pty_id,
            args,
            lookup: ProgramLookup::ExactPath,
            script,
            directory: request.cwd,
            environment,
            timeout: None,
            has_stdin: true,
            output_retention: TERMINAL_RETENTION,
            has_backpressure: false,
            terminal: Some(TerminalSize::of(request.cols, request.rows)),
            user,
        }
    }
}

/// Returns the number of bytes of output to keep. For a command with backpressure, this includes the content of its
/// pipes when it exits.
fn retention(requested: u64, has_backpressure: bool) -> u64 {
    let retention = if requested == 0 { RETENTION_DEFAULT } else { requested };
    if has_backpressure { retention.max(BLOCKING_RETENTION_MIN) } else { retention }
}

/// Returns the number of bytes that a command with backpressure may print ahead of its reader: a quarter of the
/// retained output. The rest is kept so that a client that reconnects can be sent again what the server had sent but
/// did not arrive, which is at most what the buffers of their connection hold.
fn window(spec: &CommandSpec) -> Option<u64> {
    spec.has_backpressure.then_some(spec.output_retention / 4)
}

/// Returns the requested shell, or `/bin/bash` if none is requested; `/bin/sh` if that shell is not executable.
fn shell(requested: String) -> String {
    let shell = if requested.is_empty() { "/bin/bash".to_owned() } else { requested };
    let is_executable = rustix::fs::access(&shell, rustix::fs::Access::EXEC_OK).is_ok();
    if is_executable { shell } else { "/bin/sh".to_owned() }
}

/// Starts a command. If the program cannot be executed, this is reported later, as the exit of the command.
pub(crate) fn start(agent: &AgentState, request: RunCommandRequest) -> Result<(), CommandError> {
    let user = User::find(&request.user, agent.privileges())?;
    start_spec(agent, CommandSpec::of_command(request, user))
}

/// Starts a terminal: a command whose input and output is a pseudoterminal.
pub(crate) fn start_terminal(agent: &AgentState, request: CreatePtyRequest) -> Result<(), CommandError> {
    let user = User::find(&request.user, agent.privileges())?;
    start_spec(agent, CommandSpec::of_terminal(request, user))
}

fn start_spec(agent: &AgentState, spec: CommandSpec) -> Result<(), CommandError> {
    if agent.is_paused() {
        return Err(CommandError::Paused);
    }
    let (mailbox, inbox) = mpsc::channel(MAILBOX_CAPACITY);
    let id = spec.id.clone();
    if !agent.add(&id, mailbox, spec.has_stdin) {
        return Err(CommandError::Exists(id));
    }
    match RunningCommand::new(agent, spec, inbox) {
        Ok(running) => {
            tokio::spawn(running.run());
            Ok(())
        }
        Err(error) => {
            agent.forget(&id);
            Err(error.into())
        }
    }
}

/// Task of a running command.
struct RunningCommand {
    agent: AgentState,
    id: String,
    /// First argument, for error messages.
    program: String,
    /// Working directory, for error messages.
    directory: String,
    /// PID of the supervisor; `None` if no processes of the command are left.
    supervisor: Option<Pid>,
    /// Program that its supervisor has not confirmed to have received.
    unconfirmed: Option<UnconfirmedProgram>,
    /// PID of the program; 0 until the supervisor has reported it.
    pid: u32,
    /// Time at which the PID is reported to the server; `None` if there was other progress to report.
    pid_deadline: Option<Instant>,
    /// Receiver of messages from the server's connection.
    inbox: mpsc::Receiver<CommandMessage>,
    /// Write end of the standard input; `None` if it is closed.
    stdin: Option<NonBlockingFd>,
    /// Input that the command has not read yet.
    pending_input: Vec<u8>,
    /// Number of input bytes that were written to the standard input or dropped.
    consumed_input: u64,
    /// Signal for a program that has not started yet, and the time of the next attempt.
    pending_signal: Option<(Signal, Instant)>,
    /// True if no more input follows.
    is_input_complete: bool,
    /// Read end of the standard output; `None` at its end.
    stdout: Option<NonBlockingFd>,
    /// Read end of the standard error; `None` at its end, and for a terminal.
    stderr: Option<NonBlockingFd>,
    stdout_buffer: Buffer,
    stderr_buffer: Buffer,
    /// Pipe on which the supervisor reports; `None` if there are no more reports.
    report_pipe: Option<NonBlockingFd>,
    /// Destination of the output: files, or the connection to the server.
    output: OutputSink,
    /// Number of bytes that a command with backpressure may print ahead of its reader; `None` for others.
    window: Option<u64>,
    /// Offset up to which a client has received the output, as reported by [`CommandMessage::OutputTaken`].
    taken_output: u64,
    /// Time at which to send SIGTERM, or to kill the remaining processes.
    deadline: Option<Instant>,
    /// Time since which the timeout is suspended, because the sandbox is paused; `None` if it is not.
    suspended_since: Option<Instant>,
    /// Stage of terminating the command after its timeout, or by a kill.
    termination: Termination,
    /// Exit of the program; `None` until the supervisor has reported it.
    exit: Option<Exit>,
}

/// Stage of terminating a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Termination {
    NotRequested,
    /// SIGTERM was sent after the timeout.
    Terminating,
    /// SIGKILL is sent until no process is left.
    Killing(KillReason),
}

/// Reason why a command is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillReason {
    /// The server requested it.
    Request,
    /// The command timed out, and did not exit after SIGTERM.
    Timeout,
}

/// Exit of the program. It is reported only after the output before it was read.
#[derive(Debug, Clone)]
struct Exit {
    code: i32,
    /// Reason why the program could not be executed; empty if it was.
    start_error: String,
    /// Time at which the exit is reported if there is no more output.
    idle_deadline: Instant,
    /// Time at which the exit is reported in any case.
    report_deadline: Instant,
    /// True if the server was told.
    is_reported: bool,
}

/// Event of the main loop.
enum Event {
    /// Number of bytes that were read from a stream.
    Output(Stream, io::Result<usize>),
    /// Report of the supervisor.
    Report(io::Result<Report>),
    Message(CommandMessage),
    /// Number of bytes that were written to the standard input.
    Input(io::Result<usize>),
    /// An incomplete character was held back for too long.
    Flush,
    RetrySignal,
    Deadline,
    ReportPid,
    ReportExit,
}

impl RunningCommand {
    fn new(agent: &AgentState, spec: CommandSpec, inbox: mpsc::Receiver<CommandMessage>) -> io::Result<Self> {
        let window = window(&spec);
        let directory = if spec.directory.is_empty() { DEFAULT_DIRECTORY.to_owned() } else { spec.directory };
        let environment = environment(spec.environment, spec.user.as_ref());
        let environment = environment.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        let args: Vec<&str> = spec.args.iter().map(String::as_str).collect();
        let program = Program::new(&args, spec.script.as_deref(), &directory, environment, spec.terminal)?
            .with_lookup(spec.lookup)
            .with_user(spec.user, agent.privileges());
        let output = agent.create_output(&spec.id, spec.output_retention)?;
        let started = program_start::start(program, || agent.take_idle_supervisor())?;
        let ProgramSupervisor { pid, socket, report_pipe } = started.supervisor;
        agent.add_supervisor(&spec.id, pid, socket);
        Ok(Self {
            agent: agent.clone(),
            id: spec.id,
            program: spec.args.into_iter().next().unwrap_or_default(),
            directory,
            supervisor: Some(pid),
            unconfirmed: started.unconfirmed,
            pid: 0,
            pid_deadline: None,
            inbox,
            stdin: spec.has_stdin.then_some(started.stdin),
            pending_input: Vec::new(),
            consumed_input: 0,
            pending_signal: None,
            is_input_complete: false,
            stdout: Some(started.stdout),
            stderr: started.stderr,
            stdout_buffer: Buffer::new(),
            stderr_buffer: Buffer::new(),
            report_pipe: Some(report_pipe),
            output,
            window,
            taken_output: 0,
            deadline: spec.timeout.map(|timeout| Instant::now() + timeout),
            suspended_since: None,
            termination: Termination::NotRequested,
            exit: None,
        })
    }

    async fn run(mut self) {
        while !self.is_finished() {
            match self.next_event().await {
                Event::Output(stream, read) => self.on_output(stream, read.ok()),
                Event::Flush => self.flush(Instant::now()),
                Event::Report(report) => self.on_report(report.ok()),
                Event::Message(message) => self.handle_message(message),
                Event::Input(written) => self.on_input_written(written.ok()),
                Event::RetrySignal => self.retry_signal(),
                Event::Deadline => self.on_deadline(),
                Event::ReportPid => self.report_progress(),
                Event::ReportExit => self.report_exit(),
            }
        }
        self.report_exit();
    }

    /// Returns true if no process is left and all pipes are closed.
    fn is_finished(&self) -> bool {
        self.supervisor.is_none()
            && self.stdout.is_none()
            && self.stderr.is_none()
            && self.report_pipe.is_none()
    }

    /// Returns true if no more output is read, so that the command blocks when its pipes are full: until a client has
    /// received some output, or the server has stored some of the output that is sent to it. Output of a command
    /// that exited or is being terminated is always read.
    fn is_blocked(&self) -> bool {
        let exceeds = |window| self.output.end_offset() >= self.taken_output + window;
        let is_full = self.window.is_some_and(exceeds) || self.output.is_full();
        is_full && self.exit.is_none() && self.termination == Termination::NotRequested
    }

    async fn next_event(&mut self) -> Event {
        let blocked = self.is_blocked();
        let unreported = self.exit.as_ref().filter(|exit| !exit.is_reported);
        let idle_deadline = unreported.map(|exit| exit.idle_deadline);
        let report_deadline = unreported.map(|exit| exit.report_deadline);
        let signal_retry = self.pending_signal.map(|(_, time)| time);
        let deadline = self.deadline.filter(|_| self.suspended_since.is_none());
        let buffers = [&self.stdout_buffer, &self.stderr_buffer];
        let flush_deadline = buffers.into_iter().filter_map(Buffer::deadline).min();
        let (stdout, stderr) = (&self.stdout, &self.stderr);
        let (stdout_buffer, stderr_buffer) = (&mut self.stdout_buffer, &mut self.stderr_buffer);
        let output = async {
            if blocked {
                return std::future::pending().await;
            }
            // Random order, so that neither stream starves the other.
            tokio::select! {
                read = read(stdout, stdout_buffer) => Event::Output(Stream::Stdout, read),
                read = read(stderr, stderr_buffer) => Event::Output(Stream::Stderr, read),
            }
        };
        tokio::select! {
            // A program that prints endlessly must not starve other events. The idle timeout comes last,
            // since it applies only without output.
            biased;
            Some(message) = self.inbox.recv() => Event::Message(message),
            () = wait_until(signal_retry) => Event::RetrySignal,
            () = wait_until(deadline) => Event::Deadline,
            report = read_report(&mut self.report_pipe) => Event::Report(report),
            () = wait_until(report_deadline) => Event::ReportExit,
            written = write(&mut self.stdin, &self.pending_input) => Event::Input(written),
            output = output => output,
            () = wait_until(flush_deadline) => Event::Flush,
            () = wait_until(self.pid_deadline) => Event::ReportPid,
            () = wait_until(idle_deadline) => Event::ReportExit,
        }
    }

    /// Writes bytes from a stream; `None` or 0 means that it was closed.
    fn on_output(&mut self, stream: Stream, read: Option<usize>) {
        let buffer = if stream == Stream::Stdout { &mut self.stdout_buffer } else { &mut self.stderr_buffer };
        match read {
            Some(read) if read > 0 => {
                // A full disk leaves a gap that readers see; the command continues.
                buffer.advance(read, |data| drop(self.output.write(stream, now(), data)));
                if let Some(exit) = &mut self.exit {
                    exit.idle_deadline = Instant::now() + OUTPUT_IDLE_TIMEOUT;
                }
                self.report_progress();
            }
            _ => {
                let end = self.output.end_offset();
                buffer.flush(|data| drop(self.output.write(stream, now(), data)));
                // End of file alone is not reported: the exit usually follows at once, and would need a second message.
                if self.output.end_offset() > end {
                    self.report_progress();
                }
                let pipe = if stream == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
                *pipe = None;
                if self.exit.is_some() && self.stdout.is_none() && self.stderr.is_none() {
                    self.report_exit();
                }
            }
        }
    }

    /// Writes incomplete characters that were held back for too long.
    fn flush(&mut self, current_time: Instant) {
        for (stream, buffer) in
            [(Stream::Stdout, &mut self.stdout_buffer), (Stream::Stderr, &mut self.stderr_buffer)]
        {
            if buffer.deadline().is_some_and(|deadline| deadline <= current_time) {
                buffer.flush(|data| drop(self.output.write(stream, now(), data)));
            }
        }
        self.report_progress();
    }

    /// Handles a report; `None` if the supervisor has closed the report pipe, or was killed.
    fn on_report(&mut self, report: Option<Report>) {
        // Every report confirms that the supervisor received the program.
        match (report, self.unconfirmed.take()) {
            (None, Some(unconfirmed)) => return self.start_under_new_supervisor(unconfirmed),
            // The supervisor exited before its first report was read: do what `on_processes_gone` left undone.
            (_, Some(_)) if self.supervisor.is_none() => self.on_processes_gone(),
            _ => {}
        }
        match report {
            Some(Report::Forked(pid)) => {
                self.pid = pid.unsigned_abs();
                self.pid_deadline = Some(Instant::now() + PID_REPORT_DELAY);
            }
            Some(Report::Exited(code)) => self.on_exit(code, String::new()),
            // 126 if the working directory cannot be entered, 127 if the program cannot be executed for any reason. A
            // shell uses these codes, too, but 126 for a file that it may not execute.
            Some(Report::ChdirFailed(errno)) => {
                let error = io::Error::from_raw_os_error(errno);
                self.on_exit(126, format!("cannot enter `{}`: {error}", self.directory));
            }
            Some(Report::ExecFailed(errno)) => {
                let error = io::Error::from_raw_os_error(errno);
                self.on_exit(127, format!("cannot run {}: {error}", self.program));
            }
            Some(Report::Idle) => {
                self.report_pipe = None;
                if let Some(supervisor) = self.supervisor {
                    self.agent.on_supervisor_idle(&self.id, supervisor);
                    self.on_processes_gone();
                }
            }
            None => {
                self.report_pipe = None;
                // If no exit was reported before, the supervisor itself was killed; `reaper.rs` kills the remaining
                // processes.
                self.on_exit(128 + libc::SIGKILL, String::new());
            }
        }
    }

    /// Starts the program under a new supervisor: the previous one was killed before it received the program.
    fn start_under_new_supervisor(&mut self, unconfirmed: UnconfirmedProgram) {
        if let Some(killed) = self.supervisor.take() {
            self.agent.forget_killed_supervisor(killed);
        }
        match unconfirmed.start_under_new_supervisor() {
            Ok(ProgramSupervisor { pid, socket, report_pipe }) => {
                self.agent.add_supervisor(&self.id, pid, socket);
                (self.supervisor, self.report_pipe) = (Some(pid), Some(report_pipe));
            }
            Err(error) => {
                self.report_pipe = None;
                self.on_processes_gone();
                self.on_exit(127, format!("cannot run {}: {error}", self.program));
            }
        }
    }

    /// Handles the end of the command's last process. The supervisor may already run the program of another command, so
    /// it must not be signalled any more.
    fn on_processes_gone(&mut self) {
        self.supervisor = None;
        // An unconfirmed program may have to be started under a new supervisor.
        if self.unconfirmed.is_none() {
            self.drop_input();
            self.deadline = None;
            self.pending_signal = None;
        }
    }

    /// Records the exit of the program, or the failure to start it; only the first call records anything.
    fn on_exit(&mut self, code: i32, start_error: String) {
        if self.exit.is_none() {
            let now = Instant::now();
            let exit = Exit {
                code,
                start_error,
                idle_deadline: now + OUTPUT_IDLE_TIMEOUT,
                report_deadline: now + EXIT_REPORT_TIMEOUT,
                is_reported: false,
            };
            self.exit = Some(exit);
        }
        if self.stdout.is_none() && self.stderr.is_none() {
            self.report_exit();
        }
    }

    fn handle_message(&mut self, message: CommandMessage) {
        match message {
            CommandMessage::Signal(libc::SIGKILL) => {
                // A command that is being killed for its timeout has still timed out.
                self.kill(if self.timed_out() { KillReason::Timeout } else { KillReason::Request });
            }
            CommandMessage::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.send_signal(signal);
                }
            }
            CommandMessage::Input(data) => self.queue_input(&data),
            CommandMessage::OutputTaken(offset) => {
                self.taken_output = self.taken_output.max(offset);
            }
            // The main loop checks again whether the output is full.
            CommandMessage::OutputStored => {}
            CommandMessage::CloseInput => {
                self.is_input_complete = true;
                self.close_input_if_done();
                self.report_progress();
            }
            CommandMessage::Resize(size) => {
                if let Some(terminal) = &self.stdout {
                    // Fails for a pipe, or if the terminal is closed.
                    drop(size.set(terminal));
                }
            }
            CommandMessage::SuspendTimers(true) => {
                self.suspended_since.get_or_insert_with(Instant::now);
            }
            CommandMessage::SuspendTimers(false) => self.continue_timeout(),
            // A different PID is that of an earlier supervisor, which was killed before it received the program.
            CommandMessage::SupervisorExited(pid) if self.supervisor == Some(pid) => self.on_processes_gone(),
            CommandMessage::SupervisorExited(_) => {}
        }
    }

    /// Sends a signal to all processes of the command. If the program has not started yet, the signal is
    /// retried.
    fn send_signal(&mut self, signal: Signal) {
        let is_received = self.supervisor.is_some_and(|pid| process_tree::signal_descendants(pid, signal));
        let is_too_early = !is_received && self.exit.is_none();
        self.pending_signal = is_too_early.then(|| (signal, Instant::now() + SIGNAL_RETRY_INTERVAL));
    }

    fn retry_signal(&mut self) {
        if let Some((signal, _)) = self.pending_signal.take() {
            self.send_signal(signal);
        }
    }

    /// Queues input for the command. Drops it if the standard input is closed, or too much input is queued.
    fn queue_input(&mut self, data: &[u8]) {
        let is_open = self.stdin.is_some() && !self.is_input_complete;
        let fits = self.pending_input.len() + data.len() <= PENDING_INPUT_MAX;
        if is_open && fits {
            self.pending_input.extend_from_slice(data);
            return;
        }
        if is_open {
            eprintln!("workspace-agent: dropped input for command {}: its input buffer is full", self.id);
        }
        self.consumed_input += data.len() as u64;
        self.report_progress();
    }

    /// Handles a write to the standard input. `written` is the number of bytes; `None` if the program has closed its
    /// end.
    fn on_input_written(&mut self, written: Option<usize>) {
        match written {
            Some(written) => {
                self.pending_input.drain(..written);
                self.consumed_input += written as u64;
            }
            // The read end is closed.
            None => self.drop_input(),
        }
        self.close_input_if_done();
        self.report_progress();
    }

    /// Closes the standard input, and drops the input that the command has not read.
    fn drop_input(&mut self) {
        self.stdin = None;
        self.consumed_input += std::mem::take(&mut self.pending_input).len() as u64;
    }

    fn close_input_if_done(&mut self) {
        if self.is_input_complete && self.pending_input.is_empty() {
            self.stdin = None;
        }
    }

    /// Takes the next step of a termination: SIGTERM at the timeout, then SIGKILL until no process is left.
    fn on_deadline(&mut self) {
        match self.termination {
            // The program exited in time. Its background processes may continue.
            Termination::NotRequested if self.exit.is_some() => self.deadline = None,
            Termination::NotRequested => {
                self.termination = Termination::Terminating;
                if let Some(supervisor) = self.supervisor {
                    process_tree::signal_descendants(supervisor, Signal::TERM);
                }
                self.deadline = Some(Instant::now() + TERM_GRACE_PERIOD);
            }
            Termination::Terminating => self.kill(KillReason::Timeout),
            Termination::Killing(reason) => self.kill(reason),
        }
    }

    /// Continues a suspended timeout: the time of the suspension does not count. The next attempt to kill the command
    /// is not delayed: its deadline may have been set during the suspension.
    fn continue_timeout(&mut self) {
        let Some(since) = self.suspended_since.take() else { return };
        if !matches!(self.termination, Termination::Killing(_)) {
            self.deadline = self.deadline.map(|deadline| deadline + since.elapsed());
        }
    }

    /// Kills all processes of the command. The deadline repeats it until none is left.
    fn kill(&mut self, reason: KillReason) {
        self.termination = Termination::Killing(reason);
        if let Some(supervisor) = self.supervisor {
            process_tree::kill_descendants(supervisor);
            // A command may have stopped its supervisor (`kill -STOP -1`), which then could not report the exit.
            process_tree::signal_process(supervisor, Signal::CONT);
        }
        let may_have_processes = self.supervisor.is_some() || self.unconfirmed.is_some();
        self.deadline = may_have_processes.then(|| Instant::now() + KILL_RETRY_INTERVAL);
    }

    fn report_progress(&mut self) {
        self.pid_deadline = None;
        self.agent.set_progress(self.progress());
    }

    fn progress(&self) -> CommandProgress {
        let exit = self.exit.as_ref().filter(|exit| exit.is_reported);
        CommandProgress {
            command_id: self.id.clone(),
            written: self.output.end_offset(),
            // `AgentState` counts the received input and sets this field.
            input_received: 0,
            input_taken: self.consumed_input,
            input_closed: self.stdin.is_none() || self.is_input_complete,
            output_window: self.window.unwrap_or(0),
            pid: self.pid,
            end: exit.map(|exit| CommandEnd {
                exit_code: exit.code,
                timed_out: self.timed_out(),
                failed: exit.start_error.clone(),
            }),
        }
    }

    fn timed_out(&self) -> bool {
        matches!(self.termination, Termination::Terminating | Termination::Killing(KillReason::Timeout))
    }

    /// Reports the exit status, once.
    fn report_exit(&mut self) {
        let timed_out = self.timed_out();
        for (stream, buffer) in
            [(Stream::Stdout, &mut self.stdout_buffer), (Stream::Stderr, &mut self.stderr_buffer)]
        {
            buffer.flush(|data| drop(self.output.write(stream, now(), data)));
        }
        let Some(exit) = self.exit.as_mut().filter(|exit| !exit.is_reported) else { return };
        exit.is_reported = true;
        let status = ExitStatus { exit_code: exit.code, timed_out };
        drop(self.output.write_exit(now(), status));
        self.report_progress();
    }
}

/// Returns the environment of the agent with the requested variables added.
fn environment(requested: HashMap<String, String>, user: Option<&User>) -> HashMap<String, String> {
    let mut environment: HashMap<String, String> = std::env::vars().collect();
    if let Some(user) = user {
        let of_user = [("HOME", &user.home), ("USER", &user.name), ("LOGNAME", &user.name)];
        environment.extend(of_user.map(|(name, value)| (name.to_owned(), value.clone())));
    }
    environment.extend(requested);
    environment
}

/// Waits until a time; forever if there is none.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Reads from a pipe; waits forever if it is closed.
async fn read(pipe: &Option<NonBlockingFd>, buffer: &mut Buffer) -> io::Result<usize> {
    match pipe {
        Some(pipe) => buffer.read(pipe).await,
        None => std::future::pending().await,
    }
}

/// Reads a report; waits forever if there are no more. It is written with a single call, so a read returns all of it.
async fn read_report(pipe: &mut Option<NonBlockingFd>) -> io::Result<Report> {
    let Some(pipe) = pipe else { return std::future::pending().await };
    let mut bytes = [0; REPORT_LEN];
    let read = pipe.read(&mut bytes).await?;
    let complete = (read == REPORT_LEN).then_some(bytes);
    complete.and_then(Report::decode).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
}

/// Writes to a pipe; waits forever if it is closed or there is nothing to write.
async fn write(pipe: &mut Option<NonBlockingFd>, data: &[u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) if !data.is_empty() => pipe.write(data).await,
        _ => std::future::pending().await,
    }
}
