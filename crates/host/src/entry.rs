//! The same program, started again as a process with one thread.
//!
//! A server has many threads and must not fork; namespaces can only be entered by a process with one. So the
//! program starts itself once, with a word that says so, as the **forker**: a process that waits for tasks and makes
//! a helper, a copy of itself, for each. Starting the whole program for each would take longer than what most do.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Doing as _, HostError, Result};
use crate::{
    attach, egress, enter, holder, host_view, launch, limits, overlay, probe, rights, swap, usage, users,
};

/// The first argument of such a start.
pub(crate) const WORD: &str = "internal-host";
/// A task's name is shorter.
const NAME: usize = 32;
/// So many descriptors go with a task, its answer's among them.
const DESCRIPTORS: usize = 5;

/// The forker of this process, if one runs.
static FORKER: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// To be called first in `main`: does what this process was started for, if that is something of this crate's.
pub fn entry() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != WORD {
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

/// Lets this process end with the one that made it. A launcher that went on would start a sandbox of which the
/// next server has found nothing.
pub(crate) fn end_with_parent() {
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
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
                    help(&name, answer.into(), descriptors);
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
    let mut name = [0; NAME];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
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

/// What a helper does.
fn help(name: &str, mut asked: UnixStream, descriptors: Vec<OwnedFd>) {
    let answer = match name {
        "launch" => {
            read(&mut asked).and_then(|order| launch::run(&order, descriptors)).and_then(|made| json(&made))
        }
        "hold" => read::<std::path::PathBuf>(&mut asked)
            .and_then(|path| holder::run(&path))
            .and_then(|held| json(&held)),
        "attach" => read(&mut asked).and_then(|order| attach::run(&order)).and_then(|()| json(&())),
        "swap" => read(&mut asked).and_then(|order| swap::run(&order)).and_then(|()| json(&())),
        "settle" => read(&mut asked).and_then(|order| swap::run_settle(&order)).and_then(|new| json(&new)),
        "users" => read(&mut asked).and_then(|order| users::run(&order)).and_then(|users| json(&users)),
        "deleted" => {
            read(&mut asked).and_then(|order| users::deleted_here(&order)).and_then(|all| json(&all))
        }
        "rights" => {
            read(&mut asked).and_then(|holder| rights::run(&holder, &descriptors)).and_then(|()| json(&()))
        }
        "measure" => read(&mut asked).and_then(|order| usage::run(&order)).and_then(|usage| json(&usage)),
        "connect" => read(&mut asked).and_then(|order| egress::run(&order)).and_then(|()| json(&())),
        "overlay" => read(&mut asked).and_then(|order| overlay::run(&order)).and_then(|done| json(&done)),
        "host-view" => read(&mut asked)
            .and_then(|order| host_view::run(&order, descriptors))
            .and_then(|launched| json(&launched)),
        "probe" => read(&mut asked).and_then(|holder| probe::run(&holder)).and_then(|can| json(&can)),
        _ => Err(HostError::Helper("unknown task".to_owned())),
    };
    let (verdict, text) = match answer {
        Ok(text) => (DONE, text),
        Err(error) => (FAILED, error.to_string().into_bytes()),
    };
    // Whoever asked may be gone; then there is nobody to tell.
    drop(asked.write_all(&[verdict]).and_then(|()| asked.write_all(&text)));
}

/// What follows is the answer.
const DONE: u8 = 1;
/// What follows is why there is none.
const FAILED: u8 = 2;

fn read<T: DeserializeOwned>(asked: &mut UnixStream) -> Result<T> {
    let mut text = Vec::new();
    asked.read_to_end(&mut text).doing("read what to do")?;
    serde_json::from_slice(&text).map_err(|error| HostError::Helper(format!("unreadable order: {error}")))
}

fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| HostError::Helper(error.to_string()))
}

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
