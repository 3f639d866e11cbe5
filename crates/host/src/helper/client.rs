//! Client side: sends tasks to the helper server of this process, which is started when it is first needed.

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
use crate::error::{Context as _, HostError, Result};
use crate::resources::limits;

/// Socket of the helper server, if one runs.
static SERVER: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

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
    let (mut socket, theirs) = UnixStream::pair().context("make a socket")?;
    let all: Vec<_> = [theirs.as_fd()].into_iter().chain(fds.iter().copied()).collect();
    send(T::NAME, &all)?;
    drop(theirs);
    // If this fails, the reply of the helper may tell more.
    let sent = socket.write_all(&request).and_then(|()| socket.shutdown(Shutdown::Write));
    Ok(PendingReply { socket, sent, reply: PhantomData })
}

impl<R: DeserializeOwned> PendingReply<R> {
    /// Waits for the reply.
    pub(crate) fn wait(mut self) -> Result<R> {
        let mut reply = Vec::new();
        self.socket.read_to_end(&mut reply).context("wait for a helper")?;
        if !reply.is_empty() {
            return decode_reply(&reply);
        }
        self.sent.context("send a request to a helper")?;
        Err(HostError::of_kind(HostErrorKind::Protocol, "the helper ended without a word"))
    }
}

/// Sends a task to the helper server, or to a new one if that has ended.
fn send(task: &str, fds: &[BorrowedFd<'_>]) -> Result<()> {
    let tried = server()?;
    match send_to(&tried, task, fds) {
        Err(Errno::PIPE | Errno::CONNRESET) => {
            forget_server(&tried);
            send_to(&*server()?, task, fds).context("send a task to the helper server")
        }
        sent => sent.context("send a task to the helper server"),
    }
}

fn send_to(server: impl AsFd, task: &str, fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    sendmsg(server, &[IoSlice::new(task.as_bytes())], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

fn server() -> Result<Arc<OwnedFd>> {
    let mut known = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = &*known {
        return Ok(server.clone());
    }
    let started = Arc::new(start_server()?);
    *known = Some(started.clone());
    Ok(started)
}

fn forget_server(ended: &Arc<OwnedFd>) {
    let mut known = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, ended)) {
        *known = None;
    }
}

/// Starts this program again as the helper server. Returns its socket.
fn start_server() -> Result<OwnedFd> {
    limits::raise_open_files_limit().context("raise the limit of open files")?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("make a socket")?;
    let mut command = Command::new("/proc/self/exe");
    // In its own process group: Ctrl-C at the terminal of the server must not kill work in progress.
    command.args([SELF_EXEC_ARG, &std::process::id().to_string()]).stdin(theirs).process_group(0);
    // The helper server raises the limit itself, and records the original one.
    limits::reset_open_files_limit(&mut command);
    let (sender, receiver) = mpsc::channel();
    // A parent death signal is sent when the thread ends that started the child, so that thread stays.
    let run = move || match command.spawn() {
        Ok(mut child) => {
            // The other end of the socket must not stay open here.
            drop(command);
            drop(sender.send(Ok(())));
            drop(child.wait());
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    let thread = std::thread::Builder::new().name("helper-server".to_owned()).spawn(run);
    thread.context("start a thread")?;
    receiver
        .recv()
        .map_err(io::Error::other)
        .and_then(|started| started)
        .context("start this program again")?;
    Ok(ours)
}
