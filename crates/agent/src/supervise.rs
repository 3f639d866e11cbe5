//! Starting a program under a supervisor.
//!
//! A program may start others that outlive it, leave its group and its session, and are nobody's children then.
//! To find them all the same, each command runs below a process of its own that takes in what the command leaves
//! behind (a subreaper): whatever comes of a command is below its supervisor. The supervisor says how the command
//! itself ended, waits until nothing is left, and ends.
//!
//! It is forked from the agent without an exec, which is quick and small; the agent has one thread.

use std::ffi::{CString, OsStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

/// A program to be started, all of it made before the fork.
pub(crate) struct Program {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
}

impl Program {
    /// A command line for the shell.
    pub(crate) fn shell<'a>(
        command: &str,
        directory: &str,
        environment: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
    ) -> io::Result<Self> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL in a text"))
        };
        let variable =
            |(name, value): (&OsStr, &OsStr)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat());
        Ok(Self {
            arguments: vec![text(b"/bin/sh")?, text(b"-c")?, text(command.as_bytes())?],
            environment: environment.map(variable).collect::<io::Result<_>>()?,
            directory: text(directory.as_bytes())?,
        })
    }
}

/// A running program, seen from the agent.
pub(crate) struct Started {
    pub(crate) supervisor: Pid,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// Gives one [`Report`] when the program ended or could not be started.
    pub(crate) report: OwnedFd,
}

/// What a supervisor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// With this exit code, 128 + n if signal n ended it.
    Ended(i32),
    /// The directory cannot be entered.
    NoDirectory(i32),
    /// The program cannot be run.
    NoProgram(i32),
}

/// Bytes of a report.
pub(crate) const REPORT: usize = 8;

impl Report {
    fn encode(self) -> [u8; REPORT] {
        let (kind, value) = match self {
            Self::Ended(code) => (1, code),
            Self::NoDirectory(errno) => (2, errno),
            Self::NoProgram(errno) => (3, errno),
        };
        let mut bytes = [kind; REPORT];
        bytes[4..].copy_from_slice(&i32::to_le_bytes(value));
        bytes
    }

    pub(crate) fn decode(bytes: [u8; REPORT]) -> Option<Self> {
        let value = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        match bytes[0] {
            1 => Some(Self::Ended(value)),
            2 => Some(Self::NoDirectory(value)),
            3 => Some(Self::NoProgram(value)),
            _ => None,
        }
    }
}

/// Starts a program under a supervisor of its own.
pub(crate) fn start(program: &Program) -> io::Result<Started> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC);
    let (stdin, stdin_ours) = pipe()?;
    let (stdout_ours, stdout) = pipe()?;
    let (stderr_ours, stderr) = pipe()?;
    let (report_ours, report) = pipe()?;
    let pointers = Pointers::of(program);
    let ends = [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd(), report.as_raw_fd()];
    // SAFETY: this process has one thread, so that the child is a whole copy in which everything works. It never
    // returns from `supervise`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => supervise(program, &pointers, ends),
        pid => {
            let supervisor =
                Pid::from_raw(pid).ok_or_else(|| io::Error::other("a fork without a process"))?;
            let (stdin, stdout, stderr, report) = (stdin_ours, stdout_ours, stderr_ours, report_ours);
            Ok(Started { supervisor, stdin, stdout, stderr, report })
        }
    }
}

/// What `execve` takes.
struct Pointers {
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
}

impl Pointers {
    fn of(program: &Program) -> Self {
        let pointers =
            |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Self { arguments: pointers(&program.arguments), environment: pointers(&program.environment) }
    }
}

/// Where the report goes in the supervisor.
const REPORT_FD: RawFd = 3;

fn supervise(program: &Program, pointers: &Pointers, ends: [RawFd; 4]) -> ! {
    // SAFETY: plain system calls with descriptors of this process; what `program` and `pointers` hold lives
    // until the process ends.
    unsafe {
        // Moved out of the way first: one of them may have a number that another is to get.
        let moved = ends.map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 16));
        for (target, fd) in moved.into_iter().enumerate() {
            libc::dup2(fd, target as c_int);
        }
        libc::close_range(REPORT_FD as u32 + 1, u32::MAX, 0);
        libc::fcntl(REPORT_FD, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        reset_signals();
        match libc::fork() {
            -1 => {
                report(Report::NoProgram(errno()));
                libc::_exit(1)
            }
            0 => become_program(program, pointers),
            main => wait_for_all(main),
        }
    }
}

/// What the agent does with signals is not for others.
unsafe fn reset_signals() {
    // SAFETY: the calls set what the kernel does with signals of this process, with a mask made just here.
    unsafe {
        for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

unsafe fn become_program(program: &Program, pointers: &Pointers) -> ! {
    // SAFETY: the texts end with NUL and the lists with a null pointer.
    unsafe {
        libc::setsid();
        if libc::chdir(program.directory.as_ptr()) != 0 {
            report(Report::NoDirectory(errno()));
            libc::_exit(126);
        }
        libc::execve(pointers.arguments[0], pointers.arguments.as_ptr(), pointers.environment.as_ptr());
        report(Report::NoProgram(errno()));
        libc::_exit(127)
    }
}

/// Reaps until nothing is left below; says how `main` ended.
unsafe fn wait_for_all(main: libc::pid_t) -> ! {
    // SAFETY: the descriptors are this process's own copies, which would keep the command's pipes open.
    unsafe {
        for fd in 0..3 {
            libc::close(fd);
        }
        loop {
            let mut status = 0;
            let ended = libc::waitpid(-1, &raw mut status, libc::__WALL);
            if ended == main {
                report(Report::Ended(exit_code(status)));
                libc::close(REPORT_FD);
            } else if ended < 0 && errno() == libc::ECHILD {
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
    // SAFETY: writes bytes that are there to a descriptor of this process. A pipe takes so few at once.
    unsafe { libc::write(REPORT_FD, bytes.as_ptr().cast(), bytes.len()) };
}
