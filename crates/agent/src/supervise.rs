//! Starting programs under a supervisor.
//!
//! A program may start others that outlive it and leave its process group and session. To find these orphans,
//! each command has its own supervisor, which is a child subreaper and so adopts them: all processes of a
//! command are descendants of its supervisor. The supervisor reports the exit of the command itself, waits
//! until no descendants are left, and exits.
//!
//! It is forked from the agent without an exec, which saves time and memory. That is safe because the agent
//! has a single thread.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use workspace_agent_protocol::scheduling::restore_slice;

use crate::command_seccomp::CommandSeccompFilter;
use crate::path_search::search_and_execute;
use crate::privileges::Privileges;
use crate::script::{self, SCRIPT_FD};
use crate::stream::NonBlockingFd;
use crate::user::User;

/// Program to start, with everything allocated before the fork.
pub(crate) struct Program {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
    terminal: Option<TerminalSize>,
    script: Option<OwnedFd>,
    search: ProgramSearch,
    seccomp_filter: Option<&'static CommandSeccompFilter>,
    /// User that runs the program; `None` for the user of the agent.
    user: Option<User>,
    privileges: Privileges,
}

/// Method of finding the file of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramSearch {
    /// The first argument is the path of the file.
    Path,
    /// The first argument is searched in `PATH` of the program's environment, unless it contains a slash.
    SearchPath,
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
    /// Creates a program with or without a terminal, and with the script that its arguments read at
    /// [`SCRIPT_FD`].
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
            search: ProgramSearch::Path,
            seccomp_filter: CommandSeccompFilter::of_commands()?,
            user: None,
            privileges: Privileges::default(),
        })
    }

    /// Sets the method of finding the file of the program.
    pub(crate) fn with_search(self, search: ProgramSearch) -> Self {
        Self { search, ..self }
    }

    /// Sets the user that runs the program, `None` for the user of the agent, and the privileges of the agent,
    /// which only root keeps.
    pub(crate) fn with_user(self, user: Option<User>, privileges: Privileges) -> Self {
        Self { user, privileges, ..self }
    }

    /// Becomes the user of the program.
    fn become_user(&self) -> io::Result<()> {
        match &self.user {
            Some(user) => user.become_user(),
            None => self.privileges.drop_all(),
        }
    }
}

/// Running program with the agent's ends of its pipes.
pub(crate) struct StartedProgram {
    pub(crate) supervisor: Pid,
    pub(crate) stdin: NonBlockingFd,
    pub(crate) stdout: NonBlockingFd,
    /// Standard error; `None` for a terminal.
    pub(crate) stderr: Option<NonBlockingFd>,
    /// Pipe on which a [`Report`] arrives with the PID, and one when the program exited or could not be started.
    pub(crate) report: NonBlockingFd,
}

/// Report of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// PID of the process that becomes the program. It is always the first report.
    Forked(i32),
    /// Exit code; 128 + n if signal n killed the program.
    Exited(i32),
    /// Error number of `chdir`.
    ChdirFailed(i32),
    /// Error number of `execve`, or of another step before it.
    ExecFailed(i32),
}

/// Length of an encoded report.
pub(crate) const REPORT_LEN: usize = 8;

impl Report {
    fn encode(self) -> [u8; REPORT_LEN] {
        let (kind, value) = match self {
            Self::Exited(code) => (1, code),
            Self::ChdirFailed(errno) => (2, errno),
            Self::ExecFailed(errno) => (3, errno),
            Self::Forked(pid) => (4, pid),
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
            _ => None,
        }
    }
}

/// Starts a program under its own supervisor.
pub(crate) fn start(program: &Program) -> io::Result<StartedProgram> {
    let streams = match program.terminal {
        Some(size) => Streams::of_terminal(size)?,
        None => Streams::of_pipes()?,
    };
    start_with(program, streams)
}

