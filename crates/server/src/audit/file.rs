//! The file of the audit log, and those before it.
//!
//! A file that would grow beyond its limit becomes `NAME.1`, what was that becomes `NAME.2`, and so on; the oldest one goes.
//! The new file is made before anything is renamed, so that a rotation which cannot be done changes nothing: the old
//! file grows on.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::private::{self, PrivateError};

/// Time after which a rotation that failed is tried again.
const RETRY_BACKOFF: Duration = Duration::from_secs(60);
/// Files beyond those that are kept, from a time when more were, that one rotation removes.
const SURPLUS_MAX: u32 = 1_000;

/// No line is longer.
const LINE_MAX: u64 = 4 << 20;

/// Limits of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Largest size of a file in bytes. A single line may be longer.
    pub max_bytes: u64,
    /// Number of files that are kept besides the one that is written.
    pub kept: u32,
}

/// The file that is written. One thread has it.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    retention: Retention,
    /// Bytes in the file, up to the end of the last whole line.
    size: u64,
    /// Lines that are not written yet.
    waiting: Vec<u8>,
    /// Number of these.
    lines: u64,
    /// Set if the file ends in a piece of a line that could not be taken back.
    torn: bool,
    /// When a rotation failed last; none since one was done.
    failed: Option<Instant>,
}

/// Lines that were not written, and why.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) lines: u64,
    pub(super) error: io::Error,
}

impl LogFile {
    /// Opens the log, made for its owner alone. What is no regular file, such as a terminal, is never rotated.
    pub(super) fn open(path: &Path, retention: Retention) -> Result<Self, PrivateError> {
        let file = private::append(path)?;
        let metadata = file.metadata().map_err(PrivateError::of("look at", path))?;
        let (length, is_file) = (metadata.len(), metadata.is_file());
        let size = if is_file { end_of_lines(path, length) } else { Ok(length) };
        let size = size.map_err(PrivateError::of("read", path))?;
        let max_bytes = if is_file { retention.max_bytes } else { u64::MAX };
        Ok(Self {
            path: path.to_owned(),
            size,
            file,
            retention: Retention { max_bytes, ..retention },
            waiting: Vec::new(),
            lines: 0,
            // A machine that crashed while a line was written leaves a piece of it.
            torn: size < length,
            failed: None,
        })
    }

    /// Takes a line, which ends in a newline, to be written by the next [`LogFile::flush`]. What waits goes out first if
    /// the line belongs into another file.
    pub(super) fn add(&mut self, line: &str) -> Result<(), Lost> {
        let mut done = Ok(());
        let size = self.size.saturating_add(self.waiting.len() as u64);
        if size > 0 && size.saturating_add(line.len() as u64) > self.retention.max_bytes {
            done = self.flush();
            self.rotate_when_due();
        }
        self.waiting.extend_from_slice(line.as_bytes());
        self.lines += 1;
        done
    }

    /// Writes what waits. What could not be written is dropped.
    pub(super) fn flush(&mut self) -> Result<(), Lost> {
        let (waiting, lines) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.lines));
        if waiting.is_empty() {
            return Ok(());
        }
        let (written, outcome) = match self.mend() {
            Ok(()) => write_all(&mut self.file, &waiting),
            Err(error) => (0, Err(error)),
        };
        let whole = waiting[..written].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.size += whole as u64;
        let Err(error) = outcome else { return Ok(()) };
        self.torn = self.torn || written > whole;
        let kept = waiting[..whole].iter().filter(|byte| **byte == b'\n').count() as u64;
        Err(Lost { lines: lines - kept, error })
    }

    /// Takes back the piece of a line that a full disk left, or ends it, so that the next line is one.
    fn mend(&mut self) -> io::Result<()> {
        if !self.torn {
            return Ok(());
        }
        // Another program may have truncated it.
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

    fn rotate_when_due(&mut self) {
        if self.failed.is_some_and(|when| when.elapsed() < RETRY_BACKOFF) {
            return;
        }
        match self.rotate() {
            Ok(()) => self.failed = None,
            Err(error) => {
                if self.failed.is_none() {
                    tracing::error!(%error, path = %self.path.display(), "failed to rotate the audit log; writing to it continues");
                }
                self.failed = Some(Instant::now());
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let new_path = beside(&self.path, "new");
        let new = private::append(&new_path).map_err(io::Error::other)?;
        // Left by a rotation that was killed; nothing was ever written to it.
        new.set_len(0)?;
        let free = (1..self.retention.kept).find(|number| !self.numbered(*number).exists());
        for number in (1..free.unwrap_or(self.retention.kept)).rev() {
            rename_if_there(&self.numbered(number), &self.numbered(number + 1))?;
        }
        let last = self.numbered(1);
        // Another program may have moved it.
        rename_if_there(&self.path, &last)?;
        if let Err(error) = fs::rename(&new_path, &self.path) {
            rename_if_there(&last, &self.path)?;
            return Err(error);
        }
        (self.file, self.size, self.torn) = (new, 0, false);
        self.remove_surplus();
        Ok(())
    }

    /// Removes files from a time when more were kept.
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
        beside(&self.path, &number.to_string())
    }
}

/// Returns the end of the last whole line of a file of that length. All of it counts as whole where no line
/// is near the end: then it is no log of ours, and nothing of it may be taken back.
fn end_of_lines(path: &Path, length: u64) -> io::Result<u64> {
    let mut tail = vec![0; length.min(LINE_MAX) as usize];
    let start = length - tail.len() as u64;
    File::open(path)?.read_exact_at(&mut tail, start)?;
    let newline = tail.iter().rposition(|byte| *byte == b'\n');
    Ok(newline.map_or(length, |at| start + at as u64 + 1))
}

/// Appends an ending to the file name of a path.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

/// Writes as much as there is room for. Returns how much that was.
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
