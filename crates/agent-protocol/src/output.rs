//! Output files of commands.
//!
//! The guest agent writes the output of a command to files in a directory that only it and the server can access.
//! The server can read them even after the agent has died. An agent that shares no files with the server sends the
//! output over the connection, and the server writes the files. The output is a sequence of bytes, stdout and
//! stderr in the order of arrival, and each byte has an offset. It is stored in segments: files named
//! `<command>.<offset of the first byte in hex>`, each a sequence of frames. The oldest segment is removed once
//! the later ones hold at least the retention, the minimum number of bytes that the writer keeps; readers of its bytes
//! get a gap. The server may remove more segments: all but the last of a running command, and all of a command that
//! has exited.
//!
//! A frame is a header (stream u8, length u32, time i64 in milliseconds since 1970, offset u64, little endian) and
//! its data. One writer appends; a reader returns complete frames and waits for the rest. A frame of which only a part
//! could be written, because the disk was full, is removed again, and the next frame has its place.
//!
//! The newest segment of a command has the owner's execute bit set. It tells a reader at the end of a segment
//! that there is no next one, without listing the directory, which contains the output of all commands.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, fstat, openat, statat, unlinkat};

/// Default retention per command: minimum number of bytes of output that the writer keeps.
pub const RETENTION_DEFAULT: u64 = 16 << 20;

const HEADER_LEN: usize = 21;
/// Maximum size of the data of a frame in bytes, which limits the memory of a reader.
const FRAME_MAX: usize = 64 << 10;
/// Number of segments into which the retention is divided, within the limits below. Where they allow it, at most a
/// quarter of the retained output is removed at once.
const SEGMENTS_PER_RETENTION: u64 = 4;
/// Bytes of output after which a new segment is started, at least.
const SEGMENT_OUTPUT_MIN: u64 = 4 << 10;
/// Bytes of output after which a new segment is started, at most. The segment can exceed them by one frame. The last
/// segment of a running command cannot be removed, so it must not be large.
const SEGMENT_OUTPUT_MAX: u64 = 512 << 10;
/// Maximum number of bytes that are read from a segment's file to find the end of its output. No file that the agent
/// writes is that long: with a frame for each byte, [`SEGMENT_OUTPUT_MAX`] bytes of output take 11 MiB.
const SEGMENT_FILE_MAX: u64 = 16 << 20;
/// Mode of a segment that may have a successor.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Mode of the newest segment. Earlier versions of the agent never set it.
const MODE_NEWEST: Mode = MODE.union(Mode::XUSR);

/// Source of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Exit of the command, see [`ExitStatus`].
    Exit,
}

impl Stream {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            3 => Some(Self::Exit),
            _ => None,
        }
    }

    fn as_byte(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Exit => 3,
        }
    }
}

/// Exit status of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitStatus {
    /// Exit code; 128 + n if signal n killed the program.
    pub exit_code: i32,
    /// True if the command timed out.
    pub timed_out: bool,
}

impl ExitStatus {
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

/// Consecutive output of one stream, or the exit status. A frame may hold the output of several reads, and the output
/// of a large read is split into several frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Source of the data.
    pub stream: Stream,
    /// Time in milliseconds since the Unix epoch: of the first read of the data, or of the report of the exit.
    pub time: i64,
    /// Offset of the first byte in the output of the command.
    pub offset: u64,
    /// Bytes of output, or the encoded exit status.
    pub data: Vec<u8>,
}

impl Frame {
    /// Returns the size of the frame on disk in bytes: of its header and its data.
    pub fn encoded_len(&self) -> u64 {
        (HEADER_LEN + self.data.len()) as u64
    }

    /// Returns the exit status, if the frame contains it.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        if self.stream == Stream::Exit { ExitStatus::decode(&self.data) } else { None }
    }
}

/// Returns whether a command id is safe as part of a file name.
fn is_valid_id(command: &str) -> bool {
    !command.is_empty()
        && command.len() <= 64
        && command.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn segment_name(command: &str, offset: u64) -> String {
    format!("{command}.{offset:016x}")
}

/// Parses the name of a segment's file; `None` if it is no segment of this command. Another spelling of an offset, such
/// as `+0`, is no segment: it would not be found by its offset, and could not be removed.
fn segment_offset(command: &str, name: &[u8]) -> Option<u64> {
    let rest = name.strip_prefix(command.as_bytes())?.strip_prefix(b".")?;
    let offset = u64::from_str_radix(std::str::from_utf8(rest).ok()?, 16).ok()?;
    (segment_name(command, offset).as_bytes() == name).then_some(offset)
}

/// Returns the offsets of all segments of a command, oldest first.
fn segments(directory: &OwnedFd, command: &str) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        found.extend(segment_offset(command, entry?.file_name().to_bytes()));
    }
    found.sort_unstable();
    Ok(found)
}

