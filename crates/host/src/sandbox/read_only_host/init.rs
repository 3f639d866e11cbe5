//! Init process of a program over the read-only host: it builds the root, drops capabilities, starts the program and
//! waits for it.

use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Resource, pidfd_open};

use super::root::Root;
use super::{Event, ExitStatus, ReadOnlyHostProgram, Request, User, receive, send};
use crate::error::{Context as _, HostError, Result};
use crate::namespace::clone::Parent;
use crate::namespace::credentials;
use crate::resources::cgroup::Cgroups;
use crate::resources::limits::{self, SandboxUser};
use crate::sandbox::sandbox_init::{start_loopback, unshare_cgroup};
use crate::sandbox::seccomp::Filter;

/// Parameters of the init process.
pub(super) struct Init<'a> {
    /// Program to run, and its view of the host's files.
    pub(super) host: &'a ReadOnlyHostProgram,
    pub(super) user: User,
    pub(super) cgroups: &'a Cgroups,
    /// `RLIMIT_NPROC`; `None` if a cgroup limits the number of processes.
    pub(super) nproc_rlimit: Option<u32>,
    /// `RLIMIT_DATA` of each process, in bytes; `None` if a cgroup limits the memory of the sandbox.
    pub(super) data_rlimit: Option<u64>,
    /// Filter of system calls.
    pub(super) filter: Filter,
    /// Control socket, then standard input, output and error of the program.
    pub(super) descriptors: [OwnedFd; 4],
}

/// Exit status of a program that cannot be executed, as in shells.
const EXIT_CANNOT_EXECUTE: i32 = 126;
/// Exit status of a program that is not found, as in shells.
const EXIT_NOT_FOUND: i32 = 127;
/// Exit status of a program that was killed by a signal, minus the number of the signal.
const EXIT_SIGNAL_BASE: i32 = 128;

