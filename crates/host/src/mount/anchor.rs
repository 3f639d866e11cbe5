//! Anchors: one mount whose content many sandboxes follow. The content is the head of a project: its present files.
//!
//! ```text
//! DIRECTORY/           locked (`flock`) while the mounts below are changed
//! DIRECTORY/anchor/    the anchor: a small tmpfs, shared
//! DIRECTORY/anchor/head/   the present head: a read-only overlay
//! DIRECTORY/copy/      used for a moment to clone the anchor without its head
//! ```
//!
//! A *follower* is a sandbox that has a clone of `anchor/head` at `/workspace`, as a slave of the anchor. The kernel
//! repeats in it each mount that is made in the anchor. A new head is mounted beneath the present one, and then the
//! present one is detached: a process that opens a path sees either the one or the other, in the anchor and in each
//! follower. Open files and working directories stay in their head, which exists as long as they do.
//!
//! A helper that is killed between the two steps leaves two heads on top of each other, of which all see the former
//! one. The next change *settles* that: it detaches the upper one.
//!
//! The mounts are in the namespaces of the holder, so they outlive the server.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, StatxAttributes, StatxFlags, flock, mkdirat, openat, statx,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree,
    unmount,
};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::helper::protocol::Task;
use crate::host_status;
use crate::mount::attach;
use crate::mount::mounts::{self, Access};
use crate::mount::overlay::config::{Overlay, Xattrs};
use crate::mount::overlay::{local, xattrs};
use crate::namespace::holder::NamespaceHolder;
use crate::process::Process;
use crate::sandbox::layout::WORKSPACE;

const ANCHOR: &str = "anchor";
const HEAD: &str = "head";
const COPY: &str = "copy";

/// Step of a change of the head, for tests that interrupt it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnchorStep {
    /// The new head is mounted beneath the present one.
    Mounted,
}

/// Returns the path of the head of an anchor, in the namespaces of its holder.
pub fn head_path(directory: &Path) -> PathBuf {
    directory.join(ANCHOR).join(HEAD)
}

/// Fails if the kernel cannot replace a mount that is in use.
pub fn check_kernel() -> Result<()> {
    if host_status::kernel_version() >= (6, 7) { Ok(()) } else { Err(needs_new_kernel()) }
}

/// Mounts the first head of an anchor, and the anchor itself. Returns false if the anchor has a head already.
/// `lower` are at least two layers, topmost first. Fails where the kernel cannot change a head later.
pub fn mount_unless_mounted(holder: &NamespaceHolder, directory: &Path, lower: &[PathBuf]) -> Result<bool> {
    call(holder, directory, Operation::MountUnlessMounted { lower: lower.to_vec() })
}

/// Replaces the head of an anchor, for all of its followers. Mounts it if there is none.
pub fn switch(holder: &NamespaceHolder, directory: &Path, lower: &[PathBuf]) -> Result<()> {
    call(holder, directory, Operation::Switch { lower: lower.to_vec(), killed_after: None }).map(drop)
}

/// Replaces the head like [`switch`], with a helper that kills itself after a step.
#[doc(hidden)]
pub fn switch_killed(
    holder: &NamespaceHolder,
    directory: &Path,
    lower: &[PathBuf],
    after: AnchorStep,
) -> Result<()> {
    let operation = Operation::Switch { lower: lower.to_vec(), killed_after: Some(after) };
    helper::client::call(&AnchorTask::new(holder, directory, operation), &[]).map(drop)
}

/// Unmounts an anchor and its head. The workspaces of followers that still run are empty then. Returns false if nothing
/// was mounted.
pub fn remove(holder: &NamespaceHolder, directory: &Path) -> Result<bool> {
    call(holder, directory, Operation::Remove)
}

/// Makes a sandbox a follower of an anchor that has a head: mounts the head as the workspace, on top of the present
/// workspace if there is one. Does nothing if the sandbox follows this anchor already. `process` is its first process.
pub fn attach_follower(holder: &NamespaceHolder, process: &Process, directory: &Path) -> Result<()> {
    let (holder, process, directory) = (holder.clone(), process.clone(), directory.to_owned());
    helper::client::call(&AttachFollowerTask { holder, process, directory }, &[])
}