fn invalid_id() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a command id must be 1 to 64 letters, digits, `-` or `_`")
}

fn corrupt() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "corrupt output file")
}

fn offset_overflow() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the output offset overflowed")
}

/// Writer of the output of one command.
#[derive(Debug)]
pub struct Writer {
    directory: OwnedFd,
    command: String,
    retention: u64,
    file: File,
    /// Offsets of the segments, the current one last.
    segments: Vec<u64>,
    /// Size of the complete frames in the current segment's file, in bytes.
    file_size: u64,
    /// True if a part of a frame may follow the complete ones, because it could not be removed after a failed write.
    has_partial_frame: bool,
    /// Offset of the next byte of output.
    offset: u64,
}

impl Writer {
    /// Creates the output of `command` in `directory`. The writer keeps at least the last `retention` bytes; 0
    /// selects the default.
    pub fn create(directory: OwnedFd, command: &str, retention: u64) -> io::Result<Self> {
        if !is_valid_id(command) {
            return Err(invalid_id());
        }
        let retention = if retention == 0 { RETENTION_DEFAULT } else { retention };
        let file = create_segment(&directory, command, 0)?;
        Ok(Self {
            directory,
            command: command.to_owned(),
            retention,
            file,
            segments: vec![0],
            file_size: 0,
            has_partial_frame: false,
            offset: 0,
        })
    }

