//! File of the audit log, and its rotation.
//!
//! A file that would exceed the size limit is renamed to `NAME.1`, the old `NAME.1` to `NAME.2`, and so on; the oldest one
//! is removed. The new file is created before any file is renamed, so that a failed rotation changes nothing and the log
//! continues in the old file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::private_file::{self, PrivateFileError};

/// Time after which a failed rotation is retried.
const RETRY_BACKOFF: Duration = Duration::from_secs(60);
/// Maximum number of surplus files that one rotation removes. There are some after `AUDIT_KEPT` was lowered.
const SURPLUS_MAX: u32 = 1_000;

/// Maximum size of a line in bytes.
const LINE_MAX: u64 = 4 << 20;

/// Limits on the size and number of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Size in bytes at which a file is rotated. A single line may be longer.
    pub max_bytes: u64,
    /// Number of rotated files to keep.
    pub kept: u32,
}

/// Current file of the log, owned by the writer thread.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    retention: Retention,
    /// Size of the file in bytes up to the end of the last complete line.
    size: u64,
    /// Lines that are not written yet.
    buffer: Vec<u8>,
    /// Number of lines in `buffer`.
    lines: u64,
    /// True if the file ends with an incomplete line, which [`LogFile::repair`] removes before the next write.
    torn: bool,
    /// Time of the last failed rotation; `None` after a successful one.
    rotation_failed_at: Option<Instant>,
}

/// Failure to write lines.
#[derive(Debug)]
pub(super) struct WriteFailure {
    /// Number of lost lines.
    pub(super) lines: u64,
    pub(super) error: io::Error,
}

impl LogFile {
    /// Opens the log, or creates it with mode 0600. Anything but a regular file, such as a terminal, is never rotated.
    pub(super) fn open(path: &Path, retention: Retention) -> Result<Self, PrivateFileError> {
        let file = private_file::open_append(path)?;
        let metadata = file.metadata().map_err(PrivateFileError::failed_to("inspect", path))?;
        let (length, is_file) = (metadata.len(), metadata.is_file());
        let size = if is_file { end_of_lines(path, length) } else { Ok(length) };
        let size = size.map_err(PrivateFileError::failed_to("read", path))?;
        let max_bytes = if is_file { retention.max_bytes } else { u64::MAX };
        Ok(Self {
            path: path.to_owned(),
            size,
            file,
            retention: Retention { max_bytes, ..retention },
            buffer: Vec::new(),
            lines: 0,
            // A crash during a write leaves an incomplete line.
            torn: size < length,
            rotation_failed_at: None,
        })
    }

    /// Buffers a line, which ends with a newline, until the next [`LogFile::flush`]. Flushes the buffer and rotates the file
    /// first if the line would exceed the size limit.
    pub(super) fn add(&mut self, line: &str) -> Result<(), WriteFailure> {
        let mut flushed = Ok(());
        let size = self.size.saturating_add(self.buffer.len() as u64);
        if size > 0 && size.saturating_add(line.len() as u64) > self.retention.max_bytes {
            flushed = self.flush();
            self.try_rotate();
        }
        self.buffer.extend_from_slice(line.as_bytes());
        self.lines += 1;
        flushed
    }

    /// Writes the buffer. Lines that cannot be written are dropped.
    pub(super) fn flush(&mut self) -> Result<(), WriteFailure> {
        let (buffer, lines) = (std::mem::take(&mut self.buffer), std::mem::take(&mut self.lines));
        if buffer.is_empty() {
            return Ok(());
        }
        let (written, outcome) = match self.repair() {
            Ok(()) => write_all(&mut self.file, &buffer),
            Err(error) => (0, Err(error)),
        };
        let whole = buffer[..written].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.size += whole as u64;
        let Err(error) = outcome else { return Ok(()) };
        self.torn = self.torn || written > whole;
        let kept = buffer[..whole].iter().filter(|byte| **byte == b'\n').count() as u64;
        Err(WriteFailure { lines: lines - kept, error })
    }

    /// Removes the incomplete line that a full disk left, or ends it with a newline if that fails.
    fn repair(&mut self) -> io::Result<()> {
        if !self.torn {
            return Ok(());
        }
        // Another program may have truncated the file.
        let size = self.size.min(self.file.metadata()?.len());
        if self.file.set_len(size).is_ok() {
            self.size = size;
        } else {
            self.file.write_all(b"\n")?;
            self.size = self.file.metadata()?.len();
        }
        self.torn = false;
        Ok(())
    }

    /// Rotates the file, unless the last attempt failed less than [`RETRY_BACKOFF`] ago.
    fn try_rotate(&mut self) {
        if self.rotation_failed_at.is_some_and(|time| time.elapsed() < RETRY_BACKOFF) {
            return;
        }
        match self.rotate() {
            Ok(()) => self.rotation_failed_at = None,
            Err(error) => {
                if self.rotation_failed_at.is_none() {
                    tracing::error!(%error, path = %self.path.display(), "failed to rotate the audit log; writing to it continues");
                }
                self.rotation_failed_at = Some(Instant::now());
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let new_path = with_suffix(&self.path, "new");
        let new = private_file::open_append(&new_path).map_err(io::Error::other)?;
        // A server that was killed during a rotation leaves this file. It has no entries.
        new.set_len(0)?;
        // Files up to the first free number move up by one. Without a free number, the last file is replaced.
        let free = (1..self.retention.kept).find(|number| !self.numbered(*number).exists());
        for number in (1..free.unwrap_or(self.retention.kept)).rev() {
            rename_if_exists(&self.numbered(number), &self.numbered(number + 1))?;
        }
        let last = self.numbered(1);
        // Another program may have moved the file.
        rename_if_exists(&self.path, &last)?;
        if let Err(error) = fs::rename(&new_path, &self.path) {
            rename_if_exists(&last, &self.path)?;
            return Err(error);
        }
        (self.file, self.size, self.torn) = (new, 0, false);
        self.remove_surplus();
        Ok(())
    }

    /// Removes files with higher numbers than [`Retention::kept`].
    fn remove_surplus(&self) {
        for number in (self.retention.kept.saturating_add(1)..).take(SURPLUS_MAX as usize) {
            match fs::remove_file(self.numbered(number)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) => return tracing::warn!(%error, "failed to remove an old audit log"),
            }
        }
    }

    fn numbered(&self, number: u32) -> PathBuf {
        with_suffix(&self.path, &number.to_string())
    }
}

/// Returns the offset after the last complete line of a file of that length. Returns the length if there is no newline in
/// the last [`LINE_MAX`] bytes: then the file is not an audit log, and no part of it may be removed.
fn end_of_lines(path: &Path, length: u64) -> io::Result<u64> {
    let mut tail = vec![0; length.min(LINE_MAX) as usize];
    let start = length - tail.len() as u64;
    File::open(path)?.read_exact_at(&mut tail, start)?;
    let newline = tail.iter().rposition(|byte| *byte == b'\n');
    Ok(newline.map_or(length, |at| start + at as u64 + 1))
}

/// Appends `.` and a suffix to the file name of a path.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

fn rename_if_exists(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

/// Writes until all is written or an error occurs. Unlike `Write::write_all`, returns the number of bytes written.
fn write_all(file: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(length) => written += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests;
