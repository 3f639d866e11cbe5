//! Replacing the workspace of a running sandbox.
//!
//! The new one is mounted on top of the old one, and then the two change places by `pivot_root`, from a helper whose root is
//! the old one: the kernel moves every process whose working directory is the root of the old one to the root of the new
//! one. After that the old one is on top, and is taken away. Whoever looks finds the one or the other.
//!
//! Whoever has a working directory further down, a descriptor or a mapping in the old one stays with it
//! ([`workspace_users`](crate::workspace_users) tells who); it is there for as long as they are.
//!
//! A helper that is killed leaves two mounts, one on top of the other. Before they change places the upper one is the new
//! one, afterwards it is the old one, so in both cases taking away the upper one is right: [`settle`].
//!
//! A helper has a deadline. It looks at the time before each step that others see, and the kernel ends it when the time
//! is over, so that nothing is replaced after the server has given up.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, HostError, Result};
use crate::helper::client;
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::mount::attach::{enter, is_mounted, lock};
use crate::mount::mounts;
use crate::mount::workspace::{give, take_up};
use crate::namespace::holder::Holder;
use crate::process::Process;
use crate::sandbox::layout::WORKSPACE;
use crate::sandbox::own_users;

/// Time in which files of processes that have just ended are closed: the kernel does that after it has forgotten which
/// files they had.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const CLOSE_POLL: Duration = Duration::from_millis(1);
/// Time in which a helper is done, or has changed nothing. Two of them, one after another, end before the server gives up.
const SWAP_TIMEOUT: Duration = Duration::from_secs(30);

/// Parameters of a swap, and of settling one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    holder: Holder,
    process: Process,
    workspace: PathBuf,
    /// The user that the sandbox runs as, if that is one of its own.
    user: Option<u32>,
    /// Time of the monotonic clock after which nothing may be changed any more: the server has given up by then.
    deadline: Duration,
    /// Step after which the helper is to be killed.
    killed_after: Option<SwapStep>,
    /// Step after which the helper is to do nothing any more.
    stalled_after: Option<SwapStep>,
}

/// A step of a swap, after which tests kill the helper.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwapStep {
    Closed,
    Mounted,
    Pivoted,
    Detached,
}

/// Replaces the workspace of the sandbox whose first process this is, and gives the new one to its user.
pub fn swap(holder: &Holder, process: &Process, workspace: &Path) -> Result<()> {
    let user = own_users::of(process)?;
    give(holder, workspace, user)?;
    replace(holder, process, workspace, user)
}

/// The same with a workspace that belongs to whoever is to use it already.
pub fn swap_given(holder: &Holder, process: &Process, workspace: &Path) -> Result<()> {
    replace(holder, process, workspace, None)
}

/// Returns whether `workspace` is the workspace of the sandbox whose first process this is, after a [`swap`] whose outcome
/// is not known. Finishes or takes back what a helper left that was killed.
pub fn settle_swap(holder: &Holder, process: &Process, workspace: &Path) -> Result<bool> {
    let user = own_users::of(process)?;
    client::call(&SettleSwapTask(Request::new(holder, process, workspace, user)), &[])
}

/// The same after a [`swap_given`].
pub fn settle_swap_given(holder: &Holder, process: &Process, workspace: &Path) -> Result<bool> {
    client::call(&SettleSwapTask(Request::new(holder, process, workspace, None)), &[])
}

fn replace(holder: &Holder, process: &Process, workspace: &Path, user: Option<u32>) -> Result<()> {
    let task = SwapTask(Request::new(holder, process, workspace, user));
    let Err(error) = client::call(&task, &[]) else { return Ok(()) };
    // The helper has undone what it did, unless it was killed.
    match client::call(&SettleSwapTask(Request::new(holder, process, workspace, user)), &[]) {
        Ok(true) => Ok(()),
        Ok(false) => Err(error),
        Err(more) => Err(error.followed_by(more)),
    }
}