impl Init<'_> {
    /// Sets up the root and supervises the program; returns only on failure.
    pub(super) fn run(&self, parent: &mut Parent) -> Result<Infallible> {
        // The parent maps the ids.
        parent.wait()?;
        if self.user.is_superuser {
            credentials::become_root_inside()?;
        }
        self.cgroups.enter()?;
        unshare_cgroup()?;
        let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        // SAFETY: the call takes nothing.
        unsafe { libc::setsid() };
        let User { uid, gid, is_superuser } = self.user;
        Root {
            mounts: &self.host.mounts,
            user: uid,
            group: gid,
            // The sizes of the tmpfs mounts in the root depend on it.
            memory_limit: self.host.limits.memory_bytes,
            has_nameserver: self.host.egress.is_some(),
        }
        .build()?;
        start_loopback().context("bring up the loopback interface")?;
        parent.notify()?;
        // The parent starts the network daemon of a program with egress.
        parent.wait()?;
        self.set_rlimits().context("set limits")?;
        if is_superuser {
            credentials::keep_root_program_capabilities()?;
        } else {
            credentials::become_user(uid, gid)?;
        }
        // Processes inside must not trace the init process or read its memory.
        // SAFETY: the call takes integers.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
        rustix::process::umask(umask);
        parent.notify()?;
        self.close_inherited();
        self.supervise()
    }

    fn set_rlimits(&self) -> io::Result<()> {
        limits::limit(Resource::Core, 0)?;
        // The program runs as the user who started it. For an ordinary user (`Starter`), half of the limit is left to
        // the process that started the program, so that it can always send descriptors to its helpers. Root always can.
        let user = if self.user.is_superuser { SandboxUser::OtherOrRoot } else { SandboxUser::Starter };
        limits::limit_open_files(user)?;
        self.data_rlimit.map_or(Ok(()), |bytes| limits::limit(Resource::Data, bytes))?;
        self.nproc_rlimit.map_or(Ok(()), |count| limits::limit(Resource::Nproc, u64::from(count)))
    }

    /// Closes all file descriptors of the helper, its reply socket included, and detaches from the terminal.
    fn close_inherited(&self) {
        let mut kept: Vec<RawFd> = self.descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        kept.sort_unstable();
        let mut first = 3;
        for fd in kept.into_iter().chain([RawFd::MAX]) {
            if fd > first {
                // SAFETY: nothing uses these descriptors from here on, which include the pipes to the helper.
                unsafe { libc::close_range(first as libc::c_uint, (fd - 1) as libc::c_uint, 0) };
            }
            first = fd.saturating_add(1);
        }
        if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
    }

    fn control(&self) -> BorrowedFd<'_> {
        self.descriptors[0].as_fd()
    }

    /// Starts the program, and waits until it exits or the control socket is closed.
    fn supervise(&self) -> ! {
        let status = match self.start() {
            Ok((program, child_signals)) => self.wait_for(program, &child_signals),
            Err(error) => Some(ExitStatus {
                exit_code: EXIT_CANNOT_EXECUTE,
                start_error: Some(format!("cannot start the program: {error}")),
            }),
        };
        // SAFETY: kills all other processes of this namespace.
        unsafe { libc::kill(-1, libc::SIGKILL) };
        // SAFETY: waits for any child, without a pointer for its status.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
        if let Some(status) = status {
            // The process with the other end of the control socket may have exited.
            let _ = send(self.control(), &Event::Exited(status), &[]);
        }
        // SAFETY: exits the process without running exit handlers of the helper.
        unsafe { libc::_exit(0) }
    }

    /// Forks the program. Returns its PID, and a descriptor that becomes readable when a child exits.
    fn start(&self) -> Result<(libc::pid_t, OwnedFd)> {
        let child_signals = watch_children().context("watch for children")?;
        let terminal = match self.host.terminal {
            Some(size) => Some(open_terminal(size).context("open a terminal")?),
            None => None,
        };
        let program = Program::new(self.host)?;
        // SAFETY: this process has one thread.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()).context("fork"),
            0 => {
                let slave = terminal.as_ref().map(|(_, slave)| slave.as_fd());
                let code = self.exec_program(&program, slave);
                // SAFETY: exits the process without running exit handlers of the parent.
                unsafe { libc::_exit(code) }
            }
            _ => {
                let init_pidfd =
                    pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).context("open a pidfd")?;
                let master = terminal.as_ref().map(|(master, _)| master.as_fd());
                let fds: Vec<_> = [init_pidfd.as_fd()].into_iter().chain(master).collect();
                send(self.control(), &Event::Started, &fds).context("report the start of the program")?;
                for fd in &self.descriptors[1..] {
                    // Readers of the program's output must get an end of file when it exits.
                    // SAFETY: nothing here uses these; they are not closed again, because the caller never
                    // returns.
                    unsafe { libc::close(fd.as_raw_fd()) };
                }
                Ok((pid, child_signals))
            }
        }
    }

    /// Executes the program. Returns the exit status if that fails.
    fn exec_program(&self, program: &Program, terminal: Option<BorrowedFd<'_>>) -> i32 {
        let prepare = || -> Result<()> {
            // SAFETY: the calls take integers, and an empty set that outlives them.
            unsafe {
                libc::setsid();
                let mut no_signals: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut no_signals);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const no_signals, std::ptr::null_mut());
                for signal in [libc::SIGPIPE, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
            let [_, input, output, errors] = &self.descriptors;
            let [input, output, errors] = match terminal {
                Some(terminal) => {
                    // SAFETY: an open terminal, which becomes that of this session.
                    unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) };
                    [terminal; 3]
                }
                None => [input.as_fd(), output.as_fd(), errors.as_fd()],
            };
            rustix::stdio::dup2_stdin(input).context("open the input")?;
            rustix::stdio::dup2_stdout(output).context("open the output")?;
            rustix::stdio::dup2_stderr(errors).context("open the error output")?;
            rustix::process::chdir(std::path::Path::new(&self.host.cwd))
                .context(format!("enter {}", self.host.cwd.display()))?;
            // SAFETY: nothing uses other descriptors than the first three from here on.
            unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
            self.filter.apply()
        };
        if let Err(error) = prepare() {
            let _ = writeln!(io::stderr(), "error: {error}");
            return EXIT_CANNOT_EXECUTE;
        }
        let error = program.exec();
        let _ = writeln!(io::stderr(), "error: cannot run {}: {error}", program.name);
        if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_CANNOT_EXECUTE }
    }

    /// Handles requests until the program exits. Returns `None` if the control socket is closed.
    fn wait_for(&self, program: libc::pid_t, child_signals: &OwnedFd) -> Option<ExitStatus> {
        let control = self.control();
        loop {
            let mut polled =
                [PollFd::from_borrowed_fd(control, PollFlags::IN), PollFd::new(child_signals, PollFlags::IN)];
            match poll(&mut polled, None) {
                Err(Errno::INTR) => continue,
                Err(_) => return None,
                Ok(_) => {}
            }
            let (has_request, child_exited) =
                (!polled[0].revents().is_empty(), !polled[1].revents().is_empty());
            if child_exited {
                let mut buffer = [0; 128];
                let _ = rustix::io::read(child_signals, &mut buffer);
                if let Some(exit_code) = reap(program) {
                    return Some(ExitStatus { exit_code, start_error: None });
                }
            }
            if has_request {
                match receive::<Request>(control) {
                    Ok(Some((Request::Signal(number), _))) => {
                        // SAFETY: the process group of a child that was not waited for yet.
                        unsafe { libc::kill(-program, number) };
                    }
                    Ok(None) | Err(_) => return None,
                }
            }
        }
    }
}

