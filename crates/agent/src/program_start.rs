//! Starting programs under a supervisor.
//!
//! A program may start others that outlive it and leave its process group and session. To find these orphans,
//! each command has its own supervisor, which is a child subreaper and so adopts them: all processes of a
//! command are descendants of its supervisor. The supervisor reports the exit of the command itself, and waits
//! until no descendants are left.
//!
//! The supervisor is forked from the agent without an exec, which saves time and memory. That is safe because the agent
//! has a single thread. But the fork copies page tables, and afterwards both processes copy the pages that they change,
//! which takes longer than a short command. So a supervisor without descendants becomes idle, and the agent gives it
//! the next program through a socket, unless that program runs as another user or is large.
//!
//! - An idle supervisor has no descriptors but its socket, and no children. It exits when no program arrives for
//!   [`IDLE_TIMEOUT`], or when the agent closes the socket or exits.
//! - Commands run as the same user, and can kill or stop an idle supervisor, or change its limits. Before the agent
//!   uses it, the agent sends SIGCONT, and compares the attributes that programs inherit (`inherited_attributes.rs`).
//!   If they have changed, the agent forks another.
//! - Nothing is started twice: the first report of a program is its PID, or that it could not be started. If the report
//!   pipe is closed before it, no process has a copy of its descriptor, so the program can be started under a new
//!   supervisor.
//! - Supervisors have a copy of the agent's memory, so they are not dumpable, as the agent.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::command_seccomp::CommandSeccompFilter;
use crate::idle_supervisors::IdleSupervisor;
use crate::privileges::Privileges;
use crate::program_image::ProgramParts;
use crate::script;
use crate::stream::NonBlockingFd;
use crate::supervisor::{self, Descriptors};
use crate::user::User;

/// Time after which an idle supervisor exits. It is short, so that supervisors are reused within bursts of commands
/// only: idle ones count towards the limits of the sandbox on processes and memory.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length in bytes of a program that is sent to an idle supervisor.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;

/// Program to start, with everything allocated before the fork.
pub(crate) struct Program {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
    /// Size of the terminal; `None` for pipes.
    terminal: Option<TerminalSize>,
    /// Text of a command that is too long for an argument (128 KiB), in a memfd that the shell reads at `SCRIPT_FD`
    /// (`script.rs`).
    script: Option<OwnedFd>,
    /// Lookup of the program: in `PATH`, or as a path.
    lookup: ProgramLookup,
    /// Filter of system calls for the program; `None` if it has none.
    pub(crate) seccomp_filter: Option<&'static CommandSeccompFilter>,
    /// User that runs the program; `None` for the user of the agent.
    pub(crate) user: Option<User>,
    /// Capabilities of the agent, for a program that runs as another user. Only root keeps them. Empty unless the root
    /// filesystem of the sandbox is kept (`privileges.rs`), and until [`Self::with_user`].
    pub(crate) privileges: Privileges,
}

/// Method of finding the file of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramLookup {
    /// The first argument is the path of the file.
    ExactPath,
    /// The first argument is looked up in `PATH` of the program's environment, unless it contains a slash.
    PathVariable,
}

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

impl TerminalSize {
    /// Creates a size from a request; invalid values are replaced by 80 columns and 24 rows.
    pub(crate) fn of(columns: i32, rows: i32) -> Self {
        let number = |value: i32, default: u16| {
            u16::try_from(value).ok().filter(|value| *value > 0).unwrap_or(default)
        };
        Self { columns: number(columns, 80), rows: number(rows, 24) }
    }

    /// Sets the size of a terminal, which notifies its programs.
    pub(crate) fn set(self, terminal: impl AsFd) -> io::Result<()> {
        let size = Winsize { ws_col: self.columns, ws_row: self.rows, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(terminal, size)?)
    }
}

impl Program {
    /// Creates a program with or without a terminal. `script` is the text of a command that is too long for an
    /// argument, which the shell in `args` reads at `SCRIPT_FD` (`script.rs`).
    pub(crate) fn new<'a>(
        args: &[&str],
        script: Option<&str>,
        directory: &str,
        environment: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
        terminal: Option<TerminalSize>,
    ) -> io::Result<Self> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidInput, "an argument, variable or path contains a NUL")
            })
        };
        let variable =
            |(name, value): (&OsStr, &OsStr)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat());
        Ok(Self {
            arguments: args.iter().map(|arg| text(arg.as_bytes())).collect::<io::Result<_>>()?,
            environment: environment.map(variable).collect::<io::Result<_>>()?,
            directory: text(directory.as_bytes())?,
            terminal,
            script: script.map(|script| script::create_memfd(script.as_bytes())).transpose()?,
            lookup: ProgramLookup::ExactPath,
            seccomp_filter: CommandSeccompFilter::of_commands()?,
            user: None,
            privileges: Privileges::default(),
        })
    }

    /// Sets the method of finding the file of the program.
    pub(crate) fn with_lookup(self, lookup: ProgramLookup) -> Self {
        Self { lookup, ..self }
    }

    /// Sets the user that runs the program, `None` for the user of the agent, and the capabilities of the agent, which
    /// a program that runs as root keeps.
    pub(crate) fn with_user(self, user: Option<User>, privileges: Privileges) -> Self {
        Self { user, privileges, ..self }
    }

    /// Encodes the program for its supervisor.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let parts = ProgramParts {
            directory: &self.directory,
            arguments: &self.arguments,
            environment: &self.environment,
            has_terminal: self.terminal.is_some(),
            needs_path_lookup: self.lookup == ProgramLookup::PathVariable,
        };
        parts.encode().ok_or_else(|| io::Error::from_raw_os_error(libc::E2BIG))
    }
}

