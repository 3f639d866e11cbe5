//! What a directory takes on the disk.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, openat2, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::entry;
use crate::error::Result;
use crate::holder::Holder;

/// What files take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes on disk.
    pub bytes: u64,
    /// Files, directories and all else.
    pub files: u64,
}

/// What the helper is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    holder: Holder,
    path: PathBuf,
}

/// Everything below a directory, whatever is done to it meanwhile: no symlink is followed, and what lies deeper than the
/// kernel takes in one path does not count. An ordinary user's directories that he may not read are looked into with the
/// holder's rights.
pub fn measure(holder: &Holder, path: &Path) -> Usage {
    let (usage, is_whole) = walk(path);
    if is_whole || *holder == Holder::Machine {
        return usage;
    }
    let order = Order { holder: holder.clone(), path: path.to_owned() };
    entry::ask("measure", &order, &[]).unwrap_or(usage)
}

/// What the helper does.
pub(crate) fn run(order: &Order) -> Result<Usage> {
    order.holder.join()?;
    Ok(walk(&order.path).0)
}

/// What there is, and whether all of it could be looked at.
fn walk(path: &Path) -> (Usage, bool) {
    let (mut usage, mut is_whole) = (Usage::default(), true);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(root) => root,
        Err(error) => return (usage, error != Errno::ACCESS),
    };
    let mut open = vec![b".".to_vec()];
    while let Some(path) = open.pop() {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match openat2(&root, path.as_slice(), flags, Mode::empty(), beneath) {
            Ok(directory) => is_whole &= add(&directory, &path, &mut usage, &mut open),
            Err(error) => is_whole &= error != Errno::ACCESS,
        }
    }
    (usage, is_whole)
}

/// Whether all of a directory could be looked at.
fn add(directory: &OwnedFd, path: &[u8], usage: &mut Usage, open: &mut Vec<Vec<u8>>) -> bool {
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
        usage.bytes += stat.st_blocks as u64 * 512;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            open.push([path, b"/", name].concat());
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
        let usage = walk(&tree).0;
        assert_eq!(usage.files, 4);
        assert!((8192..100_000).contains(&usage.bytes), "{usage:?}");
        assert_eq!(walk(&home.path().join("none")).0, Usage::default());
    }
}
