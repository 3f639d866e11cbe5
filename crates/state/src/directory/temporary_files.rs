//! Temporary files of a checkout, and their removal after a crash.
//!
//! The name of a temporary file contains the unique id of its checkout. The id is recorded in the checkout state of the
//! directory before the first file is created. A *leftover* is a file whose name contains a recorded id. Only leftovers
//! are removed: all other files belong to the user.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, fstat, futimens, statat, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;

use crate::error::StoreError;
use crate::platform::RawDir;
use crate::snapshot::Timestamp;
use crate::tree_path::join;

use super::error::{Context, Result};
use super::path::{READ_ACCESS, WRITE_ACCESS, full_path};
use super::read::fingerprint;
use super::temporary_access::TemporaryAccess;
use super::tracked_directory::TrackedDirectory;

/// Prefix of the names of temporary files.
const TEMPORARY_PREFIX: &str = ".workspace-new-";

/// Returns a new unique id for a checkout.
pub(super) fn new_checkout_id() -> String {
    Uuid::now_v7().simple().to_string()
}

/// Returns the name of temporary file `number` of a checkout.
pub(super) fn temporary_name(checkout_id: &str, number: u64) -> Vec<u8> {
    format!("{TEMPORARY_PREFIX}{checkout_id}-{number}").into_bytes()
}

/// Returns true if this is the name of a temporary file of one of these checkouts.
pub(super) fn is_leftover(name: &[u8], checkout_ids: &[String]) -> bool {
    let Some(rest) = name.strip_prefix(TEMPORARY_PREFIX.as_bytes()) else { return false };
    checkout_ids.iter().any(|checkout_id| {
        rest.strip_prefix(checkout_id.as_bytes()).is_some_and(|rest| rest.starts_with(b"-"))
    })
}

/// Removes the leftovers of these checkouts. Searches all directories on disk, because the recorded tree may no longer
/// be the tree of the interrupted checkout. Returns the ids that must stay recorded: all of them if a directory of
/// another user could not be read, or else none.
pub(super) fn remove_leftovers(
    tracked: &TrackedDirectory<'_>,
    root: &OwnedFd,
    checkout_ids: Vec<String>,
) -> Result<Vec<String>> {
    if checkout_ids.is_empty() {
        return Ok(checkout_ids);
    }
    let mut all_read = true;
    let mut path = Vec::new();
    let mut queue = vec![QueuedDirectory { parent_len: 0, name: Vec::new() }];
    while let Some(QueuedDirectory { parent_len, name }) = queue.pop() {
        tracked.store.cancel_flag().check().map_err(StoreError::from)?;
        // All entries that were pushed after the parent was read are below the parent, so `path` still begins with the
        // path of the parent.
        path.truncate(parent_len);
        path = join(&path, &name);
        let access = TemporaryAccess::new(root, &tracked.path);
        let cleaned = clean(tracked, &access, &path, &checkout_ids, &mut queue);
        access.restore()?;
        all_read &= cleaned?;
    }
    Ok(if all_read { Vec::new() } else { checkout_ids })
}

/// Queued directory. To save memory, it does not have its whole path.
struct QueuedDirectory {
    /// Length of the parent's path in bytes.
    parent_len: usize,
    name: Vec<u8>,
}

/// Removes leftovers from one directory without changing its mtime, and queues its subdirectories. Returns false if the
/// directory could not be read.
fn clean(
    tracked: &TrackedDirectory<'_>,
    access: &TemporaryAccess<'_>,
    path: &[u8],
    checkout_ids: &[String],
    queue: &mut Vec<QueuedDirectory>,
) -> Result<bool> {
    let directory_path = || full_path(&tracked.path, path);
    let fd = match access.open(path, READ_ACCESS) {
        Ok(fd) => fd,
        // Another process has removed the directory.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(true),
        Err(Errno::ACCESS | Errno::PERM) => return Ok(false),
        Err(error) => return Err(error).context("open", &directory_path()),
    };
    let leftovers = list(&fd, path.len(), checkout_ids, queue).context("list", &directory_path())?;
    if leftovers.is_empty() {
        return Ok(true);
    }
    let fd = access.open(path, WRITE_ACCESS).context("open", &directory_path())?;
    let before = Timestamp(fingerprint(&fstat(&fd).context("stat", &directory_path())?).mtime);
    for name in leftovers {
        match unlinkat(&fd, name.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error).context("remove", &full_path(&tracked.path, &join(path, &name))),
        }
    }
    futimens(&fd, &before.file_times()).context("set the times of", &directory_path())?;
    Ok(true)
}

/// Returns the leftovers in a directory and queues its subdirectories. `parent_len` is the length of the path of the
/// directory, in bytes.
fn list(
    fd: &OwnedFd,
    parent_len: usize,
    checkout_ids: &[String],
    queue: &mut Vec<QueuedDirectory>,
) -> Result<Vec<Vec<u8>>, Errno> {
    let mut leftovers = Vec::new();
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if file_type(fd, name, entry.file_type()) == FileType::Directory {
            queue.push(QueuedDirectory { parent_len, name: name.to_vec() });
        } else if is_leftover(name, checkout_ids) {
            leftovers.push(name.to_vec());
        }
    }
    Ok(leftovers)
}

/// Returns the type of an entry. `listed` is the type in the listing, which some file systems do not report.
fn file_type(fd: &OwnedFd, name: &[u8], listed: FileType) -> FileType {
    match listed {
        FileType::Unknown => statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        listed => listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_recorded_checkout_id_are_leftovers() {
        let (mine, other) = (new_checkout_id(), new_checkout_id());
        let checkout_ids = [mine.clone()];
        assert!(is_leftover(&temporary_name(&mine, 7), &checkout_ids));
        assert!(!is_leftover(&temporary_name(&other, 7), &checkout_ids));
        assert!(!is_leftover(format!("{TEMPORARY_PREFIX}{mine}").as_bytes(), &checkout_ids));
        assert!(!is_leftover(b".workspace-new-1-1", &checkout_ids));
        assert!(!is_leftover(&temporary_name(&mine, 7), &[]));
    }
}
