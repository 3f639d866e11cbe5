//! Disk usage of directories.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, openat2, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::helper;
use crate::helper::protocol::Task;
use crate::namespace::holder::NamespaceHolder;

/// Minimum number of bytes that a file or directory counts for: an empty one takes an inode, of which a
/// filesystem has a limited number. [`quota`](crate::quota) limits the number of files by the same ratio.
pub const ENTRY_MIN: u64 = 4096;

/// Bounds of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Time limit.
    pub time: Duration,
    /// Number of bytes above which the measurement stops.
    pub bytes: u64,
}

impl Bounds {
    /// No bounds.
    pub const NONE: Self = Self { time: Duration::MAX, bytes: u64::MAX };
}

/// Disk usage of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskUsage {
    /// Bytes on disk, for each file and directory [`ENTRY_MIN`] at least.
    pub bytes: u64,
    /// Number of files, directories and other entries.
    pub files: u64,
    /// True if the walk stopped at a bound, so the usage may be higher.
    pub is_lower_bound: bool,
}

/// Maximum length of a path in one system call.
const PATH_PIECE_MAX: usize = 4000;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Number of entries between two checks of the bounds. They are also checked before each directory.
const CHECK_EVERY: u64 = 256;

/// Measures a directory with the capabilities of a holder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MeasureDiskUsageTask {
    holder: NamespaceHolder,
    path: PathBuf,
    bounds: Bounds,
}

/// Measures everything below a directory, even if it changes concurrently. Symlinks are not followed.
/// Directories that an ordinary user may not read are measured with the capabilities of the holder.
pub fn measure(holder: &NamespaceHolder, path: &Path) -> DiskUsage {
    measure_within(holder, path, Bounds::NONE)
}

/// Measures like [`measure`], up to a bound.
pub fn measure_within(holder: &NamespaceHolder, path: &Path, bounds: Bounds) -> DiskUsage {
    let (usage, is_whole) = walk(path, bounds);
    if is_whole || usage.is_lower_bound || *holder == NamespaceHolder::None {
        return usage;
    }
    let task = MeasureDiskUsageTask { holder: holder.clone(), path: path.to_owned(), bounds };
    helper::client::call(&task, &[]).unwrap_or(usage)
}

impl Task for MeasureDiskUsageTask {
    const NAME: &'static str = "measure";
    type Reply = DiskUsage;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<DiskUsage> {
        self.holder.join()?;
        Ok(walk(&self.path, self.bounds).0)
    }
}

/// Measures a tree. Also returns whether all of it was readable.
fn walk(path: &Path, bounds: Bounds) -> (DiskUsage, bool) {
    let deadline = Instant::now().checked_add(bounds.time);
    let is_over = |usage: &DiskUsage| {
        usage.bytes > bounds.bytes || deadline.is_some_and(|deadline| Instant::now() >= deadline)
    };
    let (mut usage, mut is_whole) = (DiskUsage::default(), true);
    let root = match rustix::fs::open(path, DIRECTORY, Mode::empty()) {
        Ok(root) => root,
        Err(error) => return (usage, error != Errno::ACCESS),
    };
    let mut path = Vec::new();
    let mut pending = vec![PendingDirectory { parent_len: 0, name: b".".to_vec() }];
    while let Some(PendingDirectory { parent_len, name }) = pending.pop() {
        // All directories read since the parent are below it, so `path` still begins with its path.
        path.truncate(parent_len);
        path.extend_from_slice(&name);
        if is_over(&usage) {
            usage.is_lower_bound = true;
            break;
        }
        match open_beneath(&root, &path) {
            Ok(directory) => {
                path.push(b'/');
                is_whole &= add(&directory, path.len(), &mut usage, &mut pending, &is_over);
            }
            Err(error) => is_whole &= error != Errno::ACCESS,
        }
    }
    (usage, is_whole)
}

/// Directory that is still to be read. It does not store its path, because there may be a million of them and
/// paths can be long.
struct PendingDirectory {
    /// Length of the parent's path, with the slash.
    parent_len: usize,
    name: Vec<u8>,
}

/// Opens a directory beneath another, in pieces where the path is too long for one system call.
fn open_beneath(root: &OwnedFd, path: &[u8]) -> std::result::Result<OwnedFd, Errno> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = |parent: &OwnedFd, path: &[u8]| openat2(parent, path, DIRECTORY, Mode::empty(), beneath);
    let (mut directory, mut rest): (Option<OwnedFd>, _) = (None, path);
    while rest.len() > PATH_PIECE_MAX {
        let cut = rest[..PATH_PIECE_MAX].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        directory = Some(open(directory.as_ref().unwrap_or(root), &rest[..cut])?);
        rest = &rest[cut + 1..];
    }
    open(directory.as_ref().unwrap_or(root), rest)
}

