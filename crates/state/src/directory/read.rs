//! Reading files that others may be writing.

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
use crate::platform::{links_of, mode_bits};

use super::attributes;
use super::path::open_directory;
use super::stat_index::Looks;

/// How often a file that changes while it is read is read before giving up.
const ATTEMPTS: usize = 4;
/// Clocks of filesystems tick every few milliseconds: a change right after another may not show.
const TICK: i64 = 20_000_000;
/// Filesystems that keep whole seconds.
const COARSE_TICK: i64 = 2_000_000_000;
/// A call that writes changes the times when it begins, not while it goes on: what changed so short a time
/// ago may still be changing without that showing, and is read twice.
const WRITING: i64 = 2_000_000_000;
/// Longest file read in one call.
const BUFFER: usize = 1 << 20;

pub(crate) fn looks(stat: &Stat) -> Looks {
    Looks {
        mode: mode_bits(stat.st_mode),
        size: stat.st_size as u64,
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
        inode: stat.st_ino,
    }
}

fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Whether a later change to something read now would show in its times.
///
/// Only ctime counts: nobody can set it.
pub(super) fn is_settled(looks: &Looks, now: i64) -> bool {
    let tick = if looks.ctime % 1_000_000_000 == 0 { COARSE_TICK } else { TICK };
    now.saturating_sub(looks.ctime) > tick
}

pub(super) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// How files of a directory are read. What is not said is done as for any directory.
pub trait Reading: Sync {
    /// Opens a file for reading. Never follows a link, never waits for a writer.
    fn open(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        open_plain(directory, name)
    }

    /// Opens the directory at `path` beneath `root` for listing. Never follows a link. `path` may be empty: the root
    /// itself.
    fn open_directory(&self, root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
        Ok(open_directory(root, path)?)
    }

    /// Status of a name in a directory, of a link itself.
    fn stat(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Stat> {
        Ok(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Target of a symlink.
    fn read_link(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(readlinkat(directory, name, Vec::new())?.into_bytes())
    }

    /// The user attributes of an open file or directory.
    fn attributes(&self, file: BorrowedFd<'_>) -> io::Result<Xattrs> {
        user_attributes(file)
    }

    /// Whether nobody writes meanwhile, so that one reading is enough.
    fn is_still(&self) -> bool {
        false
    }
}

/// Opens a file for reading: never blocks on a fifo, never follows a link, never becomes anyone's terminal.
pub fn open_plain(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, rustix::fs::Mode::empty())?)
}

/// The `user.*` attributes of an open file or directory.
pub fn user_attributes(file: BorrowedFd<'_>) -> io::Result<Xattrs> {
    Ok(attributes::read(file)?)
}

/// As for any directory that others may be writing to.
pub(super) struct Plain;

impl Reading for Plain {}

/// The same while nobody writes.
pub(super) struct Still;

impl Reading for Still {
    fn is_still(&self) -> bool {
        true
    }
}

/// What came of reading a file.
pub(crate) enum Read {
    File {
        node: FileNode,
        looks: Looks,
        /// Names the file has, in this tree or elsewhere.
        links: u64,
        /// Whether a change after this reading would show.
        settled: bool,
    },
    /// Not a regular file any more, or gone.
    Vanished,
    /// It did not hold still.
    Changing,
}

/// Why a file could not be read.
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

/// Reads a file into the batch. What is stored is what the file held at one moment, or nothing.
pub(crate) fn read_file(
    batch: &Batch,
    reading: &dyn Reading,
    directory: impl AsFd,
    name: &[u8],
) -> Result<Read, ReadError> {
    let mut first: Option<(Looks, FileNode)> = None;
    for _ in 0..ATTEMPTS {
        let file = match reading.open(directory.as_fd(), name).map_err(|error| errno(&error)) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(Read::Vanished),
            Err(error) => return Err(error.into()),
        };
        let before = fstat(&file)?;
        if rustix::fs::FileType::from_raw_mode(before.st_mode) != rustix::fs::FileType::RegularFile {
            return Ok(Read::Vanished);
        }
        let started = now();
        let seen = looks(&before);
        let extents = read_content(batch, &file, &before)?;
        let xattrs = reading.attributes(file.as_fd()).map_err(|error| errno(&error))?;
        if looks(&fstat(&file)?) != seen {
            first = None;
            continue;
        }
        let node = FileNode { mode: (before.st_mode as u16) & MODE_BITS, xattrs, extents };
        let settled = is_settled(&seen, started);
        let done = Read::File { node: node.clone(), looks: seen, links: links_of(&before), settled };
        let age = started.saturating_sub(seen.ctime);
        // A clock far ahead will not settle soon: stored, but read again next time.
        if reading.is_still() || !(-TICK..=WRITING).contains(&age) || first == Some((seen, node.clone())) {
            return Ok(done);
        }
        first = Some((seen, node));
        if age < TICK {
            std::thread::sleep(Duration::from_nanos((TICK - age) as u64 + 1));
        }
    }
    Ok(Read::Changing)
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
    let mut buffer = vec![0; size.min(BUFFER as u64) as usize];
    let mut at = 0;
    while at < size {
        let data = if sparse { next_data(file, at, size)? } else { at };
        writer.push_zeros(data - at)?;
        at = data;
        let end = if sparse && at < size { next_hole(file, at, size)? } else { size };
        while at < end {
            let want = (end - at).min(BUFFER as u64) as usize;
            let len = pread(file, &mut buffer[..want], at)?;
            if len == 0 {
                // Shorter than it was: the look afterwards finds that out.
                return Ok(writer.finish()?);
            }
            writer.push(&buffer[..len])?;
            at += len as u64;
        }
    }
    Ok(writer.finish()?)
}

thread_local! {
    /// Room for a small file. Most files are small: making it anew for each would take longer than reading them.
    static SMALL: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn read_small(batch: &Batch, file: &OwnedFd, size: usize) -> Result<Vec<Extent>, ReadError> {
    SMALL.with_borrow_mut(|room| {
        if room.len() < size {
            room.resize(WHOLE_MAX, 0);
        }
        let mut at = 0;
        while at < size {
            match pread(file, &mut room[at..size], at as u64)? {
                0 => break,
                len => at += len,
            }
        }
        if at == 0 {
            return Ok(Vec::new());
        }
        let chunk = batch.put_chunk(&room[..at])?;
        Ok(vec![Extent::Data { len: at as u64, chunk }])
    })
}

fn next_data(file: &OwnedFd, at: u64, size: u64) -> Result<u64, Errno> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(data.min(size)),
        // Nothing but hole from here.
        Err(Errno::NXIO) => Ok(size),
        Err(Errno::INVAL) => Ok(at),
        Err(error) => Err(error),
    }
}

fn next_hole(file: &OwnedFd, at: u64, size: u64) -> Result<u64, Errno> {
    match seek(file, SeekFrom::Hole(at)) {
        Ok(hole) => Ok(hole.min(size).max(at + 1)),
        Err(Errno::NXIO | Errno::INVAL) => Ok(size),
        Err(error) => Err(error),
    }
}

/// A whole file, as it is; nothing if it is no regular file.
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