fn start_with(program: &Program, streams: Streams) -> io::Result<StartedProgram> {
    let Streams { child, agent: (stdin, stdout, stderr) } = streams;
    let (report, child_report) = pipe_with(PipeFlags::CLOEXEC)?;
    // Before the fork: if a pipe could not be registered with epoll afterwards, nobody would wait for the program.
    let (stdin, stdout) = (NonBlockingFd::writer(stdin)?, NonBlockingFd::reader(stdout)?);
    let (stderr, report) = (stderr.map(NonBlockingFd::reader).transpose()?, NonBlockingFd::reader(report)?);
    let pointers = ExecPointers::of(program);
    let [in_, out, err] = child.each_ref().map(AsRawFd::as_raw_fd);
    let fds = [in_, out, err, child_report.as_raw_fd()];
    let script = program.script.as_ref().map(AsRawFd::as_raw_fd);
    // SAFETY: this process has a single thread, so the child is a complete copy and may call any function. It
    // never returns from `supervise`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => supervise(program, &pointers, fds, script),
        pid => {
            let supervisor =
                Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork returned an invalid PID"))?;
            Ok(StartedProgram { supervisor, stdin, stdout, stderr, report })
        }
    }
}

/// Both ends of the standard streams of a program.
struct Streams {
    /// Standard input, output and error of the program.
    child: [OwnedFd; 3],
    /// The other ends; no standard error for a terminal.
    agent: (OwnedFd, OwnedFd, Option<OwnedFd>),
}

impl Streams {
    fn of_pipes() -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((stdin, agent_stdin), (agent_stdout, stdout), (agent_stderr, stderr)) =
            (pipe()?, pipe()?, pipe()?);
        Ok(Self { child: [stdin, stdout, stderr], agent: (agent_stdin, agent_stdout, Some(agent_stderr)) })
    }

    fn of_terminal(size: TerminalSize) -> io::Result<Self> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(name, flags, Mode::empty())?;
        size.set(&controller)?;
        let child = [terminal.try_clone()?, terminal.try_clone()?, terminal];
        Ok(Self { child, agent: (controller.try_clone()?, controller, None) })
    }
}

/// Null-terminated arrays for `execve`.
struct ExecPointers {
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
}

impl ExecPointers {
    fn of(program: &Program) -> Self {
        let pointers =
            |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Self { arguments: pointers(&program.arguments), environment: pointers(&program.environment) }
    }
}

/// File descriptor of the report in the supervisor. The script, if there is one, has the next number.
const REPORT_FD: RawFd = SCRIPT_FD - 1;

fn supervise(program: &Program, pointers: &ExecPointers, fds: [RawFd; 4], script: Option<RawFd>) -> ! {
    // SAFETY: plain system calls with descriptors of this process. The memory behind `program` and `pointers`
    // stays valid until the process exits.
    unsafe {
        // Moved to higher numbers first: a descriptor may have a number that is the target of another.
        let moved = fds.map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 16));
        let script = script.map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 16));
        for (target, fd) in moved.into_iter().chain(script).enumerate() {
            libc::dup2(fd, target as c_int);
        }
        let first_other = if script.is_some() { SCRIPT_FD } else { REPORT_FD } + 1;
        libc::close_range(first_other as u32, u32::MAX, 0);
        libc::fcntl(REPORT_FD, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        reset_signals();
        match start_program(&mut ProgramStart { program, pointers }) {
            -1 => {
                report(Report::ExecFailed(errno()));
                libc::_exit(1)
            }
            program_pid => {
                // A supervisor only waits.
                drop(program.privileges.drop_all());
                wait_for_all(program_pid)
            }
        }
    }
}

/// Arguments of [`become_program`].
struct ProgramStart<'a> {
    program: &'a Program,
    pointers: &'a ExecPointers,
}

/// Size of the stack of a process before it becomes the program.
const STACK_SIZE: usize = 64 << 10;

/// Starts a process that becomes the program. Like `vfork`, it uses the memory of the supervisor, which is suspended
/// until then: copying page tables for those microseconds took a fifth of the time of a short command. Returns its
/// PID, or -1.
unsafe fn start_program(start: &mut ProgramStart<'_>) -> libc::pid_t {
    extern "C" fn run(start: *mut libc::c_void) -> c_int {
        // SAFETY: the supervisor passes a pointer to a value that outlives this process's use of it.
        unsafe {
            let ProgramStart { program, pointers } = &*start.cast::<ProgramStart<'_>>();
            become_program(program, pointers)
        }
    }
    // SAFETY: the stack is new memory of this size, and grows downwards from its end. The supervisor continues only
    // when the other process has executed the program or exited, so they never use the memory at the same time.
    unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let stack = libc::mmap(std::ptr::null_mut(), STACK_SIZE, protection, flags, -1, 0);
        if stack == libc::MAP_FAILED {
            return -1;
        }
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(run, stack.byte_add(STACK_SIZE), flags, (&raw mut *start).cast())
    }
}

