//! Having a helper do something.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use serde::de::DeserializeOwned;

use super::error::HostErrorKind;
use super::protocol::{FDS_MAX, SELF_EXEC_ARG, Task, decode_reply, encode};
use crate::error::{Doing as _, HostError, Result};
use crate::resources::limits;

/// The forker of this process, if one runs.
static FORKER: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// Has a helper run `task` with `fds`, and waits for its reply.
pub(crate) fn call<T: Task>(task: &T, fds: &[BorrowedFd<'_>]) -> Result<T::Reply> {
    start(task, fds)?.wait()
}

/// Reply of a helper that is at work.
#[derive(Debug)]
pub(crate) struct PendingReply<R> {
    socket: UnixStream,
    /// Outcome of sending the request.
    sent: io::Result<()>,
    reply: PhantomData<fn() -> R>,
}

/// Has a helper begin to run `task` with `fds`.
pub(crate) fn start<T: Task>(task: &T, fds: &[BorrowedFd<'_>]) -> Result<PendingReply<T::Reply>> {
    let request = encode(task)?;
    let (mut socket, theirs) = UnixStream::pair().doing("make a socket")?;
    let all: Vec<_> = [theirs.as_fd()].into_iter().chain(fds.iter().copied()).collect();
    send(T::NAME, &all)?;
    drop(theirs);
    // If this fails, the reply of the helper may tell more.
    let sent = socket.write_all(&request).and_then(|()| socket.shutdown(Shutdown::Write));
    Ok(PendingReply { socket, sent, reply: PhantomData })
}

impl<R: DeserializeOwned> PendingReply<R> {
    /// Waits until the helper has ended.
    pub(crate) fn wait(mut self) -> Result<R> {
        let mut reply = Vec::new();
        self.socket.read_to_end(&mut reply).doing("wait for a helper")?;
        if !reply.is_empty() {
            return decode_reply(&reply);
        }
        self.sent.doing("tell a helper what to do")?;
        Err(HostError::of_kind(HostErrorKind::Protocol, "the helper ended without a word"))
    }
}

/// Gives a task to the forker, or to a new one if the old one has ended.
fn send(task: &str, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let tried = forker()?;
    match send_to(&tried, task, descriptors) {
        Err(Errno::PIPE | Errno::CONNRESET) => {
            forget(&tried);
            send_to(&*forker()?, task, descriptors).doing("give a task to a helper")
        }
        sent => sent.doing("give a task to a helper"),
    }
}

fn send_to(forker: impl AsFd, task: &str, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    sendmsg(forker, &[IoSlice::new(task.as_bytes())], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

fn forker() -> Result<Arc<OwnedFd>> {
    let mut known = FORKER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(forker) = &*known {
        return Ok(forker.clone());
    }
    let started = Arc::new(start_server()?);
    *known = Some(started.clone());
    Ok(started)
}

fn forget(ended: &Arc<OwnedFd>) {
    let mut known = FORKER.lock().unwrap_or_else(PoisonError::into_inner);
    if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, ended)) {
        *known = None;
    }
}

/// Starts this program again.
fn start_server() -> Result<OwnedFd> {
    limits::raise_open_files().doing("raise the limit of open files")?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .doing("make a socket")?;
    let mut command = Command::new("/proc/self/exe");
    // In a group of its own: who interrupts the server at its terminal lets it end what is under way.
    command.args([SELF_EXEC_ARG, &std::process::id().to_string()]).stdin(theirs).process_group(0);
    // It raises the limit by itself, and knows then what others are to have.
    limits::usual_open_files(&mut command);
    let (said, heard) = mpsc::channel();
    // What is to end with its parent ends with the thread that started it, so that thread stays.
    let stay = move || match command.spawn() {
        Ok(mut child) => {
            // The other end of its socket must not stay open here.
            drop(command);
            drop(said.send(Ok(())));
            drop(child.wait());
        }
        Err(error) => drop(said.send(Err(error))),
    };
    let thread = std::thread::Builder::new().name("forker".to_owned()).spawn(stay);
    thread.doing("start a thread")?;
    heard.recv().map_err(io::Error::other).and_then(|started| started).doing("start this program again")?;
    Ok(ours)
}
