//! What a workspace takes on the disk.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, openat2, statat};

/// What a workspace takes that no other does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes on disk.
    pub bytes: u64,
    /// Files, directories and all else.
    pub files: u64,
}

/// Everything below a directory, whatever is done to it meanwhile: no symlink is followed, and what cannot be looked at,
/// or lies deeper than the kernel takes in one path, does not count.
pub(crate) fn measure(path: &Path) -> Usage {
    let mut usage = Usage::default();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(root) = rustix::fs::open(path, flags, Mode::empty()) else { return usage };
    let mut open = vec![b".".to_vec()];
    while let Some(path) = open.pop() {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        if let Ok(directory) = openat2(&root, path.as_slice(), flags, Mode::empty(), beneath) {
            add(&directory, &path, &mut usage, &mut open);
        }
    }
    usage
}

fn add(directory: &OwnedFd, path: &[u8], usage: &mut Usage, open: &mut Vec<Vec<u8>>) {
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(directory.as_fd(), buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        usage.files += 1;
        usage.bytes += stat.st_blocks as u64 * 512;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            open.push([path, b"/", name].concat());
        }
    }
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
        let usage = measure(&tree);
        assert_eq!(usage.files, 4);
        assert!((8192..100_000).contains(&usage.bytes), "{usage:?}");
        assert_eq!(measure(&home.path().join("none")), Usage::default());
    }
}