/// Begins to replace a workspace, with a helper that is killed after a step.
#[doc(hidden)]
pub fn swap_killed(holder: &Holder, process: &Process, workspace: &Path, after: SwapStep) -> Result<()> {
    let request = Request::new(holder, process, workspace, own_users::of(process)?);
    client::call(&SwapTask(Request { killed_after: Some(after), ..request }), &[])
}

/// Begins to replace a workspace within a time limit, with a helper that stalls after a step.
#[doc(hidden)]
pub fn swap_stalled(
    holder: &Holder,
    process: &Process,
    workspace: &Path,
    (limit, after): (Duration, Option<SwapStep>),
) -> Result<()> {
    let request = Request::new(holder, process, workspace, own_users::of(process)?);
    let request = Request { deadline: monotonic() + limit, stalled_after: after, ..request };
    client::call(&SwapTask(request), &[])
}

fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

impl Request {
    fn new(holder: &Holder, process: &Process, workspace: &Path, user: Option<u32>) -> Self {
        let (holder, process, workspace) = (holder.clone(), process.clone(), workspace.to_owned());
        let deadline = monotonic() + SWAP_TIMEOUT;
        Self { holder, process, workspace, user, deadline, killed_after: None, stalled_after: None }
    }

    /// Fails when the time is over, before something is done that would be seen.
    fn check_time(&self) -> Result<()> {
        if monotonic() < self.deadline {
            return Ok(());
        }
        Err(HostError::of_kind(HostErrorKind::TimedOut, "it took too long, and was given up"))
    }

    /// Lets this process end when the time is over, also if it waits for the kernel then.
    fn end_in_time(&self) -> Result<()> {
        self.check_time()?;
        let left = self.deadline.saturating_sub(monotonic()).max(Duration::from_millis(1));
        let value = libc::timeval {
            tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_usec: left.subsec_micros().into(),
        };
        let timer = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: value };
        // SAFETY: a structure that is read, and nothing that is written. The signal ends a process that has no handler.
        let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
        if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).doing("set a timer") }
    }

    fn done(&self, step: SwapStep) {
        if self.killed_after == Some(step) {
            // SAFETY: the call takes a number.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        while self.stalled_after == Some(step) {
            std::thread::park();
        }
    }
}

/// Replaces the workspace of a sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SwapTask(Request);

impl Task for SwapTask {
    const NAME: &'static str = "swap";
    type Reply = ();

    fn run(self, _fds: Vec<OwnedFd>) -> Result<()> {
        run(&self.0)
    }
}

/// Finishes or takes back a swap whose helper was killed. Replies whether the workspace is the new one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SettleSwapTask(Request);

impl Task for SettleSwapTask {
    const NAME: &'static str = "settle-swap";
    type Reply = bool;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<bool> {
        run_settle(&self.0)
    }
}

fn run(request: &Request) -> Result<()> {
    request.end_in_time()?;
    let (new, _lock) = go_inside(request)?;
    if settle(new.as_fd())? {
        return Ok(());
    }
    request.check_time()?;
    let old = close()?;
    request.done(SwapStep::Closed);
    let swapped = change_places(request, old.as_fd(), new.as_fd());
    if swapped.is_err() {
        mounts::set_read_only(old.as_fd(), false).doing(format!("open {WORKSPACE} again"))?;
    }
    swapped
}

/// Task of the helper after another one failed. Returns whether the new workspace is there.
fn run_settle(request: &Request) -> Result<bool> {
    request.end_in_time()?;
    let (new, _lock) = go_inside(request)?;
    settle(new.as_fd())
}

/// Takes up the new workspace, and goes to the mounts of the sandbox.
fn go_inside(request: &Request) -> Result<(OwnedFd, File)> {
    let process = request.process.pidfd().ok_or_else(HostError::sandbox_ended)?;
    request.holder.join()?;
    let lock = lock(&request.process)?;
    let new = take_up(&request.workspace, request.user)?;
    enter(process.as_fd())?;
    if !is_mounted(WORKSPACE)? {
        return Err(HostError::of_kind(HostErrorKind::Conflict, "the sandbox has no workspace yet"));
    }
    Ok((new, lock))
}

