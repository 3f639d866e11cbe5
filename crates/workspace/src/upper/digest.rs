//! Digest of a directory, to find out cheaply that nothing in it has changed.
//!
//! The digest covers the path, type, mode, size, mtime, ctime and inode of every entry. No content is read. Its cost is
//! one `stat` per entry. For a workspace of the provider `overlay`, only the upper directory is read, which has only
//! changed entries. For the providers `clone` and `copy`, the whole workspace is read.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FileType, OFlags, RawDir, fstat};
use workspace_state::{Cancel, DEPTH_MAX, StatFingerprint, StoreError, Timestamp};

use super::{fingerprint, join};
use crate::error::{Context as _, Result};
use crate::file_opener::FileOpener;
use crate::provider::ChangeDigest;

/// Directory that is to be read.
struct QueuedDirectory {
    parent: Rc<OwnedFd>,
    name: Vec<u8>,
    path: Vec<u8>,
    /// Number of parents up to the root.
    depth: usize,
}

/// Computes the digest of a directory. Returns `None` if it has more than `entries_max` entries, is nested more deeply
/// than a snapshot may be, or changes meanwhile.
pub(crate) fn read(
    opener: &FileOpener,
    path: &Path,
    entries_max: usize,
    cancel: &Cancel,
) -> Result<Option<ChangeDigest>> {
    let digest = read_entries(opener, path, entries_max, cancel);
    cancel.check().map_err(StoreError::from)?;
    digest.context("read", path)
}

fn read_entries(
    opener: &FileOpener,
    path: &Path,
    entries_max: usize,
    cancel: &Cancel,
) -> io::Result<Option<ChangeDigest>> {
    let mut walk = Walk::new(opener, entries_max);
    let root = Rc::new(opener.open_root(path)?);
    walk.add(b"", &fingerprint(&fstat(&root)?));
    let mut queue = Vec::new();
    let is_complete = walk.read_directory(&root, b"", 0, &mut queue)? && walk.read_queued(queue, cancel)?;
    Ok(is_complete.then(|| walk.finish()))
}

/// State of the computation of a digest.
struct Walk<'a> {
    /// Opener of directories regardless of their modes.
    opener: &'a FileOpener,
    hasher: blake3::Hasher,
    /// Number of entries added so far.
    entries: usize,
    /// Maximum number of entries.
    entries_max: usize,
    /// False if an entry has changed so recently that another change may leave its times as they are, because the
    /// clock of the file system is coarse.
    is_reliable: bool,
    /// Time at which the walk began, in nanoseconds since 1970.
    started: i64,
}

impl<'a> Walk<'a> {
    fn new(opener: &'a FileOpener, entries_max: usize) -> Self {
        let hasher = blake3::Hasher::new();
        Self { opener, hasher, entries: 0, entries_max, is_reliable: true, started: Timestamp::now().0 }
    }