    /// Continues the output of a previous writer, or creates it. Removes an incomplete frame that the previous writer
    /// left at the end of the newest segment, or a damaged one with all that follows: no reader gets past it.
    pub fn resume(directory: OwnedFd, command: &str, retention: u64) -> io::Result<Self> {
        if !is_valid_id(command) {
            return Err(invalid_id());
        }
        let segments = segments(&directory, command)?;
        let Some(last) = segments.last().copied() else { return Self::create(directory, command, retention) };
        let file = open_segment_file(&directory, command, last, OFlags::RDWR)?
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let mut open = OpenSegment { start: last, file, position: 0 };
        let mut offset = last;
        loop {
            let frame = match open.read_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => break,
                Err(error) => return Err(error),
            };
            let len = if frame.stream == Stream::Exit { 0 } else { frame.data.len() as u64 };
            offset = offset.max(frame.offset + len);
        }
        open.file.set_len(open.position)?;
        let retention = if retention == 0 { RETENTION_DEFAULT } else { retention };
        Ok(Self {
            directory,
            command: command.to_owned(),
            retention,
            file: open.file,
            segments,
            file_size: open.position,
            has_partial_frame: false,
            offset,
        })
    }

    /// Advances to `offset`, which leaves a gap for readers. Does nothing if the offset is before the current end.
    pub fn skip_to(&mut self, offset: u64) {
        self.offset = self.offset.max(offset);
    }

    /// Returns the offset of the next byte, which is the number of bytes of output so far, including those in gaps.
    pub fn end_offset(&self) -> u64 {
        self.offset
    }

    /// Appends data of a stream. If this fails, the data becomes a gap, and later writes may succeed.
    pub fn write(&mut self, stream: Stream, time: i64, data: &[u8]) -> io::Result<()> {
        let mut result = Ok(());
        for part in data.chunks(FRAME_MAX) {
            let next = self.offset.checked_add(part.len() as u64).ok_or_else(offset_overflow)?;
            let written = self.rotate().and_then(|()| self.append(stream, time, part));
            self.offset = next;
            result = result.and(written);
        }
        result
    }

    /// Appends the exit status. Output of background processes may follow.
    pub fn write_exit(&mut self, time: i64, status: ExitStatus) -> io::Result<()> {
        self.append(Stream::Exit, time, &status.encode())
    }

    /// Appends a frame. If this fails, the file ends with the frame before it.
    fn append(&mut self, stream: Stream, time: i64, data: &[u8]) -> io::Result<()> {
        if self.has_partial_frame {
            self.remove_partial_frame()?;
        }
        let mut frame = Vec::with_capacity(HEADER_LEN + data.len());
        frame.push(stream.as_byte());
        frame.extend_from_slice(&(data.len() as u32).to_le_bytes());
        frame.extend_from_slice(&time.to_le_bytes());
        frame.extend_from_slice(&self.offset.to_le_bytes());
        frame.extend_from_slice(data);
        if let Err(error) = self.file.write_all_at(&frame, self.file_size) {
            self.has_partial_frame = true;
            // If this fails, too, the next call tries again.
            drop(self.remove_partial_frame());
            return Err(error);
        }
        self.file_size += frame.len() as u64;
        Ok(())
    }

    /// Removes the part of a frame that a failed write left. Otherwise a shorter frame would be followed by the rest of
    /// it, which readers would decode as a frame.
    fn remove_partial_frame(&mut self) -> io::Result<()> {
        self.file.set_len(self.file_size)?;
        self.has_partial_frame = false;
        Ok(())
    }

    /// Starts a new segment if the current one is full, and removes the oldest ones beyond the limit.
    fn rotate(&mut self) -> io::Result<()> {
        let segment_output =
            (self.retention / SEGMENTS_PER_RETENTION).clamp(SEGMENT_OUTPUT_MIN, SEGMENT_OUTPUT_MAX);
        let start = self.segments.last().copied().unwrap_or_default();
        if self.offset - start < segment_output {
            return Ok(());
        }
        // Clears the execute bit first: a segment that has it must never have a successor.
        fchmod(&self.file, MODE)?;
        self.file = create_segment(&self.directory, &self.command, self.offset)?;
        self.file_size = 0;
        self.has_partial_frame = false;
        self.segments.push(self.offset);
        while self.segments.len() > 1 && self.offset - self.segments[1] >= self.retention {
            // Succeeds also if the server has removed the segment already.
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

/// Opens a segment; `None` if it was removed. The writer may be malicious: a guest agent that programs of the sandbox
/// have taken over. A FIFO in the place of a segment must not block the caller until somebody writes to it, and is
/// refused.
fn open_segment_file(
    directory: &OwnedFd,
    command: &str,
    offset: u64,
    access: OFlags,
) -> io::Result<Option<File>> {
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match openat(directory, segment_name(command, offset), flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        file => file?,
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(corrupt());
    }
    Ok(Some(File::from(file)))
}

fn unlink(directory: &OwnedFd, command: &str, offset: u64) -> io::Result<()> {
    match unlinkat(directory, segment_name(command, offset), AtFlags::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Segment of a command's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Id of the command.
    pub command: String,
    /// Offset of the first byte in the output of the command.
    pub offset: u64,
    /// Size on disk in bytes.
    pub bytes: u64,
}

/// Returns all segments in a directory, sorted by command and offset.
pub fn all_segments(directory: impl AsFd) -> io::Result<Vec<Segment>> {
    let directory = directory.as_fd().try_clone_to_owned()?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        let Some((command, _)) = name.split_once('.').filter(|(command, _)| is_valid_id(command)) else {
            continue;
        };
        let Some(offset) = segment_offset(command, name.as_bytes()) else { continue };
        match statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                // A new file may have no blocks yet.
                let bytes = (stat.st_blocks as u64 * 512).max(stat.st_size as u64);
                found.push(Segment { command: command.to_owned(), offset, bytes });
            }
            // Concurrently removed.
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_by(|one, other| (&one.command, one.offset).cmp(&(&other.command, other.offset)));
    Ok(found)
}

/// Removes a segment, if it exists.
pub fn remove_segment(directory: impl AsFd, segment: &Segment) -> io::Result<()> {
    if !is_valid_id(&segment.command) {
        return Err(invalid_id());
    }
    unlink(&directory.as_fd().try_clone_to_owned()?, &segment.command, segment.offset)
}

/// Removes the output of commands. The directory, which contains the output of all commands, is read once for all of
/// them.
pub fn remove(directory: impl AsFd, commands: &[String]) -> io::Result<()> {
    if commands.iter().any(|command| !is_valid_id(command)) {
        return Err(invalid_id());
    }
    let directory = directory.as_fd().try_clone_to_owned()?;
    let commands: HashSet<&[u8]> = commands.iter().map(String::as_bytes).collect();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let Some(command) = name.split(|byte| *byte == b'.').next().filter(|id| commands.contains(id)) else {
            continue;
        };
        // A valid id is ASCII.
        let Ok(command) = std::str::from_utf8(command) else { continue };
        if let Some(offset) = segment_offset(command, name) {
            unlink(&directory, command, offset)?;
        }
    }
    Ok(())
}

/// Returns true if a segment of a command is left. A segment without any frame counts, too, such as that of a command
/// that has written nothing yet.
pub fn has_segments(directory: impl AsFd, command: &str) -> io::Result<bool> {
    if !is_valid_id(command) {
        return Err(invalid_id());
    }
    let directory = directory.as_fd().try_clone_to_owned()?;
    Ok(first_segment(&directory, command)? != FirstSegment::Missing
        || !segments(&directory, command)?.is_empty())
}

/// Returns the range from the start of the first segment of a command to the end of the last frame; `None` if no
/// segment is left. The range includes gaps before the last frame, but none after it. If the last segment is damaged,
/// only the part before the damage counts.
pub fn kept_range(directory: impl AsFd, command: &str) -> io::Result<Option<Range<u64>>> {
    if !is_valid_id(command) {
        return Err(invalid_id());
    }
    let directory = directory.as_fd().try_clone_to_owned()?;
    let segments = match first_segment(&directory, command)? {
        FirstSegment::Only => vec![0],
        _ => segments(&directory, command)?,
    };
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return Ok(None) };
    // It may be removed concurrently.
    let Some(file) = open_segment_file(&directory, command, *last, OFlags::RDONLY)? else { return Ok(None) };
    Ok(Some(*first..end_of_segment(file, *last)?))
}

