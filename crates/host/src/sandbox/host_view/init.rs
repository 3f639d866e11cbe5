//! The first process inside: it puts the root together, gives up its rights, starts the program and sees to its end.

use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Resource, pidfd_open};

use super::root::Root;
use super::{Ended, Event, HostView, Request, User, receive, send};
use crate::error::{Doing as _, HostError, Result};
use crate::namespace::clone::Parent;
use crate::namespace::credentials;
use crate::resources::cgroup::Groups;
use crate::resources::limits;
use crate::sandbox::guest::{loopback, own_groups};
use crate::sandbox::seccomp::Filters;

/// First process of a view, before it is made.
pub(super) struct Init<'a> {
    pub(super) view: &'a HostView,
    pub(super) user: User,
    pub(super) groups: &'a Groups,
    /// Number of processes it may have, where no group sees to that.
    pub(super) processes: Option<u32>,
    /// Bytes of memory that each of its processes may have, where no group sees to all of them.
    pub(super) memory: Option<u64>,
    pub(super) filters: Filters,
    /// The control socket, then what the program reads and writes.
    pub(super) descriptors: [OwnedFd; 4],
}

/// Status of a program that cannot be run, and of one that is not there; as shells have it.
const CANNOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;
const BY_SIGNAL: i32 = 128;

