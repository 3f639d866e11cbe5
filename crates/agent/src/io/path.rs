//! Paths of requests, and opening what they name.
//!
//! The kernel resolves symlinks from the root of the sandbox, with the rights of its user, so no path leads out.
//! Nothing but regular files and directories is opened: opening a FIFO can block, and opening a device can have an
//! effect. So a path is opened with `O_PATH` first, which has no effect, then examined, and opened again through
//! `/proc/self/fd`, so that it cannot be replaced in between.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use linux_raw_sys::general::{
    BINFMTFS_MAGIC, BPF_FS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, DEVPTS_SUPER_MAGIC,
    NSFS_MAGIC, PROC_SUPER_MAGIC, PSTOREFS_MAGIC, SECURITYFS_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC,
};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, StatFs, fstat, fstatfs, open, openat, readlinkat, statat,
};
use rustix::io::Errno;
use workspace_agent_protocol::v1::{FileEntry, FileKind, IoFailureKind};

use super::failure::{AtPath as _, Failure, Result};

/// Maximum length of a path in bytes, as in Linux.
const PATH_MAX: usize = 4_095;
/// Maximum number of symlinks that are followed for a path, as in Linux.
const SYMLINKS_MAX: usize = 40;
/// Permissions of directories that are created.
pub(crate) const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// Flags to locate an entry without opening it.
const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Flags to locate a directory without opening it.
const DIRECTORY_FLAGS: OFlags = PATH_FLAGS.union(OFlags::DIRECTORY);

/// Two types of file systems that `linux/magic.h` lacks: the kernel defines them in its sources alone.
const CONFIGFS_MAGIC: u32 = 0x6265_6570;
const MQUEUE_MAGIC: u32 = 0x1980_0202;

/// Types of file systems whose files are an interface of the kernel: reading one can block or have an effect.
const KERNEL_FILE_SYSTEMS: [u32; 14] = [
    PROC_SUPER_MAGIC,
    SYSFS_MAGIC,
    DEVPTS_SUPER_MAGIC,
    CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC,
    DEBUGFS_MAGIC,
    TRACEFS_MAGIC,
    SECURITYFS_MAGIC,
    BPF_FS_MAGIC,
    CONFIGFS_MAGIC,
    MQUEUE_MAGIC,
    PSTOREFS_MAGIC,
    BINFMTFS_MAGIC,
    NSFS_MAGIC,
];

/// Checks a path of a request: absolute, without `..` and NUL.
pub(crate) fn check_request_path(path: &[u8]) -> Result<()> {
    let refuse = |message: &str| Err(Failure::invalid(path, message));
    match path {
        _ if !path.starts_with(b"/") => refuse("the path is not absolute"),
        _ if path.len() > PATH_MAX => refuse("the path is too long"),
        _ if path.contains(&0) => refuse("the path contains a NUL"),
        _ if path.split(|byte| *byte == b'/').any(|name| name == b"..") => refuse("the path contains `..`"),
        _ => Ok(()),
    }
}

/// Returns true for a path relative to a tree that stays below it and names an entry.
pub(crate) fn is_inside(path: &[u8]) -> bool {
    path.len() <= PATH_MAX
        && !path.contains(&0)
        && path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
}

/// Entry that a path names.
pub(crate) struct Located {
    /// Descriptor of the entry, opened with `O_PATH`.
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
}

impl Located {
    fn of(fd: OwnedFd, path: &[u8]) -> Result<Self> {
        let stat = fstat(&fd).at(path)?;
        Ok(Self { fd, stat })
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Returns a path that names the entry even if it was renamed or removed.
    pub(crate) fn proc_path(&self) -> String {
        proc_path(&self.fd)
    }
}

/// Handling of a symlink in the last component of a path. Those in other components are always followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastSymlink {
    Follow,
    NoFollow,
}

/// Finds the entry at a path.
pub(crate) fn locate(path: &[u8], symlink: LastSymlink) -> Result<Located> {
    check_request_path(path)?;
    let flags = match symlink {
        LastSymlink::Follow => PATH_FLAGS,
        LastSymlink::NoFollow => PATH_FLAGS | OFlags::NOFOLLOW,
    };
    Located::of(open(path, flags, Mode::empty()).at(path)?, path)
}

