//! What the child of a launch does until it is the guest agent.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::process::Resource;

use crate::error::{Doing as _, HostError, Result};
use crate::mount::root::Root;
use crate::namespace::clone::Parent;
use crate::namespace::credentials;
use crate::namespace::id_map::Range;
use crate::namespace::sandbox_ids::USER;
use crate::resources::cgroup::Groups;
use crate::resources::limits;
use crate::sandbox::launch::LaunchTask;
use crate::sandbox::layout::WORKSPACE;
use crate::sandbox::seccomp::Filters;

/// Descriptors on their way from the server to the agent. The numbers are the same all the way.
pub(crate) const AGENT: RawFd = 20;
pub(crate) const TOKEN: RawFd = 21;
pub(crate) const OUTPUT: RawFd = 22;
pub(crate) const LOG: RawFd = 23;
pub(crate) const SOCKET_DIRECTORY: RawFd = 24;

/// What the child needs to know.
pub(crate) struct Guest<'a> {
    pub(crate) task: &'a LaunchTask,
    /// The directory its root is made from; none for `base`.
    pub(crate) template: Option<OwnedFd>,
    /// Who exists inside. Found out before: the child's own namespace tells nothing of the one around it.
    pub(crate) users: Range,
    pub(crate) groups: &'a Groups,
    /// How many processes it may have, where no group sees to that.
    pub(crate) processes: Option<u32>,
    /// How many bytes of memory each of its processes may have, where no group sees to all of them.
    pub(crate) memory: Option<u64>,
    pub(crate) filters: Filters,
}

impl Guest<'_> {
    /// What the child does.
    pub(crate) fn begin(&self, parent: &mut Parent) -> Result<std::convert::Infallible> {
        // Set up before the rights are given up.
        parent.wait()?;
        if self.users.has_root() {
            credentials::become_root_inside()?;
        }
        // First of all, so that whatever it uses is counted; then no other groups are seen any more.
        self.groups.enter()?;
        own_groups()?;
        // Whoever launches may keep his own files to himself; those of the root are for all inside.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        // SAFETY: a session of its own; the call takes nothing.
        unsafe { libc::setsid() };
        let id = &self.task.id;
        let places = [PathBuf::from(WORKSPACE)];
        Root {
            template: self.template.as_ref().map(OwnedFd::as_fd),
            hostname: id,
            user: USER,
            group: USER,
            places: &places,
            memory: self.task.limits.memory_bytes,
            nameserver: self.task.egress.is_some(),
        }
        .build()?;
        rustix::system::sethostname(id.as_bytes()).doing("set the host name")?;
        loopback().doing("start the loopback network")?;
        parent.done()?;
        parent.wait()?;
        self.limit().doing("set limits")?;
        credentials::become_user(USER, USER)?;
        let log = take(LOG);
        rustix::stdio::dup2_stdout(&log)
            .and_then(|()| rustix::stdio::dup2_stderr(&log))
            .doing("open the log")?;
        let null = File::open("/dev/null").doing("open /dev/null")?;
        rustix::stdio::dup2_stdin(&null).doing("close the input")?;
        self.filters.apply()?;
        become_agent(id)
    }

    fn limit(&self) -> io::Result<()> {
        limits::limit(Resource::Core, 0)?;
        limits::limit_open_files(!self.users.has_root())?;
        self.memory.map_or(Ok(()), |most| limits::limit(Resource::Data, most))?;
        self.processes.map_or(Ok(()), |most| limits::limit(Resource::Nproc, u64::from(most)))
    }
}

/// Makes the groups this process is in the only ones it sees.
pub(crate) fn own_groups() -> Result<()> {
    // SAFETY: the call takes a number.
    let done = unsafe { libc::unshare(libc::CLONE_NEWCGROUP) == 0 };
    if done { Ok(()) } else { Err(io::Error::last_os_error()).doing("make a namespace for groups") }
}

fn take(number: RawFd) -> OwnedFd {
    // SAFETY: the server left it to the helper under this number, and the helper to this process.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// A network with nobody else in it, which programs expect all the same.
pub(crate) fn loopback() -> io::Result<()> {
    // SAFETY: a socket of this process, and a structure that is made here and lives through the calls.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn become_agent(id: &str) -> Result<std::convert::Infallible> {
    let text = |text: &str| CString::new(text).map_err(|_| HostError::other("a NUL in an id"));
    let socket = format!("/proc/self/fd/{SOCKET_DIRECTORY}/agent.sock");
    let (token, output) = (TOKEN.to_string(), OUTPUT.to_string());
    let arguments = [
        "workspace-agent",
        "--sandbox",
        id,
        "--socket",
        &socket,
        "--token-fd",
        &token,
        "--output-fd",
        &output,
    ];
    let environment = [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/home/sandbox",
        "USER=sandbox",
        "LANG=C.UTF-8",
    ];
    let arguments: Vec<CString> = arguments.iter().map(|word| text(word)).collect::<Result<_>>()?;
    let environment: Vec<CString> = environment.iter().map(|word| text(word)).collect::<Result<_>>()?;
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    // SAFETY: an open program, texts that end with NUL and lists that end with a null pointer. The program's own
    // descriptor goes with the call.
    unsafe {
        libc::fcntl(AGENT, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::syscall(
            libc::SYS_execveat,
            AGENT,
            c"".as_ptr(),
            pointers(&arguments).as_ptr(),
            pointers(&environment).as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    Err(io::Error::last_os_error()).doing("start the guest agent")
}
