//! A program that runs over the host's files, which it sees read-only at their own paths.
//!
//! The root is that of the host with all mounts below, made read-only recursively. Directories that the
//! program may change are overlays directly over those of the host: nothing is read in advance, and changes
//! go to upper directories of the caller. `/proc`, `/sys` and `/dev` are new; `/tmp`, `/var/tmp`, `/run` and
//! `/dev/shm` are directories of one tmpfs with one limit. Hidden paths are covered by empty files and
//! directories.
//!
//! The init process inside is this executable. It starts the program, reaps orphans, and kills all processes
//! when the program has exited or its control socket is closed, even if the process at its other end was killed.

mod init;
mod omitted_mounts;
mod root;

use std::ffi::OsString;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{PidfdFlags, getegid, geteuid, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::helper::protocol::Task;
use crate::namespace::clone::{self, Child, NAMESPACES};
use crate::namespace::credentials;
use crate::namespace::holder::{NamespaceHolder, explain_refusal};
use crate::namespace::id_map::{self, IdRange};
use crate::namespace::sandbox_ids::namespace_owner;
use crate::network::egress::Egress;
use crate::network::network_daemon;
use crate::resources::cgroup;
use crate::resources::limits::{self, Limits, UnenforcedLimit};
use crate::sandbox::seccomp::Filter;
use init::Init;

pub use omitted_mounts::can_omit_mounts;

/// Mount by which the files that the program sees differ from the host's. Paths are absolute and without symlinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mount {
    /// Covers a file or directory by an empty one without permissions. Ignored if it does not exist.
    Hide(OsString),
    /// Shows a file or directory of the host, read-only, also below a hidden one.
    Show(OsString),
    /// Makes a directory writable; changes go to `upper`.
    Overlay {
        /// Directory of the host, and mount point.
        at: OsString,
        /// Upper directory.
        upper: OsString,
        /// Work directory: empty, and on the filesystem of the upper directory.
        work: OsString,
    },
}

impl Mount {
    /// Returns the path that differs.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Hide(path) | Self::Show(path) | Self::Overlay { at: path, .. } => PathBuf::from(path),
        }
    }
}

/// Program to run over the read-only files of the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadOnlyHostProgram {
    /// Name of its cgroups: letters, digits and dashes.
    pub id: String,
    /// Namespaces in which the network is created: [`NamespaceHolder::None`] if there is no network, or for
    /// root.
    pub holder: NamespaceHolder,
    /// Differences, in the order of mounting: parents before their children.
    pub mounts: Vec<Mount>,
    /// Hidden paths without visible ones below them, whose mounts are left out: the directory of an overlay must
    /// contain no mounts. Empty unless [`can_omit_mounts`] returns true.
    pub omitted_mounts: Vec<OsString>,
    /// Working directory.
    pub cwd: OsString,
    /// Program and arguments. A program name without a slash is looked up in `PATH` of the environment.
    pub args: Vec<OsString>,
    /// Names and values of environment variables.
    pub environment: Vec<(OsString, OsString)>,
    /// Columns and rows of its terminal. `None` for pipes.
    pub terminal: Option<(u16, u16)>,
    /// Resource limits. The tmpfs gets half of the memory limit.
    pub limits: Limits,
    /// Network egress. `None` for loopback only.
    pub egress: Option<Egress>,
}

/// Exit status of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitStatus {
    /// Exit code; 128 + n if signal n killed the program.
    pub exit_code: i32,
    /// Reason why the program could not be started; `None` if it was.
    pub start_error: Option<String>,
}

/// Running program. Dropping it kills the program and its descendants.
#[derive(Debug)]
pub struct RunningProgram {
    /// Control socket of the init process.
    control: OwnedFd,
    /// PID file descriptor of the init process.
    process: OwnedFd,
    /// Controlling side of its terminal, if it has one.
    pub terminal: Option<OwnedFd>,
    /// Requested limits that are not enforced.
    pub missing: Vec<UnenforcedLimit>,
}

/// Message to the init process.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Send a signal to the program's process group.
    Signal(i32),
}

/// Message from the init process.
#[derive(Debug, Serialize, Deserialize)]
enum Event {
    /// The program was started. Sent with a PID file descriptor of the init process, and with the terminal if
    /// there is one.
    Started,
    /// The program has exited, or could not be started.
    Exited(ExitStatus),
}

/// Reply of the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launched {
    /// Limits that this machine cannot enforce.
    missing: Vec<UnenforcedLimit>,
}

/// Maximum size of a message, in bytes.
const MESSAGE_MAX: usize = 4 << 10;

impl ReadOnlyHostProgram {
    /// Starts the program. `stdio` are its standard input, output and error, unless it has a terminal.
    pub fn start(&self, stdio: [BorrowedFd<'_>; 3]) -> Result<RunningProgram> {
        let (control, helper_control) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .context("create a socket")?;
        let [input, output, errors] = stdio;
        let helper = helper::client::start(self, &[helper_control.as_fd(), input, output, errors])?;
        drop(helper_control);
        let Launched { missing } = helper.wait()?;
        let event = receive(control.as_fd()).context("receive an event of the sandbox")?;
        match event.ok_or_else(HostError::sandbox_ended)? {
            (Event::Started, descriptors) => {
                // The program may have exited.
                let mut descriptors = descriptors.into_iter();
                let process = descriptors.next().ok_or_else(HostError::sandbox_ended)?;
                Ok(RunningProgram { control, process, terminal: descriptors.next(), missing })
            }
            (Event::Exited(status), _) => Err(HostError::other(status.start_error.unwrap_or_default())),
        }
    }
}

impl RunningProgram {
    /// Sends a signal to the program's process group. Does nothing if it has exited.
    pub fn signal(&self, number: i32) -> Result<()> {
        match send(self.control.as_fd(), &Request::Signal(number), &[]) {
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Ok(()),
            sent => sent.context("send a signal"),
        }
    }

