//! Mounting, replacing and unmounting in the namespaces of this process. The functions of the same names in
//! `overlay.rs` say what they promise.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, StatxAttributes, StatxFlags, flock, openat, statfs, statx,
};
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, UnmountFlags, mount_change, move_mount, unmount as umount,
};

use super::config::{Overlay, Xattrs};
use super::{diagnosis, fs_context, idmapped};
use crate::error::{Context as _, HostError, Result};
use crate::mount::mounts::{self, Access};

pub(super) fn mount(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    let _lock = lock(overlay.mount_point)?;
    if is_mount(overlay.mount_point)? {
        let action =
            format!("mount an overlay at {}, which is already a mount point", overlay.mount_point.display());
        return Err(HostError::System { action, source: io::Error::from(Errno::BUSY) });
    }
    mount_on_top(xattrs, overlay)
}

/// Mounts an overlay on top of other mounts. Nothing else may mount there concurrently.
pub(crate) fn mount_on_top(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    match create(xattrs, overlay)? {
        Some(tree) => attach(&tree, overlay),
        None => mount_by_options_private(xattrs, overlay),
    }
}

/// Creates a detached overlay. Returns `None` if the kernel can only create it at its mount point.
pub(crate) fn create(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<Option<OwnedFd>> {
    match overlay.idmap_uid {
        Some(uid) => idmapped::create(xattrs, overlay, uid).map(Some),
        None => fs_context::create(xattrs, overlay),
    }
}

/// Locks the directory that the mount covers, so that concurrent callers see each other's mounts.
fn lock(mount_point: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        openat(CWD, mount_point, flags, Mode::empty()).context(format!("open {}", mount_point.display()))?;
    flock(&directory, FlockOperation::LockExclusive).context(format!("lock {}", mount_point.display()))?;
    Ok(directory)
}

/// Returns whether `path` is a mount point.
fn is_mount(path: &Path) -> Result<bool> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    let found = found.context(format!("stat {}", path.display()))?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn attach(tree: &OwnedFd, overlay: &Overlay<'_>) -> Result<()> {
    mounts::attach(tree.as_fd(), overlay.mount_point)?;
    make_private(tree, overlay.mount_point)
}

/// Makes the mount private again: attaching it below a shared mount made it shared. Clears no flag, so a read-only
/// overlay stays read-only.
fn make_private(tree: &OwnedFd, mount_point: &Path) -> Result<()> {
    mounts::restrict(tree, Access::Write)
        .context(format!("make the mount at {} private", mount_point.display()))
}

/// Mounts at the mount point with all options in one string, and makes the mount private.
fn mount_by_options_private(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    fs_context::mount_by_options(xattrs, overlay)?;
    let mount_point = overlay.mount_point;
    mount_change(mount_point, MountPropagationFlags::PRIVATE)
        .context(format!("make the mount at {} private", mount_point.display()))
}

pub(super) fn replace(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    if !is_mount(overlay.mount_point)? {
        return mount(xattrs, overlay);
    }
    let Some(tree) = create(xattrs, overlay)? else { return replace_by_options(xattrs, overlay) };
    let flags = MoveMountFlags::MOVE_MOUNT_BENEATH | MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    match move_mount(&tree, c"", CWD, overlay.mount_point, flags) {
        Ok(()) => {
            detach(overlay.mount_point)
                .context(format!("detach the old mount at {}", overlay.mount_point.display()))?;
            make_private(&tree, overlay.mount_point)
        }
        // Not supported by the kernel, or not allowed because the parent mount is shared.
        Err(Errno::INVAL) => {
            unmount(overlay.mount_point)?;
            attach(&tree, overlay)
        }
        Err(errno) => Err(diagnosis::rejected(overlay, errno, Vec::new())),
    }
}

/// Replaces the mount on kernels that cannot create an overlay before it is mounted (before Linux 6.7). The new one is
/// mounted on top first: if that fails, the old one is still there, and the rest is quick.
fn replace_by_options(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    fs_context::mount_by_options(xattrs, overlay)?;
    let tree = mounts::clone_tree(overlay.mount_point, Access::Write)?;
    unmount(overlay.mount_point)?;
    attach(&tree, overlay)
}

/// Detaches the topmost mount at a path.
fn detach(mount_point: &Path) -> rustix::io::Result<()> {
    umount(mount_point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

pub(crate) fn unmount(mount_point: &Path) -> Result<bool> {
    let mut was_mounted = false;
    loop {
        match detach(mount_point) {
            Ok(()) => was_mounted = true,
            // No mount, or no such path.
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => return Ok(was_mounted),
            Err(errno) => return Err(errno).context(format!("unmount {}", mount_point.display())),
        }
    }
}

/// Unmounts, and closes the root in another thread, which waits until the kernel has synced everything.
pub(super) fn abandon(mount_point: &Path) -> Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = match openat(CWD, mount_point, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        opened => opened.context(format!("open {}", mount_point.display()))?,
    };
    let was_mounted = unmount(mount_point)?;
    // The last close ends the overlay. If no thread can be started, this one does it.
    let closer = std::thread::Builder::new().name("overlay-end".to_owned());
    drop(closer.spawn(move || drop(root)));
    Ok(was_mounted)
}

pub(super) fn open_root(mount_point: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let action = || format!("open the overlay at {}", mount_point.display());
    let root = openat(CWD, mount_point, flags, Mode::empty()).context(action())?;
    let found = statx(&root, c"", AtFlags::EMPTY_PATH, StatxFlags::empty()).context(action())?;
    if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(root);
    }
    Err(HostError::other(format!("nothing is mounted at {}", mount_point.display())))
}

pub(super) fn is_responding(path: &Path) -> Result<bool> {
    // The kernel never answers this call from its caches.
    match statfs(path) {
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN | Errno::CONNABORTED) => Ok(false),
        Err(errno) => Err(errno).context(format!("stat {}", path.display())),
    }
}

/// Returns the mount points in a `mountinfo` file. One with several mounts on top of each other is listed
/// several times.
pub(crate) fn mount_points(mountinfo: &Path) -> Result<Vec<PathBuf>> {
    let text = std::fs::read(mountinfo).context(format!("read {}", mountinfo.display()))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(mount_point_of).collect())
}

/// Returns the mount points below a directory, each once, given a `mountinfo` file.
pub(super) fn mounted(mountinfo: &Path, below: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = mount_points(mountinfo)?;
    paths.retain(|path| path != below && path.starts_with(below));
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Returns the mount point of a line of `mountinfo`: `id parent major:minor root mount-point …`.
fn mount_point_of(line: &[u8]) -> Option<PathBuf> {
    line.split(|byte| *byte == b' ').nth(4).map(unescape)
}

/// Decodes spaces, tabs, newlines and backslashes, which are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.first_chunk::<3>().filter(|_| first == b'\\').and_then(octal);
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_lists_mount_points_below_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("mountinfo");
        let lines = [
            "1 0 8:1 / / rw - ext4 /dev/a rw",
            "2 1 0:2 / /a rw - tmpfs none rw",
            r"3 2 0:3 / /a/x\040y\134 rw,nosuid shared:1 - overlay none rw",
            r"4 3 0:4 / /a/x\040y\134 rw - overlay none rw",
            "5 2 0:5 / /a/b/c rw - overlay none rw",
            "6 1 0:6 / /ab rw - overlay none rw",
        ];
        std::fs::write(&list, lines.join("\n") + "\n").unwrap();
        let found = mounted(&list, Path::new("/a")).unwrap();
        assert_eq!(found, [PathBuf::from("/a/b/c"), PathBuf::from("/a/x y\\")]);
    }
}
