//! Replacing the workspace of a running sandbox.
//!
//! The new workspace is mounted on top of the old one. Then the two are exchanged by `pivot_root`, from a
//! helper whose root is the old one: the kernel moves every process whose working directory is the root of
//! the old one to the root of the new one. After that the old one is on top, and is detached. Other processes
//! see either the old or the new one.
//!
//! Processes with a working directory further down, an open file or a mapping in the old workspace keep it
//! ([`workspace_processes`](crate::workspace_processes) lists them). It exists as long as they do.
//!
//! A helper that is killed leaves two mounts on top of each other. Before the exchange the upper mount is the
//! new workspace, afterwards it is the old one. In both cases detaching the upper mount *settles* the swap: the
//! swap is reverted in the first case and finished in the second ([`settle`]).
//!
//! A helper has a deadline. It checks the time before each visible step, and the kernel kills it at the
//! deadline, so that nothing is replaced after the timeout of the server.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::mount::attach::{enter_mount_namespace, is_mounted, lock_mount_namespace};
use crate::mount::mounts;
use crate::mount::workspace::{chown_to_sandbox, clone_workspace};
use crate::namespace::holder::NamespaceHolder;
use crate::process::Process;
use crate::sandbox::dedicated_uids;
use crate::sandbox::layout::WORKSPACE;

/// Timeout for the kernel to close the files of processes that have just exited. Such processes are no longer
/// listed in `/proc`.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Timeout of a helper, which then has either succeeded or changed nothing. It is less than half of the
/// timeout of the server, so that two helpers can run in sequence.
const SWAP_TIMEOUT: Duration = Duration::from_secs(30);

/// Parameters of a swap, and of settling one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    holder: NamespaceHolder,
    process: Process,
    workspace: PathBuf,
    /// Dedicated host UID of the sandbox, if it has one.
    dedicated_uid: Option<u32>,
    /// Time of the monotonic clock after which nothing may be changed.
    deadline: Duration,
    /// Step after which the helper kills itself; for tests.
    killed_after: Option<SwapStep>,
    /// Step after which the helper hangs; for tests.
    stalled_after: Option<SwapStep>,
}

/// Step of a swap, for tests that interrupt it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwapStep {
    /// The old workspace is read-only.
    MadeReadOnly,
    /// The new workspace is mounted on top of the old one.
    Mounted,
    /// The two are exchanged, with the old one on top.
    Pivoted,
    /// The old workspace is detached.
    Detached,
}

/// Replaces the workspace of a sandbox, and makes the sandbox user the owner of the new one. `process` is its
/// first process.
pub fn swap_workspace(holder: &NamespaceHolder, process: &Process, workspace: &Path) -> Result<()> {
    let dedicated_uid = dedicated_uids::uid_of(process)?;
    chown_to_sandbox(holder, workspace, dedicated_uid)?;
    replace(holder, process, workspace, dedicated_uid)
}

/// Replaces the workspace of a sandbox by one whose files the sandbox user already owns: the owner is not
/// changed, and the mount not id-mapped.
pub fn swap_workspace_without_chown(
    holder: &NamespaceHolder,
    process: &Process,
    workspace: &Path,
) -> Result<()> {
    replace(holder, process, workspace, None)
}

/// Finishes or reverts a [`swap_workspace`] whose helper may have been killed. Returns true if `workspace` is the
/// workspace of the sandbox afterwards.
pub fn settle_workspace_swap(holder: &NamespaceHolder, process: &Process, workspace: &Path) -> Result<bool> {
    let dedicated_uid = dedicated_uids::uid_of(process)?;
    helper::client::call(
        &FinishOrRevertSwapTask(Request::new(holder, process, workspace, dedicated_uid)),
        &[],
    )
}

/// Settles a [`swap_workspace_without_chown`], as [`settle_workspace_swap`] does for [`swap_workspace`].
pub fn settle_workspace_swap_without_chown(
    holder: &NamespaceHolder,
    process: &Process,
    workspace: &Path,
) -> Result<bool> {
    helper::client::call(&FinishOrRevertSwapTask(Request::new(holder, process, workspace, None)), &[])
}

/// Replaces the workspace. With a dedicated UID, its mount is id-mapped to that UID.
fn replace(
    holder: &NamespaceHolder,
    process: &Process,
    workspace: &Path,
    dedicated_uid: Option<u32>,
) -> Result<()> {
    let request = || Request::new(holder, process, workspace, dedicated_uid);
    let Err(error) = helper::client::call(&SwapWorkspaceTask(request()), &[]) else { return Ok(()) };
    // The helper has reverted what it did, unless it was killed.
    match helper::client::call(&FinishOrRevertSwapTask(request()), &[]) {
        Ok(true) => Ok(()),
        Ok(false) => Err(error),
        Err(settle_error) => Err(error.followed_by(settle_error)),
    }
}