impl Init<'_> {
    /// Does all of it; returns only with an error.
    pub(super) fn begin(&self, parent: &mut Parent) -> Result<Infallible> {
        parent.wait()?;
        if self.user.is_superuser {
            credentials::become_root_inside()?;
        }
        self.groups.enter()?;
        own_groups()?;
        let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        // SAFETY: a session of its own; the call takes nothing.
        unsafe { libc::setsid() };
        let User { user, group, is_superuser } = self.user;
        Root {
            mounts: &self.view.mounts,
            user,
            group,
            memory: self.view.limits.memory_bytes,
            nameserver: self.view.egress.is_some(),
        }
        .build()?;
        loopback().doing("start the loopback network")?;
        parent.done()?;
        parent.wait()?;
        self.limit().doing("set limits")?;
        if is_superuser {
            credentials::keep_file_rights()?;
        } else {
            credentials::become_user(user, group)?;
        }
        // Nobody inside looks into it, or holds it by its memory.
        // SAFETY: the call takes numbers.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
        rustix::process::umask(umask);
        parent.done()?;
        self.close_others();
        self.look_after()
    }

    fn limit(&self) -> io::Result<()> {
        limits::limit(Resource::Core, 0)?;
        limits::limit_open_files(!self.user.is_superuser)?;
        self.memory.map_or(Ok(()), |most| limits::limit(Resource::Data, most))?;
        self.processes.map_or(Ok(()), |most| limits::limit(Resource::Nproc, u64::from(most)))
    }

    /// Lets go of all that the helper had open, its answer's socket among it, and of the terminal of whoever asked.
    fn close_others(&self) {
        let mut kept: Vec<RawFd> = self.descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        kept.sort_unstable();
        let mut first = 3;
        for fd in kept.into_iter().chain([RawFd::MAX]) {
            if fd > first {
                // SAFETY: nothing of what is closed is used from here on; the pipes to the helper are among it.
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

    /// Starts the program and stays until it ends, or nobody asks any more.
    fn look_after(&self) -> ! {
        let ended = match self.start() {
            Ok((program, children)) => self.wait_for(program, &children),
            Err(error) => {
                Some(Ended { exit_code: CANNOT_RUN, failed: Some(format!("cannot run it: {error}")) })
            }
        };
        // SAFETY: everything else in this namespace; nothing is left to be lost.
        unsafe { libc::kill(-1, libc::SIGKILL) };
        // SAFETY: waits for any child, without a place for its status.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
        if let Some(ended) = ended {
            // Whoever asked may be gone.
            let _ = send(self.control(), &Event::Ended(ended), &[]);
        }
        // SAFETY: ends the process, and runs nothing that the helper runs as well.
        unsafe { libc::_exit(0) }
    }

    /// The program's process, and what can be read from when a child ends.
    fn start(&self) -> Result<(libc::pid_t, OwnedFd)> {
        let children = watch_children().doing("watch for children")?;
        let terminal = match self.view.terminal {
            Some(size) => Some(open_terminal(size).doing("open a terminal")?),
            None => None,
        };
        let program = Program::new(self.view)?;
        // SAFETY: this process has one thread.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()).doing("make a process"),
            0 => {
                let slave = terminal.as_ref().map(|(_, slave)| slave.as_fd());
                let code = self.become_program(&program, slave);
                // SAFETY: ends the process, and runs nothing that its maker runs as well.
                unsafe { libc::_exit(code) }
            }
            _ => {
                let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).doing("open itself")?;
                let master = terminal.as_ref().map(|(master, _)| master.as_fd());
                let both: Vec<_> = [own.as_fd()].into_iter().chain(master).collect();
                send(self.control(), &Event::Started, &both).doing("tell that it runs")?;
                for fd in &self.descriptors[1..] {
                    // The program's end is to be heard by its readers.
                    // SAFETY: nothing here uses these; they are never closed again, as this function's caller never returns.
                    unsafe { libc::close(fd.as_raw_fd()) };
                }
                Ok((pid, children))
            }
        }
    }

    /// Becomes the program; the status to end with if that fails.
    fn become_program(&self, program: &Program, terminal: Option<BorrowedFd<'_>>) -> i32 {
        let prepared = || -> Result<()> {
            // SAFETY: a session of its own; the calls take numbers and an empty set made here.
            unsafe {
                libc::setsid();
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
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
            rustix::stdio::dup2_stdin(input).doing("open the input")?;
            rustix::stdio::dup2_stdout(output).doing("open the output")?;
            rustix::stdio::dup2_stderr(errors).doing("open the output for errors")?;
            rustix::process::chdir(std::path::Path::new(&self.view.cwd))
                .doing(format!("go to {}", self.view.cwd.display()))?;
            // SAFETY: nothing is used from here on but the first three.
            unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
            self.filters.apply()
        };
        if let Err(error) = prepared() {
            let _ = writeln!(io::stderr(), "error: {error}");
            return CANNOT_RUN;
        }
        let error = program.exec();
        let _ = writeln!(io::stderr(), "error: cannot run {}: {error}", program.name);
        if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
    }

    /// None if nobody asks any more.
    fn wait_for(&self, program: libc::pid_t, children: &OwnedFd) -> Option<Ended> {
        let control = self.control();
        loop {
            let mut both =
                [PollFd::from_borrowed_fd(control, PollFlags::IN), PollFd::new(children, PollFlags::IN)];
            match poll(&mut both, None) {
                Err(Errno::INTR) => continue,
                Err(_) => return None,
                Ok(_) => {}
            }
            let (asked, ended) = (!both[0].revents().is_empty(), !both[1].revents().is_empty());
            if ended {
                let mut buffer = [0; 128];
                let _ = rustix::io::read(children, &mut buffer);
                if let Some(exit_code) = reap(program) {
                    return Some(Ended { exit_code, failed: None });
                }
            }
            if asked {
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

/// Takes notice of all children that have ended; the program's status if it is among them.
fn reap(program: libc::pid_t) -> Option<i32> {
    loop {
        let mut status = 0;
        // SAFETY: a number that the call writes to.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid <= 0 {
            return None;
        }
        if pid == program {
            return Some(if libc::WIFSIGNALED(status) {
                BY_SIGNAL + libc::WTERMSIG(status)
            } else {
                libc::WEXITSTATUS(status)
            });
        }
    }
}

fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: a set that is made here and lives through the calls; the descriptor is new.
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

/// A terminal of the sandbox's own: its master, and what the program gets.
fn open_terminal((columns, rows): (u16, u16)) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: texts that end with NUL, structures made here that live through the calls; the descriptors are new.
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

/// A program as the kernel takes it, prepared before the process is made.
struct Program {
    name: String,
    candidates: Vec<CString>,
    words: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    fn new(view: &HostView) -> Result<Self> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| HostError::other("a NUL in an argument or a variable"))
        };
        let words: Vec<CString> =
            view.words.iter().map(|word| text(word.as_bytes())).collect::<Result<_>>()?;
        let Some(first) = view.words.first() else {
            return Err(HostError::other("no program to run"));
        };
        let environment = view
            .environment
            .iter()
            .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        let path =
            view.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
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
        Ok(Self { name, candidates, words, environment: environment.collect::<Result<_>>()? })
    }

    /// Comes back only with what went wrong.
    fn exec(&self) -> io::Error {
        let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (words, environment) = (pointers(&self.words), pointers(&self.environment));
        let mut failed = io::Error::from_raw_os_error(libc::ENOENT);
        for candidate in &self.candidates {
            // SAFETY: texts that end with NUL and lists that end with a null pointer.
            unsafe { libc::execve(candidate.as_ptr(), words.as_ptr(), environment.as_ptr()) };
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                // A later one may be allowed; this is what to tell if none is. A directory that is closed tells nothing.
                Some(libc::EACCES) => {
                    if std::fs::metadata(OsStr::from_bytes(candidate.as_bytes())).is_ok() {
                        failed = error;
                    }
                }
                Some(libc::ENOEXEC) => return self.exec_by_shell(candidate, &words, &environment),
                _ => return error,
            }
        }
        failed
    }

    /// A text without `#!` is a shell's, as everywhere.
    fn exec_by_shell(
        &self,
        program: &CString,
        words: &[*const libc::c_char],
        environment: &[*const libc::c_char],
    ) -> io::Error {
        let all: Vec<_> = [c"sh".as_ptr(), program.as_ptr()].iter().chain(&words[1..]).copied().collect();
        // SAFETY: as above.
        unsafe { libc::execve(c"/bin/sh".as_ptr(), all.as_ptr(), environment.as_ptr()) };
        io::Error::last_os_error()
    }
}