/// Adds the entries of a directory whose path with the slash is `parent_len` bytes long. Returns whether all
/// of it was readable.
fn add(
    directory: &OwnedFd,
    parent_len: usize,
    usage: &mut DiskUsage,
    pending: &mut Vec<PendingDirectory>,
    is_over: &dyn Fn(&DiskUsage) -> bool,
) -> bool {
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(directory.as_fd(), buffer.spare_capacity_mut());
    let mut is_whole = true;
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else { return false };
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                is_whole &= error != Errno::ACCESS;
                continue;
            }
        };
        usage.files += 1;
        usage.bytes += (stat.st_blocks as u64 * 512).max(ENTRY_MIN);
        if usage.files.is_multiple_of(CHECK_EVERY) && is_over(usage) {
            usage.is_lower_bound = true;
            return is_whole;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            pending.push(PendingDirectory { parent_len, name: name.to_vec() });
        }
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symlinks_are_not_followed_and_depth_does_not_matter() {
        let home = tempfile::tempdir().unwrap();
        let (tree, other) = (home.path().join("tree"), home.path().join("other"));
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("large"), vec![1; 1 << 20]).unwrap();
        std::fs::write(tree.join("a/b/file"), vec![1; 8192]).unwrap();
        std::os::unix::fs::symlink(&other, tree.join("a/link")).unwrap();
        let usage = walk(&tree, Bounds::NONE).0;
        assert_eq!(usage.files, 4);
        assert!((8192..100_000).contains(&usage.bytes), "{usage:?}");
        // The file, and the minimum for the link and the two directories.
        assert!(usage.bytes >= 8192 + 3 * ENTRY_MIN && !usage.is_lower_bound, "{usage:?}");
        assert_eq!(walk(&home.path().join("none"), Bounds::NONE).0, DiskUsage::default());
    }

    #[test]
    fn sibling_directories_are_all_measured() {
        let home = tempfile::tempdir().unwrap();
        for path in ["a/b/c", "a/b/d/e", "a/f", "g/h"] {
            std::fs::create_dir_all(home.path().join(path)).unwrap();
            std::fs::write(home.path().join(path).join("file"), vec![1; 10_000]).unwrap();
        }
        let usage = walk(home.path(), Bounds::NONE).0;
        assert_eq!(usage.files, 12);
        assert!(usage.bytes >= 4 * 10_000 + 8 * ENTRY_MIN, "{usage:?}");
    }

    #[test]
    fn files_deeper_than_path_max_are_measured() {
        let home = tempfile::tempdir().unwrap();
        let (name, flags) = ("d".repeat(250), OFlags::CREATE | OFlags::WRONLY);
        let mut at = rustix::fs::open(home.path(), DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..40 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &name, DIRECTORY, Mode::empty()).unwrap();
        }
        let file = rustix::fs::openat(&at, "large", flags, Mode::RWXU).unwrap();
        rustix::io::write(&file, &vec![1; 1 << 20]).unwrap();
        let usage = walk(home.path(), Bounds::NONE).0;
        assert_eq!(usage.files, 41);
        assert!(usage.bytes > 1 << 20, "{usage:?}");
    }

    #[test]
    fn empty_files_count_and_bounds_end_the_walk() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..10 * CHECK_EVERY {
            std::fs::write(home.path().join(number.to_string()), []).unwrap();
        }
        let all = walk(home.path(), Bounds::NONE).0;
        let files = 10 * CHECK_EVERY;
        assert_eq!(all, DiskUsage { bytes: files * ENTRY_MIN, files, is_lower_bound: false });
        let some = walk(home.path(), Bounds { bytes: CHECK_EVERY * ENTRY_MIN, ..Bounds::NONE }).0;
        let files = 2 * CHECK_EVERY;
        assert_eq!(some, DiskUsage { bytes: files * ENTRY_MIN, files, is_lower_bound: true });
        let none = walk(home.path(), Bounds { time: Duration::ZERO, ..Bounds::NONE }).0;
        assert_eq!(none, DiskUsage { is_lower_bound: true, ..DiskUsage::default() });
    }
}
