//! The output of a command, kept in files.
//!
//! The guest writes what a command prints to files in a directory that only it and the server reach; the server
//! reads them, also when the guest is dead. A command's output is a sequence of bytes, stdout and stderr as they
//! came, and every byte has an offset in it. It is kept in segments: files called `<command>.<offset of the first
//! byte in hex>`, each a sequence of frames. When more is kept than was asked for, the oldest segment goes, and
//! who asks for what was in it is told of the gap. The server, too, may remove all segments of a command but the last,
//! which is being written; of one that ended, all.
//!
//! A frame is a header (stream u8, length u32, time in ms i64, offset u64, little endian) and its bytes. One
//! writer appends; a reader takes frames that are there in full and waits for the rest.
//!
//! The newest segment of a command is marked by a bit of its mode. So a reader that has reached its end knows that none
//! follows without listing the directory, which has the output of all commands that are kept.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fchmod, fstat, openat, statat, unlinkat};

/// What is kept of a command's output when nobody says otherwise.
pub const KEEP_DEFAULT: u64 = 16 << 20;

const HEADER: usize = 21;
/// Frames are at most this long, so that a reader needs little memory.
const FRAME_MAX: usize = 64 << 10;
/// Output is kept in at least this many segments, so that a quarter of it goes at once at most.
const SEGMENTS: u64 = 4;
const SEGMENT_MIN: u64 = 4 << 10;
/// The last segment of a command that runs cannot be removed, so it must not be large.
const SEGMENT_MAX: u64 = 512 << 10;
/// Mode of a segment that another one may follow.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Mode of a segment that none follows yet. Segments of older agents never have it.
const MODE_NEWEST: Mode = MODE.union(Mode::XUSR);

/// Where a piece of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// None: the command ended. See [`End`].
    End,
}

impl Stream {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            3 => Some(Self::End),
            _ => None,
        }
    }

    fn as_byte(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::End => 3,
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// 128 + n for a program that signal n ended.
    pub exit_code: i32,
    /// It ran out of time.
    pub timed_out: bool,
}

impl End {
    fn encode(self) -> [u8; 5] {
        let mut bytes = [u8::from(self.timed_out); 5];
        bytes[..4].copy_from_slice(&self.exit_code.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (code, timed_out) = bytes.split_at_checked(4)?;
        Some(Self { exit_code: i32::from_le_bytes(code.try_into().ok()?), timed_out: timed_out == [1] })
    }
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Where it came from.
    pub stream: Stream,
    /// When it was read, in milliseconds since 1970.
    pub time: i64,
    /// Of its first byte, in the command's output.
    pub offset: u64,
    /// The bytes.
    pub data: Vec<u8>,
}

impl Frame {
    /// How the command ended, if that is what the frame says.
    pub fn end(&self) -> Option<End> {
        if self.stream == Stream::End { End::decode(&self.data) } else { None }
    }
}

/// Whether a text can be part of a file's name.
fn is_plain(command: &str) -> bool {
    !command.is_empty()
        && command.len() <= 64
        && command.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn segment_name(command: &str, offset: u64) -> String {
    format!("{command}.{offset:016x}")
}

fn segment_offset(command: &str, name: &[u8]) -> Option<u64> {
    let rest = name.strip_prefix(command.as_bytes())?.strip_prefix(b".")?;
    u64::from_str_radix(std::str::from_utf8(rest).ok()?, 16).ok()
}

/// The offsets of the segments that are kept, oldest first.
fn segments(directory: &OwnedFd, command: &str) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        found.extend(segment_offset(command, entry?.file_name().to_bytes()));
    }
    found.sort_unstable();
    Ok(found)
}

fn not_plain() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a command's id has letters, digits, `-` and `_` only")
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the output would have more bytes than can be counted")
}

/// Writes the output of one command.
#[derive(Debug)]
pub struct Writer {
    directory: OwnedFd,
    command: String,
    keep: u64,
    file: File,
    /// Segments that are kept, the one being written last.
    segments: Vec<u64>,
    /// Bytes in the file.
    end: u64,
    offset: u64,
}