fn call(holder: &NamespaceHolder, directory: &Path, operation: Operation) -> Result<bool> {
    match holder {
        NamespaceHolder::None => run(xattrs(holder), directory, &operation),
        NamespaceHolder::Process(_) => {
            helper::client::call(&AnchorTask::new(holder, directory, operation), &[])
        }
    }
}

/// Operation on an anchor in the namespaces of a holder. The reply is true if it mounted or unmounted anything.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AnchorTask {
    holder: NamespaceHolder,
    directory: PathBuf,
    operation: Operation,
}

#[derive(Debug, Serialize, Deserialize)]
enum Operation {
    MountUnlessMounted {
        lower: Vec<PathBuf>,
    },
    Switch {
        lower: Vec<PathBuf>,
        /// Step after which the helper kills itself; for tests.
        killed_after: Option<AnchorStep>,
    },
    Remove,
}

impl AnchorTask {
    fn new(holder: &NamespaceHolder, directory: &Path, operation: Operation) -> Self {
        Self { holder: holder.clone(), directory: directory.to_owned(), operation }
    }
}

impl Task for AnchorTask {
    const NAME: &'static str = "anchor";
    type Reply = bool;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<bool> {
        self.holder.join()?;
        run(xattrs(&self.holder), &self.directory, &self.operation)
    }
}

fn run(xattrs: Xattrs, directory: &Path, operation: &Operation) -> Result<bool> {
    let _lock = lock(directory)?;
    match operation {
        Operation::MountUnlessMounted { lower } => {
            ensure_anchor(directory)?;
            if settle(directory)? {
                return Ok(false);
            }
            mount_head(xattrs, directory, lower, None).map(|()| true)
        }
        Operation::Switch { lower, killed_after } => {
            ensure_anchor(directory)?;
            mount_head(xattrs, directory, lower, *killed_after).map(|()| true)
        }
        Operation::Remove => {
            let had_head = local::unmount(&head_path(directory))?;
            Ok(local::unmount(&directory.join(ANCHOR))? || had_head)
        }
    }
}

/// Locks an anchor, so that its head does not change meanwhile.
fn lock(directory: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened =
        openat(CWD, directory, flags, Mode::empty()).context(format!("open {}", directory.display()))?;
    flock(&opened, FlockOperation::LockExclusive).context(format!("lock {}", directory.display()))?;
    Ok(opened)
}

fn is_mounted(path: &Path) -> Result<bool> {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty()) {
        Ok(found) => Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno).context(format!("stat {}", path.display())),
    }
}

/// Mounts the anchor unless it is mounted, and makes it shared.
fn ensure_anchor(directory: &Path) -> Result<()> {
    let anchor = directory.join(ANCHOR);
    if !is_mounted(&anchor)? {
        fs::create_dir_all(&anchor).context(format!("create {}", anchor.display()))?;
        let tree = create_tmpfs().context("create a small tmpfs")?;
        mkdirat(&tree, HEAD, Mode::from_raw_mode(0o755)).context("create a mount point")?;
        mounts::attach(tree.as_fd(), &anchor)?;
        // If the directory is below a shared mount, the new mount has got peers in other namespaces, which would get
        // all heads.
        mount_change(&anchor, MountPropagationFlags::PRIVATE).context("make an anchor private")?;
    }
    mount_change(&anchor, MountPropagationFlags::SHARED).context("make an anchor shared")
}

