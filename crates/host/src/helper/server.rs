//! The same program, started again as a process with one thread.
//!
//! A server has many threads and must not fork; namespaces can only be entered by a process with one. So the
//! program starts itself once, with a word that says so, as the **forker**: a process that waits for tasks and makes
//! a helper, a copy of itself, for each. Starting the whole program for each would take longer than what most do.

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
use crate::error::{Doing as _, HostError, Result};
use crate::namespace::enter;
use crate::process::end_with_parent;
use crate::resources::limits;

/// To be called first in `main`: does what this process was started for, if that is something of this crate's.
pub fn helper_main() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != SELF_EXEC_ARG {
        return None;
    }
    let parent = words.next();
    if parent.as_deref() == Some(enter::ENTER) {
        return Some(enter::run());
    }
    let parents = rustix::process::getppid().map(|pid| pid.to_string());
    end_with_parent();
    if parent.is_none() || parent != parents {
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

/// What the forker does, until nobody can ask any more.
fn serve() -> Result<()> {
    limits::raise_open_files().doing("raise the limit of open files")?;
    let tasks = rustix::stdio::stdin();
    // Nobody waits for helpers: what came of a task is its answer.
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let forker = rustix::process::getpid();
    let null = File::options().read(true).write(true).open("/dev/null").doing("open /dev/null")?;
    while let Some((name, mut descriptors)) = receive(tasks)? {
        let Some(answer) = (!descriptors.is_empty()).then(|| descriptors.remove(0)) else { continue };
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no handler is set.
                unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
                end_with_parent();
                // With a copy of the socket here, tasks for a forker that has ended would wait for nobody.
                let apart = rustix::stdio::dup2_stdin(&null);
                if apart.is_ok() && rustix::process::getppid() == Some(forker) {
                    run(&name, answer.into(), descriptors);
                }
                // SAFETY: ends the process, and runs nothing that the forker will run as well.
                unsafe { libc::_exit(0) }
            }
            // Who asked is told by the end of the answer.
            -1 => eprintln!("cannot make a helper: {}", io::Error::last_os_error()),
            _ => {}
        }
    }
    Ok(())
}

/// The next task: its name, where to answer, and what goes with it.
fn receive(tasks: BorrowedFd<'_>) -> Result<Option<(String, Vec<OwnedFd>)>> {
    let mut name = [0; TASK_NAME_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let bytes = &mut [IoSliceMut::new(&mut name)];
        match recvmsg(tasks, bytes, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received.doing("wait for tasks")?,
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
    Ok(Some((String::from_utf8_lossy(&name[..received.bytes]).into_owned(), descriptors)))
}

/// Runs a task in the helper, and sends its reply.
fn run(name: &str, mut client: UnixStream, fds: Vec<OwnedFd>) {
    let mut request = Vec::new();
    let reply = match (client.read_to_end(&mut request).doing("read what to do"), tasks::find(name)) {
        (Err(error), _) => encode_reply::<()>(Err(error)),
        (Ok(_), None) => encode_reply::<()>(Err(HostError::of_kind(HostErrorKind::Protocol, "unknown task"))),
        (Ok(_), Some(handle)) => handle(&request, fds),
    };
    // The client may have ended meanwhile; then nobody needs the reply.
    drop(client.write_all(&reply));
}