/// Running program with the agent's ends of its pipes.
pub(crate) struct StartedProgram {
    /// Process that started the program, and its report pipe.
    pub(crate) supervisor: ProgramSupervisor,
    pub(crate) stdin: NonBlockingFd,
    pub(crate) stdout: NonBlockingFd,
    /// Standard error; `None` for a terminal.
    pub(crate) stderr: Option<NonBlockingFd>,
    /// Program that was sent to an idle supervisor; `None` if it has a new one.
    pub(crate) unconfirmed: Option<UnconfirmedProgram>,
}

/// Supervisor of a program.
pub(crate) struct ProgramSupervisor {
    pub(crate) pid: Pid,
    /// Socket for its next program; `None` if it exits instead.
    pub(crate) socket: Option<OwnedFd>,
    /// Pipe on which a [`Report`] arrives with the PID, one when the program exited or could not be started, and one
    /// when the supervisor is idle.
    pub(crate) report_pipe: NonBlockingFd,
}

/// Program that was sent to an idle supervisor, which can be killed before it receives the program. The first report
/// confirms it; until then it is kept with its streams, which may already have input.
pub(crate) struct UnconfirmedProgram {
    program: Program,
    /// Its ends of standard input, output and error.
    streams: [OwnedFd; 3],
}

impl UnconfirmedProgram {
    /// Starts the program under a new supervisor. The report pipe of the previous one must be closed, without any
    /// report.
    pub(crate) fn start_under_new_supervisor(self) -> io::Result<ProgramSupervisor> {
        let report_pipe = ReportPipe::create()?;
        let encoded = self.program.encode()?;
        fork_supervisor(&self.program, &encoded, &self.streams, report_pipe)
    }
}

/// Report of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// PID of the process that executes the program. It is the first report, unless no process could be started.
    Forked(i32),
    /// Exit code; 128 + n if signal n killed the program.
    Exited(i32),
    /// Error number of `chdir`.
    ChdirFailed(i32),
    /// Error number of `execve`, or of another step before it.
    ExecFailed(i32),
    /// No processes of the command are left, and the supervisor waits for the next program. It is always the last
    /// report.
    Idle,
}

/// Length of an encoded report.
pub(crate) const REPORT_LEN: usize = 8;

impl Report {
    pub(crate) fn encode(self) -> [u8; REPORT_LEN] {
        let (kind, value) = match self {
            Self::Exited(code) => (1, code),
            Self::ChdirFailed(errno) => (2, errno),
            Self::ExecFailed(errno) => (3, errno),
            Self::Forked(pid) => (4, pid),
            Self::Idle => (5, 0),
        };
        let mut bytes = [kind; REPORT_LEN];
        bytes[4..].copy_from_slice(&i32::to_le_bytes(value));
        bytes
    }

    pub(crate) fn decode(bytes: [u8; REPORT_LEN]) -> Option<Self> {
        let value = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        match bytes[0] {
            1 => Some(Self::Exited(value)),
            2 => Some(Self::ChdirFailed(value)),
            3 => Some(Self::ExecFailed(value)),
            4 => Some(Self::Forked(value)),
            5 => Some(Self::Idle),
            _ => None,
        }
    }
}

/// Starts a program under its own supervisor: an idle one from `take_idle`, or else a new one.
pub(crate) fn start(
    program: Program,
    take_idle: impl FnMut() -> Option<IdleSupervisor>,
) -> io::Result<StartedProgram> {
    let streams = match program.terminal {
        Some(size) => Streams::of_terminal(size, program.user.as_ref())?,
        None => Streams::of_pipes()?,
    };
    start_with(program, streams, take_idle)
}