/// Returns the offset after the last byte of a segment that starts at `start`.
fn end_of_segment(file: File, start: u64) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(FRAME_MAX, file);
    let (mut position, mut end) = (0, start);
    let mut header = [0; HEADER_LEN];
    while position < SEGMENT_FILE_MAX {
        match reader.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        let Some(header) = Header::decode(&header) else { break };
        // The last frame may be incomplete.
        let skipped = io::copy(&mut reader.by_ref().take(header.len as u64), &mut io::sink())?;
        if skipped < header.len as u64 {
            break;
        }
        // The exit status is no output, but before it there may be output that could not be written.
        let output = if header.stream == Stream::Exit { 0 } else { skipped };
        end = end.max(header.offset + output);
        position += HEADER_LEN as u64 + skipped;
    }
    Ok(end)
}

/// State of the first segment of a command's output.
#[derive(Debug, PartialEq, Eq)]
enum FirstSegment {
    /// Not written yet, or already removed.
    Missing,
    /// The newest segment, and so the only one.
    Only,
    /// A segment that may have successors.
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

/// Reader of the output of one command, from any offset. The output may still grow.
#[derive(Debug)]
pub struct Reader {
    directory: OwnedFd,
    command: String,
    /// Current segment with the read position.
    open: Option<OpenSegment>,
    /// Offset of the next byte to return.
    offset: u64,
    /// True once the exit status was returned.
    exit_returned: bool,
}

#[derive(Debug)]
struct OpenSegment {
    /// Offset of the first byte in the output of the command.
    start: u64,
    file: File,
    /// Position of the next frame in the file.
    position: u64,
}

/// Item returned by a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Output, or the exit status.
    Frame(Frame),
    /// Range of bytes that were removed or could not be written.
    Gap {
        /// Offset of the first missing byte.
        from: u64,
        /// Offset of the next available byte.
        to: u64,
    },
}