impl Writer {
    /// Begins the output of `command` in `directory`, of which at least the last `keep` bytes stay.
    pub fn create(directory: OwnedFd, command: &str, keep: u64) -> io::Result<Self> {
        if !is_plain(command) {
            return Err(not_plain());
        }
        let keep = if keep == 0 { KEEP_DEFAULT } else { keep };
        let file = create_segment(&directory, command, 0)?;
        Ok(Self { directory, command: command.to_owned(), keep, file, segments: vec![0], end: 0, offset: 0 })
    }

    /// Goes on with the output of `command` where another writer was stopped, or begins it.
    pub fn resume(directory: OwnedFd, command: &str, keep: u64) -> io::Result<Self> {
        if !is_plain(command) {
            return Err(not_plain());
        }
        let segments = segments(&directory, command)?;
        let Some(last) = segments.last().copied() else { return Self::create(directory, command, keep) };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(&directory, segment_name(command, last), flags, Mode::empty())?);
        let mut open = Open { start: last, file, position: 0 };
        let mut offset = last;
        while let Some(frame) = open.read_frame()? {
            let len = if frame.stream == Stream::End { 0 } else { frame.data.len() as u64 };
            offset = offset.max(frame.offset + len);
        }
        // A frame that was not written whole.
        open.file.set_len(open.position)?;
        let keep = if keep == 0 { KEEP_DEFAULT } else { keep };
        let (file, end) = (open.file, open.position);
        Ok(Self { directory, command: command.to_owned(), keep, file, segments, end, offset })
    }

    /// Leaves a gap up to this offset, of which readers are told.
    pub fn skip_to(&mut self, offset: u64) {
        self.offset = self.offset.max(offset);
    }

    /// Bytes of output so far.
    pub fn written(&self) -> u64 {
        self.offset
    }

    /// Appends what came from a stream. What cannot be written leaves a gap, and the next write is tried anew.
    pub fn write(&mut self, stream: Stream, time: i64, data: &[u8]) -> io::Result<()> {
        let mut result = Ok(());
        for part in data.chunks(FRAME_MAX) {
            let next = self.offset.checked_add(part.len() as u64).ok_or_else(too_long)?;
            let written = self.make_room().and_then(|()| self.append(stream, time, part));
            self.offset = next;
            result = result.and(written);
        }
        result
    }

    /// Says how the command ended. Output may follow, of programs that it left behind.
    pub fn end(&mut self, time: i64, end: End) -> io::Result<()> {
        self.append(Stream::End, time, &end.encode())
    }

    fn append(&mut self, stream: Stream, time: i64, data: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(HEADER + data.len());
        frame.push(stream.as_byte());
        frame.extend_from_slice(&(data.len() as u32).to_le_bytes());
        frame.extend_from_slice(&time.to_le_bytes());
        frame.extend_from_slice(&self.offset.to_le_bytes());
        frame.extend_from_slice(data);
        self.file.write_all_at(&frame, self.end)?;
        self.end += frame.len() as u64;
        Ok(())
    }

    /// Begins a new segment when the present one is full, and gives up those that need not be kept.
    fn make_room(&mut self) -> io::Result<()> {
        let full = (self.keep / SEGMENTS).clamp(SEGMENT_MIN, SEGMENT_MAX);
        let start = self.segments.last().copied().unwrap_or_default();
        if self.offset - start < full {
            return Ok(());
        }
        // First: a reader must never take a segment for the newest that is not.
        fchmod(&self.file, MODE)?;
        self.file = create_segment(&self.directory, &self.command, self.offset)?;
        self.end = 0;
        self.segments.push(self.offset);
        while self.segments.len() > 1 && self.offset - self.segments[1] >= self.keep {
            // The server may have removed it before.
            unlink(&self.directory, &self.command, self.segments.remove(0))?;
        }
        Ok(())
    }
}

fn create_segment(directory: &OwnedFd, command: &str, offset: u64) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(directory, segment_name(command, offset), flags, MODE_NEWEST)?;
    Ok(File::from(file))
}