/// Reaps all children that have exited. Returns the exit code of the program if it is among them.
fn reap(program: libc::pid_t) -> Option<i32> {
    loop {
        let mut status = 0;
        // SAFETY: an integer that the call writes to.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid <= 0 {
            return None;
        }
        if pid == program {
            return Some(if libc::WIFSIGNALED(status) {
                EXIT_SIGNAL_BASE + libc::WTERMSIG(status)
            } else {
                libc::WEXITSTATUS(status)
            });
        }
    }
}

/// Opens a descriptor that becomes readable when a child exits.
fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: a set that outlives the calls; the descriptor is new.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Opens a terminal of the sandbox: its master, and the slave for the program.
fn open_terminal((columns, rows): (u16, u16)) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: strings that end with NUL, structures that outlive the calls; the descriptors are new.
    unsafe {
        let open = |path: *const libc::c_char| {
            let fd = libc::open(path, flags);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
        };
        let master = open(c"/dev/ptmx".as_ptr())?;
        let mut name = [0; 64];
        if libc::unlockpt(master.as_raw_fd()) != 0
            || libc::ptsname_r(master.as_raw_fd(), name.as_mut_ptr(), name.len()) != 0
        {
            return Err(io::Error::last_os_error());
        }
        let slave = open(name.as_ptr())?;
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size);
        Ok((master, slave))
    }
}

/// Program with arguments and environment for `execve`, prepared before the fork.
struct Program {
    /// Name for error messages.
    name: String,
    /// Paths to try, from the directories of `PATH`.
    candidates: Vec<CString>,
    args: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    fn new(host: &ReadOnlyHostProgram) -> Result<Self> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| HostError::other("a NUL in an argument or a variable"))
        };
        let args: Vec<CString> = host.args.iter().map(|arg| text(arg.as_bytes())).collect::<Result<_>>()?;
        let Some(first) = host.args.first() else {
            return Err(HostError::other("no program to run"));
        };
        let environment = host
            .environment
            .iter()
            .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        let path =
            host.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
        let candidates: Vec<CString> = if first.as_bytes().contains(&b'/') {
            vec![text(first.as_bytes())?]
        } else {
            let directories = path.as_bytes().split(|byte| *byte == b':');
            let in_directory = |directory: &[u8]| match directory {
                b"" => text(first.as_bytes()),
                directory => text(&[directory, b"/", first.as_bytes()].concat()),
            };
            directories.map(in_directory).collect::<Result<_>>()?
        };
        let name = first.to_string_lossy().into_owned();
        Ok(Self { name, candidates, args, environment: environment.collect::<Result<_>>()? })
    }

    /// Executes the program; returns only on failure.
    fn exec(&self) -> io::Error {
        let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (args, environment) = (pointers(&self.args), pointers(&self.environment));
        let mut failed = io::Error::from_raw_os_error(libc::ENOENT);
        for candidate in &self.candidates {
            // SAFETY: strings that end with NUL and lists that end with a null pointer.
            unsafe { libc::execve(candidate.as_ptr(), args.as_ptr(), environment.as_ptr()) };
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP) => {}
                // A later candidate may be executable; otherwise this is the error to report. An inaccessible
                // directory is ignored.
                Some(libc::EACCES) => {
                    if std::fs::metadata(OsStr::from_bytes(candidate.as_bytes())).is_ok() {
                        failed = error;
                    }
                }
                Some(libc::ENOEXEC) => return self.exec_with_shell(candidate, &args, &environment),
                _ => return error,
            }
        }
        failed
    }

    /// Executes a file without `#!` by the shell, as shells do.
    fn exec_with_shell(
        &self,
        program: &CString,
        args: &[*const libc::c_char],
        environment: &[*const libc::c_char],
    ) -> io::Error {
        let all: Vec<_> = [c"sh".as_ptr(), program.as_ptr()].iter().chain(&args[1..]).copied().collect();
        // SAFETY: as above.
        unsafe { libc::execve(c"/bin/sh".as_ptr(), all.as_ptr(), environment.as_ptr()) };
        io::Error::last_os_error()
    }
}
