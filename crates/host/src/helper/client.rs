//! Client side: sends tasks to the helper server of this process, which is started when it is first needed.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
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

/// Maximum size of a reply in bytes. The largest replies list the processes that use a workspace.
const REPLY_MAX: u64 = 16 << 20;

/// Socket of the helper server; `None` if it was not started yet, or has exited.
static SERVER: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// Runs `task` in a helper, and waits for its reply. `fds` are file descriptors that the task needs, if any.
pub(crate) fn call<T: Task>(task: &T, fds: &[BorrowedFd<'_>]) -> Result<T::Reply> {
    start(task, fds)?.wait()
}

/// Reply of a running helper.
#[derive(Debug)]
pub(crate) struct PendingReply<R> {
    socket: UnixStream,
    /// Result of sending the request. Reported only if no reply comes.
    sent: io::Result<()>,
    reply: PhantomData<fn() -> R>,
}

/// Starts a helper that runs `task` with `fds`.
pub(crate) fn start<T: Task>(task: &T, fds: &[BorrowedFd<'_>]) -> Result<PendingReply<T::Reply>> {
    let request = encode(task)?;
    let (mut socket, helper_socket) = UnixStream::pair().context("create a socket")?;
    let all: Vec<_> = [helper_socket.as_fd()].into_iter().chain(fds.iter().copied()).collect();
    send(T::NAME, &all)?;
    drop(helper_socket);
    // If this fails, the reply of the helper may have the reason.
    let sent = socket.write_all(&request).and_then(|()| socket.shutdown(Shutdown::Write));
    Ok(PendingReply { socket, sent, reply: PhantomData })
}

impl<R: DeserializeOwned> PendingReply<R> {
    /// Waits for the reply. Fails with [`HostErrorKind::Protocol`] if it is missing, malformed or larger than
    /// [`REPLY_MAX`]: a helper may be killed at any time.
    pub(crate) fn wait(self) -> Result<R> {
        let mut reply = Vec::new();
        (&self.socket).take(REPLY_MAX + 1).read_to_end(&mut reply).context("wait for a helper")?;
        if reply.len() as u64 > REPLY_MAX {
            return Err(HostError::of_kind(HostErrorKind::Protocol, "the reply of a helper is too large"));
        }
        if !reply.is_empty() {
            return decode_reply(&reply);
        }
        self.sent.context("send a request to a helper")?;
        Err(HostError::of_kind(HostErrorKind::Protocol, "the helper exited without a reply"))
    }
}

/// Sends a task to the helper server, or to a new one if it has exited.
fn send(task: &str, fds: &[BorrowedFd<'_>]) -> Result<()> {
    let current = running_server()?;
    match send_to(&current, task, fds) {
        Err(Errno::PIPE | Errno::CONNRESET) => {
            forget_server(&current);
            send_to(&*running_server()?, task, fds).context("send a task to the helper server")
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

/// Returns the socket of the helper server, which is started if none runs.
fn running_server() -> Result<Arc<OwnedFd>> {
    let mut current = SERVER.lock();
    if let Some(server) = &*current {
        return Ok(server.clone());
    }
    let started = Arc::new(start_server()?);
    *current = Some(started.clone());
    Ok(started)
}

fn forget_server(exited: &Arc<OwnedFd>) {
    let mut current = SERVER.lock();
    if current.as_ref().is_some_and(|server| Arc::ptr_eq(server, exited)) {
        *current = None;
    }
}

/// Starts this program again as the helper server. Returns its socket.
fn start_server() -> Result<OwnedFd> {
    // The limit also bounds the descriptors in flight to helpers.
    limits::raise_open_files_limit().context("raise the limit of open files")?;
    let (client, server) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("create a socket")?;
    let mut command = Command::new("/proc/self/exe");
    // In its own process group: Ctrl-C at the terminal of this process must not kill work in progress.
    command.args([SELF_EXEC_ARG, &std::process::id().to_string()]).stdin(server).process_group(0);
    // The helper server starts with the original limit, so that it can restore it for programs that it starts, and
    // raises its own.
    limits::reset_open_files_limit(&mut command);
    let (sender, receiver) = mpsc::channel();
    // The parent death signal of a child is sent when the thread that started it exits, so this thread waits
    // for the child.
    let run = move || match command.spawn() {
        Ok(mut child) => {
            // Closes this process's copy of the helper server's socket.
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
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::error::HelperError;
    use crate::helper::protocol::encode_reply;
    use crate::sandbox::workspace_process::{WorkspaceProcess, WorkspaceUse};

    type Processes = Vec<WorkspaceProcess>;

    /// Returns the socket of the helper, and the reply that the client waits for.
    fn pending<R>() -> (UnixStream, PendingReply<R>) {
        let (socket, helper) = UnixStream::pair().unwrap();
        (helper, PendingReply { socket, sent: Ok(()), reply: PhantomData })
    }

    /// Returns the result for a helper that sends these bytes and exits.
    fn receive<R: DeserializeOwned>(reply: &[u8]) -> Result<R> {
        let (mut helper, pending) = pending();
        helper.write_all(reply).unwrap();
        drop(helper);
        pending.wait()
    }

    #[track_caller]
    fn assert_protocol_error<R: DeserializeOwned + std::fmt::Debug>(reply: &[u8]) {
        let text = String::from_utf8_lossy(&reply[..reply.len().min(100)]).into_owned();
        let error = receive::<R>(reply).expect_err(&text);
        assert_eq!(error.kind(), HostErrorKind::Protocol, "{text}: {error}");
    }

    #[test]
    fn a_reply_that_ends_early_is_a_protocol_error() {
        let process = WorkspaceProcess { pid: 7, command: "sleep".to_owned(), usage: WorkspaceUse::Cwd };
        let error = HelperError { kind: HostErrorKind::System, errno: Some(28), message: "full".to_owned() };
        for reply in [
            encode_reply(Ok(vec![process.clone()])),
            encode_reply::<Processes>(Err(HostError::Helper(error))),
        ] {
            for length in 0..reply.len() {
                assert_protocol_error::<Processes>(&reply[..length]);
            }
        }
        assert_eq!(receive::<Processes>(&encode_reply(Ok(vec![process.clone()]))).unwrap(), [process]);
    }

    #[test]
    fn a_malformed_reply_is_a_protocol_error() {
        let nested = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        for reply in [
            &b"\0"[..],
            b"\xff\xfe",
            b"null",
            b"{}",
            b"[]",
            // Not the type of the reply.
            b"{\"Ok\":7}",
            b"{\"Ok\":[{\"pid\":\"7\",\"command\":\"sleep\",\"why\":\"cwd\"}]}",
            b"{\"Ok\":[{\"pid\":99999999999,\"command\":\"sleep\",\"why\":\"cwd\"}]}",
            b"{\"Ok\":[{\"pid\":7,\"command\":\"sleep\",\"why\":\"unknown\"}]}",
            // Neither or both of the variants, or two replies.
            b"{\"Maybe\":[]}",
            b"{\"Ok\":[],\"Err\":{\"kind\":\"Other\",\"errno\":null,\"message\":\"\"}}",
            b"{\"Ok\":[]}{\"Ok\":[]}",
            // Errors without a known kind.
            b"{\"Err\":\"failed\"}",
            b"{\"Err\":{\"kind\":\"Unknown\",\"errno\":null,\"message\":\"\"}}",
            b"{\"Err\":{\"kind\":\"System\",\"errno\":\"28\",\"message\":\"\"}}",
            nested.as_slice(),
        ] {
            assert_protocol_error::<Processes>(reply);
        }
    }

    #[test]
    fn a_reply_without_end_is_rejected_at_the_size_limit() {
        let (mut helper, pending) = pending::<Processes>();
        let writer = std::thread::spawn(move || {
            let (block, mut written) = (vec![b' '; 64 << 10], 0_u64);
            // Fails when the client closes its end.
            while helper.write_all(&block).is_ok() {
                written += block.len() as u64;
            }
            written
        });
        let error = pending.wait().unwrap_err();
        assert_eq!(error.kind(), HostErrorKind::Protocol, "{error}");
        // The rest is in the buffers of the socket.
        let written = writer.join().unwrap();
        assert!((REPLY_MAX..REPLY_MAX + (16 << 20)).contains(&written), "{written}");
    }

    #[test]
    fn a_missing_reply_to_a_request_that_was_not_sent_is_its_system_error() {
        let (helper, mut pending) = pending::<Processes>();
        drop(helper);
        pending.sent = Err(io::Error::from_raw_os_error(libc::EPIPE));
        let error = pending.wait().unwrap_err();
        assert_eq!((error.kind(), error.os_error()), (HostErrorKind::System, Some(libc::EPIPE)));
    }
}
