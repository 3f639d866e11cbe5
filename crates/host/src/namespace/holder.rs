//! The holder: a process that keeps a user and a mount namespace.
//!
//! An ordinary user may mount only inside a user namespace of his own, and what is mounted there goes with its
//! last process. So that mounts outlive the server, a process that does nothing else keeps the namespace; a new
//! server joins the same holder and finds every mount. The superuser needs none: his namespace is the machine's.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid, setsid};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, HostError, Result};
use crate::helper::client;
use crate::helper::protocol::Task;
use crate::namespace::{clone, id_map};
use crate::process::Process;

/// Where a holder is noted in its directory.
const NOTE: &str = "holder";

/// Where mounts are made and namespaces begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holder {
    /// The machine's own namespaces, for the superuser.
    Machine,
    /// Those of this process.
    Process(Process),
}

impl Holder {
    /// The holder noted in `directory`, or a new one. Of several processes that look for one at once, one makes it.
    pub fn find_or_start(directory: &Path) -> Result<Self> {
        if geteuid().is_root() {
            return Ok(Self::Machine);
        }
        if let Some(held) = noted(directory) {
            return Ok(Self::Process(held));
        }
        client::call(&StartHolderTask { directory: directory.to_owned() }, &[]).map(Self::Process)
    }

    /// Takes this process, which has one thread, into the namespaces.
    pub(crate) fn join(&self) -> Result<()> {
        let Self::Process(held) = self else { return Ok(()) };
        let fd = held.pidfd().ok_or_else(HostError::holder_gone)?;
        let both = ThreadNameSpaceType::USER | ThreadNameSpaceType::MOUNT;
        move_into_thread_name_spaces(fd.as_fd(), both).doing("join the holder")
    }

    /// Ends the holder, and with it what is mounted there.
    pub fn end(&self) {
        if let Self::Process(held) = self {
            held.kill();
        }
    }
}

/// The holder of a directory, if there is one.
fn noted(directory: &Path) -> Option<Process> {
    // A note that nobody understands is as good as none: whoever it meant cannot be joined.
    let noted = Process::read(&directory.join(NOTE)).ok().flatten();
    noted.filter(Process::is_running)
}

/// Finds the holder of a directory, or makes one.
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

/// Finds the holder or makes one; run in a process of its own, so that the lock is kept to the end whatever happens
/// to the server.
fn run(directory: &Path) -> Result<Process> {
    let lock = fs::File::create(directory.join("holder.lock")).doing("make the holder's lock")?;
    flock(&lock, FlockOperation::LockExclusive).doing("lock the holder")?;
    if let Some(held) = noted(directory) {
        return Ok(held);
    }
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    let mut child = clone::child(namespaces, None, |parent| match hold(parent, &lock) {
        Ok(never) => match never {},
        Err(error) => error,
    })
    .map_err(no_namespaces)?;
    let made = accompany(&mut child, &directory.join(NOTE));
    if made.is_err() {
        child.kill();
    }
    made
}

/// What the helper does while the holder gets ready. If it ends before the note is written, so does the holder.
fn accompany(child: &mut clone::Child, note: &Path) -> Result<Process> {
    let one = |outside| [id_map::Range { inside: 0, outside, count: 1 }];
    let held = Process::of(child.pid)?;
    id_map::map(child.pid, &one(geteuid().as_raw()), &one(getegid().as_raw()))?;
    child.done()?;
    child.ready()?;
    held.note(note)?;
    child.done()?;
    Ok(held)
}

/// Says what to do where namespaces cannot be made at all.
pub(crate) fn no_namespaces(error: HostError) -> HostError {
    use rustix::io::Errno;
    let refused = [Errno::PERM, Errno::NOSPC, Errno::INVAL, Errno::NOSYS, Errno::USERS];
    match error {
        HostError::System { source, .. }
            if refused.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error())) =>
        {
            HostError::NoUserNamespaces { source }
        }
        other => other,
    }
}

fn hold(parent: &mut clone::Parent, lock: &fs::File) -> Result<std::convert::Infallible> {
    // SAFETY: this process's copy, which nothing uses; left open it would keep the lock for good.
    unsafe { libc::close(lock.as_raw_fd()) };
    parent.wait()?;
    // What happens on the machine is seen here; what happens here is not seen there.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .doing("keep mounts to the holder")?;
    // Out of the group that is killed with the server.
    setsid().doing("begin a session")?;
    let_go_of_output()?;
    parent.done()?;
    parent.wait()?;
    // The helper's own descriptors, of which the one it answers through must not stay open here.
    // SAFETY: nothing is used from here on.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    loop {
        // SAFETY: waits for a signal; those that end the process do.
        unsafe { libc::pause() };
    }
}

/// The terminal the server was started at is nothing of what stays.
pub(crate) fn let_go_of_output() -> Result<()> {
    let null = fs::File::options().read(true).write(true).open("/dev/null").doing("open /dev/null")?;
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stderr(&null))
        .doing("let go of the output")
}