fn unlink(directory: &OwnedFd, command: &str, offset: u64) -> io::Result<()> {
    match unlinkat(directory, segment_name(command, offset), AtFlags::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

/// A segment of a command's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The command.
    pub command: String,
    /// Offset of its first byte in the command's output.
    pub offset: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// All segments in a directory, by command and offset.
pub fn all_segments(directory: impl AsFd) -> io::Result<Vec<Segment>> {
    let directory = directory.as_fd().try_clone_to_owned()?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        let Some((command, offset)) = name.split_once('.') else { continue };
        let Some(offset) = u64::from_str_radix(offset, 16).ok().filter(|_| is_plain(command)) else {
            continue;
        };
        match statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                // A file that was just written may have no blocks yet.
                let bytes = (stat.st_blocks as u64 * 512).max(stat.st_size as u64);
                found.push(Segment { command: command.to_owned(), offset, bytes });
            }
            // Given up meanwhile.
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_by(|one, other| (&one.command, one.offset).cmp(&(&other.command, other.offset)));
    Ok(found)
}

/// Removes a segment, if it is there.
pub fn remove_segment(directory: impl AsFd, segment: &Segment) -> io::Result<()> {
    if !is_plain(&segment.command) {
        return Err(not_plain());
    }
    unlink(&directory.as_fd().try_clone_to_owned()?, &segment.command, segment.offset)
}

/// Removes all that is kept of a command's output.
pub fn remove(directory: impl AsFd, command: &str) -> io::Result<()> {
    if !is_plain(command) {
        return Err(not_plain());
    }
    let directory = directory.as_fd().try_clone_to_owned()?;
    if first_segment(&directory, command)? == FirstSegment::Only {
        return unlink(&directory, command, 0);
    }
    for offset in segments(&directory, command)? {
        unlink(&directory, command, offset)?;
    }
    Ok(())
}

/// Whether there is anything of a command's output, be it only its end.
pub fn is_kept(directory: impl AsFd, command: &str) -> io::Result<bool> {
    if !is_plain(command) {
        return Err(not_plain());
    }
    let directory = directory.as_fd().try_clone_to_owned()?;
    Ok(first_segment(&directory, command)? != FirstSegment::Missing
        || !segments(&directory, command)?.is_empty())
}

/// The segment that a command's output begins with.
#[derive(Debug, PartialEq, Eq)]
enum FirstSegment {
    /// Never written, or given up.
    Missing,
    /// No other one was written.
    Only,
    /// Others may follow.
    Followed,
}

fn first_segment(directory: &OwnedFd, command: &str) -> io::Result<FirstSegment> {
    match statat(directory, segment_name(command, 0), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if Mode::from_raw_mode(stat.st_mode).contains(MODE_NEWEST) => Ok(FirstSegment::Only),
        Ok(_) => Ok(FirstSegment::Followed),
        Err(rustix::io::Errno::NOENT) => Ok(FirstSegment::Missing),
        Err(error) => Err(error.into()),
    }
}

/// Reads the output of one command, from any offset, also while it is being written.
#[derive(Debug)]
pub struct Reader {
    directory: OwnedFd,
    command: String,
    /// The segment being read, and how far.
    open: Option<Open>,
    offset: u64,
    /// The end of the command was read.
    ended: bool,
}

#[derive(Debug)]
struct Open {
    start: u64,
    file: File,
    position: u64,
}

/// What a reader found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Output, or the command's end.
    Frame(Frame),
    /// What was between these offsets is not kept any more.
    Gap {
        /// The first byte that is missing.
        from: u64,
        /// The first one that is there again.
        to: u64,
    },
}