impl Reader {
    /// Opens the output of `command` in `directory` at an offset.
    pub fn open(directory: impl AsFd, command: &str, offset: u64) -> io::Result<Self> {
        if !is_valid_id(command) {
            return Err(invalid_id());
        }
        let directory = directory.as_fd().try_clone_to_owned()?;
        Ok(Self { directory, command: command.to_owned(), open: None, offset, exit_returned: false })
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next item; `None` if it is not written yet.
    pub fn next_item(&mut self) -> io::Result<Option<Item>> {
        loop {
            if self.open.is_none() && !self.open_segment()? {
                return Ok(None);
            }
            let Some(frame) = self.read_frame()? else {
                // The current segment has no complete frame left.
                if self.next_segment()? {
                    continue;
                }
                return Ok(None);
            };
            if let Some(item) = self.item_of(frame) {
                return Ok(Some(item));
            }
        }
    }

    /// Returns the part of a frame after the current offset, or the gap before the frame; `None` if the frame
    /// was already returned.
    fn item_of(&mut self, mut frame: Frame) -> Option<Item> {
        let is_exit = frame.stream == Stream::Exit;
        if is_exit && (self.exit_returned || frame.offset <= self.offset) {
            let first = !std::mem::replace(&mut self.exit_returned, true);
            return first.then_some(Item::Frame(frame));
        }
        let end = frame.offset + frame.data.len() as u64;
        if end <= self.offset {
            return None;
        }
        // A gap is also returned before an exit status: writing the last output may have failed.
        if frame.offset > self.offset {
            let gap = Item::Gap { from: self.offset, to: frame.offset };
            self.offset = frame.offset;
            // The next call reads the same frame again.
            if let Some(open) = &mut self.open {
                open.position -= (HEADER_LEN + frame.data.len()) as u64;
            }
            return Some(gap);
        }
        frame.data.drain(..(self.offset - frame.offset) as usize);
        frame.offset = self.offset;
        self.offset = end;
        Some(Item::Frame(frame))
    }

    /// Opens the segment that contains the next byte, or the oldest one if that was removed. Returns false if
    /// there are no segments.
    fn open_segment(&mut self) -> io::Result<bool> {
        if self.offset == 0 {
            self.open_at(0)?;
            if self.open.is_some() {
                return Ok(true);
            }
        }
        let segments = segments(&self.directory, &self.command)?;
        let index = segments.partition_point(|start| *start <= self.offset).saturating_sub(1);
        let Some(start) = segments.get(index) else { return Ok(false) };
        self.open_at(*start)?;
        Ok(true)
    }

    /// Opens the segment that starts at an offset. If it was removed concurrently, no segment is open afterwards, and
    /// [`Self::next_item`] looks for another.
    fn open_at(&mut self, start: u64) -> io::Result<()> {
        let file = open_segment_file(&self.directory, &self.command, start, OFlags::RDONLY)?;
        self.open = file.map(|file| OpenSegment { start, file, position: 0 });
        Ok(())
    }

    /// Advances to the next segment if the current one is read completely. Returns false if there is no next one.
    fn next_segment(&mut self) -> io::Result<bool> {
        let Some(open) = &self.open else { return Ok(true) };
        let start = open.start;
        if Mode::from_raw_mode(fstat(&open.file)?.st_mode).contains(MODE_NEWEST) {
            return Ok(false);
        }
        let segments = segments(&self.directory, &self.command)?;
        let Some(next) = segments.into_iter().find(|other| *other > start) else { return Ok(false) };
        // The current segment may have grown since the last read.
        if self.has_frame()? {
            return Ok(true);
        }
        self.open_at(next)?;
        Ok(true)
    }

    /// Returns whether the current segment has another complete frame, without advancing.
    fn has_frame(&mut self) -> io::Result<bool> {
        let found = self.read_frame()?;
        if let (Some(frame), Some(open)) = (&found, &mut self.open) {
            open.position -= (HEADER_LEN + frame.data.len()) as u64;
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

impl OpenSegment {
    /// Returns the frame at the position if it is complete, and advances the position. Fails with
    /// [`io::ErrorKind::InvalidData`] if there is something that is no frame.
    fn read_frame(&mut self) -> io::Result<Option<Frame>> {
        let Some(encoded_header) = self.read_header()? else { return Ok(None) };
        let mut frame = None;
        if let Some(Header { stream, len, time, offset }) = Header::decode(&encoded_header) {
            let mut data = vec![0; len];
            if !read_exact_at(&self.file, &mut data, self.position + HEADER_LEN as u64)? {
                return Ok(None);
            }
            // Callers treat a frame whose `exit_status()` is `None` as output, so an exit status that cannot be decoded
            // is an error.
            let is_valid = stream != Stream::Exit || ExitStatus::decode(&data).is_some();
            frame = is_valid.then_some(Frame { stream, time, offset, data });
        }
        // Another header: meanwhile the writer replaced a frame that it had written in part.
        if self.read_header()? != Some(encoded_header) {
            return Ok(None);
        }
        let frame = frame.ok_or_else(corrupt)?;
        self.position += frame.encoded_len();
        Ok(Some(frame))
    }

    /// Returns the encoded header at the position; `None` if the file is too short.
    fn read_header(&self) -> io::Result<Option<[u8; HEADER_LEN]>> {
        let mut header = [0; HEADER_LEN];
        Ok(read_exact_at(&self.file, &mut header, self.position)?.then_some(header))
    }
}

/// Header of a frame.
struct Header {
    stream: Stream,
    /// Size of the data in bytes.
    len: usize,
    time: i64,
    offset: u64,
}

impl Header {
    /// Decodes a header; `None` if it is invalid. The writer may be malicious, and callers rely on `offset + len` not
    /// to overflow.
    fn decode(header: &[u8; HEADER_LEN]) -> Option<Self> {
        let u64_at = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| header[at + byte]));
        let len = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let (time, offset) = (u64_at(5) as i64, u64_at(13));
        let is_valid = len <= FRAME_MAX && offset.checked_add(len as u64).is_some();
        let stream = Stream::from_byte(header[0]).filter(|_| is_valid)?;
        Some(Self { stream, len, time, offset })
    }
}

/// Fills the buffer. Returns false if the file is too short.
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(buffer, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
