//! Opens files and directories beneath a directory without following symlinks. Can add permissions that the mode of an
//! entry denies to its owner.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, accessat, fchmod, fstat, openat};
use rustix::io::Errno;

use crate::platform::{EntryHandle, open_beneath};

/// Access needed to list a directory and to open its entries.
pub(super) const READ_ACCESS: Access = Access::READ_OK.union(Access::EXEC_OK);
/// Access needed to create and remove entries of a directory as well.
pub(super) const WRITE_ACCESS: Access = READ_ACCESS.union(Access::WRITE_OK);

/// Opens a directory beneath `root` for listing and for working relative to it.
pub(super) fn open_directory(root: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens a directory. If its mode denies the access `need` to its owner, adds read, write and search permission for the
/// owner and returns the former mode, which the caller must restore. Returns no mode if it did not change the mode.
/// Restores the mode itself on failure.
pub(super) fn open_with_owner_access(
    root: impl AsFd,
    path: &[u8],
    need: Access,
) -> Result<(OwnedFd, Option<Mode>), Errno> {
    let opened = open_directory(&root, path);
    let is_denied = match &opened {
        Ok(fd) => accessat(fd, ".", need, AtFlags::EACCESS) == Err(Errno::ACCESS),
        Err(error) => *error == Errno::ACCESS,
    };
    if !is_denied {
        return opened.map(|fd| (fd, None));
    }
    if path.is_empty() {
        return open_root_with_owner_access(root, opened);
    }
    let handle = EntryHandle::open_directory(&root, path)?;
    let mode = Mode::from_raw_mode(handle.stat()?.st_mode & 0o7777);
    if handle.chmod(mode | Mode::RWXU).is_err() {
        // The directory is owned by another user.
        return opened.map(|fd| (fd, None));
    }
    match open_directory(&root, path) {
        Ok(fd) => Ok((fd, Some(mode))),
        Err(error) => {
            // An error has no former mode for the caller, so restore it here if possible.
            let _ = handle.chmod(mode);
            Err(error)
        }
    }
}

/// Opens the root itself like [`open_with_owner_access`]. Lookups in it fail, even of `.`, so this uses its descriptor.
/// `opened` is the result of the first attempt, which is returned if the mode cannot be changed.
fn open_root_with_owner_access(
    root: impl AsFd,
    opened: Result<OwnedFd, Errno>,
) -> Result<(OwnedFd, Option<Mode>), Errno> {
    let mode = Mode::from_raw_mode(fstat(&root)?.st_mode & 0o7777);
    if fchmod(&root, mode | Mode::RWXU).is_err() {
        return opened.map(|fd| (fd, None));
    }
    match open_directory(&root, b"") {
        Ok(fd) => Ok((fd, Some(mode))),
        Err(error) => {
            let _ = fchmod(&root, mode);
            Err(error)
        }
    }
}

/// Opens a file for reading. If its mode denies that to its owner, adds read permission while it is opened.
pub(super) fn open_file_with_owner_access(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(&directory, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let handle = EntryHandle::open_entry(&directory, name)?;
    let stat = handle.stat()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    handle.chmod(mode | Mode::RUSR).map_err(|_| Errno::ACCESS)?;
    let opened = openat(&directory, name, flags, Mode::empty());
    handle.chmod(mode)?;
    opened
}

/// Joins `root` and a path inside a tree, for messages.
pub(super) fn full_path(root: &Path, path: &[u8]) -> PathBuf {
    root.join(os_path(path))
}

/// Converts a path inside a tree to an OS path.
pub(super) fn os_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}
