//! Replacing the workspace of a running sandbox.
//!
//! The new one is mounted beneath the old one, which is then taken away: whoever looks finds the one or the other.
//! Kernels before 6.5 cannot do that; there the old one is taken away first, and for a moment there is none. So this
//! is to be done while the sandbox is frozen.
//!
//! Whoever has a working directory, a descriptor or a mapping in the old one stays with it ([`users`](crate::users)
//! tells who); it is there for as long as they are.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::attach::{enter, is_mounted, lock};
use crate::entry;
use crate::error::{Doing as _, HostError, Result};
use crate::holder::Holder;
use crate::launch::{WORKSPACE, give};
use crate::mounts::{self, Access};
use crate::process::Process;

/// What the helper is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    holder: Holder,
    process: Process,
    workspace: PathBuf,
}

/// Replaces the workspace of the sandbox whose first process this is, and gives the new one to its user.
pub fn swap(holder: &Holder, process: &Process, workspace: &Path) -> Result<()> {
    give(holder, workspace)?;
    swap_given(holder, process, workspace)
}

/// The same with a workspace that belongs to whoever is to use it already.
pub fn swap_given(holder: &Holder, process: &Process, workspace: &Path) -> Result<()> {
    let order = Order { holder: holder.clone(), process: process.clone(), workspace: workspace.to_owned() };
    entry::ask("swap", &order, &[])
}

/// What the helper does.
pub(crate) fn run(order: &Order) -> Result<()> {
    let gone = || HostError::Helper("the sandbox has ended".to_owned());
    let process = order.process.pidfd().ok_or_else(gone)?;
    order.holder.join()?;
    let _lock = lock(&order.process)?;
    let new = mounts::detached(&order.workspace, Access::Write)?;
    enter(process.as_fd())?;
    if !is_mounted(WORKSPACE)? {
        return Err(HostError::Helper("the sandbox has no workspace yet".to_owned()));
    }
    match mounts::attach_beneath(new.as_fd(), Path::new(WORKSPACE)) {
        Ok(()) => detach(),
        // This kernel cannot, or not with this mount.
        Err(Errno::INVAL) => one_after_the_other(new.as_fd()),
        Err(error) => Err(error).doing(format!("mount beneath {WORKSPACE}")),
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