/// Starts a swap with a helper that kills itself after a step.
#[doc(hidden)]
pub fn swap_killed(
    holder: &NamespaceHolder,
    process: &Process,
    workspace: &Path,
    after: SwapStep,
) -> Result<()> {
    let request = Request::new(holder, process, workspace, dedicated_uids::uid_of(process)?);
    helper::client::call(&SwapWorkspaceTask(Request { killed_after: Some(after), ..request }), &[])
}

/// Starts a swap with a time limit, with a helper that hangs after a step.
#[doc(hidden)]
pub fn swap_stalled(
    holder: &NamespaceHolder,
    process: &Process,
    workspace: &Path,
    (limit, after): (Duration, Option<SwapStep>),
) -> Result<()> {
    let request = Request::new(holder, process, workspace, dedicated_uids::uid_of(process)?);
    let request = Request { deadline: monotonic() + limit, stalled_after: after, ..request };
    helper::client::call(&SwapWorkspaceTask(request), &[])
}

fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

impl Request {
    fn new(
        holder: &NamespaceHolder,
        process: &Process,
        workspace: &Path,
        dedicated_uid: Option<u32>,
    ) -> Self {
        let (holder, process, workspace) = (holder.clone(), process.clone(), workspace.to_owned());
        let deadline = monotonic() + SWAP_TIMEOUT;
        Self { holder, process, workspace, dedicated_uid, deadline, killed_after: None, stalled_after: None }
    }

    /// Fails after the deadline. To be called before each visible step.
    fn check_deadline(&self) -> Result<()> {
        if monotonic() < self.deadline {
            return Ok(());
        }
        Err(HostError::of_kind(HostErrorKind::TimedOut, "the swap timed out and changed nothing"))
    }

    /// Has the kernel kill this process at the deadline, even while it waits in a system call.
    fn kill_at_deadline(&self) -> Result<()> {
        self.check_deadline()?;
        let remaining = self.deadline.saturating_sub(monotonic()).max(Duration::from_millis(1));
        let value = libc::timeval {
            tv_sec: remaining.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_usec: remaining.subsec_micros().into(),
        };
        let timer = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: value };
        // SAFETY: the structure is only read, and nothing is written. The signal ends a process without a
        // handler.
        let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
        if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).context("set a timer") }
    }

    /// Kills or stalls the helper if a test has asked for that after `step`.
    fn interrupt_after(&self, step: SwapStep) {
        if self.killed_after == Some(step) {
            // SAFETY: the call takes an integer.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        while self.stalled_after == Some(step) {
            std::thread::park();
        }
    }
}

/// Replaces the workspace of a sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SwapWorkspaceTask(Request);

impl Task for SwapWorkspaceTask {
    const NAME: &'static str = "swap";
    type Reply = ();

    fn run(self, _fds: Vec<OwnedFd>) -> Result<()> {
        run(&self.0)
    }
}

/// Finishes or reverts a swap whose helper was killed. Replies whether the workspace is the new one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FinishOrRevertSwapTask(Request);

impl Task for FinishOrRevertSwapTask {
    const NAME: &'static str = "settle-swap";
    type Reply = bool;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<bool> {
        run_settle(&self.0)
    }
}

fn run(request: &Request) -> Result<()> {
    request.kill_at_deadline()?;
    let (new, _lock) = enter_sandbox(request)?;
    // A helper that was killed after the exchange may have done the swap already.
    if settle(new.as_fd())? {
        return Ok(());
    }
    request.check_deadline()?;
    let old = make_read_only()?;
    request.interrupt_after(SwapStep::MadeReadOnly);
    let swapped = exchange(request, old.as_fd(), new.as_fd());
    if swapped.is_err() {
        mounts::set_read_only(old.as_fd(), false).context(format!("make {WORKSPACE} writable again"))?;
    }
    swapped
}

/// Settles a swap in a helper. Returns whether the workspace is the new one.
fn run_settle(request: &Request) -> Result<bool> {
    request.kill_at_deadline()?;
    let (new, _lock) = enter_sandbox(request)?;
    settle(new.as_fd())
}

