//! System calls of the mount API.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::error::{Context as _, Result};

/// Permitted use of a mount. Set-user-ID programs and, except for `Device`, devices are never permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Like `Write`, without executing programs.
    Data,
    /// Device nodes: the device can be written to, but not the metadata of its node.
    Device,
}

/// `struct mount_attr`.
#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Clones what is mounted at `path` and below. The result is detached: not mounted anywhere.
pub(crate) fn clone_tree(path: &Path, access: Access) -> Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, path, flags).context(format!("clone the mount at {}", path.display()))?;
    restrict(&tree, access).context(format!("restrict {}", path.display()))?;
    Ok(tree)
}

/// Sets the permitted use of a mount and makes it private.
pub(crate) fn restrict(tree: &OwnedFd, access: Access) -> io::Result<()> {
    let set = match access {
        Access::Read => libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        Access::Write => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        Access::Data => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC,
        // Writing to a device needs no writable mount; mode, owner and times of the node belong to the host.
        Access::Device => libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
    };
    let attributes = MountAttributes {
        set,
        // Later mounts outside do not propagate into it.
        propagation: libc::MS_PRIVATE,
        ..MountAttributes::default()
    };
    set_attributes(tree.as_fd(), &attributes, libc::AT_RECURSIVE)
}

/// Sets or clears the read-only flag of a mount. Fails with `EBUSY` while a file is open for writing.
pub(crate) fn set_read_only(mount: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    let flag = libc::MOUNT_ATTR_RDONLY;
    let (set, clear) = if read_only { (flag, 0) } else { (0, flag) };
    set_attributes(mount, &MountAttributes { set, clear, ..MountAttributes::default() }, 0)
}

/// Sets the id map of a detached mount to that of a user namespace.
pub(crate) fn set_id_map(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = MountAttributes {
        set: libc::MOUNT_ATTR_IDMAP,
        user_namespace: users.as_raw_fd() as u64,
        ..MountAttributes::default()
    };
    set_attributes(mount, &attributes, 0)
}

/// Returns whether `path` is on an overlay. Overlays cannot be id-mapped themselves; their layers are.
pub(crate) fn is_overlay(path: &Path) -> Result<bool> {
    const OVERLAY: i64 = 0x794c_7630;
    let found = rustix::fs::statfs(path).context(format!("look at {}", path.display()))?;
    Ok(found.f_type as i64 == OVERLAY)
}

fn set_attributes(mount: BorrowedFd<'_>, attributes: &MountAttributes, how: libc::c_int) -> io::Result<()> {
    let empty = CString::default();
    // SAFETY: an open file descriptor, an empty string, and a structure of the given size.
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
        .context(format!("mount {}", path.display()))
}

/// Bind-mounts `source` at `target`.
pub(crate) fn bind(source: &Path, target: &Path, access: Access) -> Result<()> {
    let tree = clone_tree(source, access)?;
    attach(tree.as_fd(), target)
}
