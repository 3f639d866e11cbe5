//! A program over a read-only view of the machine's own files, at the paths they have there.
//!
//! The root is the machine's, with every mount below it, made read-only as a whole. Directories that the program may change are
//! overlays directly over those of the machine: nothing is read before, and what is written goes to uppers of the caller's.
//! `/proc`, `/sys` and `/dev` are new, `/tmp`, `/var/tmp`, `/run` and `/dev/shm` are parts of one filesystem in memory with one
//! bound. What is hidden is covered by something empty.
//!
//! The first process inside is this program itself. It starts the program, collects what is orphaned, and ends everything
//! when the program has ended or whoever asked for it is gone: it hears that by the end of its control socket, however the
//! other side ended.

mod init;
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

use crate::error::{Doing as _, HostError, Result};
use crate::helper::client;
use crate::helper::protocol::Task;
use crate::namespace::clone::{self, Child, NAMESPACES};
use crate::namespace::credentials;
use crate::namespace::holder::{Holder, no_namespaces};
use crate::namespace::id_map::{self, Range};
use crate::namespace::sandbox_ids::owner_of_namespace;
use crate::network::egress::Egress;
use crate::network::network_daemon;
use crate::resources::cgroup;
use crate::resources::limits::{self, Limits, Missing};
use crate::sandbox::seccomp::Filters;
use init::Init;

/// Something that differs from the machine's own files. Paths are absolute and free of symlinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mount {
    /// Covers a file or directory by an empty one that nobody may read. One that is not there is left out.
    Hide(OsString),
    /// Shows a file or directory of the machine, read-only, also below what is hidden.
    Show(OsString),
    /// Lets a directory be changed: changes go to `upper`.
    Overlay {
        /// The directory of the machine, and where it is seen.
        at: OsString,
        /// Gets what is changed.
        upper: OsString,
        /// Empty, on the filesystem of the upper.
        work: OsString,
    },
}

impl Mount {
    /// The path at which it is seen.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Hide(path) | Self::Show(path) | Self::Overlay { at: path, .. } => PathBuf::from(path),
        }
    }
}

/// A program to run over a view of the machine's files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostView {
    /// Name of its cgroups, of letters, digits and dashes.
    pub id: String,
    /// Namespaces in which the network is made; the machine where it has none, or the superuser asks.
    pub holder: Holder,
    /// In the order of mounting: what is below something comes after it.
    pub mounts: Vec<Mount>,
    /// Working directory.
    pub cwd: OsString,
    /// Program and arguments. A program without a slash is looked for in `PATH` of the environment.
    pub words: Vec<OsString>,
    /// Names and values of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Columns and rows of a terminal of its own; none for three pipes.
    pub terminal: Option<(u16, u16)>,
    /// Resources that it may use. A memory limit also bounds the files in memory, to half of it.
    pub limits: Limits,
    /// Network that it may reach; none for nothing but itself.
    pub egress: Option<Egress>,
}

/// End of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Exit status, 128 more than its number for a signal.
    pub exit_code: i32,
    /// Reason why it was not started at all.
    pub failed: Option<String>,
}

/// A program that runs. When this is dropped, the program and all that came of it is killed.
#[derive(Debug)]
pub struct Running {
    control: OwnedFd,
    process: OwnedFd,
    /// The other end of its terminal, if it has one.
    pub terminal: Option<OwnedFd>,
    /// Limits that were asked for and are not kept.
    pub missing: Vec<Missing>,
}

/// Message over the control socket to the first process.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Sends a signal to the program's process group.
    Signal(i32),
}

/// Message from the first process.
#[derive(Debug, Serialize, Deserialize)]
enum Event {
    /// It runs; a descriptor of the first process goes with it, and then of the terminal if it has one.
    Started,
    Ended(Ended),
}

/// Answer of the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launched {
    missing: Vec<Missing>,
}

/// Longest message.
const MESSAGE: usize = 4 << 10;

impl HostView {
    /// Starts the program. `stdio` is what it reads and writes where it has no terminal.
    pub fn start(&self, stdio: [BorrowedFd<'_>; 3]) -> Result<Running> {
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .doing("make a socket")?;
        let [input, output, errors] = stdio;
        let helper = client::start(self, &[theirs.as_fd(), input, output, errors])?;
        drop(theirs);
        let Launched { missing } = helper.wait()?;
        let event = receive(control.as_fd()).doing("listen to the sandbox")?;
        match event.ok_or_else(HostError::sandbox_ended)? {
            (Event::Started, descriptors) => {
                // The program may have ended since; its first process is known all the same.
                let mut descriptors = descriptors.into_iter();
                let process = descriptors.next().ok_or_else(HostError::sandbox_ended)?;
                Ok(Running { control, process, terminal: descriptors.next(), missing })
            }
            (Event::Ended(ended), _) => Err(HostError::other(ended.failed.unwrap_or_default())),
        }
    }
}

impl Running {
    /// Sends a signal to the program's process group. One that has ended needs none.
    pub fn signal(&self, number: i32) -> Result<()> {
        match send(self.control.as_fd(), &Request::Signal(number), &[]) {
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Ok(()),
            sent => sent.doing("send a signal"),
        }
    }

