//! Streams of directory entries, for READDIR and READDIRPLUS, and for walks over the exported tree.
//!
//! A client lists a directory in several calls, and passes the cookie of the last entry that it got. This cookie is the
//! `d_off` of the entry, so that the listing can be continued after a restart of the server. Between the calls, the
//! descriptor stays open: when a directory of an overlay changes, the same `d_off` means another entry for a newly
//! opened descriptor, but not for one that was open before.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FileType, Mode as FileMode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::descriptors::Descriptor;
use crate::table::FileId;
use crate::wire::Status;

/// Maximum number of listings of an export whose streams are kept between calls.
const STREAMS_MAX: usize = 64;

/// Number of sweeps (periodic calls of [`Streams::sweep`]) after which an unused stream is closed.
const IDLE_SWEEPS: u32 = 12;

/// Length of the buffer for entries.
const BUFFER_LEN: usize = 32 * 1024;

/// Entry of a directory.
pub(crate) struct DirEntry<'a> {
    pub(crate) name: &'a CStr,
    /// Inode number on the device of the directory.
    pub(crate) number: u64,
    pub(crate) kind: FileType,
    /// Position after the entry (`d_off`), from which a client continues the listing.
    pub(crate) cookie: u64,
}

/// Stream of the entries of an open directory, read in large pieces.
pub(crate) struct Stream {
    fd: OwnedFd,
    /// Entries from the last `getdents64` call, as `linux_dirent64` records.
    buffer: Vec<u8>,
    /// Position of the next entry.
    next: Position,
    /// Position of the entry before it, for [`put_back`](Self::put_back).
    previous: Position,
}

/// Position between two entries.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    in_buffer: usize,
    /// The same position as an offset in the directory: the `d_off` of the entry before it.
    cookie: u64,
}

/// Streams that are kept open between the calls of a listing.
#[derive(Default)]
pub(super) struct Streams(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Streams, the one that was kept first at the front.
    streams: VecDeque<KeptStream>,
    /// Number of sweeps so far.
    sweeps: u32,
}

struct KeptStream {
    directory: FileId,
    /// Number of sweeps when the stream was used last.
    used_at: u32,
    stream: Stream,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock()
    }

    /// Removes and returns the stream of a directory that is at a cookie; `None` if there is none.
    pub(super) fn take(&self, directory: FileId, cookie: u64) -> Option<Stream> {
        let mut kept = self.lock();
        let is_this = |it: &KeptStream| it.directory == directory && it.stream.next.cookie == cookie;
        let index = kept.streams.iter().position(is_this)?;
        kept.streams.remove(index).map(|it| it.stream)
    }

    /// Keeps a stream for the next call. Closes the oldest one if there are more than [`STREAMS_MAX`].
    pub(super) fn keep(&self, directory: FileId, stream: Stream) {
        let mut kept = self.lock();
        let used_at = kept.sweeps;
        kept.streams.push_back(KeptStream { directory, used_at, stream });
        if kept.streams.len() > STREAMS_MAX {
            kept.streams.pop_front();
        }
    }

    /// Closes the streams that were not used for [`IDLE_SWEEPS`] sweeps.
    pub(super) fn sweep(&self) {
        let mut kept = self.lock();
        kept.sweeps += 1;
        let sweeps = kept.sweeps;
        kept.streams.retain(|it| sweeps - it.used_at <= IDLE_SWEEPS);
    }

    /// Closes all streams.
    pub(super) fn clear(&self) {
        self.lock().streams.clear();
    }
}

impl Stream {
    /// Opens a directory at its beginning.
    pub(super) fn open(directory: &Descriptor) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&directory.fd, c".", flags, FileMode::empty())?;
        Ok(Self { fd, buffer: Vec::new(), next: Position::default(), previous: Position::default() })
    }

    /// Moves to a cookie from a client. The stream must be new: entries that were already read are not discarded.
    pub(super) fn seek(&mut self, cookie: u64) -> Result<(), Status> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(cookie)).map_err(|_| Status::BadCookie)?;
        self.next = Position { in_buffer: 0, cookie };
        Ok(())
    }

    /// Takes the next entry. `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<DirEntry<'_>>, Errno> {
        if self.next.in_buffer == self.buffer.len() && !self.fill()? {
            return Ok(None);
        }
        self.previous = self.next;
        let (length, entry) = parse(&self.buffer[self.next.in_buffer..]).ok_or(Errno::IO)?;
        self.next = Position { in_buffer: self.next.in_buffer + length, cookie: entry.cookie };
        Ok(Some(entry))
    }

    /// Puts back the entry that [`next`](Self::next) has just returned. Possible once, and not at the end.
    pub(crate) fn put_back(&mut self) {
        self.next = self.previous;
    }

    /// Replaces the entries in the buffer by the next ones. Returns false at the end.
    fn fill(&mut self) -> Result<bool, Errno> {
        self.buffer.clear();
        self.buffer.reserve(BUFFER_LEN);
        self.next.in_buffer = 0;
        let fd = self.fd.as_raw_fd();
        // SAFETY: the kernel writes at most `BUFFER_LEN` bytes, for which there is room.
        let count = unsafe { libc::syscall(libc::SYS_getdents64, fd, self.buffer.as_mut_ptr(), BUFFER_LEN) };
        let Ok(count) = usize::try_from(count) else {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        };
        // SAFETY: the kernel has written that many bytes.
        unsafe { self.buffer.set_len(count) };
        Ok(count > 0)
    }
}

/// Reads the first `linux_dirent64`, and returns its length too. `None` if it is not complete.
fn parse(data: &[u8]) -> Option<(usize, DirEntry<'_>)> {
    let number = u64::from_ne_bytes(*data.first_chunk()?);
    let cookie = u64::from_ne_bytes(*data.get(8..)?.first_chunk()?);
    let length = usize::from(u16::from_ne_bytes(*data.get(16..)?.first_chunk()?));
    let kind = FileType::from_raw_mode(u32::from(*data.get(18)?) << 12);
    let name = CStr::from_bytes_until_nul(data.get(19..length)?).ok()?;
    Some((length, DirEntry { name, number, kind, cookie }))
}
