//! Linux versions of the platform functions (see `platform.rs`).

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, RawMode, RenameFlags, ResolveFlags, Stat, chmod, fallocate, fstat,
    ioctl_ficlone, linkat, openat, openat2, renameat, renameat_with,
};
use rustix::io::Errno;

use super::IfExists;

pub use rustix::fs::RawDir;

/// Flags that open a directory only as the start of other operations. The directory need not be readable.
pub(crate) const DIRECTORY_HANDLE_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
/// Error number for a missing extended attribute.
pub(crate) const XATTR_NOT_FOUND: Errno = Errno::NODATA;
/// True if a reflink (a copy-on-write copy of a file) also copies extended attributes.
pub(crate) const REFLINK_COPIES_XATTRS: bool = false;

/// Longest path passed to the kernel in one call, in bytes.
const OPEN_PATH_MAX: usize = 4000;

/// Returns the boot id of the machine; `None` if it is unknown.
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Opens `path` beneath `root`. No component may be a symlink. Paths that are too long for the kernel are
/// opened in several steps.
pub fn open_beneath(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.len() <= OPEN_PATH_MAX {
        return open_piece(root, path, flags);
    }
    let mut parent: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() > OPEN_PATH_MAX {
        let cut = rest[..OPEN_PATH_MAX].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let (piece, tail) = rest.split_at(cut);
        let flags = DIRECTORY_HANDLE_FLAGS | OFlags::CLOEXEC;
        let next = match &parent {
            Some(directory) => open_piece(directory, piece, flags)?,
            None => open_piece(&root, piece, flags)?,
        };
        parent = Some(next);
        rest = &tail[1..];
    }
    match &parent {
        Some(directory) => open_piece(directory, rest, flags),
        None => open_piece(root, rest, flags),
    }
}

/// Opens a path that is short enough for the kernel.
fn open_piece(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path: &[u8] = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // The kernel returns EAGAIN if a directory was renamed during the lookup.
    for _ in 0..16 {
        match openat2(&root, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Creates a copy-on-write copy of a file (reflink). Fails if the file system does not support it; the target file is
/// then empty.
pub fn reflink_path(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    Ok(ioctl_ficlone(&to, &from)?)
}

/// `O_PATH` descriptor of an entry. Opening it needs no permission on the entry. The owner of the entry can change its
/// mode through the descriptor.
pub(crate) struct EntryHandle(OwnedFd);

impl EntryHandle {
    /// Opens a directory beneath `root` without following symlinks.
    pub(crate) fn open_directory(root: impl AsFd, path: &[u8]) -> Result<Self, Errno> {
        open_beneath(root, path, DIRECTORY_HANDLE_FLAGS).map(Self)
    }

    /// Opens an entry of any kind without following a symlink.
    pub(crate) fn open_entry(directory: impl AsFd, name: &[u8]) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(directory, name, flags, Mode::empty()).map(Self)
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.0)
    }

    pub(crate) fn chmod(&self, mode: Mode) -> Result<(), Errno> {
        chmod(proc_fd_path(&self.0), mode)
    }
}

/// Returns the `/proc` path of an open file, for system calls that take no file descriptor.
fn proc_fd_path(handle: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// Creates an unnamed temporary file (`O_TMPFILE`). Returns `None` if the file system does not support it.
pub(crate) fn create_unnamed(directory: impl AsFd, mode: Mode) -> Result<Option<OwnedFd>, Errno> {
    match openat(directory, ".", OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives an unnamed file a name; fails if the name exists.
pub(crate) fn link_unnamed(file: &File, directory: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    linkat(rustix::fs::CWD, proc_fd_path(file), directory, name, AtFlags::SYMLINK_FOLLOW)
}

/// Creates a new file; fails if the name exists. If possible, the file is a reflink copy of `source`. Returns the file,
/// and true if it is a copy.
pub(crate) fn create_named(
    directory: impl AsFd,
    name: &[u8],
    mode: Mode,
    source: Option<&OwnedFd>,
) -> Result<(OwnedFd, bool), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, mode)?;
    let is_reflink = source.is_some_and(|source| reflink(&file, source));
    Ok((file, is_reflink))
}

/// Makes an empty file a reflink copy of `source`. Returns false if the file system does not support it.
pub(crate) fn reflink(file: impl AsFd, source: &OwnedFd) -> bool {
    ioctl_ficlone(file, source).is_ok()
}

/// Renames a completely written file from its temporary to its final name.
pub(crate) fn rename_into_place(
    directory: impl AsFd,
    from: &[u8],
    to: &[u8],
    if_exists: IfExists,
) -> Result<(), Errno> {
    match if_exists {
        IfExists::Replace => renameat(&directory, from, &directory, to),
        // File systems that do not support this flag, such as NFS, return EINVAL. There, an existing entry is
        // replaced.
        IfExists::Fail => match renameat_with(&directory, from, &directory, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL) => renameat(&directory, from, &directory, to),
            result => result,
        },
    }
}

/// Allocates disk space for a range of a file, and extends the file if the range ends after it. Keeps
/// existing content.
pub(crate) fn preallocate(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    fallocate(file, FallocateFlags::empty(), offset, len)
}

/// Waits until everything written to the file system is on disk.
pub(crate) fn sync_filesystem(directory: impl AsFd) -> Result<(), Errno> {
    rustix::fs::syncfs(directory)
}

/// Starts writing a range of a file to disk, without waiting for it.
pub(crate) fn start_writeback(file: &File, offset: u64, len: u64) {
    // SAFETY: the call takes an open file and integers, and accesses no memory of this process. It is a
    // hint: its result affects only the duration of the sync.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Converts the mode of a `stat` to the type that is common to all platforms.
pub(crate) fn mode_to_u32(mode: RawMode) -> u32 {
    mode
}

/// Returns the number of hard links of a file.
pub(crate) fn link_count(stat: &Stat) -> u64 {
    stat.st_nlink
}

/// Converts a mode to the type of this platform.
pub(crate) fn mode_from_u32(mode: u32) -> RawMode {
    mode
}
