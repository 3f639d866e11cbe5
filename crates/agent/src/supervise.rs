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
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use workspace_agent_protocol::scheduling::restore_slice;

use crate::protect::Protection;
use crate::script::{self, SCRIPT_FD};

/// A program to be started, all of it made before the fork.
pub(crate) struct Program {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
    terminal: Option<Size>,
    script: Option<OwnedFd>,
    protection: Option<Protection>,
}

/// Of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

impl Size {
    pub(crate) fn of(columns: i32, rows: i32) -> Self {
        let number =
            |value: i32, usual: u16| u16::try_from(value).ok().filter(|value| *value > 0).unwrap_or(usual);
        Self { columns: number(columns, 80), rows: number(rows, 24) }
    }

    /// Tells the terminal, and with it the programs in it.
    pub(crate) fn set(self, terminal: impl AsFd) -> io::Result<()> {
        let size = Winsize { ws_col: self.columns, ws_row: self.rows, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(terminal, size)?)
    }
}

impl Program {
    /// These words, with a terminal or without, and the script that they read at [`SCRIPT_FD`].
    pub(crate) fn new<'a>(
        words: &[&str],
        script: Option<&str>,
        directory: &str,
        environment: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
        terminal: Option<Size>,
    ) -> io::Result<Self> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL in a text"))
        };
        let variable =
            |(name, value): (&OsStr, &OsStr)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat());
        Ok(Self {
            arguments: words.iter().map(|word| text(word.as_bytes())).collect::<io::Result<_>>()?,
            environment: environment.map(variable).collect::<io::Result<_>>()?,
            directory: text(directory.as_bytes())?,
            terminal,
            script: script.map(script::file).transpose()?,
            protection: Protection::of(std::process::id())?,
        })
    }
}

/// A running program, seen from the agent.
pub(crate) struct Started {
    pub(crate) supervisor: Pid,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    /// None of its own where there is a terminal.
    pub(crate) stderr: Option<OwnedFd>,
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
    let Streams { theirs, ours: (stdin, stdout, stderr) } = match program.terminal {
        Some(size) => Streams::of_terminal(size)?,
        None => Streams::of_pipes()?,
    };
    let (report, report_theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    let pointers = Pointers::of(program);
    let [in_, out, err] = theirs.each_ref().map(AsRawFd::as_raw_fd);
    let ends = [in_, out, err, report_theirs.as_raw_fd()];
    let script = program.script.as_ref().map(AsRawFd::as_raw_fd);
    // SAFETY: this process has one thread, so that the child is a whole copy in which everything works. It never
    // returns from `supervise`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => supervise(program, &pointers, ends, script),
        pid => {
            let supervisor =
                Pid::from_raw(pid).ok_or_else(|| io::Error::other("a fork without a process"))?;
            Ok(Started { supervisor, stdin, stdout, stderr, report })
        }
    }
}

/// The ends of what a program reads and writes.
struct Streams {
    theirs: [OwnedFd; 3],
    ours: (OwnedFd, OwnedFd, Option<OwnedFd>),
}

impl Streams {
    fn of_pipes() -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((stdin, stdin_ours), (stdout_ours, stdout), (stderr_ours, stderr)) = (pipe()?, pipe()?, pipe()?);
        Ok(Self { theirs: [stdin, stdout, stderr], ours: (stdin_ours, stdout_ours, Some(stderr_ours)) })
    }

    fn of_terminal(size: Size) -> io::Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(name, flags, Mode::empty())?;
        size.set(&ours)?;
        let theirs = [theirs.try_clone()?, theirs.try_clone()?, theirs];
        Ok(Self { theirs, ours: (ours.try_clone()?, ours, None) })
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

/// Where the report goes in the supervisor. The script, if there is one, comes behind it.
const REPORT_FD: RawFd = SCRIPT_FD - 1;

fn supervise(program: &Program, pointers: &Pointers, ends: [RawFd; 4], script: Option<RawFd>) -> ! {
    // SAFETY: plain system calls with descriptors of this process; what `program` and `pointers` hold lives
    // until the process ends.
    unsafe {
        // Moved out of the way first: one of them may have a number that another is to get.
        let moved = ends.map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 16));
        let script = script.map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 16));
        for (target, fd) in moved.into_iter().chain(script).enumerate() {
            libc::dup2(fd, target as c_int);
        }
        let first_other = if script.is_some() { SCRIPT_FD } else { REPORT_FD } + 1;
        libc::close_range(first_other as u32, u32::MAX, 0);
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
        if program.terminal.is_none() {
            // No session of its own: where there are no cgroups, Linux divides the processors between sessions, and so between
            // sandboxes. It would also wait for a processor anew.
            libc::setpgid(0, 0);
        } else {
            libc::setsid();
            // Ctrl-C and the like go to whoever is in front of it.
            libc::ioctl(0, libc::TIOCSCTTY, 0);
        }
        if libc::chdir(program.directory.as_ptr()) != 0 {
            report(Report::NoDirectory(errno()));
            libc::_exit(126);
        }
        if let Some(Err(error)) = program.protection.as_ref().map(Protection::apply) {
            report(Report::NoProgram(error.raw_os_error().unwrap_or(libc::EINVAL)));
            libc::_exit(127);
        }
        // It was the agent's until now, and came this far with its short slice.
        drop(restore_slice());
        libc::execve(pointers.arguments[0], pointers.arguments.as_ptr(), pointers.environment.as_ptr());
        report(Report::NoProgram(errno()));
        libc::_exit(127)
    }
}

/// Reaps until nothing is left below; says how `main` ended.
unsafe fn wait_for_all(main: libc::pid_t) -> ! {
    // SAFETY: the descriptors are this process's own copies, which would keep the command's pipes open.
    unsafe {
        for fd in [0, 1, 2, SCRIPT_FD] {
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