/// Creates a detached tmpfs. Unlike a directory of the host, it shows no path of the host inside of sandboxes.
fn create_tmpfs() -> rustix::io::Result<OwnedFd> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("size", "4k"), ("nr_inodes", "4"), ("mode", "0755")] {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Detaches a former head that a killed helper has left on top of the new one. Returns whether there is a head.
fn settle(directory: &Path) -> Result<bool> {
    let head = head_path(directory);
    if !is_mounted(&head)? {
        return Ok(false);
    }
    let path = fs::canonicalize(&head).context(format!("find {}", head.display()))?;
    let mounted = local::mount_points(Path::new("/proc/thread-self/mountinfo"))?;
    for _ in 1..mounted.iter().filter(|mounted| **mounted == path).count() {
        detach(&head)?;
    }
    Ok(true)
}

fn detach(head: &Path) -> Result<()> {
    unmount(head, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .context(format!("detach the mount at {}", head.display()))
}

/// Mounts a head in place of the present one, if there is one. `xattrs` are the extended attributes in which the
/// overlay finds the metadata of its layers, such as those of opaque directories.
fn mount_head(
    xattrs: Xattrs,
    directory: &Path,
    lower: &[PathBuf],
    killed_after: Option<AnchorStep>,
) -> Result<()> {
    let head = head_path(directory);
    let overlay = Overlay { lower, upper: None, mount_point: &head, idmap_uid: None };
    let tree = local::create(xattrs, &overlay)?.ok_or_else(needs_new_kernel)?;
    if !settle(directory)? {
        return mounts::attach(tree.as_fd(), &head);
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_BENEATH;
    match move_mount(&tree, c"", CWD, &head, flags) {
        Err(Errno::INVAL) => return Err(needs_new_kernel()),
        moved => moved.context(format!("mount a head beneath {}", head.display()))?,
    }
    if killed_after == Some(AnchorStep::Mounted) {
        // SAFETY: the call takes an integer.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    detach(&head)
}

fn needs_new_kernel() -> HostError {
    HostError::other(
        "following the head of a project needs Linux 6.7, which can replace a mount that is in use",
    )
}

/// Makes a sandbox a follower of an anchor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AttachFollowerTask {
    holder: NamespaceHolder,
    process: Process,
    directory: PathBuf,
}

impl Task for AttachFollowerTask {
    const NAME: &'static str = "attach-follower";
    type Reply = ();

    fn run(self, _fds: Vec<OwnedFd>) -> Result<()> {
        let process = self.process.pidfd().ok_or_else(HostError::sandbox_ended)?;
        self.holder.join()?;
        let _sandbox_lock = attach::lock_mount_namespace(&self.process)?;
        // Held until the clones are mounted in the sandbox: a clone that is not mounted anywhere gets no new heads.
        let _anchor_lock = lock(&self.directory)?;
        let (anchor, head) = clone_anchor(&self.directory)?;
        attach::enter_mount_namespace(process.as_fd())?;
        mount_in_sandbox(&anchor, &head)
    }
}

/// Clones an anchor without its head, rooted at the mount point of the head, and the head.
fn clone_anchor(directory: &Path) -> Result<(OwnedFd, OwnedFd)> {
    if !settle(directory)? {
        return Err(HostError::other("the project has no mounted head to follow"));
    }
    let path = head_path(directory);
    let head = clone_mount(CWD, &path)?;
    mounts::restrict(&head, Access::Read).context("restrict the clone of a head")?;
    // The path of the anchor's directory leads to the head. Only a clone of the anchor without the mounts on it has the
    // directory itself, and before Linux 6.15 that can be cloned further only while it is mounted.
    let copy = directory.join(COPY);
    fs::create_dir_all(&copy).context(format!("create {}", copy.display()))?;
    local::unmount(&copy)?;
    mounts::attach(clone_mount(CWD, &directory.join(ANCHOR))?.as_fd(), &copy)?;
    let anchor = clone_mount(CWD, &copy.join(HEAD));
    local::unmount(&copy)?;
    let anchor = anchor?;
    mounts::make_read_only_slave(anchor.as_fd()).context("make the clone of an anchor a slave")?;
    Ok((anchor, head))
}

/// Clones one mount, without the mounts on it.
fn clone_mount(directory: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(directory, path, flags).context(format!("clone the mount at {}", path.display()))
}

/// Mounts the clones as the workspace of the sandbox whose mount namespace this process has entered.
fn mount_in_sandbox(anchor: &OwnedFd, head: &OwnedFd) -> Result<()> {
    let workspace = Path::new(WORKSPACE);
    if attach::is_mounted(WORKSPACE)? {
        let (shown, new) = (statx_device(CWD, WORKSPACE)?, statx_device(head.as_fd(), "")?);
        if shown == new {
            return Ok(());
        }
        // It follows another anchor, or a killed helper has mounted the anchor and not the head. Nothing that happens
        // to the mounts below may reach those on top.
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .context("make the mounts of the sandbox private")?;
    }
    mounts::attach(anchor.as_fd(), workspace)?;
    mounts::attach(head.as_fd(), workspace)
}

/// Returns the device number of a filesystem. Each overlay has its own.
fn statx_device(directory: BorrowedFd<'_>, path: &str) -> Result<(u32, u32)> {
    let stat =
        statx(directory, path, AtFlags::EMPTY_PATH, StatxFlags::empty()).context("stat a workspace")?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}
