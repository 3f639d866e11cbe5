//! Replacing the workspace of a running sandbox.
//!
//! The new one is mounted beneath the old one, which is then taken away: whoever looks finds the one or the other.
//! Kernels before 6.5 cannot do that; there the old one is taken away first, and for a moment there is none. So this
//! is to be done while the sandbox is frozen.
//!
//! Whoever has a working directory, a descriptor or a mapping in the old one stays with it ([`users`](crate::users)
//! tells who); it is there for as long as they are.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::attach::{enter, is_mounted, lock};
use crate::entry;
use crate::error::{Doing as _, HostError, Result};
use crate::holder::Holder;
use crate::launch::{WORKSPACE, give, take_up};
use crate::mounts::{self, Access};
use crate::own_users;
use crate::process::Process;

/// Time in which files of processes that have just ended are closed: the kernel does that after it has forgotten which
/// files they had.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// What the helper is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    holder: Holder,
    process: Process,
    workspace: PathBuf,
    /// Whom the sandbox runs as, if that is a user of its own.
    user: Option<u32>,
}

/// Replaces the workspace of the sandbox whose first process this is, and gives the new one to its user.
pub fn swap(holder: &Holder, process: &Process, workspace: &Path) -> Result<()> {
    let user = own_users::of(process);
    give(holder, workspace, user)?;
    replace(holder, process, workspace, user)
}

/// The same with a workspace that belongs to whoever is to use it already.
pub fn swap_given(holder: &Holder, process: &Process, workspace: &Path) -> Result<()> {
    replace(holder, process, workspace, None)
}

fn replace(holder: &Holder, process: &Process, workspace: &Path, user: Option<u32>) -> Result<()> {
    let order =
        Order { holder: holder.clone(), process: process.clone(), workspace: workspace.to_owned(), user };
    entry::ask("swap", &order, &[])
}

/// What the helper does.
pub(crate) fn run(order: &Order) -> Result<()> {
    let gone = || HostError::Helper("the sandbox has ended".to_owned());
    let process = order.process.pidfd().ok_or_else(gone)?;
    order.holder.join()?;
    let _lock = lock(&order.process)?;
    let new = take_up(&order.workspace, order.user)?;
    enter(process.as_fd())?;
    if !is_mounted(WORKSPACE)? {
        return Err(HostError::Helper("the sandbox has no workspace yet".to_owned()));
    }
    let old = close()?;
    let swapped = match mounts::attach_beneath(new.as_fd(), Path::new(WORKSPACE)) {
        Ok(()) => detach(),
        // This kernel cannot, or not with this mount.
        Err(Errno::INVAL) => one_after_the_other(new.as_fd()),
        Err(error) => Err(error).doing(format!("mount beneath {WORKSPACE}")),
    };
    if swapped.is_err() {
        mounts::set_read_only(old.as_fd(), false).doing(format!("open {WORKSPACE} again"))?;
    }
    swapped
}

/// Nobody writes to the old one any more, also who has it in ways that cannot be seen, such as a descriptor that was
/// sent through a socket and not received.
fn close() -> Result<OwnedFd> {
    let old = rustix::fs::open(WORKSPACE, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let old = old.doing(format!("open {WORKSPACE}"))?;
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    let is_busy = |error: &std::io::Error| error.raw_os_error() == Some(libc::EBUSY);
    let mut closed = mounts::set_read_only(old.as_fd(), true);
    while closed.as_ref().is_err_and(is_busy) && Instant::now() < deadline {
        std::thread::sleep(CLOSE_POLL);
        closed = mounts::set_read_only(old.as_fd(), true);
    }
    match closed {
        Err(error) if is_busy(&error) => Err(HostError::Helper(
            "a file of the workspace is open for writing where nobody can see it: sent through a socket, for \
             instance, and not received"
                .to_owned(),
        )),
        done => done.doing(format!("close {WORKSPACE}")).map(|()| old),
    }
}

/// Takes the old one away and mounts the new one, or the old one again.
fn one_after_the_other(new: BorrowedFd<'_>) -> Result<()> {
    let at = Path::new(WORKSPACE);
    let old = mounts::detached(at, Access::Write)?;
    detach()?;
    mounts::attach(new, at).map_err(|error| match mounts::attach(old.as_fd(), at) {
        Ok(()) => error,
        Err(more) => HostError::Helper(format!("{error}; then {more}")),
    })
}

fn detach() -> Result<()> {
    unmount(WORKSPACE, UnmountFlags::DETACH).doing(format!("take away the former {WORKSPACE}"))
}
