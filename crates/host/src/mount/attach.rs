//! Mounting into the namespaces of a sandbox from outside: the one way by which a workspace gets into it, whether
//! the sandbox was launched for it or before anybody knew of it.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, StatxFlags, flock, statx};
use rustix::io::Errno;
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, HostError, Result};
use crate::helper::client;
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::mount::mounts;
use crate::mount::workspace::{give, take_up};
use crate::namespace::holder::Holder;
use crate::process::Process;
use crate::sandbox::layout::WORKSPACE;
use crate::sandbox::own_users;

/// Mounts a workspace in a sandbox that has none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AttachTask {
    holder: Holder,
    process: Process,
    workspace: PathBuf,
    /// The user that the sandbox runs as, if that is one of its own.
    user: Option<u32>,
}

/// Mounts a workspace in a sandbox that was launched without one. `process` is its first.
pub fn attach(holder: &Holder, process: &Process, workspace: &Path) -> Result<()> {
    let user = own_users::of(process)?;
    give(holder, workspace, user)?;
    let task = AttachTask {
        holder: holder.clone(),
        process: process.clone(),
        workspace: workspace.to_owned(),
        user,
    };
    client::call(&task, &[])
}

impl Task for AttachTask {
    const NAME: &'static str = "attach";
    type Reply = ();

    fn run(self, _fds: Vec<OwnedFd>) -> Result<()> {
        run(&self)
    }
}

fn run(task: &AttachTask) -> Result<()> {
    let process = task.process.pidfd().ok_or_else(HostError::sandbox_ended)?;
    task.holder.join()?;
    // Only now: nobody outside may look at a guest that does not let itself be looked into.
    let _lock = lock(&task.process)?;
    let workspace = take_up(&task.workspace, task.user)?;
    enter(process.as_fd())?;
    if is_mounted(WORKSPACE)? {
        return Err(HostError::of_kind(HostErrorKind::Conflict, "the sandbox has a workspace"));
    }
    mount([(workspace, WORKSPACE)])
}

/// Two at once would both find the place empty. The lock is on the sandbox's namespace, which is there as long as it
/// is; somebody inside who takes it hinders nobody but himself.
pub(crate) fn lock(process: &Process) -> Result<File> {
    let path = format!("/proc/{}/ns/mnt", process.pid());
    let file = File::open(&path).doing("look at the sandbox's mounts")?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(HostError::of_kind(
            HostErrorKind::Conflict,
            "another workspace is being attached to the sandbox",
        )),
        done => done.doing("lock the sandbox's mounts").map(|()| file),
    }
}

/// Takes this process, which stays there, to the mounts of a process.
pub(crate) fn enter(process: BorrowedFd<'_>) -> Result<()> {
    move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT).doing("enter the sandbox's mounts")
}

/// Mounts what was taken up outside.
pub(crate) fn mount<'a>(mounts: impl IntoIterator<Item = (OwnedFd, &'a str)>) -> Result<()> {
    let mut mounts = mounts.into_iter();
    mounts.try_for_each(|(tree, path)| mounts::attach(tree.as_fd(), Path::new(path)))
}

/// Whether something is mounted at a path in the root.
pub(crate) fn is_mounted(path: &str) -> Result<bool> {
    Ok(mount_of(path)? != mount_of("/")?)
}

/// Which mount a path is in.
fn mount_of(path: &str) -> Result<u64> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).doing(format!("look at {path}"))?;
    Ok(found.stx_mnt_id)
}