fn start_with(
    program: Program,
    streams: Streams,
    mut take_idle: impl FnMut() -> Option<IdleSupervisor>,
) -> io::Result<StartedProgram> {
    let Streams { child, agent: (stdin, stdout, stderr) } = streams;
    // Registered before the start: if a pipe could not be registered with epoll afterwards, the program would run
    // without a task that waits for it.
    let (stdin, stdout) = (NonBlockingFd::writer(stdin)?, NonBlockingFd::reader(stdout)?);
    let stderr = stderr.map(NonBlockingFd::reader).transpose()?;
    let report_pipe = ReportPipe::create()?;
    let encoded = program.encode()?;
    if is_for_reuse(&program) && encoded.len() <= MESSAGE_MAX {
        let streams = child.each_ref().map(AsFd::as_fd);
        let script = program.script.as_ref().map(AsFd::as_fd);
        let descriptors: Vec<BorrowedFd<'_>> =
            streams.into_iter().chain([report_pipe.supervisor.as_fd()]).chain(script).collect();
        while let Some(idle) = take_idle() {
            // A supervisor that was killed, or is about to exit, is dropped.
            if idle.send(&encoded, &descriptors).is_ok() {
                let IdleSupervisor { pid, socket } = idle;
                let supervisor =
                    ProgramSupervisor { pid, socket: Some(socket), report_pipe: report_pipe.agent };
                let unconfirmed = Some(UnconfirmedProgram { program, streams: child });
                return Ok(StartedProgram { supervisor, stdin, stdout, stderr, unconfirmed });
            }
        }
    }
    let supervisor = fork_supervisor(&program, &encoded, &child, report_pipe)?;
    Ok(StartedProgram { supervisor, stdin, stdout, stderr, unconfirmed: None })
}

/// Returns true if the supervisor of a program can run other programs before and after it. A supervisor for another
/// user would need the privileges of the agent again.
fn is_for_reuse(program: &Program) -> bool {
    program.user.is_none()
}

/// Both ends of the pipe on which a supervisor reports.
struct ReportPipe {
    agent: NonBlockingFd,
    supervisor: OwnedFd,
}

impl ReportPipe {
    fn create() -> io::Result<Self> {
        let (agent, supervisor) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { agent: NonBlockingFd::reader(agent)?, supervisor })
    }
}

/// Starts a program under a new supervisor.
fn fork_supervisor(
    program: &Program,
    encoded: &[u8],
    streams: &[OwnedFd; 3],
    report_pipe: ReportPipe,
) -> io::Result<ProgramSupervisor> {
    let sockets = is_for_reuse(program).then(supervisor_sockets).transpose()?;
    let descriptors = Descriptors {
        streams: streams.each_ref().map(AsRawFd::as_raw_fd),
        report_pipe: report_pipe.supervisor.as_raw_fd(),
        script: program.script.as_ref().map(AsRawFd::as_raw_fd),
        socket: sockets.as_ref().map(|(_, supervisor)| supervisor.as_raw_fd()),
    };
    // SAFETY: this process has a single thread, so the child is a complete copy and may call any function. It
    // never returns from `run`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the process is the forked child, and the descriptors are open.
        0 => unsafe { supervisor::run(program, encoded, &descriptors) },
        pid => {
            let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork returned an invalid PID"))?;
            let socket = sockets.map(|(agent, _)| agent);
            Ok(ProgramSupervisor { pid, socket, report_pipe: report_pipe.agent })
        }
    }
}

/// Creates a socket with the ends of the agent and of a supervisor.
fn supervisor_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let (agent, supervisor) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&supervisor, Timeout::Recv, Some(IDLE_TIMEOUT))?;
    Ok((agent, supervisor))
}

/// Both ends of the standard streams of a program.
struct Streams {
    /// Standard input, output and error of the program.
    child: [OwnedFd; 3],
    /// Other ends of standard input, output and error; no standard error for a terminal.
    agent: (OwnedFd, OwnedFd, Option<OwnedFd>),
}

impl Streams {
    fn of_pipes() -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((stdin, agent_stdin), (agent_stdout, stdout), (agent_stderr, stderr)) =
            (pipe()?, pipe()?, pipe()?);
        Ok(Self { child: [stdin, stdout, stderr], agent: (agent_stdin, agent_stdout, Some(agent_stderr)) })
    }

    fn of_terminal(size: TerminalSize, user: Option<&User>) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags)?;
        grantpt(&controller)?;
        // Changed before the terminal is unlocked: programs of the agent's user could open it, and type what the other
        // user executes.
        if let Some(user) = user {
            user.own_alone(&ptsname(&controller, Vec::new())?)?;
        }
        unlockpt(&controller)?;
        // Opened through the controller and not by its path, which only the user may open.
        let terminal = ioctl_tiocgptpeer(&controller, flags)?;
        size.set(&controller)?;
        let child = [terminal.try_clone()?, terminal.try_clone()?, terminal];
        Ok(Self { child, agent: (controller.try_clone()?, controller, None) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_started_if_a_stream_cannot_be_registered() {
        let (no_script, no_environment, no_terminal) = (None, std::iter::empty(), None);
        let program =
            Program::new(&["/bin/sleep", "60"], no_script, "/", no_environment, no_terminal).unwrap();
        let (stderr, child_stderr) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut streams = Streams::of_pipes().unwrap();
        streams.child[2] = child_stderr;
        // epoll does not support regular files.
        streams.agent.1 = tempfile::tempfile().unwrap().into();
        assert!(start_with(program, streams, || None).is_err());
        // End of file: no process has the other end.
        let mut byte = [0_u8];
        assert_eq!(rustix::io::read(&stderr, &mut byte[..]), Ok(0));
    }
}