    /// Waits until the program and its descendants have exited. Returns `None` if they were killed from
    /// outside.
    pub fn wait(&self) -> Result<Option<ExitStatus>> {
        let event = receive(self.control.as_fd()).context("receive an event of the sandbox")?;
        self.wait_for_exit()?;
        Ok(event.and_then(|(event, _)| match event {
            Event::Exited(status) => Some(status),
            Event::Started => None,
        }))
    }

    /// Kills the program and its descendants, and waits for their exit.
    pub fn kill(&self) -> Result<()> {
        // It may have exited by itself.
        let _ = rustix::process::pidfd_send_signal(&self.process, rustix::process::Signal::KILL);
        self.wait_for_exit()
    }

    /// Waits for the init process, which exits after all others of its PID namespace.
    fn wait_for_exit(&self) -> Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.process, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                waited => return waited.map(drop).context("wait for the sandbox"),
            }
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.process, rustix::process::Signal::KILL);
    }
}

fn send<T: Serialize>(socket: BorrowedFd<'_>, message: &T, fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let text = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Receives a message. Returns `None` when the other end is closed.
fn receive<T: serde::de::DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> std::io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut text = [0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok(Some((serde_json::from_slice(&text[..received.bytes])?, descriptors)))
}

/// Returns the id maps of users and groups: ids of the host map to themselves. An ordinary user has one id of
/// each.
fn ids(user: User, holder: &NamespaceHolder) -> Result<(Vec<IdRange>, Vec<IdRange>)> {
    if user.is_superuser {
        let all: Vec<IdRange> = id_map::read()?.into_iter().map(IdRange::identity).collect();
        return Ok((all.clone(), all));
    }
    // In the user namespace of a holder, the ordinary user is root.
    let outside = |id| if *holder == NamespaceHolder::None { id } else { 0 };
    let single_id = |id| vec![IdRange { inside: id, outside: outside(id), count: 1 }];
    Ok((single_id(user.uid), single_id(user.gid)))
}

/// User that runs the program.
#[derive(Debug, Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
    /// True for root.
    is_superuser: bool,
}

impl Task for ReadOnlyHostProgram {
    const NAME: &'static str = "read-only-host";
    type Reply = Launched;

    fn run(self, fds: Vec<OwnedFd>) -> Result<Launched> {
        run(&self, fds)
    }
}

/// Creates the namespaces; runs in the helper.
fn run(host: &ReadOnlyHostProgram, descriptors: Vec<OwnedFd>) -> Result<Launched> {
    let descriptors: [OwnedFd; 4] =
        descriptors.try_into().map_err(|_| HostError::other("descriptors are missing"))?;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let is_superuser = uid == 0;
    let user = User { uid, gid, is_superuser };
    let (cgroups, mut missing) = cgroup::create(&host.id, &host.limits)?;
    let mut nproc_rlimit = None;
    if limits::has_per_namespace_process_limit() && missing.iter().any(UnenforcedLimit::is_processes) {
        missing.retain(|missing| !missing.is_processes());
        nproc_rlimit = host.limits.processes;
    }
    let (users, groups) = ids(user, &host.holder)?;
    host.holder.join()?;
    omitted_mounts::detach(&host.omitted_mounts)?;
    limits::limit_pending_signals().context("limit pending signals")?;
    let init = Init {
        host,
        user,
        cgroups: &cgroups,
        nproc_rlimit,
        data_rlimit: host.limits.memory_bytes.filter(|_| missing.iter().any(UnenforcedLimit::is_memory)),
        filter: Filter::new()?,
        descriptors,
    };
    let spawn = || {
        clone::spawn(NAMESPACES, cgroups.v2_fd(), |parent| match init.run(parent) {
            Ok(never) => match never {},
            Err(error) => error,
        })
    };
    let spawned = match namespace_owner(&host.holder, &host.id, None).filter(|_| is_superuser) {
        Some(owner) => credentials::with_owner(owner, spawn),
        None => spawn(),
    };
    let mut child = spawned.map_err(explain_refusal)?;
    let result = set_up(&mut child, host, &users, &groups);
    if result.is_err() {
        child.kill();
    }
    result.map(|()| Launched { missing })
}

/// Maps ids and sets up the network while the child starts.
fn set_up(
    child: &mut Child,
    host: &ReadOnlyHostProgram,
    users: &[IdRange],
    groups: &[IdRange],
) -> Result<()> {
    id_map::write(child.pid, users, groups)?;
    child.notify()?;
    child.wait_ready()?;
    if let Some(egress) = &host.egress {
        let process =
            pidfd_open(child.pid, PidfdFlags::empty()).context("open the process of the sandbox")?;
        network_daemon::start(&process, egress, &host.holder)?;
    }
    child.notify()?;
    child.wait_ready()
}
