//! Files that a checkout is writing, where they need a name before they are whole.
//!
//! Their names carry a mark of that checkout alone, which is noted with what the directory holds before the
//! first of them is made. Only names with a noted mark are taken for leftovers: anything else is somebody's own.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, fstat, futimens, statat, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;

use crate::error::StoreError;
use crate::platform::RawDir;
use crate::snapshot::Timestamp;
use crate::tree::join;

use super::error::{Context, Result};
use super::lent::Lent;
use super::path::shown;
use super::read::looks;
use super::state::Known;
use super::switch::{READ, WRITE, times};

const TEMPORARY: &str = ".workspace-new-";

/// A mark that nobody else has.
pub(super) fn new_mark() -> String {
    Uuid::now_v7().simple().to_string()
}

/// A name for a file that is being written.
pub(super) fn temporary_name(mark: &str, number: u64) -> Vec<u8> {
    format!("{TEMPORARY}{mark}-{number}").into_bytes()
}

/// Whether a checkout with one of these marks made this name.
pub(super) fn is_leftover(name: &[u8], marks: &[String]) -> bool {
    let Some(rest) = name.strip_prefix(TEMPORARY.as_bytes()) else { return false };
    marks.iter().any(|mark| rest.strip_prefix(mark.as_bytes()).is_some_and(|rest| rest.starts_with(b"-")))
}

/// Removes what checkouts with these marks left, anywhere in the directory: a snapshot taken meanwhile may
/// have made it hold another tree, so that nothing says where they are. Returns the marks that are still needed:
/// somebody else's directory that may not be looked into can hold what was left.
pub(super) fn remove_leftovers(known: &Known<'_>, root: &OwnedFd, marks: Vec<String>) -> Result<Vec<String>> {
    if marks.is_empty() {
        return Ok(marks);
    }
    let mut all_seen = true;
    let mut path = Vec::new();
    let mut open = vec![Below { around: 0, name: Vec::new() }];
    while let Some(Below { around, name }) = open.pop() {
        known.store.cancel().check().map_err(StoreError::from)?;
        // All that was read since the directory around this one was read is below that one too.
        path.truncate(around);
        path = join(&path, &name);
        let lent = Lent::new(root, &known.path);
        let cleaned = clean(known, &lent, &path, &marks, &mut open);
        lent.give_back()?;
        all_seen &= cleaned?;
    }
    Ok(if all_seen { Vec::new() } else { marks })
}

/// A directory that is still to be looked into, without its path: that may be long, and there may be many.
struct Below {
    /// Length of the path around it.
    around: usize,
    name: Vec<u8>,
}

/// Removes leftovers from one directory, whose time stays what it is, and notes those below it. Whether it could
/// be looked into.
fn clean(
    known: &Known<'_>,
    lent: &Lent<'_>,
    path: &[u8],
    marks: &[String],
    below: &mut Vec<Below>,
) -> Result<bool> {
    let here = || shown(&known.path, path);
    let fd = match lent.open(path, READ) {
        Ok(fd) => fd,
        // Gone.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(true),
        Err(Errno::ACCESS | Errno::PERM) => return Ok(false),
        Err(error) => return Err(error).on("open", &here()),
    };
    let left = list(&fd, path.len(), marks, below).on("list", &here())?;
    if left.is_empty() {
        return Ok(true);
    }
    let fd = lent.open(path, WRITE).on("open", &here())?;
    let before = Timestamp(looks(&fstat(&fd).on("stat", &here())?).mtime);
    for name in left {
        match unlinkat(&fd, name.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error).on("remove", &shown(&known.path, &join(path, &name))),
        }
    }
    futimens(&fd, &times(before)).on("set the times of", &here())?;
    Ok(true)
}

/// The leftovers in a directory, whose path is `around` bytes long; notes the directories in it.
fn list(
    fd: &OwnedFd,
    around: usize,
    marks: &[String],
    below: &mut Vec<Below>,
) -> Result<Vec<Vec<u8>>, Errno> {
    let mut left = Vec::new();
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if kind(fd, name, entry.file_type()) == FileType::Directory {
            below.push(Below { around, name: name.to_vec() });
        } else if is_leftover(name, marks) {
            left.push(name.to_vec());
        }
    }
    Ok(left)
}

/// Not every filesystem says in a listing what is a directory.
fn kind(fd: &OwnedFd, name: &[u8], listed: FileType) -> FileType {
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
    fn only_names_with_a_noted_mark_are_leftovers() {
        let (mine, other) = (new_mark(), new_mark());
        let marks = [mine.clone()];
        assert!(is_leftover(&temporary_name(&mine, 7), &marks));
        assert!(!is_leftover(&temporary_name(&other, 7), &marks));
        assert!(!is_leftover(format!("{TEMPORARY}{mine}").as_bytes(), &marks));
        assert!(!is_leftover(b".workspace-new-1-1", &marks));
        assert!(!is_leftover(&temporary_name(&mine, 7), &[]));
    }
}
