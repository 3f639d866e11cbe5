//! The holder: a process that keeps a user and a mount namespace.
//!
//! An ordinary user may mount only inside a user namespace of his own, and what is mounted there goes with its
//! last process. So that mounts outlive the server, a process that does nothing else keeps the namespace; a new
//! server joins the same holder and finds every mount. The superuser needs none: his namespace is the machine's.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, PidfdFlags, getegid, geteuid, pidfd_open, setsid};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, HostError, Result};
use crate::{entry, fork, identity};

/// Where mounts are made and namespaces begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holder {
    /// The machine's own namespaces, for the superuser.
    Machine,
    /// Those of this process.
    Process(Held),
}

/// A process that holds namespaces. Numbers of processes come again; with the moment it began, it is certain who
/// is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pid: i32,
    started: u64,
}

impl Held {
    pub(crate) fn of(pid: Pid) -> Result<Self> {
        let started = start_time(pid).doing("look at the holder")?;
        Ok(Self { pid: pid.as_raw_nonzero().get(), started })
    }

    /// Its number, as this process sees it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Ends it, and everything in its namespaces.
    pub fn kill(&self) {
        if let Some(fd) = self.open() {
            // It may have ended meanwhile.
            let _ = rustix::process::pidfd_send_signal(&fd, rustix::process::Signal::KILL);
        }
    }

    /// The process, if it still runs. What it is cannot change as long as this is open.
    fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        (start_time(pid).ok() == Some(self.started)).then_some(fd)
    }
}

/// When a process began, in ticks since the machine did.
fn start_time(pid: Pid) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let started = fields.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok());
    started.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

impl Holder {
    /// The holder noted in `directory`, or a new one. Of several processes that look for one at once, one makes it.
    pub fn find_or_start(directory: &Path) -> Result<Self> {
        if geteuid().is_root() {
            return Ok(Self::Machine);
        }
        let path = directory.join("holder");
        let lock = directory.join("holder.lock");
        let lock = fs::File::create(&lock).doing("make the holder's lock")?;
        flock(&lock, FlockOperation::LockExclusive).doing("lock the holder")?;
        if let Some(held) = noted(&path).filter(|held| held.open().is_some()) {
            return Ok(Self::Process(held));
        }
        let held: Held = entry::ask("hold", &(), |_| {})?;
        note(&path, &held)?;
        Ok(Self::Process(held))
    }

    /// Takes this process, which has one thread, into the namespaces.
    pub(crate) fn join(&self) -> Result<()> {
        let Self::Process(held) = self else { return Ok(()) };
        let fd = held.open().ok_or_else(|| HostError::Helper("the holder is gone".to_owned()))?;
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

fn noted(path: &Path) -> Option<Held> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn note(path: &PathBuf, held: &Held) -> Result<()> {
    let new = path.with_extension("new");
    let text = serde_json::to_string(held).map_err(|error| HostError::Helper(error.to_string()))?;
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).doing("note the holder")
}

/// Makes a holder; run in a process of its own.
pub(crate) fn run() -> Result<Held> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    let mut child = fork::child(namespaces, |parent| match hold(parent) {
        Ok(never) => match never {},
        Err(error) => error,
    })
    .map_err(no_namespaces)?;
    let one = |outside| [identity::Range { inside: 0, outside, count: 1 }];
    let made = identity::map(child.pid, &one(uid), &one(gid))
        .and_then(|()| child.done())
        .and_then(|()| child.wait())
        .and_then(|_| Held::of(child.pid));
    if made.is_err() {
        child.kill();
    }
    made
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

fn hold(parent: &mut fork::Parent) -> Result<std::convert::Infallible> {
    parent.wait()?;
    // What happens on the machine is seen here; what happens here is not seen there.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .doing("keep mounts to the holder")?;
    // Out of the group that is killed with the server.
    setsid().doing("begin a session")?;
    let_go_of_output()?;
    parent.done()?;
    loop {
        // SAFETY: waits for a signal; those that end the process do.
        unsafe { libc::pause() };
    }
}

/// Whoever waits for the end of the helper's output must not wait for the holder.
fn let_go_of_output() -> Result<()> {
    let null = fs::File::options().read(true).write(true).open("/dev/null").doing("open /dev/null")?;
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stderr(&null))
        .doing("let go of the output")
}
