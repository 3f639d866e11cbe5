//! Kept root filesystem of a sandbox: an overlay of its own, in which everything but a few mounts is kept.
//!
//! Its content is arbitrary, because programs of an earlier sandbox may have written it. No program of the new
//! sandbox runs yet, so nothing changes the content meanwhile. Symlinks are never followed: a symlink, or another
//! entry that cannot be mounted on, is replaced by an empty directory or file.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};

use crate::error::{Context as _, HostError, Result};
use crate::mount::mounts::{self, Access};

/// Directories of the root that other filesystems are mounted on.
const MOUNT_POINTS: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];
/// Directory in which files of the new sandbox are mounted.
const ETC: &str = "etc";
/// Permissions without which users other than root could not use the root directory.
const ROOT_MODE: Mode =
    Mode::RUSR.union(Mode::XUSR).union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

/// Clones the mount of a kept root, detached. Fails if nothing is mounted at `path`, as after the death of the
/// process that held the mount: the directory below it is not the root.
pub(crate) fn clone(path: &Path) -> Result<OwnedFd> {
    if !mounts::is_overlay(path)? {
        return Err(HostError::other(format!("the root filesystem at {} is not mounted", path.display())));
    }
    mounts::clone_tree(path, Access::Write)
}

/// Prepares a kept root that is mounted at `path`: makes sure that its mount points, `extra` among them, are
/// directories, and that users can enter it.
pub(crate) fn prepare(path: &Path, extra: &[&str]) -> Result<()> {
    let root = open_dir(path)?;
    let mode = Mode::from_raw_mode(fstat(&root).context("stat the root")?.st_mode & 0o7777);
    if !mode.contains(ROOT_MODE) {
        fchmod(&root, mode | ROOT_MODE).context("set the permissions of the root")?;
    }
    for name in MOUNT_POINTS.iter().chain(extra) {
        make_directory(root.as_fd(), name).context(format!("make /{name} a directory"))?;
    }
    Ok(())
}

/// Mounts files at names in `/etc` of a kept root that is mounted at `path`. A name that is a directory is left
/// alone, and so are all of them if `/etc` is no directory.
pub(crate) fn mount_files(path: &Path, files: &[(&str, &Path)]) -> Result<()> {
    let root = open_dir(path)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let etc = match openat(&root, ETC, flags, Mode::empty()) {
        Ok(etc) => etc,
        Err(Errno::NOENT) => {
            make_directory(root.as_fd(), ETC).context("create /etc")?;
            openat(&root, ETC, flags, Mode::empty()).context("open /etc")?
        }
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(error).context("open /etc"),
    };
    for (name, source) in files {
        let target = mount_target(etc.as_fd(), name).context(format!("prepare /etc/{name}"))?;
        if let Some(target) = target {
            let file = mounts::clone_tree(source, Access::WriteNoExec)?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            move_mount(&file, c"", &target, c"", flags).context(format!("mount /etc/{name}"))?;
        }
    }
    Ok(())
}

fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).context(format!("open {}", path.display()))
}

/// Returns the type of an entry; `None` if the entry does not exist.
fn kind(directory: BorrowedFd<'_>, name: &str) -> rustix::io::Result<Option<FileType>> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a name a directory. Anything else that has the name is removed.
fn make_directory(directory: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    match kind(directory, name)? {
        Some(FileType::Directory) => return Ok(()),
        Some(_) => unlinkat(directory, name, AtFlags::empty())?,
        None => {}
    }
    mkdirat(directory, name, Mode::from_raw_mode(0o755))
}

/// Opens the regular file with a name, to mount another one over it. Anything else that has the name is
/// replaced by an empty file, except a directory: then the result is `None`.
fn mount_target(directory: BorrowedFd<'_>, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
    let kind = kind(directory, name)?;
    if kind == Some(FileType::Directory) {
        return Ok(None);
    }
    if kind != Some(FileType::RegularFile) {
        if kind.is_some() {
            unlinkat(directory, name, AtFlags::empty())?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
    }
    openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map(Some)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn mount_points_become_directories_and_nothing_outside_is_touched() {
        let home = tempfile::tempdir().unwrap();
        let (root, outside) = (home.path().join("root"), home.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "outside").unwrap();
        symlink(&outside, root.join("tmp")).unwrap();
        symlink("../outside/file", root.join("proc")).unwrap();
        symlink("nowhere", root.join("sys")).unwrap();
        fs::write(root.join("dev"), "a file").unwrap();
        fs::create_dir(root.join("run")).unwrap();
        fs::write(root.join("run/kept"), "").unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
        prepare(&root, &["workspace"]).unwrap();
        for name in ["dev", "proc", "run", "sys", "tmp", "workspace"] {
            assert!(fs::symlink_metadata(root.join(name)).unwrap().is_dir(), "{name}");
        }
        assert!(root.join("run/kept").exists(), "a directory is left alone");
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "outside");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn files_to_mount_on_are_regular_files_of_the_root() {
        let home = tempfile::tempdir().unwrap();
        let etc = home.path().join("etc");
        fs::create_dir(&etc).unwrap();
        let outside = home.path().join("outside");
        fs::write(&outside, "outside").unwrap();
        symlink(&outside, etc.join("link")).unwrap();
        fs::create_dir(etc.join("directory")).unwrap();
        fs::write(etc.join("file"), "content").unwrap();
        let fd = open_dir(&etc).unwrap();
        assert!(mount_target(fd.as_fd(), "directory").unwrap().is_none());
        for name in ["link", "file", "missing"] {
            assert!(mount_target(fd.as_fd(), name).unwrap().is_some());
            assert!(fs::symlink_metadata(etc.join(name)).unwrap().is_file(), "{name}");
        }
        assert_eq!(fs::read_to_string(etc.join("file")).unwrap(), "content");
        assert_eq!(fs::read_to_string(etc.join("link")).unwrap(), "");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "outside");
    }

    #[test]
    fn a_root_that_is_not_mounted_is_refused() {
        let home = tempfile::tempdir().unwrap();
        assert!(clone(home.path()).unwrap_err().to_string().contains("is not mounted"));
    }
}
