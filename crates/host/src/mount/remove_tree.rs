//! Removing trees, the only way in which the product does it: by descriptors, however deep a tree is, in a time that grows
//! with the number of its files alone.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, chmod, fchmod, openat, openat2, renameat,
    unlinkat,
};
use rustix::io::Errno;

use crate::error::{Doing as _, HostError, Result};

/// Everything to its owner.
const OWNER: Mode = Mode::RWXU;
/// So deep a walk goes at once; what lies deeper is brought up first, so that no tree is too deep.
const DEEP: usize = 64;
/// So often a directory is emptied again that somebody fills.
const PATIENCE: usize = 100;

/// Removes a directory, or whatever is there, and all below. It never follows a symlink, and stops with an error before
/// what is mounted. Directories that their owner closed to himself are opened. What is not there is gone.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let action = || format!("remove {}", path.display());
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL).doing(action());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        parent => parent.doing(action())?,
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(std::io::Error::from).doing(action())?;
    let mut removal = Removal { top: None, brought_up: 0 };
    removal.remove(parent.as_fd(), &name, 0).map_err(|(inside, errno)| HostError::System {
        action: format!("remove {} of {}", inside.to_string_lossy(), path.display()),
        source: errno.into(),
    })
}

/// What was not removed, and why.
type Failed = (CString, Errno);

struct Removal {
    /// The directory that is removed.
    top: Option<OwnedFd>,
    /// Directories that were moved to there.
    brought_up: usize,
}

impl Removal {
    /// Removes one name, whatever it is.
    fn remove(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        depth: usize,
    ) -> std::result::Result<(), Failed> {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // The second where it is a directory and the rules of POSIX hold.
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
        // Most are empty, or have been emptied.
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => {}
            Err(errno) => return Err(failed(errno)),
        }
        if depth > DEEP && self.bring_up(parent, name).map_err(failed)? {
            return Ok(());
        }
        let directory = open_directory(parent, name).map_err(failed)?;
        if depth == 0 {
            self.top = Some(rustix::io::fcntl_dupfd_cloexec(&directory, 3).map_err(failed)?);
        }
        let (mut patience, mut opened) = (PATIENCE, false);
        loop {
            let before = self.brought_up;
            match self.empty(directory.as_fd(), name, depth) {
                // Its owner may not change it, but may change that.
                Err((_, Errno::ACCESS)) if !opened => {
                    opened = true;
                    fchmod(&directory, OWNER).map_err(failed)?;
                    continue;
                }
                // Not a second time, at whatever level.
                Err((inside, Errno::ACCESS)) => return Err((inside, Errno::PERM)),
                emptied => emptied?,
            }
            match unlinkat(parent, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) if self.brought_up > before => {}
                // Somebody still makes files there.
                Err(Errno::NOTEMPTY | Errno::EXIST) if patience > 0 => patience -= 1,
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
            let inside = entry.file_name();
            if matches!(inside.to_bytes(), b"." | b"..") {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => self.remove_directory(directory, inside, depth + 1)?,
                _ => self.remove(directory, inside, depth + 1)?,
            }
        }
        Ok(())
    }

    /// Moves a directory to the top, to be removed from there.
    fn bring_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<bool> {
        let Some(top) = &self.top else { return Ok(false) };
        let mut opened = false;
        loop {
            self.brought_up += 1;
            let new = format!("workspace-removal-{}", self.brought_up);
            match renameat(parent, name, top, new) {
                Ok(()) => return Ok(true),
                // Its entry `..` changes with it.
                Err(Errno::ACCESS) if !opened => {
                    opened = true;
                    open_up(parent, name)?;
                }
                // The name is taken.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Directories are not left: neither by what is mounted there nor by a symlink.
const RESOLVE: ResolveFlags =
    ResolveFlags::NO_XDEV.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::BENEATH);

/// Opens a directory in which nothing is mounted from elsewhere. One that is closed to its owner is opened up first.
fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat2(parent, name, flags, Mode::empty(), RESOLVE);
    let opened = match open() {
        Err(Errno::ACCESS) => open_up(parent, name).and_then(|()| open()),
        opened => opened,
    };
    // Something is mounted there.
    opened.map_err(|errno| if errno == Errno::XDEV { Errno::BUSY } else { errno })
}

/// Gives a directory's owner every right to it. By a descriptor: the name may be a symlink by now.
fn open_up(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let closed = openat2(parent, name, flags, Mode::empty(), RESOLVE)?;
    chmod(format!("/proc/self/fd/{}", closed.as_raw_fd()), OWNER)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_is_removed_and_links_are_not_followed() {
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
    fn directories_that_are_closed_to_their_owner_are_removed() {
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
