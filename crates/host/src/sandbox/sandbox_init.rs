//! Init process of a sandbox: PID 1 of its PID namespace, from the clone until it executes the guest agent.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::process::Resource;

use crate::error::{Context as _, HostError, Result};
use crate::mount::root::{Root, RootSource};
use crate::namespace::clone::Parent;
use crate::namespace::credentials;
use crate::namespace::id_map::IdRange;
use crate::namespace::sandbox_ids::SANDBOX_UID;
use crate::resources::cgroup::Cgroups;
use crate::resources::limits::{self, SandboxUser};
use crate::sandbox::launch::LaunchTask;
use crate::sandbox::layout::WORKSPACE;
use crate::sandbox::seccomp::Filter;

/// File descriptors that are passed from the server to the guest agent: its program, its token, the output directory,
/// its log, and the directory with the server's socket. The helper moves them to these numbers.
pub(crate) const AGENT_FD: RawFd = 20;
pub(crate) const TOKEN_FD: RawFd = 21;
pub(crate) const OUTPUT_FD: RawFd = 22;
pub(crate) const LOG_FD: RawFd = 23;
pub(crate) const SOCKET_DIR_FD: RawFd = 24;

/// Parameters of the init process.
pub(crate) struct SandboxInit<'a> {
    /// Parameters of the launch.
    pub(crate) task: &'a LaunchTask,
    pub(crate) root: RootSource,
    /// Ids that exist in the sandbox. Determined before the namespaces are created, because the init process
    /// cannot see the ids of the parent user namespace.
    pub(crate) ids: IdRange,
    pub(crate) cgroups: &'a Cgroups,
    /// `RLIMIT_NPROC` of the sandbox user; `None` if a cgroup limits the number of processes.
    pub(crate) nproc_rlimit: Option<u32>,
    /// `RLIMIT_DATA` of each process, in bytes; `None` if a cgroup limits the memory of the sandbox.
    pub(crate) data_rlimit: Option<u64>,
    /// Filter of system calls.
    pub(crate) filter: Filter,
}

impl SandboxInit<'_> {
    /// Sets up the sandbox and executes the guest agent; returns only on failure.
    pub(crate) fn run(&self, parent: &mut Parent) -> Result<std::convert::Infallible> {
        // The parent maps the ids.
        parent.wait()?;
        if self.ids.has_root() {
            credentials::become_root_inside()?;
        }
        // Entered first, so that all resources are counted. The cgroup namespace then hides other cgroups.
        self.cgroups.enter()?;
        unshare_cgroup()?;
        // The server may have a stricter umask, but the files of the root are for all users inside.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        // SAFETY: the call takes nothing.
        unsafe { libc::setsid() };
        let id = &self.task.id;
        let mount_points = [PathBuf::from(WORKSPACE)];
        Root {
            source: &self.root,
            hostname: id,
            user: SANDBOX_UID,
            group: SANDBOX_UID,
            mount_points: &mount_points,
            memory_limit: self.task.limits.memory_bytes,
            has_nameserver: self.task.egress.is_some(),
        }
        .build()?;
        rustix::system::sethostname(id.as_bytes()).context("set the host name")?;
        start_loopback().context("bring up the loopback interface")?;
        parent.notify()?;
        // The parent starts the network daemon of a sandbox with egress, and mounts the workspace.
        parent.wait()?;
        self.set_rlimits().context("set limits")?;
        match self.has_other_users() {
            // The agent keeps the capabilities to use the files of all users inside, and to become them.
            true => credentials::become_user_that_may_act_as_others(SANDBOX_UID, SANDBOX_UID)?,
            false => credentials::become_user(SANDBOX_UID, SANDBOX_UID)?,
        }
        let log = take_fd(LOG_FD);
        rustix::stdio::dup2_stdout(&log)
            .and_then(|()| rustix::stdio::dup2_stderr(&log))
            .context("open the log")?;
        let null = File::open("/dev/null").context("open /dev/null")?;
        rustix::stdio::dup2_stdin(&null).context("close the input")?;
        close_others_on_exec().context("close descriptors of the server")?;
        self.filter.apply()?;
        exec_agent(id)
    }

    /// Returns true if commands may run as other users: only a kept root has files for them.
    fn has_other_users(&self) -> bool {
        has_other_users(&self.root, self.ids)
    }

    fn set_rlimits(&self) -> io::Result<()> {
        limits::limit(Resource::Core, 0)?;
        // Without root inside, an ordinary user started the sandbox.
        let has_root = self.ids.has_root();
        limits::limit_open_files(if has_root { SandboxUser::OtherOrRoot } else { SandboxUser::Starter })?;
        self.data_rlimit.map_or(Ok(()), |bytes| limits::limit(Resource::Data, bytes))?;
        self.nproc_rlimit.map_or(Ok(()), |count| limits::limit(Resource::Nproc, u64::from(count)))
    }
}

/// Returns true if commands of a sandbox with this root and these ids may run as other users than its own.
pub(crate) fn has_other_users(root: &RootSource, ids: IdRange) -> bool {
    matches!(root, RootSource::Kept(_)) && ids.has_root()
}

/// Creates a cgroup namespace, in which other cgroups are not visible.
pub(crate) fn unshare_cgroup() -> Result<()> {
    // SAFETY: the call takes an integer.
    let done = unsafe { libc::unshare(libc::CLONE_NEWCGROUP) == 0 };
    if done { Ok(()) } else { Err(io::Error::last_os_error()).context("create a cgroup namespace") }
}

fn take_fd(number: RawFd) -> OwnedFd {
    // SAFETY: the helper moved the descriptor to this number, and only the caller uses it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Makes the program that is executed next inherit only the descriptors of the agent. Others may be open in the server
/// without the flag that closes them, for example the index of the store.
fn close_others_on_exec() -> io::Result<()> {
    // SAFETY: the calls take integers, and change only flags of descriptors.
    unsafe {
        if libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) != 0 {
            return Err(io::Error::last_os_error());
        }
        for fd in [TOKEN_FD, OUTPUT_FD, SOCKET_DIR_FD] {
            if libc::fcntl(fd, libc::F_SETFD, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// Brings up the loopback interface, which programs expect.
pub(crate) fn start_loopback() -> io::Result<()> {
    // SAFETY: a socket of this process, and a structure that outlives the calls.
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

fn exec_agent(id: &str) -> Result<std::convert::Infallible> {
    let text = |text: &str| {
        CString::new(text).map_err(|_| HostError::other("an argument of the guest agent contains a NUL"))
    };
    let socket = format!("/proc/self/fd/{SOCKET_DIR_FD}/agent.sock");
    let (token, output) = (TOKEN_FD.to_string(), OUTPUT_FD.to_string());
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
    let arguments: Vec<CString> = arguments.iter().map(|argument| text(argument)).collect::<Result<_>>()?;
    let environment: Vec<CString> =
        environment.iter().map(|variable| text(variable)).collect::<Result<_>>()?;
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    // SAFETY: an open program, strings that end with NUL and lists that end with a null pointer. The
    // descriptor of the program is closed by the call.
    unsafe {
        libc::fcntl(AGENT_FD, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::syscall(
            libc::SYS_execveat,
            AGENT_FD,
            c"".as_ptr(),
            pointers(&arguments).as_ptr(),
            pointers(&environment).as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    Err(io::Error::last_os_error()).context("start the guest agent")
}
