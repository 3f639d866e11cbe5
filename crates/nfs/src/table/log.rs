//! Log of the changes of a table: an append-only file of records with checksums.
//!
//! Records are written, but not synced: they survive the end of the process, and a crash of the machine may lose the
//! last ones. What follows the first damaged record is cut off.
//!
//! A log that cannot be written, as on a full disk, is given up until it is written anew with all files: records behind a
//! gap would say something else, and to keep them in memory until there is space has no bound.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::record::{FRAME_LEN, Header, Record};
use crate::state_dir::replacement;

/// Mean length of a record, to estimate how much of a log is still needed.
const RECORD_LEN: u64 = 96;

/// Length below which a log is never written anew.
const COMPACT_MIN: u64 = 256 * 1024;

/// Longest payload: a header or a name is shorter.
const PAYLOAD_MAX: usize = 8 * 1024;

/// Length of the buffer with which a log is written anew, and of the largest one that is kept between writes.
const BUFFER_LEN: usize = 64 * 1024;

/// Log of the changes of a table.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    length: u64,
    /// Length when this process last wrote the log anew, or zero.
    compacted: u64,
    pending: Vec<u8>,
    /// Without one of the pending records, the file may not be used.
    has_required: bool,
    /// Records are dropped until the log is written anew.
    is_given_up: bool,
    /// Makes writes fail.
    #[cfg(test)]
    pub(super) disk_is_full: bool,
}

impl Log {
    /// Opens a log. `None` if there is no log, or it has no valid header. Read its records, and then
    /// [`resume`](Self::resume) it behind them.
    pub(super) fn open(path: &Path) -> io::Result<Option<(Self, Header, Records)>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (header, records) = match read(file.try_clone()?)? {
            Some(read) => read,
            None => return Ok(None),
        };
        Ok(Some((Self::new(path, file, 0, 0), header, records)))
    }

    /// Reads the header of a log. `None` if it has no valid one.
    pub(super) fn read_header(path: &Path) -> io::Result<Option<Header>> {
        Ok(read(File::open(path)?)?.map(|(header, _)| header))
    }

    /// Continues behind records that were read, and cuts off what follows.
    pub(super) fn resume(&mut self, records: &Records) -> io::Result<()> {
        self.file.set_len(records.undamaged)?;
        self.file.seek(SeekFrom::Start(records.undamaged))?;
        self.length = records.undamaged;
        Ok(())
    }

    fn new(path: &Path, file: File, length: u64, compacted: u64) -> Self {
        Self {
            path: path.to_owned(),
            file,
            length,
            compacted,
            pending: Vec::new(),
            has_required: false,
            is_given_up: false,
            #[cfg(test)]
            disk_is_full: false,
        }
    }

    /// Replaces the log by a new one. The directory must be writable for the thread: those that serve an export of
    /// another user cannot do this.
    pub(super) fn create(
        path: &Path,
        header: &Header,
        records: impl Iterator<Item = Record>,
    ) -> io::Result<Self> {
        let new = replacement(path);
        let written = write_new(&new, header, records)
            .and_then(|(file, length)| std::fs::rename(&new, path).map(|()| (file, length)));
        let (file, length) = written.inspect_err(|_| {
            // It takes space that may be what is missing.
            if let Err(error) = std::fs::remove_file(&new) {
                tracing::debug!(%error, path = %new.display(), "failed to remove incomplete table of NFS file handles");
            }
        })?;
        Ok(Self::new(path, file, length, length))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record, which [`flush`](Self::flush) writes. It is dropped if the log was given up.
    pub(super) fn append(&mut self, record: &Record) {
        if !self.is_given_up {
            record.encode(&mut self.pending);
        }
    }

    /// Adds a record without which the file may not be used: if it cannot be written, the file is emptied.
    pub(super) fn append_required(&mut self, record: &Record) {
        if self.is_given_up {
            self.invalidate();
        }
        self.append(record);
        self.has_required = true;
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Writes all added records. After a failure the log is given up: the file keeps what was written before.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if let Err(error) = self.write(&pending) {
            self.is_given_up = true;
            if self.has_required {
                self.invalidate();
            }
            return Err(error);
        }
        self.has_required = false;
        self.length += pending.len() as u64;
        if pending.capacity() <= BUFFER_LEN {
            self.pending = pending;
            self.pending.clear();
        }
        Ok(())
    }

    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if self.disk_is_full {
            return Err(ErrorKind::StorageFull.into());
        }
        self.file.write_all(records)
    }

    /// Empties the file: the next server makes all handles stale.
    fn invalidate(&mut self) {
        if let Err(error) = self.file.set_len(0) {
            tracing::error!(%error, path = %self.path.display(), "failed to empty table of NFS file handles");
        }
    }

    /// Returns true if records are dropped until the log is written anew.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Returns true if most of the log is about files that have gone or moved since.
    pub(super) fn is_wasteful(&self, files: usize) -> bool {
        self.length > COMPACT_MIN && self.length / 4 > self.compacted.max(files as u64 * RECORD_LEN)
    }
}

/// Writes a new log, a buffer at a time. Returns its length, too.
fn write_new(path: &Path, header: &Header, records: impl Iterator<Item = Record>) -> io::Result<(File, u64)> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let (mut buffer, mut length) = (Vec::new(), 0);
    header.encode(&mut buffer);
    for record in records {
        record.encode(&mut buffer);
        if buffer.len() >= BUFFER_LEN {
            file.write_all(&buffer)?;
            length += buffer.len() as u64;
            buffer.clear();
        }
    }
    file.write_all(&buffer)?;
    Ok((file, length + buffer.len() as u64))
}

/// Records of a log, read a buffer at a time.
pub(super) struct Records {
    input: BufReader<File>,
    payload: Vec<u8>,
    /// Length of the header and of all records that were read.
    undamaged: u64,
}

/// Reads the header of a log. `None` if it has no valid one.
fn read(file: File) -> io::Result<Option<(Header, Records)>> {
    let input = BufReader::with_capacity(BUFFER_LEN, file);
    let mut records = Records { input, payload: Vec::new(), undamaged: 0 };
    let header = if records.next_payload()? { Header::decode(&records.payload) } else { None };
    Ok(header.map(|header| (header, records)))
}

impl Records {
    /// Reads the next record. `None` at the end and at a damaged record.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        let before = self.undamaged;
        let record = if self.next_payload()? { Record::decode(&self.payload) } else { None };
        if record.is_none() {
            self.undamaged = before;
        }
        Ok(record)
    }

    /// Reads the next payload. Returns false at the end and at a damaged record.
    fn next_payload(&mut self) -> io::Result<bool> {
        let mut frame = [0; FRAME_LEN];
        if !self.fill(&mut frame)? {
            return Ok(false);
        }
        let [a, b, c, d, checksum @ ..] = frame;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > PAYLOAD_MAX {
            return Ok(false);
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(length, 0);
        let is_whole = self.fill(&mut payload)?;
        self.payload = payload;
        self.undamaged += (FRAME_LEN + length) as u64;
        Ok(is_whole && crc32fast::hash(&self.payload) == u32::from_le_bytes(checksum))
    }

    /// Fills a buffer. Returns false if the log ends before.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.input.read_exact(buffer) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}
