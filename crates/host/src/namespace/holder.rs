//! Namespace holder: a process that keeps a user and a mount namespace alive.
//!
//! An ordinary user may mount only inside a user namespace, and the mounts disappear with the last process of
//! their mount namespace. So that mounts outlive the server, a process that does nothing else keeps the
//! namespaces. A new server joins the same holder and finds every mount. Root needs no holder and uses the
//! namespaces of the host.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid, setsid};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::helper::protocol::Task;
use crate::namespace::{clone, id_map};
use crate::process::Process;

/// Name of the file, in the directory of a holder, that records its process.
const HOLDER_FILE: &str = "holder";

/// Namespaces in which mounts and sandboxes are created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceHolder {
    /// No holder: the namespaces of the calling process. For root, which may mount in them, and for operations of
    /// an ordinary user that need no capabilities.
    None,
    /// Namespaces that this process holds.
    Process(Process),
}

impl NamespaceHolder {
    /// Returns the holder recorded in `directory`, or starts one. Concurrent callers get the same holder. Returns
    /// [`Self::None`] for root.
    pub fn find_or_start(directory: &Path) -> Result<Self> {
        if geteuid().is_root() {
            return Ok(Self::None);
        }
        if let Some(process) = recorded(directory) {
            return Ok(Self::Process(process));
        }
        helper::client::call(&StartHolderTask { directory: directory.to_owned() }, &[]).map(Self::Process)
    }

    /// Moves this process, which must have one thread, into the namespaces.
    pub(crate) fn join(&self) -> Result<()> {
        let Self::Process(process) = self else { return Ok(()) };
        let fd = process.pidfd().ok_or_else(HostError::holder_gone)?;
        let namespaces = ThreadNameSpaceType::USER | ThreadNameSpaceType::MOUNT;
        move_into_thread_name_spaces(fd.as_fd(), namespaces).context("join the holder")
    }

    /// Kills the holder. Its mounts disappear with it.
    pub fn kill(&self) {
        if let Self::Process(process) = self {
            process.kill();
        }
    }
}

/// Returns the holder of a directory, if it still runs.
fn recorded(directory: &Path) -> Option<Process> {
    // Without a readable file the process cannot be found.
    let recorded = Process::read(&directory.join(HOLDER_FILE)).ok().flatten();
    recorded.filter(Process::is_running)
}

/// Finds or starts the holder of a directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartHolderTask {
    directory: PathBuf,
}

impl Task for StartHolderTask {
    const NAME: &'static str = "start-holder";
    type Reply = Process;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<Process> {
        run(&self.directory)
    }
}

/// Finds or starts the holder, under a lock. Runs in a helper, because only a process with one thread can
/// spawn the holder.
fn run(directory: &Path) -> Result<Process> {
    let lock = fs::File::create(directory.join("holder.lock")).context("create the lock of the holder")?;
    flock(&lock, FlockOperation::LockExclusive).context("lock the holder")?;
    if let Some(process) = recorded(directory) {
        return Ok(process);
    }
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    let mut child = clone::spawn(namespaces, None, |parent| match hold_namespaces(parent, &lock) {
        Ok(never) => match never {},
        Err(error) => error,
    })
    .map_err(explain_refusal)?;
    let process = set_up(&mut child, &directory.join(HOLDER_FILE));
    if process.is_err() {
        child.kill();
    }
    process
}

/// Maps ids and records the holder while it starts. If the helper exits before the file is written, the
/// holder exits, too.
fn set_up(child: &mut clone::Child, file: &Path) -> Result<Process> {
    let single_id = |outside| [id_map::IdRange { inside: 0, outside, count: 1 }];
    let process = Process::of(child.pid)?;
    id_map::write(child.pid, &single_id(geteuid().as_raw()), &single_id(getegid().as_raw()))?;
    child.notify()?;
    child.wait_ready()?;
    process.save(file)?;
    child.notify()?;
    Ok(process)
}

/// Turns errors that mean "namespaces cannot be created" into one with a remedy.
pub(crate) fn explain_refusal(error: HostError) -> HostError {
    use rustix::io::Errno;
    let refused = [Errno::PERM, Errno::INVAL, Errno::NOSYS, Errno::USERS];
    match error {
        HostError::System { source, .. }
            if refused.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error())) =>
        {
            HostError::NoUserNamespaces { source }
        }
        other => other,
    }
}

fn hold_namespaces(parent: &mut clone::Parent, lock: &fs::File) -> Result<std::convert::Infallible> {
    // SAFETY: nothing uses this copy of the descriptor. If it stayed open, the file would stay locked.
    unsafe { libc::close(lock.as_raw_fd()) };
    // The parent maps the ids.
    parent.wait()?;
    // Mounts of the host propagate into the namespace, but not vice versa.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context("make the mounts of the holder slaves")?;
    // Leaves the process group that is killed with the server.
    setsid().context("create a session")?;
    detach_stdio()?;
    parent.notify()?;
    // The parent records this process as the holder.
    parent.wait()?;
    // Closes the descriptors of the helper, because its reply socket must not stay open.
    // SAFETY: nothing uses them from here on.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    loop {
        // SAFETY: waits for a signal, which ends the process.
        unsafe { libc::pause() };
    }
}

/// Detaches standard input, output and error from the terminal of the server.
pub(crate) fn detach_stdio() -> Result<()> {
    let null = fs::File::options().read(true).write(true).open("/dev/null").context("open /dev/null")?;
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stderr(&null))
        .context("detach standard output")
}
