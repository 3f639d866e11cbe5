//! What a directory takes on the disk.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, openat2, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::helper::client;
use crate::helper::protocol::Task;
use crate::namespace::holder::Holder;

/// Least bytes that a file or directory counts for: one that holds nothing takes an inode, of which a disk has as many
/// as somebody thought enough. [`quota`](crate::quota) counts alike.
pub const ENTRY_MIN: u64 = 4096;

/// Where looking ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// After so long.
    pub time: Duration,
    /// When more bytes than this were found.
    pub bytes: u64,
}

impl Bounds {
    /// Everything is looked at.
    pub const NONE: Self = Self { time: Duration::MAX, bytes: u64::MAX };
}

/// What files take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes on disk, for each file and directory [`ENTRY_MIN`] at least.
    pub bytes: u64,
    /// Files, directories and all else.
    pub files: u64,
    /// True if the walk ended at a bound: there is at least this much.
    pub at_least: bool,
}

/// Longest path handed to the kernel in one piece.
const PIECE: usize = 4000;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Entries of one directory between two looks at the bounds.
const LOOK_EVERY: u64 = 256;

/// Measures a directory with the rights of a holder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MeasureTask {
    holder: Holder,
    path: PathBuf,
    bounds: Bounds,
}

/// Everything below a directory, whatever is done to it meanwhile: no symlink is followed. An ordinary user's directories that he may not read are looked into with the
/// holder's rights.
pub fn measure(holder: &Holder, path: &Path) -> Usage {
    measure_within(holder, path, Bounds::NONE)
}

/// The same up to a bound.
pub fn measure_within(holder: &Holder, path: &Path, bounds: Bounds) -> Usage {
    let (usage, is_whole) = walk(path, bounds);
    if is_whole || usage.at_least || *holder == Holder::Machine {
        return usage;
    }
    let task = MeasureTask { holder: holder.clone(), path: path.to_owned(), bounds };
    client::call(&task, &[]).unwrap_or(usage)
}

impl Task for MeasureTask {
    const NAME: &'static str = "measure";
    type Reply = Usage;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<Usage> {
        self.holder.join()?;
        Ok(walk(&self.path, self.bounds).0)
    }
}

/// What there is, and whether all of it could be looked at.
fn walk(path: &Path, bounds: Bounds) -> (Usage, bool) {
    let deadline = Instant::now().checked_add(bounds.time);
    let is_over = |usage: &Usage| {
        usage.bytes > bounds.bytes || deadline.is_some_and(|deadline| Instant::now() >= deadline)
    };
    let (mut usage, mut is_whole) = (Usage::default(), true);
    let root = match rustix::fs::open(path, DIRECTORY, Mode::empty()) {
        Ok(root) => root,
        Err(error) => return (usage, error != Errno::ACCESS),
    };
    let mut path = Vec::new();
    let mut open = vec![Waiting { around: 0, name: b".".to_vec() }];
    while let Some(Waiting { around, name }) = open.pop() {
        // All that was read since the directory around this one was read is below that one too.
        path.truncate(around);
        path.extend_from_slice(&name);
        if is_over(&usage) {
            usage.at_least = true;
            break;
        }
        match open_beneath(&root, &path) {
            Ok(directory) => {
                path.push(b'/');
                is_whole &= add(&directory, path.len(), &mut usage, &mut open, &is_over);
            }
            Err(error) => is_whole &= error != Errno::ACCESS,
        }
    }
    (usage, is_whole)
}

/// A directory that is still to be read. It does not have its path: there may be a million of them, and a path is as long
/// as somebody likes.
struct Waiting {
    /// Length of the path around it, with the slash.
    around: usize,
    name: Vec<u8>,
}

/// Opens a directory beneath another, piece by piece where the kernel does not take the path as a whole.
fn open_beneath(root: &OwnedFd, path: &[u8]) -> std::result::Result<OwnedFd, Errno> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = |at: &OwnedFd, path: &[u8]| openat2(at, path, DIRECTORY, Mode::empty(), beneath);
    let (mut at, mut rest): (Option<OwnedFd>, _) = (None, path);
    while rest.len() > PIECE {
        let cut = rest[..PIECE].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        at = Some(open(at.as_ref().unwrap_or(root), &rest[..cut])?);
        rest = &rest[cut + 1..];
    }
    open(at.as_ref().unwrap_or(root), rest)
}

/// Counts what is in a directory, whose path with the slash is `around` bytes long. Returns true if all of it could be looked at.
fn add(
    directory: &OwnedFd,
    around: usize,
    usage: &mut Usage,
    open: &mut Vec<Waiting>,
    is_over: &dyn Fn(&Usage) -> bool,
) -> bool {
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(directory.as_fd(), buffer.spare_capacity_mut());
    let mut is_whole = true;
    while let Some(Ok(entry)) = entries.next() {
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
        if usage.files.is_multiple_of(LOOK_EVERY) && is_over(usage) {
            usage.at_least = true;
            return is_whole;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            open.push(Waiting { around, name: name.to_vec() });
        }
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_nowhere_and_depth_ends_nothing() {
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
        // The file, and an entry's least for the link and the two directories.
        assert!(usage.bytes >= 8192 + 3 * ENTRY_MIN && !usage.at_least, "{usage:?}");
        assert_eq!(walk(&home.path().join("none"), Bounds::NONE).0, Usage::default());
    }

    #[test]
    fn directories_beside_each_other_are_all_found() {
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
    fn what_lies_deeper_than_a_path_may_be_long_counts() {
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
    fn files_that_hold_nothing_count_and_a_bound_ends_the_look() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..10 * LOOK_EVERY {
            std::fs::write(home.path().join(number.to_string()), []).unwrap();
        }
        let all = walk(home.path(), Bounds::NONE).0;
        let files = 10 * LOOK_EVERY;
        assert_eq!(all, Usage { bytes: files * ENTRY_MIN, files, at_least: false });
        let some = walk(home.path(), Bounds { bytes: LOOK_EVERY * ENTRY_MIN, ..Bounds::NONE }).0;
        let files = 2 * LOOK_EVERY;
        assert_eq!(some, Usage { bytes: files * ENTRY_MIN, files, at_least: true });
        let none = walk(home.path(), Bounds { time: Duration::ZERO, ..Bounds::NONE }).0;
        assert_eq!(none, Usage { at_least: true, ..Usage::default() });
    }
}