/// Returns a path that names what a descriptor refers to.
pub(crate) fn proc_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Checks that a regular file was located, and that it is not an interface of the kernel, such as a file in `/proc`.
pub(crate) fn check_ordinary_file(located: &Located, path: &[u8]) -> Result<()> {
    let refuse = |kind, message: &str| Err(Failure::new(kind, path, message));
    match located.file_type() {
        FileType::RegularFile if is_of_kernel(&fstatfs(&located.fd).at(path)?) => {
            refuse(IoFailureKind::NotAFile, "this file is an interface of the kernel")
        }
        FileType::RegularFile => Ok(()),
        FileType::Directory => refuse(IoFailureKind::IsADirectory, "this is a directory"),
        _ => refuse(IoFailureKind::NotAFile, "this is not a regular file"),
    }
}

/// Opens a regular file that was located. Fails for everything else, and for files of kernel file systems.
pub(crate) fn open_file(located: &Located, path: &[u8]) -> Result<OwnedFd> {
    check_ordinary_file(located, path)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    open(located.proc_path(), flags, Mode::empty()).at(path)
}

/// Opens a directory that was located, for reading its entries.
pub(crate) fn open_directory(located: &Located, path: &[u8]) -> Result<OwnedFd> {
    if located.file_type() != FileType::Directory {
        return Err(Failure::new(IoFailureKind::NotADirectory, path, "this is not a directory"));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    open(located.proc_path(), flags, Mode::empty()).at(path)
}

/// Finds an entry of a directory. A symlink is not followed.
pub(crate) fn locate_at(directory: impl AsFd, name: &[u8], path: &[u8]) -> Result<Located> {
    Located::of(openat(directory, name, PATH_FLAGS | OFlags::NOFOLLOW, Mode::empty()).at(path)?, path)
}

fn is_of_kernel(file_system: &StatFs) -> bool {
    // The magic numbers have 32 bits. The type of the field differs between architectures.
    KERNEL_FILE_SYSTEMS.contains(&(file_system.f_type as u32))
}

/// Open parent directory and name of an entry that may not exist.
#[derive(Debug)]
pub(crate) struct NameInParent {
    /// Directory, opened with `O_PATH`.
    pub(crate) parent: OwnedFd,
    pub(crate) name: Vec<u8>,
}

impl NameInParent {
    /// Stats the entry, not following a symlink; `None` if there is no entry.
    pub(crate) fn stat(&self) -> std::result::Result<Option<Stat>, Errno> {
        match statat(&self.parent, self.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Handling of missing parents of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parents {
    Create,
    MustExist,
}

/// Opens the parent directory of a path. The last component may be missing, and is not followed if it is a symlink.
pub(crate) fn open_parent(path: &[u8], parents: Parents) -> Result<NameInParent> {
    check_request_path(path)?;
    let trimmed = trim_slashes(path);
    let (parent, name) = split(trimmed);
    if name.is_empty() || name == b"." {
        return Err(Failure::invalid(path, "the path does not name an entry of a directory"));
    }
    let parent = match parents {
        Parents::MustExist => open(parent, DIRECTORY_FLAGS, Mode::empty()).at(path)?,
        Parents::Create => make_directories(parent)?,
    };
    Ok(NameInParent { parent, name: name.to_vec() })
}

/// Like [`open_parent`], but if the last component is a symlink, returns the parent and name of the entry that the
/// symlink leads to, which need not exist.
pub(crate) fn open_parent_of_target(path: &[u8], parents: Parents) -> Result<NameInParent> {
    let mut found = open_parent(path, parents)?;
    for _ in 0..SYMLINKS_MAX {
        let is_symlink = found.stat().at(path)?.is_some_and(|stat| is_type(&stat, FileType::Symlink));
        if !is_symlink {
            return Ok(found);
        }
        let link = match readlinkat(&found.parent, found.name.as_slice(), Vec::new()) {
            // Something else has replaced the symlink meanwhile.
            Err(Errno::INVAL) => continue,
            link => link.at(path)?.into_bytes(),
        };
        let (parent, name) = split(trim_slashes(&link));
        if matches!(name, b"" | b"." | b"..") {
            return Err(Failure::new(IoFailureKind::IsADirectory, path, "this is a link to a directory"));
        }
        let parent = if parent.is_empty() { b"." } else { parent };
        let parent = openat(&found.parent, parent, DIRECTORY_FLAGS, Mode::empty()).at(path)?;
        found = NameInParent { parent, name: name.to_vec() };
    }
    Err(Failure::of_errno(Errno::LOOP, path))
}

pub(crate) fn is_type(stat: &Stat, file_type: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == file_type
}

/// Creates a directory with its missing parents, and opens it with `O_PATH`. Existing ones may be symlinks.
pub(crate) fn make_directories(path: &[u8]) -> Result<OwnedFd> {
    let mut directory = open("/", DIRECTORY_FLAGS, Mode::empty()).at(path)?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        directory = match openat(&directory, name, DIRECTORY_FLAGS, Mode::empty()) {
            Err(Errno::NOENT) => {
                make_directory_in(&directory, name, DIRECTORY_MODE).at(path)?;
                openat(&directory, name, DIRECTORY_FLAGS, Mode::empty()).at(path)?
            }
            opened => opened.at(path)?,
        };
    }
    Ok(directory)
}

/// Creates a directory unless there is one.
fn make_directory_in(parent: impl AsFd, name: &[u8], mode: Mode) -> std::result::Result<(), Errno> {
    match rustix::fs::mkdirat(parent, name, mode) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let len = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..len]
}

/// Splits a path without trailing slashes into its directory and its last component. The directory of a name alone
/// is empty.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Describes an entry. `target` is that of a symlink.
pub(crate) fn describe(path: &[u8], stat: &Stat, target: Vec<u8>) -> FileEntry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Special,
    };
    #[allow(clippy::unnecessary_cast, reason = "types differ between architectures")]
    let nanoseconds = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1_000_000_000) + nanoseconds;
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "types differ between architectures")]
    FileEntry {
        path: path.to_vec(),
        kind: kind.into(),
        mode: stat.st_mode & 0o7777,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        mtime_ns: nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        ctime_ns: nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        inode: stat.st_ino as u64,
        target,
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

/// Describes an entry of a directory, with the target of a symlink.
pub(crate) fn describe_at(directory: impl AsFd, name: &[u8], path: &[u8], stat: &Stat) -> FileEntry {
    let link =
        is_type(stat, FileType::Symlink).then(|| readlinkat(directory, name, Vec::new()).ok()).flatten();
    describe(path, stat, link.map(std::ffi::CString::into_bytes).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_and_paths_with_parents_are_refused() {
        for path in [&b"a"[..], b"", b"/a/../b", b"/..", b"/a\0b", b"/a/.."] {
            assert!(check_request_path(path).is_err(), "{path:?}");
        }
        assert!(check_request_path(&[b"/".as_slice(), &vec![b'a'; PATH_MAX]].concat()).is_err());
        for path in [&b"/"[..], b"/a/./b//", b"/..a/b..", b"/\xff"] {
            assert!(check_request_path(path).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn paths_of_trees_stay_inside() {
        for path in [&b""[..], b"/a", b"a/", b"a//b", b".", b"a/..", b"../a", b"a\0"] {
            assert!(!is_inside(path), "{path:?}");
        }
        assert!(is_inside(b"a/b..c/\xff"));
    }

    #[test]
    fn paths_are_split() {
        assert_eq!(split(trim_slashes(b"/a/b//")), (&b"/a"[..], &b"b"[..]));
        assert_eq!(split(trim_slashes(b"/a")), (&b"/"[..], &b"a"[..]));
        assert_eq!(split(trim_slashes(b"/")), (&b""[..], &b""[..]));
        assert_eq!(split(trim_slashes(b"a")), (&b""[..], &b"a"[..]));
    }
}
