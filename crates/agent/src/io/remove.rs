//! Removing files and directories.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, unlinkat};
use rustix::io::Errno;
use workspace_agent_protocol::v1::{IoFailureKind, RemovePath};

use super::channel::RequestHandle;
use super::failure::{AtPath as _, Failure, Result};
use super::list::open_child;
use super::path::{Parents, is_type, open_parent};

/// Removes the entry at a path: a symlink itself, and a directory only if it is empty or `recursive` is set.
pub(crate) fn remove(handle: &RequestHandle, request: &RemovePath) -> Result<()> {
    let path = &request.path;
    let found = match open_parent(path, Parents::MustExist) {
        Err(failure) if request.force && failure.is(IoFailureKind::NotFound) => return Ok(()),
        found => found?,
    };
    let Some(stat) = found.stat().at(path)? else {
        return if request.force { Ok(()) } else { Err(Failure::of_errno(Errno::NOENT, path)) };
    };
    if !is_type(&stat, FileType::Directory) {
        return unlinkat(&found.parent, found.name.as_slice(), AtFlags::empty()).at(path);
    }
    if request.recursive
        && let Some(directory) = open_child(&found.parent, &found.name).at(path)?
    {
        remove_content(handle, directory, path)?;
    }
    unlinkat(&found.parent, found.name.as_slice(), AtFlags::REMOVEDIR).at(path)
}

/// One directory whose content is being removed.
struct Level {
    fd: OwnedFd,
    entries: Dir,
    /// Subdirectory that is being emptied.
    child: Option<CString>,
}

impl Level {
    fn new(fd: OwnedFd) -> std::result::Result<Self, Errno> {
        let entries = Dir::read_from(&fd)?;
        Ok(Self { fd, entries, child: None })
    }
}

/// Removes everything in a directory. Symlinks are removed and never followed.
///
/// The agent does not depend on the crates that remove trees as well, and this removal can be cancelled.
fn remove_content(handle: &RequestHandle, directory: OwnedFd, path: &[u8]) -> Result<()> {
    // Not recursive: a tree may be deeper than the stack of a thread.
    let mut levels = vec![Level::new(directory).at(path)?];
    while let Some(level) = levels.last_mut() {
        handle.check_cancelled()?;
        if let Some(child) = level.child.take() {
            remove_entry(&level.fd, &child, AtFlags::REMOVEDIR).at(path)?;
        }
        let Some(item) = level.entries.next() else {
            levels.pop();
            continue;
        };
        let item = item.at(path)?;
        let name = item.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let child = match item.file_type() {
            FileType::Directory | FileType::Unknown => open_child(&level.fd, name.to_bytes()).at(path)?,
            _ => None,
        };
        match child {
            Some(child) => {
                level.child = Some(name.to_owned());
                levels.push(Level::new(child).at(path)?);
            }
            None => match remove_entry(&level.fd, name, AtFlags::empty()) {
                // A directory that may not be read, so `open_child` did not open it. It can be removed if it is empty.
                Err(Errno::ISDIR) => remove_entry(&level.fd, name, AtFlags::REMOVEDIR).at(path)?,
                removed => removed.at(path)?,
            },
        }
    }
    Ok(())
}

/// Removes an entry; another process may have removed it before.
fn remove_entry(
    directory: &OwnedFd,
    name: &std::ffi::CStr,
    flags: AtFlags,
) -> std::result::Result<(), Errno> {
    match unlinkat(directory, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}
