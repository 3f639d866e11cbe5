//! Mounting into the mount namespace of a sandbox from outside. Every workspace is mounted this way, whether
//! the sandbox was launched for it or ahead of time.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, StatxFlags, flock, statx};
use rustix::io::Errno;
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::mount::mounts;
use crate::mount::workspace::{chown_to_sandbox, clone_workspace};
use crate::namespace::holder::NamespaceHolder;
use crate::process::Process;
use crate::sandbox::dedicated_uids;
use crate::sandbox::layout::WORKSPACE;

/// Task of a helper process: mounts a workspace in a sandbox that has none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AttachTask {
    holder: NamespaceHolder,
    process: Process,
    workspace: PathBuf,
    /// Dedicated host UID of the sandbox, if it has one.
    dedicated_uid: Option<u32>,
}

/// Mounts a workspace in a sandbox that was launched without one. `process` is its first process.
pub fn attach_workspace(holder: &NamespaceHolder, process: &Process, workspace: &Path) -> Result<()> {
    let dedicated_uid = dedicated_uids::uid_of(process)?;
    chown_to_sandbox(holder, workspace, dedicated_uid)?;
    let (holder, process, workspace) = (holder.clone(), process.clone(), workspace.to_owned());
    let task = AttachTask { holder, process, workspace, dedicated_uid };
    helper::client::call(&task, &[])
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
    // Locked after joining: the guest agent is not dumpable, so its `/proc` cannot be read from outside the user
    // namespace of the holder.
    let _lock = lock_mount_namespace(&task.process)?;
    let workspace = clone_workspace(&task.workspace, task.dedicated_uid)?;
    enter_mount_namespace(process.as_fd())?;
    if is_mounted(WORKSPACE)? {
        return Err(HostError::of_kind(HostErrorKind::Conflict, "the sandbox already has a workspace"));
    }
    mount_trees([(workspace, WORKSPACE)])
}

/// Locks the mount namespace of a sandbox, so that two concurrent tasks cannot both find no workspace. A
/// process inside can hold this lock, but blocks only its own sandbox.
pub(crate) fn lock_mount_namespace(process: &Process) -> Result<File> {
    let path = format!("/proc/{}/ns/mnt", process.pid());
    let file = File::open(&path).context("open the mount namespace of the sandbox")?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(HostError::of_kind(
            HostErrorKind::Conflict,
            "another workspace is being attached to the sandbox",
        )),
        locked => locked.context("lock the mount namespace of the sandbox").map(|()| file),
    }
}

/// Moves this process into the mount namespace of `process`, which cannot be undone.
pub(crate) fn enter_mount_namespace(process: BorrowedFd<'_>) -> Result<()> {
    move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT)
        .context("enter the mount namespace of the sandbox")
}

/// Mounts trees that were cloned outside the sandbox.
pub(crate) fn mount_trees<'a>(mounts: impl IntoIterator<Item = (OwnedFd, &'a str)>) -> Result<()> {
    let mut mounts = mounts.into_iter();
    mounts.try_for_each(|(tree, path)| mounts::attach(tree.as_fd(), Path::new(path)))
}

/// Returns whether `path`, a direct child of `/`, is a mount point.
pub(crate) fn is_mounted(path: &str) -> Result<bool> {
    Ok(mount_id(path)? != mount_id("/")?)
}

/// Returns the id of the mount that contains `path`.
fn mount_id(path: &str) -> Result<u64> {
    let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).context(format!("stat {path}"))?;
    Ok(stat.stx_mnt_id)
}