/// Resets signal handlers and the signal mask, which are inherited from the agent.
unsafe fn reset_signals() {
    // SAFETY: the calls change only the signal handling of this process, with a mask initialised here.
    unsafe {
        for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

unsafe fn become_program(program: &Program, pointers: &ExecPointers) -> ! {
    // SAFETY: the strings end with NUL and the arrays with a null pointer.
    unsafe {
        // By this process and not by the supervisor, so that it comes before the other reports.
        report(Report::Forked(libc::getpid()));
        if program.terminal.is_none() {
            // No session of its own: without cgroups, Linux divides CPU time between sessions
            // (`sched_autogroup_enabled`), so all commands of a sandbox stay in the session of its agent. A new
            // session would also have to wait for a scheduler tick before it runs.
            libc::setpgid(0, 0);
        } else {
            libc::setsid();
            // Makes it the controlling terminal, for example for Ctrl-C.
            libc::ioctl(0, libc::TIOCSCTTY, 0);
        }
        if let Err(error) = program.become_user() {
            report(Report::ExecFailed(error.raw_os_error().unwrap_or(libc::EPERM)));
            libc::_exit(127);
        }
        if libc::chdir(program.directory.as_ptr()) != 0 {
            report(Report::ChdirFailed(errno()));
            libc::_exit(126);
        }
        if let Some(Err(error)) = program.seccomp_filter.map(CommandSeccompFilter::apply) {
            report(Report::ExecFailed(error.raw_os_error().unwrap_or(libc::EINVAL)));
            libc::_exit(127);
        }
        // The process inherited the short slice of the agent.
        drop(restore_slice());
        let errno = match (program.search, program.arguments.first()) {
            (ProgramSearch::SearchPath, Some(name)) => {
                search_and_execute(name.as_bytes(), &program.environment, |file| execute(file, pointers))
            }
            (ProgramSearch::Path, Some(file)) => execute(file, pointers),
            (_, None) => libc::EINVAL,
        };
        report(Report::ExecFailed(errno));
        libc::_exit(127)
    }
}

/// Executes a file. Returns the error number, since it returns only on failure.
unsafe fn execute(file: &CStr, pointers: &ExecPointers) -> i32 {
    // SAFETY: the caller guarantees that the strings behind the pointers are valid.
    unsafe { libc::execve(file.as_ptr(), pointers.arguments.as_ptr(), pointers.environment.as_ptr()) };
    errno()
}

/// Reaps descendants until none is left, and reports the exit of the program.
unsafe fn wait_for_all(program_pid: libc::pid_t) -> ! {
    // SAFETY: the descriptors belong to this process; open copies would keep the command's pipes open.
    unsafe {
        for fd in [0, 1, 2, SCRIPT_FD] {
            libc::close(fd);
        }
        loop {
            let mut status = 0;
            let pid = libc::waitpid(-1, &raw mut status, libc::__WALL);
            if pid == program_pid {
                report(Report::Exited(exit_code(status)));
                libc::close(REPORT_FD);
            } else if pid < 0 && errno() == libc::ECHILD {
                libc::_exit(0);
            }
        }
    }
}

pub(crate) fn exit_code(status: c_int) -> i32 {
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

fn report(report: Report) {
    let bytes = report.encode();
    // SAFETY: the buffer is valid for its length. A write to a pipe of so few bytes is atomic.
    unsafe { libc::write(REPORT_FD, bytes.as_ptr().cast(), bytes.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_started_if_a_stream_cannot_be_registered() {
        let program = Program::new(&["/bin/sleep", "60"], None, "/", std::iter::empty(), None).unwrap();
        let (stderr, child_stderr) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut streams = Streams::of_pipes().unwrap();
        streams.child[2] = child_stderr;
        // epoll does not support regular files.
        streams.agent.1 = tempfile::tempfile().unwrap().into();
        assert!(start_with(&program, streams).is_err());
        // End of file: no process has the other end.
        let mut byte = [0_u8];
        assert_eq!(rustix::io::read(&stderr, &mut byte[..]), Ok(0));
    }
}
