//! Listing directories.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use workspace_agent_protocol::v1::{FileEntry, FileListing, IoFailureKind, ListFiles};

use super::channel::RequestHandle;
use super::failure::{AtPath as _, Failure, Result};
use super::path::{LastSymlink, describe, describe_at, locate, open_directory};

/// Maximum number of entries that are examined for a listing.
const ENTRIES_MAX: usize = 100_000;
/// Maximum depth of a listing.
const DEPTH_MAX: u32 = 32;
/// Maximum size of the entries of a reply, in bytes. The server asks for the rest.
const REPLY_MAX: usize = 256 << 10;
/// Estimated size of an entry of a reply without its path and target, in bytes.
const ENTRY_OVERHEAD: usize = 64;

/// Lists a directory: as many of the requested entries as fit into a reply.
///
/// The server requests the following entries with `next` of the reply as `skip`, and `last` as `after`. `after` has
/// precedence, because a count is wrong once entries were created or removed.
pub(crate) fn list(handle: &RequestHandle, request: &ListFiles) -> Result<FileListing> {
    let path = &request.path;
    let located = locate(path, LastSymlink::Follow)?;
    let root = open_directory(&located, path)?;
    let mut walk = Walk { handle, root: path, paths: Vec::new() };
    walk.collect(&root, b"", request.depth.clamp(1, DEPTH_MAX))?;
    let mut paths = walk.paths;
    paths.sort_unstable();
    let total = paths.len() as u64;
    let first = if request.after.is_empty() {
        usize::try_from(request.skip).unwrap_or(usize::MAX)
    } else {
        paths.partition_point(|path| *path <= request.after)
    };
    let mut size = 0;
    let mut entries = Vec::new();
    let mut next = request.skip;
    let mut last = Vec::new();
    for entry_path in paths.iter().skip(first).take(request.limit as usize) {
        handle.check_cancelled()?;
        let entry = describe_entry(&root, entry_path);
        size += entry.as_ref().map_or(0, |entry| entry.path.len() + entry.target.len() + ENTRY_OVERHEAD);
        if size > REPLY_MAX {
            break;
        }
        entries.extend(entry);
        next += 1;
        last.clone_from(entry_path);
    }
    // It is no symlink, so it has no target.
    let directory = describe(path, &located.stat, Vec::new());
    Ok(FileListing { directory: Some(directory), entries, total, next, last })
}

/// Collects the paths of a directory, relative to it.
struct Walk<'a> {
    handle: &'a RequestHandle,
    /// Path of the directory, for failures.
    root: &'a [u8],
    paths: Vec<Vec<u8>>,
}

impl Walk<'_> {
    /// Adds the paths of all entries of a directory, down to `depth`.
    fn collect(&mut self, directory: &OwnedFd, prefix: &[u8], depth: u32) -> Result<()> {
        self.handle.check_cancelled()?;
        for item in entries_of(directory).at(self.root)? {
            let item = item.at(self.root)?;
            let name = item.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if self.paths.len() == ENTRIES_MAX {
                let message =
                    format!("a listing has at most {ENTRIES_MAX} entries; list a smaller directory");
                return Err(Failure::new(IoFailureKind::LimitExceeded, self.root, message));
            }
            let path = join(prefix, name);
            self.paths.push(path.clone());
            let may_descend =
                depth > 1 && matches!(item.file_type(), FileType::Directory | FileType::Unknown);
            if may_descend && let Some(child) = open_child(directory, name).at(self.root)? {
                self.collect(&child, &path, depth - 1)?;
            }
        }
        Ok(())
    }
}

/// Returns the entries of a directory that was opened for this, and was not read before. Unlike [`Dir::read_from`], this
/// does not open the directory again, for which the user needs permission to search it.
pub(crate) fn entries_of(directory: &OwnedFd) -> std::result::Result<Dir, Errno> {
    Dir::new(fcntl_dupfd_cloexec(directory, 0)?)
}

/// Opens a subdirectory. `None` if it is not a directory, was removed, or may not be read.
pub(crate) fn open_child(parent: impl AsFd, name: &[u8]) -> std::result::Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat(parent, name, flags, Mode::empty()) {
        Ok(child) => Ok(Some(child)),
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn join(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
}

/// Describes an entry below the root. `None` if it cannot be examined: it was removed, its directory may be read but
/// not searched (mode 0444), or its path is too long. When the path was collected, all components but the last were
/// directories. One that another process has replaced by a symlink is followed, which cannot lead out of the sandbox.
fn describe_entry(root: &OwnedFd, path: &[u8]) -> Option<FileEntry> {
    let stat = statat(root, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    // The path relative to `root` is also the one in the reply.
    Some(describe_at(root, path, path, &stat))
}
