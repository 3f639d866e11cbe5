//! Having a helper do something.

use std::io::{self, IoSlice, Read as _, Write as _};
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
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{DESCRIPTORS, DONE, WORD, json};
use crate::error::{Doing as _, HostError, Result};
use crate::resources::limits;

/// The forker of this process, if one runs.
static FORKER: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// Has a helper do `task`, which gets `order` and `descriptors`; what it answers.
pub(crate) fn ask<A: DeserializeOwned>(
    task: &str,
    order: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> Result<A> {
    begin(task, order, descriptors)?.answer()
}

/// A helper that is at work.
#[derive(Debug)]
pub(crate) struct Begun {
    line: UnixStream,
    told: io::Result<()>,
}

/// Has a helper begin with `task`.
pub(crate) fn begin(task: &str, order: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<Begun> {
    let text = json(order)?;
    let (mut line, theirs) = UnixStream::pair().doing("make a socket")?;
    let all: Vec<_> = [theirs.as_fd()].into_iter().chain(descriptors.iter().copied()).collect();
    send(task, &all)?;
    drop(theirs);
    // Whatever comes of this, what the helper says tells more.
    let told = line.write_all(&text).and_then(|()| line.shutdown(Shutdown::Write));
    Ok(Begun { line, told })
}

impl Begun {
    /// Waits for what it answers at its end.
    pub(crate) fn answer<A: DeserializeOwned>(mut self) -> Result<A> {
        let mut answer = Vec::new();
        self.line.read_to_end(&mut answer).doing("wait for a helper")?;
        match answer.split_first() {
            Some((&DONE, answer)) => serde_json::from_slice(answer)
                .map_err(|error| HostError::Helper(format!("unreadable answer: {error}"))),
            Some((_, complaint)) => Err(HostError::Helper(String::from_utf8_lossy(complaint).into_owned())),
            None => {
                self.told.doing("tell a helper what to do")?;
                Err(HostError::Helper("the helper ended without a word".to_owned()))
            }
        }
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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
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
    let started = Arc::new(start()?);
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
fn start() -> Result<OwnedFd> {
    limits::raise_open_files().doing("raise the limit of open files")?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .doing("make a socket")?;
    let mut command = Command::new("/proc/self/exe");
    // In a group of its own: who interrupts the server at its terminal lets it end what is under way.
    command.args([WORD, &std::process::id().to_string()]).stdin(theirs).process_group(0);
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
