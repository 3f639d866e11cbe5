//! Mounting, replacing and taking away in the namespaces of this process.

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
use super::{context, diagnosis, idmapped};
use crate::error::{Doing as _, HostError, Result};
use crate::mount::mounts::{self, Access};

pub(super) fn mount(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    let _lock = lock(overlay.at)?;
    if is_mount(overlay.at)? {
        let action = format!("mount an overlay at {}, where something is mounted", overlay.at.display());
        return Err(HostError::System { action, source: io::Error::from(Errno::BUSY) });
    }
    mount_on_top(xattrs, overlay)
}

/// The same, whatever is mounted there; nobody else mounts at that place.
pub(crate) fn mount_on_top(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    match make(xattrs, overlay)? {
        Some(tree) => attach(&tree, overlay),
        None => mount_at_place(xattrs, overlay),
    }
}

/// An overlay that is mounted nowhere; none where the kernel makes them only at their place.
fn make(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<Option<OwnedFd>> {
    match overlay.user {
        Some(user) => idmapped::make(xattrs, overlay, user).map(Some),
        None => context::make(xattrs, overlay),
    }
}

/// Of two that mount at once, the second finds what the first has mounted: the lock is on what is beneath.
fn lock(at: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, at, flags, Mode::empty()).doing(format!("open {}", at.display()))?;
    flock(&directory, FlockOperation::LockExclusive).doing(format!("lock {}", at.display()))?;
    Ok(directory)
}

/// Whether a mount begins at a path.
fn is_mount(path: &Path) -> Result<bool> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    let found = found.doing(format!("look at {}", path.display()))?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn attach(tree: &OwnedFd, overlay: &Overlay<'_>) -> Result<()> {
    mounts::attach(tree.as_fd(), overlay.at)?;
    keep(tree, overlay.at)
}

/// In a mount that is shared what is mounted becomes so, too.
fn keep(tree: &OwnedFd, at: &Path) -> Result<()> {
    mounts::restrict(tree, Access::Write).doing(format!("keep what is mounted at {} here", at.display()))
}

fn mount_at_place(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    context::mount_by_options(xattrs, overlay)?;
    let at = overlay.at;
    mount_change(at, MountPropagationFlags::PRIVATE)
        .doing(format!("keep what is mounted at {} here", at.display()))
}

pub(super) fn replace(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    if !is_mount(overlay.at)? {
        return mount(xattrs, overlay);
    }
    let Some(tree) = make(xattrs, overlay)? else { return replace_at_place(xattrs, overlay) };
    let flags = MoveMountFlags::MOVE_MOUNT_BENEATH | MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    match move_mount(&tree, c"", CWD, overlay.at, flags) {
        Ok(()) => {
            detach(overlay.at).doing(format!("take away what was mounted at {}", overlay.at.display()))?;
            keep(&tree, overlay.at)
        }
        // The kernel, or who else shares the mount around it, does not allow that.
        Err(Errno::INVAL) => {
            unmount(overlay.at)?;
            attach(&tree, overlay)
        }
        Err(errno) => Err(diagnosis::refused(overlay, errno, Vec::new())),
    }
}

/// The same where nothing can be mounted beneath another. The new one is mounted above the old one first: if that
/// fails, the old one is still there, and what follows does not fail and is quick.
fn replace_at_place(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    context::mount_by_options(xattrs, overlay)?;
    let tree = mounts::detached(overlay.at, Access::Write)?;
    unmount(overlay.at)?;
    attach(&tree, overlay)
}

/// Takes away the uppermost mount at a path.
fn detach(at: &Path) -> rustix::io::Result<()> {
    umount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

pub(super) fn unmount(at: &Path) -> Result<bool> {
    let mut any = false;
    loop {
        match detach(at) {
            Ok(()) => any = true,
            // Nothing is mounted there, or nothing is there.
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => return Ok(any),
            Err(errno) => return Err(errno).doing(format!("unmount {}", at.display())),
        }
    }
}

/// The same, and another thread waits until the kernel has written out everything.
pub(super) fn abandon(at: &Path) -> Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = match openat(CWD, at, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        opened => opened.doing(format!("open {}", at.display()))?,
    };
    let any = unmount(at)?;
    // Whoever closes it last ends the overlay. Where there is no thread to be had, this one does.
    let closer = std::thread::Builder::new().name("overlay-end".to_owned());
    drop(closer.spawn(move || drop(root)));
    Ok(any)
}

pub(super) fn answers(path: &Path) -> Result<bool> {
    // The one question that the kernel never answers from memory.
    match statfs(path) {
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN | Errno::CONNABORTED) => Ok(false),
        Err(errno) => Err(errno).doing(format!("look at {}", path.display())),
    }
}

/// The paths of a list of mounts that are below a directory, each once.
pub(super) fn mounted(list: &Path, below: &Path) -> Result<Vec<PathBuf>> {
    let text = std::fs::read(list).doing(format!("read {}", list.display()))?;
    let paths = text.split(|byte| *byte == b'\n').filter_map(path_of);
    let mut paths: Vec<PathBuf> = paths.filter(|path| path != below && path.starts_with(below)).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// `id parent major:minor root path …`
fn path_of(line: &[u8]) -> Option<PathBuf> {
    line.split(|byte| *byte == b' ').nth(4).map(unescape)
}

/// Blanks, tabs, line ends and backslashes are written as `\` and three octal digits.
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
    fn paths_below_a_directory_are_told_from_its_neighbours() {
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
