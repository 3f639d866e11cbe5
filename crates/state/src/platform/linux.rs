//! Linux.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, RawMode, ResolveFlags, Stat, chmod, fallocate, fstat,
    ioctl_ficlone, linkat, openat, openat2, renameat,
};
use rustix::io::Errno;

pub use rustix::fs::RawDir;

/// How a directory is opened only to open others from it.
pub(crate) const DIRECTORY_HANDLE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
/// What the system says when a file has no such attribute.
pub(crate) const NO_ATTRIBUTE: Errno = Errno::NODATA;
/// Whether a file that shares the blocks of another was given its attributes as well.
pub(crate) const CLONES_ATTRIBUTES: bool = false;

/// Longest path handed to the kernel in one piece.
const PIECE: usize = 4000;

/// Changes with every start of the machine. None if that cannot be told.
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Opens `path` beneath `root`. No part of it may be a symlink; paths longer than the kernel takes are
/// opened piece by piece.
pub fn open_beneath(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.len() <= PIECE {
        return open_piece(root, path, flags);
    }
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() > PIECE {
        let cut = rest[..PIECE].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let (piece, tail) = rest.split_at(cut);
        let flags = DIRECTORY_HANDLE | OFlags::CLOEXEC;
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

/// Makes a file that shares its blocks with another one until either is written to. Fails where the filesystem
/// cannot do that.
pub fn clone_file(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    Ok(ioctl_ficlone(&to, &from)?)
}

/// Something whose owner may change its mode, also when that keeps him out.
pub(crate) struct Handle(OwnedFd);

impl Handle {
    pub(crate) fn of_directory(root: impl AsFd, path: &[u8]) -> Result<Self, Errno> {
        open_beneath(root, path, DIRECTORY_HANDLE).map(Self)
    }

    pub(crate) fn of_entry(directory: impl AsFd, name: &[u8]) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(directory, name, flags, Mode::empty()).map(Self)
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.0)
    }

    pub(crate) fn chmod(&self, mode: Mode) -> Result<(), Errno> {
        chmod(itself(&self.0), mode)
    }
}

/// A path to what is open, for calls that take no handle.
fn itself(handle: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// Makes a file without a name. None where there are no such files.
pub(crate) fn create_nameless(directory: impl AsFd, mode: Mode) -> Result<Option<OwnedFd>, Errno> {
    match openat(directory, ".", OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives a nameless file its name; fails if the name is taken.
pub(crate) fn link_nameless(file: &File, directory: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    linkat(rustix::fs::CWD, itself(file), directory, name, AtFlags::SYMLINK_FOLLOW)
}

/// Makes a file under a name that nobody else has. The second is whether it shares the blocks of `source`.
pub(crate) fn create_named(
    directory: impl AsFd,
    name: &[u8],
    mode: Mode,
    source: Option<&OwnedFd>,
) -> Result<(OwnedFd, bool), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, mode)?;
    let shared = source.is_some_and(|source| share(&file, source));
    Ok((file, shared))
}

/// Makes an empty file share the blocks of another one. False where that does not work.
pub(crate) fn share(file: impl AsFd, source: &OwnedFd) -> bool {
    ioctl_ficlone(file, source).is_ok()
}

/// Gives a file that is whole its name in place of the one it was written under.
pub(crate) fn rename_whole(
    directory: impl AsFd,
    from: &[u8],
    to: &[u8],
    _replace: bool,
) -> Result<(), Errno> {
    renameat(&directory, from, &directory, to)
}

/// Gives a part of a file its room on the disk, and the file at least that length. What is in it stays.
pub(crate) fn reserve(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    fallocate(file, FallocateFlags::empty(), offset, len)
}

/// Returns when everything that was written to the filesystem is on disk.
pub(crate) fn sync_filesystem(directory: impl AsFd) -> Result<(), Errno> {
    rustix::fs::syncfs(directory)
}

/// Lets the disk begin to write a part of a file, without waiting for it.
pub(crate) fn start_writeback(file: &File, offset: u64, len: u64) {
    // SAFETY: the call takes an open file and numbers, and touches no memory of ours. It is a hint: whether
    // it worked shows in nothing but the time the sync takes.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Type and permission bits, of any system.
pub(crate) fn mode_bits(mode: RawMode) -> u32 {
    mode
}

/// How many names a file has.
pub(crate) fn links_of(stat: &Stat) -> u64 {
    stat.st_nlink
}

/// Type and permission bits, as this system has them.
pub(crate) fn raw_mode(mode: u32) -> RawMode {
    mode
}
