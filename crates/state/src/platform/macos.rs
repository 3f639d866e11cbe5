//! macOS versions of the platform functions (see `platform.rs`).

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CloneFlags, Dir, DirEntry, Mode, OFlags, RawMode, RenameFlags, Stat, chmodat, fchmod,
    fclonefileat, openat, renameat, renameat_with, statat,
};
use rustix::io::Errno;

use super::IfExists;

/// Flags that open a directory only as the start of other operations. The directory need not be readable.
pub(crate) const DIRECTORY_HANDLE_FLAGS: OFlags = OFlags::from_bits_retain(libc::O_SEARCH as u32);
/// Error number for a missing extended attribute.
pub(crate) const XATTR_NOT_FOUND: Errno = Errno::NOATTR;
/// True if a reflink (a copy-on-write copy of a file, here a clone) also copies extended attributes.
pub(crate) const REFLINK_COPIES_XATTRS: bool = true;

/// Flags for all opened files: no symlinks, and not inherited by child processes.
const NO_LINKS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

unsafe extern "C" {
    fn fsync_volume_np(fd: libc::c_int, flags: libc::c_int) -> libc::c_int;
}
/// Flag of `fsync_volume_np`: syncs to the medium, not only to the write cache of the disk.
const SYNC_VOLUME_FULLSYNC: libc::c_int = 1;
/// Flag of `fsync_volume_np`: waits for the end of the sync.
const SYNC_VOLUME_WAIT: libc::c_int = 2;

/// Returns the boot id of the machine; `None` if it is unknown.
pub fn boot_id() -> Option<String> {
    let mut text = [0_u8; 64];
    let mut len = text.len();
    // SAFETY: the name ends with a NUL, and the call writes at most `len` bytes to `text`, which has `len` bytes.
    let result = unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            text.as_mut_ptr().cast(),
            &raw mut len,
            std::ptr::null_mut(),
            0,
        )
    };
    let id = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
    (result == 0 && !id.is_empty()).then(|| id.to_owned())
}

/// Opens `path` beneath `root`, component by component. No component may be a symlink.
pub fn open_beneath(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let (parent_path, name) = split(path);
    let mut parent: Option<OwnedFd> = None;
    for part in parent_path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let directory = parent.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        parent = Some(open_one(directory, part, DIRECTORY_HANDLE_FLAGS)?);
    }
    open_one(parent.as_ref().map_or(root.as_fd(), AsFd::as_fd), name, flags)
}

/// Opens an entry of a directory. Refuses `..`.
fn open_one(directory: impl AsFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if name == b".." {
        return Err(Errno::XDEV);
    }
    loop {
        match openat(&directory, name, flags | NO_LINKS, Mode::empty()) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Splits a path into the parent directory and the name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None if path.is_empty() => (b"", b"."),
        None => (b"", path),
    }
}

/// Iterator over the entries of a directory.
pub struct RawDir(Option<Result<Dir, Errno>>);

impl RawDir {
    /// Starts at the beginning of an open directory. The buffer is not used on this platform.
    pub fn new(directory: impl AsFd, _buffer: &mut [MaybeUninit<u8>]) -> Self {
        Self(Some(Dir::read_from(directory)))
    }
}

impl Iterator for RawDir {
    type Item = Result<DirEntry, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Some(Ok(entries)) => entries.next(),
            Some(Err(_)) => self.0.take().and_then(Result::err).map(Err),
            None => None,
        }
    }
}

/// Creates a copy-on-write copy of a file (reflink). Fails if the file system does not support it.
pub fn reflink_path(from: &Path, to: &Path) -> io::Result<()> {
    Ok(fclonefileat(File::open(from)?, rustix::fs::CWD, to, CLONE)?)
}

/// Flags of a clone. The clone belongs to the user of the process, not to the owner of the source.
const CLONE: CloneFlags = CloneFlags::NOFOLLOW.union(CloneFlags::NOOWNERCOPY);

/// Handle to an entry. Opening it needs no permission on the entry. The owner of the entry can change its mode through
/// the handle.
pub(crate) struct EntryHandle {
    /// Directory that contains the entry, or the entry itself if `name` is `.`.
    directory: OwnedFd,
    name: Vec<u8>,
}

impl EntryHandle {
    /// Opens a directory beneath `root` without following symlinks.
    pub(crate) fn open_directory(root: impl AsFd, path: &[u8]) -> Result<Self, Errno> {
        let (parent_path, name) = split(path);
        // For the root itself, the handle is its descriptor: `stat` of `.` fails in a directory without search
        // permission.
        let directory = match name {
            b"." => root.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?,
            _ => open_beneath(root, parent_path, DIRECTORY_HANDLE_FLAGS)?,
        };
        Ok(Self { directory, name: name.to_vec() })
    }