/// Clones the mount of the new workspace, and enters the mount namespace of the sandbox. Returns the clone, and the lock on the
/// mount namespace.
fn enter_sandbox(request: &Request) -> Result<(OwnedFd, File)> {
    let process = request.process.pidfd().ok_or_else(HostError::sandbox_ended)?;
    request.holder.join()?;
    let lock = lock_mount_namespace(&request.process)?;
    let new = clone_workspace(&request.workspace, request.dedicated_uid)?;
    enter_mount_namespace(process.as_fd())?;
    if !is_mounted(WORKSPACE)? {
        return Err(HostError::of_kind(HostErrorKind::Conflict, "the sandbox has no workspace yet"));
    }
    Ok((new, lock))
}

/// Finishes or reverts what a killed helper left behind. Returns whether the workspace is `new`.
fn settle(new: BorrowedFd<'_>) -> Result<bool> {
    while workspace_mounts()? > 1 {
        unmount(WORKSPACE, UnmountFlags::DETACH)
            .context(format!("detach the topmost mount at {WORKSPACE}"))?;
    }
    let current = open_workspace()?;
    mounts::set_read_only(current.as_fd(), false).context(format!("make {WORKSPACE} writable again"))?;
    Ok(identity(current.as_fd())? == identity(new)?)
}

/// Returns the number of mounts at the workspace, on top of each other.
fn workspace_mounts() -> Result<usize> {
    // The helper has no PID in the PID namespace of the sandbox, so it has no directory in this `/proc`. The first process
    // has the same mounts.
    let table = std::fs::read_to_string("/proc/1/mountinfo").context("read the mounts of the sandbox")?;
    Ok(table.lines().filter(|line| line.split(' ').nth(4) == Some(WORKSPACE)).count())
}

/// Returns device and inode of a directory, which are the same in every mount of a workspace.
fn identity(directory: BorrowedFd<'_>) -> Result<(u64, u64)> {
    let stat = rustix::fs::fstat(directory).context(format!("stat {WORKSPACE}"))?;
    Ok((stat.st_dev, stat.st_ino))
}

fn open_workspace() -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(WORKSPACE, flags, Mode::empty()).context(format!("open {WORKSPACE}"))
}

/// Makes the old workspace read-only, so that nothing can be written to it after the swap. Fails if a file is open for writing that no process lists, such as one
/// that was sent over a socket and not received.
fn make_read_only() -> Result<OwnedFd> {
    let old = open_workspace()?;
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    let is_busy = |error: &std::io::Error| error.raw_os_error() == Some(libc::EBUSY);
    let mut result = mounts::set_read_only(old.as_fd(), true);
    while result.as_ref().is_err_and(is_busy) && Instant::now() < deadline {
        std::thread::sleep(CLOSE_POLL_INTERVAL);
        result = mounts::set_read_only(old.as_fd(), true);
    }
    match result {
        Err(error) if is_busy(&error) => Err(HostError::other(
            "a file of the workspace is open for writing in no visible process; for example, its descriptor was sent \
             over a socket and not received"
                .to_owned(),
        )),
        result => result.context(format!("make {WORKSPACE} read-only")).map(|()| old),
    }
}

/// Replaces the old workspace by the new one, and moves the processes whose working directory is its root.
fn exchange(request: &Request, old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> Result<()> {
    request.check_deadline()?;
    mounts::attach(new, Path::new(WORKSPACE))?;
    request.interrupt_after(SwapStep::Mounted);
    if let Err(error) = request.check_deadline().and_then(|()| pivot(old, new)) {
        return match detach(new) {
            Ok(()) => Err(error),
            Err(detach_error) => Err(error.followed_by(detach_error)),
        };
    }
    request.interrupt_after(SwapStep::Pivoted);
    detach(old)?;
    request.interrupt_after(SwapStep::Detached);
    Ok(())
}

/// Exchanges two mounts, the new one on top of the old one. Leaves the root of this process in the workspace.
fn pivot(old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> Result<()> {
    let enter = |directory| rustix::process::fchdir(directory).context(format!("enter {WORKSPACE}"));
    enter(old)?;
    rustix::process::chroot(".").context(format!("make {WORKSPACE} the root of a helper"))?;
    enter(new)?;
    rustix::process::pivot_root(".", ".").context(format!("replace {WORKSPACE}"))
}

/// Detaches the topmost mount, given its root.
fn detach(mount: BorrowedFd<'_>) -> Result<()> {
    rustix::process::fchdir(mount).context(format!("enter {WORKSPACE}"))?;
    unmount(".", UnmountFlags::DETACH).context(format!("detach the topmost mount at {WORKSPACE}"))
}
