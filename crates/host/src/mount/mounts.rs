//! Mounting: what the kernel's calls look like from here.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::error::{Doing as _, Result};

/// How something may be used where it is mounted. Never for set-user-id programs or devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Like `Write`, for files that are no programs.
    Data,
    /// For devices, which nothing else than these is. What they take can be written to them, but not their metadata.
    Device,
}

/// What `mount_setattr` takes.
#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A copy of what is mounted at `path` and below, not yet mounted anywhere.
pub(crate) fn detached(path: &Path, access: Access) -> Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, path, flags).doing(format!("take up {}", path.display()))?;
    restrict(&tree, access).doing(format!("restrict {}", path.display()))?;
    Ok(tree)
}

/// Says how a mount may be used, and that it is nobody else's.
pub(crate) fn restrict(tree: &OwnedFd, access: Access) -> io::Result<()> {
    let set = match access {
        Access::Read => libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        Access::Write => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        Access::Data => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC,
        // A device can be written to all the same; its mode, owner and times are the machine's.
        Access::Device => libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
    };
    let attributes = MountAttributes {
        set,
        // Nothing that is mounted outside later comes in.
        propagation: libc::MS_PRIVATE,
        ..MountAttributes::default()
    };
    change(tree.as_fd(), &attributes, libc::AT_RECURSIVE)
}

/// Says whether a mount may be written to. It fails with `EBUSY` as long as somebody has a file open for writing.
pub(crate) fn set_read_only(mount: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    let flag = libc::MOUNT_ATTR_RDONLY;
    let (set, clear) = if read_only { (flag, 0) } else { (0, flag) };
    change(mount, &MountAttributes { set, clear, ..MountAttributes::default() }, 0)
}

/// Shows files of a mount that is nowhere yet as those users' whom a user namespace makes of their owners.
pub(crate) fn show(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = MountAttributes {
        set: libc::MOUNT_ATTR_IDMAP,
        user_namespace: users.as_raw_fd() as u64,
        ..MountAttributes::default()
    };
    change(mount, &attributes, 0)
}

/// Tells if an overlay is at a path. Its files are shown to a user by its layers.
pub(crate) fn is_overlay(path: &Path) -> Result<bool> {
    const OVERLAY: i64 = 0x794c_7630;
    let found = rustix::fs::statfs(path).doing(format!("look at {}", path.display()))?;
    Ok(found.f_type as i64 == OVERLAY)
}

fn change(mount: BorrowedFd<'_>, attributes: &MountAttributes, how: libc::c_int) -> io::Result<()> {
    let empty = CString::default();
    // SAFETY: an open descriptor, an empty text, and a structure of the size that is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH | how,
            std::ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Mounts a detached tree at `path`.
pub(crate) fn attach(tree: BorrowedFd<'_>, path: &Path) -> Result<()> {
    move_mount(tree, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .doing(format!("mount {}", path.display()))
}

/// Makes what is at `source` visible at `target` as well.
pub(crate) fn bind(source: &Path, target: &Path, access: Access) -> Result<()> {
    let tree = detached(source, access)?;
    attach(tree.as_fd(), target)
}
