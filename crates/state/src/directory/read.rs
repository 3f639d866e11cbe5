//! Reads files that other processes may write to, so that the stored content existed at one moment.
//!
//! A file is read again if its fingerprint (mode, size, times and inode) changes while it is read.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, OFlags, SeekFrom, Stat, fstat, openat, readlinkat, seek, statat};
use rustix::io::{Errno, pread};

use crate::batch::Batch;
use crate::chunker::WHOLE_MAX;
use crate::content::ContentWriter;
use crate::error::StoreError;
use crate::node::{Extent, FileNode, MODE_BITS, Xattrs};
use crate::platform::{link_count, mode_to_u32};
use crate::snapshot::Timestamp;

use super::path::open_directory;
use super::stat_index::StatFingerprint;
use super::xattrs;

/// Maximum number of attempts to read a file that changes while it is read.
const ATTEMPTS: usize = 4;
/// Clock granularity of file systems, in nanoseconds: two changes within it may have the same timestamp.
const CLOCK_TICK: i64 = 20_000_000;
/// Clock granularity of file systems with whole seconds, in nanoseconds.
const COARSE_CLOCK_TICK: i64 = 2_000_000_000;
/// Age of the last change, in nanoseconds, up to which a file is read twice. A write changes the timestamps when it
/// begins, so content may still change after the timestamps.
const RECENT_WRITE: i64 = 2_000_000_000;
/// Size of the read buffer in bytes.
const READ_BUFFER: usize = 1 << 20;

/// Returns the fingerprint of a file with this status.
pub(crate) fn fingerprint(stat: &Stat) -> StatFingerprint {
    StatFingerprint {
        mode: mode_to_u32(stat.st_mode),
        size: stat.st_size as u64,
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
        inode: stat.st_ino,
    }
}

/// Converts a timestamp to nanoseconds since the Unix epoch.
fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Returns true if any later change to a file is certain to change this fingerprint, which was taken at `now`
/// (nanoseconds since the Unix epoch). That is so if the ctime is older than the granularity of the clock, as in git's
/// rule for racy timestamps. The mtime does not matter, because users can set it.
pub(super) fn is_reliable(fingerprint: &StatFingerprint, now: i64) -> bool {
    let tick = if fingerprint.ctime % 1_000_000_000 == 0 { COARSE_CLOCK_TICK } else { CLOCK_TICK };
    now.saturating_sub(fingerprint.ctime) > tick
}

/// Access to the files of a directory, for callers that must open some files in another user namespace, or convert
/// extended attributes. The default methods use plain system calls, which are enough for most directories.
pub trait DirectoryReader: Sync {
    /// Opens a file for reading. Must not follow a symlink or block.
    fn open(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        open_for_reading(directory, name)
    }

    /// Opens the directory at `path` beneath `root` for listing. Must not follow a symlink. An empty `path`
    /// is the root itself.
    fn open_directory(&self, root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
        Ok(open_directory(root, path)?)
    }

    /// Returns the status of an entry, without following a symlink.
    fn stat(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Stat> {
        Ok(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Returns the target of a symlink.
    fn read_link(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(readlinkat(directory, name, Vec::new())?.into_bytes())
    }

    /// Returns the `user.*` extended attributes of an open file or directory.
    fn xattrs(&self, file: BorrowedFd<'_>) -> io::Result<Xattrs> {
        user_xattrs(file)
    }

    /// Returns true if no process writes to the directory during the scan. No file is then read twice.
    fn is_quiescent(&self) -> bool {
        false
    }
}

/// Opens a file for reading. Does not block on a FIFO, follow a symlink or acquire a controlling terminal.
pub fn open_for_reading(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, rustix::fs::Mode::empty())?)
}

/// Reads the `user.*` extended attributes of an open file or directory.
pub fn user_xattrs(file: BorrowedFd<'_>) -> io::Result<Xattrs> {
    Ok(xattrs::read(file)?)
}

/// Reader for a directory that other processes may write to.
pub(super) struct PlainReader;

impl DirectoryReader for PlainReader {}

/// Reader for a directory that no process writes to.
pub(super) struct QuiescentReader;

impl DirectoryReader for QuiescentReader {
    fn is_quiescent(&self) -> bool {
        true
    }
}

/// Outcome of reading a file.
pub(crate) enum ReadOutcome {
    /// Content of the file, written to the batch.
    File {
        node: FileNode,
        /// Fingerprint from before the file was read.
        fingerprint: StatFingerprint,
        /// Number of hard links, inside and outside of the directory that is read.
        links: u64,
        /// True if any later change is certain to change the fingerprint.
        reliable: bool,
    },
    /// The file was removed, or is no longer a regular file.
    Vanished,
    /// The file changed during each of the attempts.
    Changing,
}

/// Error of reading a file.
pub(crate) enum ReadError {
    System(Errno),
    Store(StoreError),
}

impl From<Errno> for ReadError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Reads a file into the batch (new objects that are not committed yet). The content existed at one moment.
pub(crate) fn read_file(
    batch: &Batch,
    reader: &dyn DirectoryReader,
    directory: impl AsFd,
    name: &[u8],
) -> Result<ReadOutcome, ReadError> {
    // A recently changed file is accepted only if two attempts in a row read the same.
    let mut previous: Option<(StatFingerprint, FileNode)> = None;
    for _ in 0..ATTEMPTS {
        let file = match reader.open(directory.as_fd(), name).map_err(|error| errno(&error)) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(ReadOutcome::Vanished),
            Err(error) => return Err(error.into()),
        };
        let before = fstat(&file)?;
        if rustix::fs::FileType::from_raw_mode(before.st_mode) != rustix::fs::FileType::RegularFile {
            return Ok(ReadOutcome::Vanished);
        }
        let started = Timestamp::now().0;
        let seen = fingerprint(&before);
        let extents = read_content(batch, &file, &before)?;
        let xattrs = reader.xattrs(file.as_fd()).map_err(|error| errno(&error))?;
        if fingerprint(&fstat(&file)?) != seen {
            previous = None;
            continue;
        }
        let node = FileNode { mode: (before.st_mode as u16) & MODE_BITS, xattrs, extents };
        let reliable = is_reliable(&seen, started);
        let outcome =
            ReadOutcome::File { node: node.clone(), fingerprint: seen, links: link_count(&before), reliable };
        let age = started.saturating_sub(seen.ctime);
        // Waiting does not help for a ctime in the future. The file is accepted, but its fingerprint is not reliable,
        // so the next scan reads it again.
        if reader.is_quiescent()
            || !(-CLOCK_TICK..=RECENT_WRITE).contains(&age)
            || previous == Some((seen, node.clone()))
        {
            return Ok(outcome);
        }
        previous = Some((seen, node));
        if age < CLOCK_TICK {
            std::thread::sleep(Duration::from_nanos((CLOCK_TICK - age) as u64 + 1));
        }
    }
    Ok(ReadOutcome::Changing)
}