impl Reader {
    /// Reads the output of `command` in `directory`, beginning with the byte at `offset`.
    pub fn open(directory: impl AsFd, command: &str, offset: u64) -> io::Result<Self> {
        if !is_plain(command) {
            return Err(not_plain());
        }
        let directory = directory.as_fd().try_clone_to_owned()?;
        Ok(Self { directory, command: command.to_owned(), open: None, offset, ended: false })
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece; none if it is not there yet.
    pub fn next_item(&mut self) -> io::Result<Option<Item>> {
        loop {
            if self.open.is_none() && !self.open_segment()? {
                return Ok(None);
            }
            let Some(frame) = self.read_frame()? else {
                // The next segment begins where this one ended, unless it is the last.
                if self.moves_on()? {
                    continue;
                }
                return Ok(None);
            };
            if let Some(item) = self.take(frame) {
                return Ok(Some(item));
            }
        }
    }

    fn take(&mut self, mut frame: Frame) -> Option<Item> {
        let is_end = frame.stream == Stream::End;
        if is_end && (self.ended || frame.offset <= self.offset) {
            let first = !std::mem::replace(&mut self.ended, true);
            return first.then_some(Item::Frame(frame));
        }
        let end = frame.offset + frame.data.len() as u64;
        if end <= self.offset {
            return None;
        }
        // Before an end too: what was printed last may not have been written.
        if frame.offset > self.offset {
            let gap = Item::Gap { from: self.offset, to: frame.offset };
            self.offset = frame.offset;
            // Comes again.
            if let Some(open) = &mut self.open {
                open.position -= (HEADER + frame.data.len()) as u64;
            }
            return Some(gap);
        }
        frame.data.drain(..(self.offset - frame.offset) as usize);
        frame.offset = self.offset;
        self.offset = end;
        Some(Item::Frame(frame))
    }

    /// Opens the segment with the next byte, or the oldest if that byte is gone.
    fn open_segment(&mut self) -> io::Result<bool> {
        if self.offset == 0 {
            self.open_at(0)?;
            if self.open.is_some() {
                return Ok(true);
            }
        }
        let segments = segments(&self.directory, &self.command)?;
        let at = segments.partition_point(|start| *start <= self.offset).saturating_sub(1);
        let Some(start) = segments.get(at) else { return Ok(false) };
        self.open_at(*start)
    }

    fn open_at(&mut self, start: u64) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(&self.directory, segment_name(&self.command, start), flags, Mode::empty()) {
            Ok(file) => {
                self.open = Some(Open { start, file: File::from(file), position: 0 });
                Ok(true)
            }
            // Given up meanwhile; the next look finds another.
            Err(rustix::io::Errno::NOENT) => {
                self.open = None;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Goes to the segment behind the present one, if there is one and the present one has no more.
    fn moves_on(&mut self) -> io::Result<bool> {
        let Some(open) = &self.open else { return Ok(true) };
        let start = open.start;
        if Mode::from_raw_mode(fstat(&open.file)?.st_mode).contains(MODE_NEWEST) {
            return Ok(false);
        }
        let segments = segments(&self.directory, &self.command)?;
        let Some(next) = segments.into_iter().find(|other| *other > start) else { return Ok(false) };
        // It may have grown between the last look and this one.
        if self.has_frame()? {
            return Ok(true);
        }
        self.open_at(next)
    }

    fn has_frame(&mut self) -> io::Result<bool> {
        let found = self.read_frame()?;
        if let (Some(frame), Some(open)) = (&found, &mut self.open) {
            open.position -= (HEADER + frame.data.len()) as u64;
        }
        Ok(found.is_some())
    }

    fn read_frame(&mut self) -> io::Result<Option<Frame>> {
        match &mut self.open {
            Some(open) => open.read_frame(),
            None => Ok(None),
        }
    }
}

impl Open {
    /// The frame at its position, if it is there in full; the position is behind it then.
    fn read_frame(&mut self) -> io::Result<Option<Frame>> {
        let mut header = [0; HEADER];
        if !read_whole(&self.file, &mut header, self.position)? {
            return Ok(None);
        }
        let number = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| header[at + byte]));
        let len = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
        // A guest may have written anything. Whoever reads a frame may count on to where it goes.
        let has_end = number(13).checked_add(len as u64).is_some();
        let stream = Stream::from_byte(header[0]).filter(|_| len <= FRAME_MAX && has_end);
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "an output file is damaged");
        let stream = stream.ok_or_else(damaged)?;
        let mut data = vec![0; len];
        if !read_whole(&self.file, &mut data, self.position + HEADER as u64)? {
            return Ok(None);
        }
        // An end that says nothing would be taken for output, at an offset that was passed already.
        if stream == Stream::End && End::decode(&data).is_none() {
            return Err(damaged());
        }
        self.position += (HEADER + len) as u64;
        Ok(Some(Frame { stream, time: number(5) as i64, offset: number(13), data }))
    }
}

/// Whether as much as asked for was there.
fn read_whole(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(buffer, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