    /// Opens an entry of any kind without following a symlink.
    pub(crate) fn open_entry(directory: impl AsFd, name: &[u8]) -> Result<Self, Errno> {
        let directory = directory.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        Ok(Self { directory, name: name.to_vec() })
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        match self.name.as_slice() {
            b"." => rustix::fs::fstat(&self.directory),
            name => statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    pub(crate) fn chmod(&self, mode: Mode) -> Result<(), Errno> {
        match self.name.as_slice() {
            b"." => fchmod(&self.directory, mode),
            name => chmodat(&self.directory, name, mode, AtFlags::SYMLINK_NOFOLLOW),
        }
    }
}

/// Returns `None`, because this platform has no unnamed files.
pub(crate) fn create_unnamed(_directory: impl AsFd, _mode: Mode) -> Result<Option<OwnedFd>, Errno> {
    Ok(None)
}

/// Fails, because this platform has no unnamed files.
pub(crate) fn link_unnamed(_file: &File, _directory: impl AsFd, _name: &[u8]) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Creates a new file; fails if the name exists. If possible, the file is a clone of `source`. Returns the file, and
/// true if it is a clone.
pub(crate) fn create_named(
    directory: impl AsFd,
    name: &[u8],
    mode: Mode,
    source: Option<&OwnedFd>,
) -> Result<(OwnedFd, bool), Errno> {
    if source.is_some_and(|source| fclonefileat(source, &directory, name, CLONE).is_ok()) {
        // The clone has the mode of its source, which may not be writable.
        chmodat(&directory, name, mode, AtFlags::SYMLINK_NOFOLLOW)?;
        return Ok((openat(directory, name, OFlags::WRONLY | NO_LINKS, Mode::empty())?, true));
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok((openat(directory, name, flags, mode)?, false))
}

/// Returns false, because this platform can share blocks only when it creates a file.
pub(crate) fn reflink(_file: impl AsFd, _source: &OwnedFd) -> bool {
    false
}

/// Renames a completely written file from its temporary to its final name. Most file systems of this platform ignore
/// case, so an entry with another spelling of the name may exist.
pub(crate) fn rename_into_place(
    directory: impl AsFd,
    from: &[u8],
    to: &[u8],
    if_exists: IfExists,
) -> Result<(), Errno> {
    match if_exists {
        IfExists::Replace => renameat(&directory, from, &directory, to),
        IfExists::Fail => renameat_with(&directory, from, &directory, to, RenameFlags::NOREPLACE),
    }
}

/// Fails, because the calls of this platform could truncate a file that another process extends at the same time.
pub(crate) fn preallocate(_file: &File, _offset: u64, _len: u64) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Waits until everything written to the file system is on disk.
pub(crate) fn sync_filesystem(directory: impl AsFd) -> Result<(), Errno> {
    let fd = directory.as_fd().as_raw_fd();
    // SAFETY: the call takes an open directory and a number, and accesses no memory of this process.
    let result = unsafe { fsync_volume_np(fd, SYNC_VOLUME_FULLSYNC | SYNC_VOLUME_WAIT) };
    let error = || Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO);
    if result == 0 { Ok(()) } else { Err(error()) }
}

/// Does nothing, because this platform has no such hint.
pub(crate) fn start_writeback(_file: &File, _offset: u64, _len: u64) {}

/// Converts the mode of a `stat` to the type that is common to all platforms.
pub(crate) fn mode_to_u32(mode: RawMode) -> u32 {
    u32::from(mode)
}

/// Returns the number of hard links of a file.
pub(crate) fn link_count(stat: &Stat) -> u64 {
    u64::from(stat.st_nlink)
}

/// Converts a mode to the type of this platform.
pub(crate) fn mode_from_u32(mode: u32) -> RawMode {
    mode as RawMode
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use rustix::fs::{XattrFlags, fsetxattr, open};

    use super::*;

    /// Opens a file or directory for reading.
    fn opened(path: &Path) -> OwnedFd {
        open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn a_clone_has_equal_content_and_changes_independently() {
        let home = tempfile::tempdir().unwrap();
        let (one, two) = (home.path().join("one"), home.path().join("two"));
        fs::write(&one, vec![7; 1 << 20]).unwrap();
        reflink_path(&one, &two).unwrap();
        assert_eq!(fs::read(&two).unwrap(), fs::read(&one).unwrap());
        fs::write(&two, "else").unwrap();
        assert_eq!(fs::metadata(&one).unwrap().len(), 1 << 20);
        let refused = reflink_path(&one, &two).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_clone_of_a_read_only_file_is_writable() {
        let home = tempfile::tempdir().unwrap();
        let one = home.path().join("one");
        fs::write(&one, "content").unwrap();
        fsetxattr(opened(&one), "user.a", b"b", XattrFlags::empty()).unwrap();
        fs::set_permissions(&one, fs::Permissions::from_mode(0o444)).unwrap();
        let (directory, source) = (opened(home.path()), opened(&one));
        let mode = Mode::RUSR | Mode::WUSR;
        let (file, is_clone) = create_named(&directory, b"two", mode, Some(&source)).unwrap();
        assert!(is_clone && REFLINK_COPIES_XATTRS);
        assert_eq!(File::from(file).metadata().unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read(home.path().join("two")).unwrap(), b"content");
    }

    #[test]
    fn nothing_is_opened_through_a_symlink_or_above_the_root() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("a/b")).unwrap();
        symlink("a", home.path().join("link")).unwrap();
        let root = opened(home.path());
        let reading = OFlags::RDONLY | OFlags::DIRECTORY;
        for path in [&b""[..], b"a", b"a/b"] {
            open_beneath(&root, path, reading).unwrap();
        }
        for path in [&b"link"[..], b"link/b", b"..", b"a/../..", b"a/b/.."] {
            assert!(open_beneath(&root, path, reading).is_err(), "{path:?}");
        }
    }

    #[test]
    fn the_mode_of_an_inaccessible_directory_can_be_changed() {
        let home = tempfile::tempdir().unwrap();
        let inaccessible = home.path().join("a/closed");
        fs::create_dir_all(&inaccessible).unwrap();
        fs::set_permissions(&inaccessible, fs::Permissions::from_mode(0)).unwrap();
        let handle = EntryHandle::open_directory(opened(home.path()), b"a/closed").unwrap();
        assert_eq!(handle.stat().unwrap().st_mode & 0o7777, 0);
        handle.chmod(Mode::RWXU).unwrap();
        assert_eq!(fs::metadata(&inaccessible).unwrap().mode() & 0o7777, 0o700);
    }

    #[test]
    fn the_boot_id_is_stable() {
        assert!(boot_id().is_some());
        assert_eq!(boot_id(), boot_id());
    }
}