    /// Adds the entries of queued directories and of all directories below them. Returns false if there are too many
    /// entries, directories are nested too deeply, or an entry vanished or was replaced.
    fn read_queued(&mut self, mut queue: Vec<QueuedDirectory>, cancel: &Cancel) -> io::Result<bool> {
        while let Some(next) = queue.pop() {
            cancel.check().map_err(io::Error::other)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory = match self.opener.open(next.parent.as_fd(), &next.name, flags) {
                // Removed, or replaced by a file or symlink, after its parent was listed.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    return Ok(false);
                }
                opened => Rc::new(opened?),
            };
            drop(next.parent);
            if next.depth > DEPTH_MAX
                || !self.read_directory(&directory, &next.path, next.depth, &mut queue)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the entries of a directory, and queues its subdirectories. Returns false if there are too many entries, or
    /// an entry vanished.
    fn read_directory(
        &mut self,
        directory: &Rc<OwnedFd>,
        path: &[u8],
        depth: usize,
        queue: &mut Vec<QueuedDirectory>,
    ) -> io::Result<bool> {
        let mut names = Vec::new();
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut listed = RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = listed.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
            if self.entries + names.len() > self.entries_max {
                return Ok(false);
            }
        }
        names.sort_unstable();
        for name in names {
            let stat = match self.opener.stat(directory.as_fd(), &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                stat => stat?,
            };
            let path = join(path, &name);
            self.add(&path, &fingerprint(&stat));
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                queue.push(QueuedDirectory { parent: Rc::clone(directory), name, path, depth: depth + 1 });
            }
        }
        Ok(true)
    }

    /// Adds an entry to the digest.
    fn add(&mut self, path: &[u8], entry: &StatFingerprint) {
        self.entries += 1;
        self.is_reliable &= entry.is_reliable_at(self.started);
        self.hasher.update(&(path.len() as u64).to_le_bytes());
        self.hasher.update(path);
        self.hasher.update(&entry.mode.to_le_bytes());
        for word in [entry.size, entry.mtime as u64, entry.ctime as u64, entry.inode] {
            self.hasher.update(&word.to_le_bytes());
        }
    }

    fn finish(self) -> ChangeDigest {
        ChangeDigest { hash: *self.hasher.finalize().as_bytes(), is_reliable: self.is_reliable }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use workspace_host::NamespaceHolder;

    use super::*;

    #[test]
    fn every_change_changes_the_digest() {
        let home = tempfile::tempdir().unwrap();
        let full = |path: &str| home.path().join(path);
        fs::create_dir_all(full("a/b")).unwrap();
        fs::write(full("a/file"), "one").unwrap();
        let opener = FileOpener::new(&NamespaceHolder::None);
        let digest = || read(&opener, home.path(), 100, &Cancel::new()).unwrap().unwrap();
        let mut last = digest();
        assert_eq!(last, digest());
        let changes: [(&str, &dyn Fn()); 7] = [
            ("content", &|| fs::write(full("a/file"), "longer").unwrap()),
            ("mode", &|| fs::set_permissions(full("a/file"), fs::Permissions::from_mode(0o600)).unwrap()),
            ("new entry", &|| fs::write(full("a/b/new"), "").unwrap()),
            ("symlink", &|| symlink("x", full("link")).unwrap()),
            ("rename", &|| fs::rename(full("a/b/new"), full("a/b/other")).unwrap()),
            ("removal", &|| fs::remove_file(full("link")).unwrap()),
            ("mode of the root", &|| {
                fs::set_permissions(home.path(), fs::Permissions::from_mode(0o711)).unwrap();
            }),
        ];
        for (description, change) in changes {
            change();
            let changed = digest();
            assert_ne!(changed.hash, last.hash, "{description}");
            last = changed;
        }
    }

    #[test]
    fn a_digest_is_reliable_when_all_changes_are_old() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("file"), "one").unwrap();
        let opener = FileOpener::new(&NamespaceHolder::None);
        let digest = || read(&opener, home.path(), 100, &Cancel::new()).unwrap().unwrap();
        let first = digest();
        assert!(!first.is_reliable);
        // The times of some file systems are in whole seconds.
        let began = std::time::Instant::now();
        while !digest().is_reliable {
            assert!(began.elapsed() < std::time::Duration::from_secs(30));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(digest().hash, first.hash);
        fs::write(home.path().join("file"), "two").unwrap();
        let changed = digest();
        assert!(changed.hash != first.hash && !changed.is_reliable);
    }

    #[test]
    fn a_directory_that_is_replaced_during_the_walk_has_no_digest() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("directory")).unwrap();
        let opener = FileOpener::new(&NamespaceHolder::None);
        for replace in [
            |path: &Path| fs::write(path, "file").unwrap(),
            |path: &Path| symlink("target", path).unwrap(),
            |_: &Path| {},
        ] {
            let path = home.path().join("directory");
            drop(fs::remove_dir(&path));
            drop(fs::remove_file(&path));
            fs::create_dir(&path).unwrap();
            // Opened anew each time, because an open directory can be listed only once.
            let root = Rc::new(opener.open_root(home.path()).unwrap());
            let mut walk = Walk::new(&opener, 100);
            let mut queue = Vec::new();
            let (path_of_root, depth) = (b"", 0);
            assert!(walk.read_directory(&root, path_of_root, depth, &mut queue).unwrap());
            fs::remove_dir(&path).unwrap();
            replace(&path);
            assert!(!walk.read_queued(queue, &Cancel::new()).unwrap());
        }
    }

    #[test]
    fn a_cancelled_walk_fails() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("directory")).unwrap();
        let cancel = Cancel::new();
        cancel.cancel();
        assert!(read(&FileOpener::new(&NamespaceHolder::None), home.path(), 100, &cancel).is_err());
    }
}