/// Returns the error number of an I/O error; `EIO` if it has none.
pub(super) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Reads the content of an open file into the batch. Does not read the holes of a sparse file.
fn read_content(batch: &Batch, file: &OwnedFd, stat: &Stat) -> Result<Vec<Extent>, ReadError> {
    let size = stat.st_size as u64;
    if size <= WHOLE_MAX as u64 {
        return read_small(batch, file, size as usize);
    }
    let mut writer = ContentWriter::new(batch);
    let sparse = (stat.st_blocks as u64).saturating_mul(512) < size;
    let mut buffer = vec![0; size.min(READ_BUFFER as u64) as usize];
    let mut offset = 0;
    while offset < size {
        let data = if sparse { next_data(file, offset, size)? } else { offset };
        writer.push_zeros(data - offset)?;
        offset = data;
        let end = if sparse && offset < size { next_hole(file, offset, size)? } else { size };
        while offset < end {
            let want = (end - offset).min(READ_BUFFER as u64) as usize;
            let len = pread(file, &mut buffer[..want], offset)?;
            if len == 0 {
                // The file shrank: the comparison of fingerprints detects that.
                return Ok(writer.finish()?);
            }
            writer.push(&buffer[..len])?;
            offset += len as u64;
        }
    }
    Ok(writer.finish()?)
}

thread_local! {
    /// Read buffer for small files. Allocating a buffer for each file would take longer than reading the file.
    static SMALL_FILE_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads a file that fits into one chunk (the unit in which the store keeps content).
fn read_small(batch: &Batch, file: &OwnedFd, size: usize) -> Result<Vec<Extent>, ReadError> {
    SMALL_FILE_BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < size {
            buffer.resize(WHOLE_MAX, 0);
        }
        let mut offset = 0;
        while offset < size {
            match pread(file, &mut buffer[offset..size], offset as u64)? {
                0 => break,
                len => offset += len,
            }
        }
        if offset == 0 {
            return Ok(Vec::new());
        }
        let chunk = batch.put_chunk(&buffer[..offset])?;
        Ok(vec![Extent::Data { len: offset as u64, chunk }])
    })
}

/// Returns the offset of the next data from `offset` on; `size` if there is none.
fn next_data(file: &OwnedFd, offset: u64, size: u64) -> Result<u64, Errno> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => Ok(data.min(size)),
        // There is only a hole up to the end of the file.
        Err(Errno::NXIO) => Ok(size),
        // The file system does not support the search, so everything counts as data.
        Err(Errno::INVAL) => Ok(offset),
        Err(error) => Err(error),
    }
}

/// Returns the offset of the next hole after `offset`; `size` if there is none.
fn next_hole(file: &OwnedFd, offset: u64, size: u64) -> Result<u64, Errno> {
    match seek(file, SeekFrom::Hole(offset)) {
        Ok(hole) => Ok(hole.min(size).max(offset + 1)),
        Err(Errno::NXIO | Errno::INVAL) => Ok(size),
        Err(error) => Err(error),
    }
}

/// Reads a whole file without a check for changes; `None` if it does not exist or is not a regular file.
pub(super) fn read_plain(directory: impl AsFd, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    use std::io::Read as _;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(&directory, name, flags, rustix::fs::Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error),
    };
    if rustix::fs::FileType::from_raw_mode(fstat(&file)?.st_mode) != rustix::fs::FileType::RegularFile {
        return Ok(None);
    }
    let mut content = Vec::new();
    std::fs::File::from(file)
        .read_to_end(&mut content)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(Some(content))
}