    /// Waits until the program has ended and everything that came of it. None if it was killed from outside.
    pub fn wait(&self) -> Result<Option<Ended>> {
        let event = receive(self.control.as_fd()).doing("listen to the sandbox")?;
        self.wait_for_end()?;
        Ok(event.and_then(|(event, _)| match event {
            Event::Ended(ended) => Some(ended),
            Event::Started => None,
        }))
    }

    /// Kills the program and all that came of it, and waits for the end.
    pub fn kill(&self) -> Result<()> {
        // It may have ended by itself.
        let _ = rustix::process::pidfd_send_signal(&self.process, rustix::process::Signal::KILL);
        self.wait_for_end()
    }

    /// The first process ends after all others of its namespace.
    fn wait_for_end(&self) -> Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.process, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                done => return done.map(drop).doing("wait for the sandbox"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.process, rustix::process::Signal::KILL);
    }
}

fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    with: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let text = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(with));
    }
    sendmsg(socket, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// None when the other end is gone.
fn receive<T: serde::de::DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> std::io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut text = [0; MESSAGE];
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

/// Ids that exist inside, for users and for groups: those of the machine, each as itself. An ordinary user has one of each.
fn ids(user: User, holder: &Holder) -> Result<(Vec<Range>, Vec<Range>)> {
    if user.is_superuser {
        let all: Vec<Range> = id_map::mapped()?.into_iter().map(Range::as_itself).collect();
        return Ok((all.clone(), all));
    }
    // The one of a holder is its superuser there.
    let outside = |id| if *holder == Holder::Machine { id } else { 0 };
    let one = |id| vec![Range { inside: id, outside: outside(id), count: 1 }];
    Ok((one(user.user), one(user.group)))
}

/// User that the program runs as.
#[derive(Debug, Clone, Copy)]
struct User {
    user: u32,
    group: u32,
    is_superuser: bool,
}

impl Task for HostView {
    const NAME: &'static str = "host-view";
    type Reply = Launched;

    fn run(self, fds: Vec<OwnedFd>) -> Result<Launched> {
        run(&self, fds)
    }
}

/// Makes the namespaces; called in the helper.
fn run(view: &HostView, descriptors: Vec<OwnedFd>) -> Result<Launched> {
    let descriptors: [OwnedFd; 4] =
        descriptors.try_into().map_err(|_| HostError::other("descriptors are missing"))?;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let is_superuser = user == 0;
    let user = User { user, group, is_superuser };
    let (groups, mut missing) = cgroup::make(&view.id, &view.limits)?;
    let mut processes = None;
    if limits::processes_are_counted_inside() && missing.iter().any(Missing::is_processes) {
        missing.retain(|missing| !missing.is_processes());
        processes = view.limits.processes;
    }
    let (users, owners) = ids(user, &view.holder)?;
    view.holder.join()?;
    limits::limit_pending_signals().doing("limit pending signals")?;
    let init = Init {
        view,
        user,
        groups: &groups,
        processes,
        memory: view.limits.memory_bytes.filter(|_| missing.iter().any(Missing::is_memory)),
        filters: Filters::new()?,
        descriptors,
    };
    let make = || {
        clone::child(NAMESPACES, groups.to_be_made_in(), |parent| match init.begin(parent) {
            Ok(never) => match never {},
            Err(error) => error,
        })
    };
    let made = match owner_of_namespace(&view.holder, &view.id, None).filter(|_| is_superuser) {
        Some(owner) => credentials::with_owner(owner, make),
        None => make(),
    };
    let mut child = made.map_err(no_namespaces)?;
    let made = accompany(&mut child, view, &users, &owners);
    if made.is_err() {
        child.kill();
    }
    made.map(|()| Launched { missing })
}

/// Maps ids and makes the network while the child gets ready.
fn accompany(child: &mut Child, view: &HostView, users: &[Range], groups: &[Range]) -> Result<()> {
    id_map::map(child.pid, users, groups)?;
    child.done()?;
    child.ready()?;
    if let Some(egress) = &view.egress {
        let process = pidfd_open(child.pid, PidfdFlags::empty()).doing("look at the sandbox")?;
        network_daemon::start(&process, egress, &view.holder)?;
    }
    child.done()?;
    child.ready()
}
