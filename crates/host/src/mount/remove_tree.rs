//! Recursive removal of directories by file descriptor: of any depth, in linear time, and without following
//! symlinks.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, chmod, fchmod, openat, openat2, renameat,
    unlinkat,
};
use rustix::io::Errno;

use crate::error::{Context as _, HostError, Result};

/// All permissions for the owner.
const OWNER_ALL: Mode = Mode::RWXU;
/// Maximum depth of the recursion. Deeper directories are moved to the top first.
const DEPTH_MAX: usize = 64;
/// Number of attempts to remove a directory in which other processes create files.
const ATTEMPTS: usize = 100;

/// Removes a file, or a directory recursively. Symlinks are not followed. Fails at a mount point. Directories
/// without permissions for their owner are made accessible. Succeeds if `path` does not exist.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let action = || format!("remove {}", path.display());
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL).context(action());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        parent => parent.context(action())?,
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(std::io::Error::from).context(action())?;
    let mut removal = Removal { top: None, hoisted: 0 };
    removal.remove(parent.as_fd(), &name, 0).map_err(|(entry_name, errno)| HostError::System {
        action: format!("remove {} of {}", entry_name.to_string_lossy(), path.display()),
        source: errno.into(),
    })
}

/// Name that could not be removed, and the error.
type Failed = (CString, Errno);

struct Removal {
    /// Directory to remove; `None` until it is open.
    top: Option<OwnedFd>,
    /// Number of deep directories that were moved into it.
    hoisted: usize,
}

impl Removal {
    /// Removes one name, of any type.
    fn remove(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        depth: usize,
    ) -> std::result::Result<(), Failed> {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // POSIX specifies `EPERM` for directories, Linux returns `EISDIR`.
            Err(Errno::ISDIR | Errno::PERM) => self.remove_directory(parent, name, depth),
            Err(errno) => Err((name.to_owned(), errno)),
        }
    }

    fn remove_directory(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        depth: usize,
    ) -> std::result::Result<(), Failed> {
        let failed = |errno| (name.to_owned(), errno);
        // Most are empty, or were emptied before.
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // `EBUSY` is a mount point, which `open_directory` rejects.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => {}
            Err(errno) => return Err(failed(errno)),
        }
        if depth > DEPTH_MAX && self.hoist(parent, name).map_err(failed)? {
            return Ok(());
        }
        let directory = open_directory(parent, name).map_err(failed)?;
        if depth == 0 {
            self.top = Some(rustix::io::fcntl_dupfd_cloexec(&directory, 3).map_err(failed)?);
        }
        let (mut attempts, mut is_chmodded) = (ATTEMPTS, false);
        loop {
            let before = self.hoisted;
            match self.empty(directory.as_fd(), name, depth) {
                // The owner may not modify the directory, but may change its mode.
                Err((_, Errno::ACCESS)) if !is_chmodded => {
                    is_chmodded = true;
                    fchmod(&directory, OWNER_ALL).map_err(failed)?;
                    continue;
                }
                // Already retried. `EPERM` keeps the parent directories, which retry after `EACCES`, from
                // retrying.
                Err((entry_name, Errno::ACCESS)) => return Err((entry_name, Errno::PERM)),
                emptied => emptied?,
            }
            match unlinkat(parent, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // Deep directories were moved to the top directory, which may be this one.
                Err(Errno::NOTEMPTY | Errno::EXIST) if self.hoisted > before => {}
                // Another process is creating files in it.
                Err(Errno::NOTEMPTY | Errno::EXIST) if attempts > 0 => attempts -= 1,
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Removes everything in a directory.
    fn empty(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        depth: usize,
    ) -> std::result::Result<(), Failed> {
        let failed = |errno| (name.to_owned(), errno);
        let entries = Dir::read_from(directory).map_err(failed)?;
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let entry_name = entry.file_name();
            if matches!(entry_name.to_bytes(), b"." | b"..") {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => self.remove_directory(directory, entry_name, depth + 1)?,
                _ => self.remove(directory, entry_name, depth + 1)?,
            }
        }
        Ok(())
    }

    /// Moves a directory to the top, where it is removed later. Returns false if there is no top directory.
    fn hoist(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<bool> {
        let Some(top) = &self.top else { return Ok(false) };
        let mut is_chmodded = false;
        loop {
            self.hoisted += 1;
            let new = format!("workspace-removal-{}", self.hoisted);
            match renameat(parent, name, top, new) {
                Ok(()) => return Ok(true),
                // Moving a directory changes its entry `..`.
                Err(Errno::ACCESS) if !is_chmodded => {
                    is_chmodded = true;
                    add_owner_permissions(parent, name)?;
                }
                // The name is taken.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Resolution flags that reject mount points and symlinks.
const RESOLVE: ResolveFlags =
    ResolveFlags::NO_XDEV.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::BENEATH);

/// Opens a directory that is not a mount point. If its owner has no permissions, they are added first.
fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat2(parent, name, flags, Mode::empty(), RESOLVE);
    let opened = match open() {
        Err(Errno::ACCESS) => add_owner_permissions(parent, name).and_then(|()| open()),
        opened => opened,
    };
    // It is a mount point.
    opened.map_err(|errno| if errno == Errno::XDEV { Errno::BUSY } else { errno })
}

/// Gives the owner of a directory all permissions, by descriptor, because the name may have become a symlink.
fn add_owner_permissions(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat2(parent, name, flags, Mode::empty(), RESOLVE)?;
    chmod(format!("/proc/self/fd/{}", directory.as_raw_fd()), OWNER_ALL)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn a_tree_deeper_than_path_max_is_removed_without_following_symlinks() {
        let home = tempfile::tempdir().unwrap();
        let (tree, outside) = (home.path().join("tree"), home.path().join("outside"));
        fs::create_dir(&tree).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "stays").unwrap();
        let mut directory = openat(CWD, &tree, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for _ in 0..5_000 {
            mkdirat(&directory, "d", Mode::from_raw_mode(0o700)).unwrap();
            rustix::fs::symlinkat(&outside, &directory, "link").unwrap();
            directory = openat(&directory, "d", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        }
        drop(directory);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "stays");
        remove_tree(&tree).unwrap();
        symlink(&outside, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(outside.exists() && !tree.exists());
    }

    #[test]
    fn directories_without_owner_permissions_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let tree = home.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir_all(tree.join("c/d")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        for (name, mode) in [("a/b", 0o000), ("a", 0o000), ("c", 0o500)] {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }
}
