//! Consistent reading of files that may be written to at the same time.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, OFlags, SeekFrom, Stat, fstat, openat, readlinkat, seek, statat};
use rustix::io::{Errno, pread};

use crate::batch::Batch;
use crate::chunker::WHOLE_MAX;
use crate::content::ContentWriter;
use crate::error::StoreError;
use crate::node::{Extent, FileNode, MODE_BITS, Xattrs};
use crate::platform::{link_count, mode_to_u32};

use super::path::open_directory;
use super::stat_index::StatFingerprint;
use super::xattrs;

/// Number of attempts to read a file that keeps changing.
const ATTEMPTS: usize = 4;
/// Clock granularity of file systems, in nanoseconds: two changes within it may have the same timestamp.
const CLOCK_TICK: i64 = 20_000_000;
/// Clock granularity of file systems with whole seconds, in nanoseconds.
const COARSE_CLOCK_TICK: i64 = 2_000_000_000;
/// Age of a change, in nanoseconds, up to which a file is read twice. A write changes the timestamps when it
/// begins, not while it is in progress, so the file may still be changing.
const RECENT_WRITE: i64 = 2_000_000_000;
/// Size of the read buffer in bytes.
const READ_BUFFER: usize = 1 << 20;

pub(crate) fn fingerprint(stat: &Stat) -> StatFingerprint {
    StatFingerprint {
        mode: mode_to_u32(stat.st_mode),
        size: stat.st_size as u64,
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
        inode: stat.st_ino,
    }
}

fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Returns true if a later change to a file read at `now` is certain to change its fingerprint (git's racy
/// timestamp rule).
///
/// Only ctime counts: it cannot be set by users.
pub(super) fn is_reliable(fingerprint: &StatFingerprint, now: i64) -> bool {
    let tick = if fingerprint.ctime % 1_000_000_000 == 0 { COARSE_CLOCK_TICK } else { CLOCK_TICK };
    now.saturating_sub(fingerprint.ctime) > tick
}

pub(super) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// Access to the files of a directory, for callers that must open some files in another user namespace, or convert
/// extended attributes.
/// The default methods suit any directory.
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

    /// Returns true if no process writes to the directory during the read, so that no file is read twice.
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
    File {
        node: FileNode,
        fingerprint: StatFingerprint,
        /// Number of hard links, inside or outside of this tree.
        links: u64,
        /// True if a later change is certain to change the fingerprint.
        reliable: bool,
    },
    /// Removed, or no longer a regular file.
    Vanished,
    /// Kept changing while it was read.
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

/// Reads a file into the batch. The stored content is consistent: it existed at one moment.
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
        let started = now();
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
        // A ctime in the future does not become trustworthy soon: the file is stored, but read again next
        // time.
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

pub(super) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

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
    /// Buffer for small files. Most files are small: allocating it for each would take longer than reading
    /// them.
    static SMALL_FILE_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

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

fn next_data(file: &OwnedFd, offset: u64, size: u64) -> Result<u64, Errno> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => Ok(data.min(size)),
        // Only a hole from here on.
        Err(Errno::NXIO) => Ok(size),
        // Not supported by the file system: everything counts as data.
        Err(Errno::INVAL) => Ok(offset),
        Err(error) => Err(error),
    }
}

fn next_hole(file: &OwnedFd, offset: u64, size: u64) -> Result<u64, Errno> {
    match seek(file, SeekFrom::Hole(offset)) {
        Ok(hole) => Ok(hole.min(size).max(offset + 1)),
        Err(Errno::NXIO | Errno::INVAL) => Ok(size),
        Err(error) => Err(error),
    }
}

/// Reads a whole file; `None` if it is not a regular file.
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
