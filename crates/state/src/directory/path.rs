//! Opening things beneath a directory without ever leaving it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, ResolveFlags, accessat, chmod, fstat, openat, openat2,
};
use rustix::io::Errno;

/// Longest path handed to the kernel in one piece.
const PIECE: usize = 4000;

/// Opens `path` beneath `root`. No part of it may be a symlink; paths longer than the kernel takes are
/// opened piece by piece.
pub(super) fn open_beneath(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.len() <= PIECE {
        return open_piece(root, path, flags);
    }
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() > PIECE {
        let cut = rest[..PIECE].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let (piece, tail) = rest.split_at(cut);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let next = match &at {
            Some(directory) => open_piece(directory, piece, flags)?,
            None => open_piece(&root, piece, flags)?,
        };
        at = Some(next);
        rest = &tail[1..];
    }
    match &at {
        Some(directory) => open_piece(directory, rest, flags),
        None => open_piece(root, rest, flags),
    }
}

fn open_piece(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path: &[u8] = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // A directory renamed elsewhere while the kernel looks gives EAGAIN.
    for _ in 0..16 {
        match openat2(&root, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a directory beneath `root` for listing and for working relative to it.
pub(super) fn open_directory(root: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// The same for a directory whose own mode keeps even its owner out: it is given the bits that are missing
/// for `need`. Returns the mode it had, if that was changed.
pub(super) fn open_as_owner(
    root: impl AsFd,
    path: &[u8],
    need: Access,
) -> Result<(OwnedFd, Option<Mode>), Errno> {
    let opened = open_directory(&root, path);
    let kept_out = match &opened {
        Ok(fd) => accessat(fd, ".", need, AtFlags::EACCESS) == Err(Errno::ACCESS),
        Err(error) => *error == Errno::ACCESS,
    };
    if !kept_out {
        return opened.map(|fd| (fd, None));
    }
    let handle = open_beneath(&root, path, OFlags::PATH | OFlags::DIRECTORY)?;
    let mode = Mode::from_raw_mode(fstat(&handle)?.st_mode & 0o7777);
    if chmod(itself(&handle), mode | Mode::RWXU).is_err() {
        // Somebody else's.
        return opened.map(|fd| (fd, None));
    }
    Ok((open_directory(&root, path)?, Some(mode)))
}

/// Opens a file for reading whose own mode keeps even its owner out.
pub(super) fn open_file_as_owner(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let reading = flags | OFlags::RDONLY | OFlags::NONBLOCK;
    match openat(&directory, name, reading, Mode::empty()) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let handle = openat(&directory, name, flags | OFlags::PATH, Mode::empty())?;
    let stat = fstat(&handle)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    chmod(itself(&handle), mode | Mode::RUSR).map_err(|_| Errno::ACCESS)?;
    let opened = openat(&directory, name, reading, Mode::empty());
    chmod(itself(&handle), mode)?;
    opened
}

/// A path to what is open, for calls that take no handle.
fn itself(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// For people: the path of something beneath `root`.
pub(super) fn shown(root: &Path, path: &[u8]) -> PathBuf {
    root.join(relative(path))
}

/// A path inside a tree as a path of this system.
pub(super) fn relative(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}