/// Finishes, or takes back, what a helper began that was killed. Returns whether the workspace is `new` then.
fn settle(new: BorrowedFd<'_>) -> Result<bool> {
    while mounted_there()? > 1 {
        unmount(WORKSPACE, UnmountFlags::DETACH).doing(format!("take away the upper {WORKSPACE}"))?;
    }
    let there = open()?;
    mounts::set_read_only(there.as_fd(), false).doing(format!("open {WORKSPACE} again"))?;
    Ok(identity(there.as_fd())? == identity(new)?)
}

/// Number of mounts at the workspace, one on top of the other.
fn mounted_there() -> Result<usize> {
    // The helper has no number inside; the first process has the same mounts.
    let table = std::fs::read_to_string("/proc/1/mountinfo").doing("look at the sandbox's mounts")?;
    Ok(table.lines().filter(|line| line.split(' ').nth(4) == Some(WORKSPACE)).count())
}

/// Device and inode of a directory.
fn identity(directory: BorrowedFd<'_>) -> Result<(u64, u64)> {
    let stat = rustix::fs::fstat(directory).doing(format!("look at {WORKSPACE}"))?;
    Ok((stat.st_dev, stat.st_ino))
}

fn open() -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(WORKSPACE, flags, Mode::empty()).doing(format!("open {WORKSPACE}"))
}

/// Nobody writes to the old one any more, also who has it in ways that cannot be seen, such as a descriptor that was
/// sent through a socket and not received.
fn close() -> Result<OwnedFd> {
    let old = open()?;
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    let is_busy = |error: &std::io::Error| error.raw_os_error() == Some(libc::EBUSY);
    let mut closed = mounts::set_read_only(old.as_fd(), true);
    while closed.as_ref().is_err_and(is_busy) && Instant::now() < deadline {
        std::thread::sleep(CLOSE_POLL);
        closed = mounts::set_read_only(old.as_fd(), true);
    }
    match closed {
        Err(error) if is_busy(&error) => Err(HostError::other(
            "a file of the workspace is open for writing where nobody can see it: sent through a socket, for \
             instance, and not received"
                .to_owned(),
        )),
        done => done.doing(format!("close {WORKSPACE}")).map(|()| old),
    }
}

/// Puts the new one in the place of the old one, with those who are at the root of the old one.
fn change_places(request: &Request, old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> Result<()> {
    request.check_time()?;
    mounts::attach(new, Path::new(WORKSPACE))?;
    request.done(SwapStep::Mounted);
    if let Err(error) = request.check_time().and_then(|()| pivot(old, new)) {
        return match take_away(new) {
            Ok(()) => Err(error),
            Err(more) => Err(error.followed_by(more)),
        };
    }
    request.done(SwapStep::Pivoted);
    take_away(old)?;
    request.done(SwapStep::Detached);
    Ok(())
}

/// Lets two mounts, the new one on top of the old one, change places. The root of this process is in the workspace then.
fn pivot(old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> Result<()> {
    let go = |to| rustix::process::fchdir(to).doing(format!("go to {WORKSPACE}"));
    go(old)?;
    rustix::process::chroot(".").doing(format!("make {WORKSPACE} the root of a helper"))?;
    go(new)?;
    rustix::process::pivot_root(".", ".").doing(format!("replace {WORKSPACE}"))
}

/// Unmounts a mount that is on top, found by its root.
fn take_away(mount: BorrowedFd<'_>) -> Result<()> {
    rustix::process::fchdir(mount).doing(format!("go to {WORKSPACE}"))?;
    unmount(".", UnmountFlags::DETACH).doing(format!("take away the upper {WORKSPACE}"))
}
