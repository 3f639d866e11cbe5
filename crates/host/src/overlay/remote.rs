//! What a helper does for an ordinary user, in the namespaces of his holder.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::{Overlay, Xattrs, names, place, trial};
use crate::entry;
use crate::error::{Doing as _, HostError, Result};
use crate::holder::Holder;

/// What the helper is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    holder: Holder,
    task: Task,
}

#[derive(Debug, Serialize, Deserialize)]
enum Task {
    Mount(Directories),
    Replace(Directories),
    Unmount(PathBuf),
    Answers(PathBuf),
    Probe(PathBuf),
    Remove(PathBuf),
    Open { name: Vec<u8>, flags: u32 },
    Attributes,
}

#[derive(Debug, Serialize, Deserialize)]
struct Directories {
    lower: Vec<PathBuf>,
    upper: PathBuf,
    work: PathBuf,
    at: PathBuf,
}

impl Directories {
    fn of(overlay: &Overlay<'_>) -> Self {
        Self {
            lower: overlay.lower.to_vec(),
            upper: overlay.upper.to_owned(),
            work: overlay.work.to_owned(),
            at: overlay.at.to_owned(),
        }
    }

    fn overlay(&self) -> Overlay<'_> {
        Overlay { lower: &self.lower, upper: &self.upper, work: &self.work, at: &self.at }
    }
}

impl Order {
    pub(super) fn mount(holder: &Holder, overlay: &Overlay<'_>) -> Self {
        Self { holder: holder.clone(), task: Task::Mount(Directories::of(overlay)) }
    }

    pub(super) fn replace(holder: &Holder, overlay: &Overlay<'_>) -> Self {
        Self { holder: holder.clone(), task: Task::Replace(Directories::of(overlay)) }
    }

    pub(super) fn unmount(holder: &Holder, at: &Path) -> Self {
        Self { holder: holder.clone(), task: Task::Unmount(at.to_owned()) }
    }

    pub(super) fn answers(holder: &Holder, path: &Path) -> Self {
        Self { holder: holder.clone(), task: Task::Answers(path.to_owned()) }
    }

    pub(super) fn probe(holder: &Holder, directory: &Path) -> Self {
        Self { holder: holder.clone(), task: Task::Probe(directory.to_owned()) }
    }

    pub(super) fn remove(holder: &Holder, path: &Path) -> Self {
        Self { holder: holder.clone(), task: Task::Remove(path.to_owned()) }
    }
}

/// What went wrong, on its way back. The numbers of errors are kept: who asked may know what to do about some.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    System { action: String, errno: i32 },
    Overlay { at: PathBuf, errno: i32, reason: String },
    Other(String),
}

impl Failure {
    fn of(error: HostError) -> Self {
        match (error.os_error(), error) {
            (Some(errno), HostError::System { action, .. }) => Self::System { action, errno },
            (Some(errno), HostError::Overlay { at, reason, .. }) => Self::Overlay { at, errno, reason },
            (_, error) => Self::Other(error.to_string()),
        }
    }

    fn into_error(self) -> HostError {
        match self {
            Self::System { action, errno } => {
                HostError::System { action, source: io::Error::from_raw_os_error(errno) }
            }
            Self::Overlay { at, errno, reason } => {
                HostError::Overlay { at, source: io::Error::from_raw_os_error(errno), reason }
            }
            Self::Other(text) => HostError::Helper(text),
        }
    }
}

/// What came of it; true if there was something to do.
type Answer = std::result::Result<bool, Failure>;

/// Has a helper do it.
pub(super) fn ask(order: &Order) -> Result<bool> {
    entry::ask::<Answer>("overlay", order, &[])?.map_err(Failure::into_error)
}

/// What the helper does.
pub(crate) fn run(order: &Order, descriptors: &[OwnedFd]) -> Result<Answer> {
    order.holder.join()?;
    let done = match &order.task {
        Task::Mount(directories) => place::mount(Xattrs::User, &directories.overlay()).map(|()| true),
        Task::Replace(directories) => place::replace(Xattrs::User, &directories.overlay()).map(|()| true),
        Task::Unmount(at) => place::unmount(at),
        Task::Answers(path) => place::answers(path),
        Task::Probe(directory) => trial::run(Xattrs::User, directory).map(|()| true),
        Task::Remove(path) => names::remove_tree(path).map(|()| true),
        Task::Open { name, flags } => open_here(name, *flags, descriptors).map(|()| true),
        Task::Attributes => attributes_here(descriptors).map(|()| true),
    };
    Ok(done.map_err(Failure::of))
}

fn open_here(name: &[u8], flags: u32, descriptors: &[OwnedFd]) -> Result<()> {
    let [directory, answer] = descriptors else {
        return Err(HostError::Helper("no directory to open something in".to_owned()));
    };
    let name = CString::new(name).map_err(io::Error::from).doing("open a name")?;
    let opened = names::open(directory.as_fd(), &name, OFlags::from_bits_retain(flags))?;
    let rights = [opened.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&rights));
    sendmsg(answer, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)
        .doing("give what was opened")?;
    Ok(())
}

/// Has a helper open a name.
pub(super) fn open(
    holder: &Holder,
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: OFlags,
) -> Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair().doing("make a socket")?;
    let task = Task::Open { name: name.to_bytes().to_vec(), flags: flags.bits() };
    let order = Order { holder: holder.clone(), task };
    let answer = entry::ask::<Answer>("overlay", &order, &[directory, theirs.as_fd()]);
    drop(theirs);
    answer?.map_err(Failure::into_error)?;
    receive(&ours)
}

fn receive(socket: &UnixStream) -> Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    while let Err(errno) =
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    {
        if errno != Errno::INTR {
            return Err(errno).doing("receive what was opened");
        }
    }
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    received.ok_or_else(|| HostError::Helper("nothing was opened".to_owned()))
}

fn attributes_here(descriptors: &[OwnedFd]) -> Result<()> {
    let [file, answer] = descriptors else {
        return Err(HostError::Helper("no file to read the attributes of".to_owned()));
    };
    let found = serde_json::to_vec(&names::attributes(file.as_fd())?);
    let found = found.map_err(io::Error::from).doing("tell the attributes")?;
    io::Write::write_all(&mut std::fs::File::from(answer.try_clone().doing("tell the attributes")?), &found)
        .doing("tell the attributes")
}

/// Has a helper read the attributes of an open file.
pub(super) fn attributes(holder: &Holder, file: BorrowedFd<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let memory = rustix::fs::memfd_create("attributes", rustix::fs::MemfdFlags::CLOEXEC);
    let memory = memory.doing("make room for attributes")?;
    let order = Order { holder: holder.clone(), task: Task::Attributes };
    entry::ask::<Answer>("overlay", &order, &[file, memory.as_fd()])?.map_err(Failure::into_error)?;
    let mut file = std::fs::File::from(memory);
    io::Seek::rewind(&mut file).doing("read attributes")?;
    serde_json::from_reader(file).map_err(io::Error::from).doing("read attributes")
}
