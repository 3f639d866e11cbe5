//! System calls of the mount API.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use linux_raw_sys::general::OVERLAYFS_SUPER_MAGIC;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::error::{Context as _, Result};

/// Permitted use of a mount. Set-user-ID programs and, except for `Device`, devices are never permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Like `Write`, but programs cannot be executed.
    WriteNoExec,
    /// Device nodes: the device can be written to, but not the metadata of its node.
    Device,
}

/// Attributes that change nothing.
const UNCHANGED: libc::mount_attr =
    libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: 0, userns_fd: 0 };

/// Clones the mounts at `path` and below. The result is detached: not mounted anywhere.
pub(crate) fn clone_tree(path: &Path, access: Access) -> Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, path, flags).context(format!("clone the mount at {}", path.display()))?;
    restrict(&tree, access).context(format!("restrict {}", path.display()))?;
    Ok(tree)
}

/// Forbids every other use of a mount than the given one, and makes it private. A use that is already forbidden stays
/// so: `Access::Write` does not make a read-only mount writable.
pub(crate) fn restrict(tree: &OwnedFd, access: Access) -> io::Result<()> {
    let set = match access {
        Access::Read => libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        Access::Write => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        Access::WriteNoExec => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC,
        // Writing to a device needs no writable mount; mode, owner and times of the node belong to the host.
        Access::Device => libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
    };
    let attributes = libc::mount_attr {
        attr_set: set,
        // Later mounts outside do not propagate into it.
        propagation: libc::MS_PRIVATE,
        ..UNCHANGED
    };
    set_attributes(tree.as_fd(), &attributes, libc::AT_RECURSIVE)
}

/// Makes a mount read-only, and a slave of its peers: it gets the mounts that are mounted on them, and they get none of
/// its own.
pub(crate) fn make_read_only_slave(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attr_set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    set_attributes(mount, &libc::mount_attr { attr_set, propagation: libc::MS_SLAVE, ..UNCHANGED }, 0)
}

/// Sets or clears the read-only flag of a mount. Fails with `EBUSY` while a file is open for writing.
pub(crate) fn set_read_only(mount: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    let flag = libc::MOUNT_ATTR_RDONLY;
    let (attr_set, attr_clr) = if read_only { (flag, 0) } else { (0, flag) };
    set_attributes(mount, &libc::mount_attr { attr_set, attr_clr, ..UNCHANGED }, 0)
}

/// Sets the id map of a detached mount to that of a user namespace.
pub(crate) fn set_id_map(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        userns_fd: user_namespace.as_raw_fd() as u64,
        ..UNCHANGED
    };
    set_attributes(mount, &attributes, 0)
}

/// Returns true if `path` is on an overlay. Overlays cannot be id-mapped themselves; their layers are.
pub(crate) fn is_overlay(path: &Path) -> Result<bool> {
    let found = rustix::fs::statfs(path).context(format!("stat the filesystem of {}", path.display()))?;
    Ok(found.f_type as u32 == OVERLAYFS_SUPER_MAGIC)
}

fn set_attributes(
    mount: BorrowedFd<'_>,
    attributes: &libc::mount_attr,
    flags: libc::c_int,
) -> io::Result<()> {
    let empty = CString::default();
    // SAFETY: an open file descriptor, an empty string, and a structure of the given size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            std::ptr::from_ref(attributes),
            size_of::<libc::mount_attr>(),
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
