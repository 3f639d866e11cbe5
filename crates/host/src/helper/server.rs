//! Server side: the loop that forks a helper for each task.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::error::HostErrorKind;
use super::protocol::{FDS_MAX, SELF_EXEC_ARG, TASK_NAME_MAX, encode_reply};
use super::tasks;
use crate::error::{Context as _, HostError, Result};
use crate::namespace::enter;
use crate::process::kill_on_parent_exit;
use crate::resources::limits;

/// Runs this process as the helper server, or executes a program in the namespaces of a namespace holder
/// (`namespace/holder.rs`), if it was started for that. Must be called first in `main`; returns `None` in an ordinary
/// start.
pub fn helper_main() -> Option<ExitCode> {
    // The arguments of an ordinary start may not be valid UTF-8.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != SELF_EXEC_ARG {
        return None;
    }
    let argument = arguments.next();
    if argument.as_deref() == Some(OsStr::new(enter::ENTER_ARG)) {
        return Some(enter::run());
    }
    // The argument is the PID of the client. If that is not the parent, the client has already exited.
    kill_on_parent_exit();
    let parent = rustix::process::getppid().map(|pid| OsString::from(pid.to_string()));
    if argument.is_none() || argument != parent {
        return Some(ExitCode::FAILURE);
    }
    Some(match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// Forks a helper for each task until the client closes the socket.
fn serve() -> Result<()> {
    // Closes files that the client had open without `CLOEXEC`: sandboxes must never inherit them.
    // SAFETY: this process has opened nothing yet; its socket is standard input.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    limits::raise_open_files_limit().context("raise the limit of open files")?;
    let socket = rustix::stdio::stdin();
    // Helpers need not be waited for: their replies have the results.
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let server = rustix::process::getpid();
    let null = File::options().read(true).write(true).open("/dev/null").context("open /dev/null")?;
    while let Some((name, mut fds)) = receive(socket)? {
        let Some(reply_socket) = (!fds.is_empty()).then(|| fds.remove(0)) else { continue };
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no handler is set.
                unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
                kill_on_parent_exit();
                // If a helper kept a copy of the socket, a client that sends to an exited helper server
                // would get no error.
                let detached = rustix::stdio::dup2_stdin(&null);
                if detached.is_ok() && rustix::process::getppid() == Some(server) {
                    run(&name, reply_socket.into(), fds);
                }
                // SAFETY: exits the process without running exit handlers of the server.
                unsafe { libc::_exit(0) }
            }
            // The client sees its socket close.
            -1 => eprintln!("failed to fork a helper: {}", io::Error::last_os_error()),
            _ => {}
        }
    }
    Ok(())
}

/// Receives the next task: its name and file descriptors, the socket for the reply first. Returns `None` when
/// the client has closed the socket.
fn receive(socket: BorrowedFd<'_>) -> Result<Option<(String, Vec<OwnedFd>)>> {
    let mut name = [0; TASK_NAME_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let bytes = &mut [IoSliceMut::new(&mut name)];
        match recvmsg(socket, bytes, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received.context("wait for tasks")?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(Some((String::from_utf8_lossy(&name[..received.bytes]).into_owned(), fds)))
}

/// Runs a task in the helper, and sends its reply.
fn run(name: &str, mut client: UnixStream, fds: Vec<OwnedFd>) {
    let mut request = Vec::new();
    let reply = match (client.read_to_end(&mut request).context("read the request"), tasks::find(name)) {
        (Err(error), _) => encode_reply::<()>(Err(error)),
        (Ok(_), None) => encode_reply::<()>(Err(HostError::of_kind(HostErrorKind::Protocol, "unknown task"))),
        (Ok(_), Some(handle)) => handle(&request, fds),
    };
    // The client may have exited.
    drop(client.write_all(&reply));
}
