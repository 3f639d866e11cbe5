//! Log of the changes of a table of file handles: an append-only file of records with checksums.
//!
//! Records are written, but not synced. They survive the end of the process, but a crash of the machine may lose the
//! last ones. The first damaged record and everything after it are cut off.
//!
//! After a failure to write, for example on a full disk, the log is *given up*: further records are dropped until the
//! log is rewritten with all files. Records after a gap would be applied to a wrong state, and the memory for records
//! that wait for space has no bound.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::record::{FRAME_LEN, Header, Record};
use crate::state_dir::replacement;

/// Estimated mean length of a record in bytes. From it follows an estimate of the part of a log that is still needed.
const RECORD_LEN_MEAN: u64 = 96;

/// Length in bytes up to which a log is never rewritten because of obsolete records.
const COMPACT_MIN: u64 = 256 * 1024;

/// Maximum length of the payload of a record in bytes. Headers and names are shorter, so a longer one is damaged.
const PAYLOAD_MAX: usize = 8 * 1024;

/// Length in bytes of the buffer with which a log is rewritten or read, and maximum capacity of the buffer for pending
/// records that is kept after a write.
const BUFFER_LEN: usize = 64 * 1024;

/// Log of the changes of a table.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// Length of the file in bytes.
    length: u64,
    /// Length in bytes when this process last rewrote the log; zero if it did not.
    compacted: u64,
    /// Encoded records that were not written yet.
    pending: Vec<u8>,
    /// True if a pending record is required: without it, the next server must not use the file.
    has_required: bool,
    /// True if records are dropped until the log is rewritten.
    is_given_up: bool,
    /// Makes writes fail.
    #[cfg(test)]
    pub(super) disk_is_full: bool,
}

impl Log {
    /// Opens a log. `None` if there is no file, or it has no valid header. Before records are added, the caller reads
    /// the existing ones and calls [`resume`](Self::resume).
    pub(super) fn open(path: &Path) -> io::Result<Option<(Self, Header, Records)>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (header, records) = match open_records(file.try_clone()?)? {
            Some(read) => read,
            None => return Ok(None),
        };
        Ok(Some((Self::new(path, file, 0, 0), header, records)))
    }

    /// Returns the header of a log; `None` if it is not valid.
    pub(super) fn read_header(path: &Path) -> io::Result<Option<Header>> {
        Ok(open_records(File::open(path)?)?.map(|(header, _)| header))
    }

    /// Continues the log after the records that were read, and cuts off the rest of the file.
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

    /// Replaces the log with a new one. The calling thread needs write access to the directory, which threads that act
    /// as the user of an export may not have.
    pub(super) fn create(
        path: &Path,
        header: &Header,
        records: impl Iterator<Item = Record>,
    ) -> io::Result<Self> {
        let new = replacement(path);
        let written = write_new(&new, header, records)
            .and_then(|(file, length)| std::fs::rename(&new, path).map(|()| (file, length)));
        let (file, length) = written.inspect_err(|_| {
            // The incomplete file takes disk space, which may be the cause of the failure.
            if let Err(error) = std::fs::remove_file(&new) {
                tracing::debug!(%error, path = %new.display(), "failed to remove incomplete table of NFS file handles");
            }
        })?;
        Ok(Self::new(path, file, length, length))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record, which [`flush`](Self::flush) writes. The record is dropped if the log is given up.
    pub(super) fn append(&mut self, record: &Record) {
        if !self.is_given_up {
            record.encode(&mut self.pending);
        }
    }

    /// Adds a record without which the next server must not use the file. If it cannot be written, the file is emptied.
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

    /// Writes all pending records. After a failure the log is given up; the file keeps the records from before.
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

    /// Appends encoded records to the file.
    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if self.disk_is_full {
            return Err(ErrorKind::StorageFull.into());
        }
        self.file.write_all(records)
    }

    /// Empties the file. The next server finds no header then, and makes all handles stale.
    fn invalidate(&mut self) {
        if let Err(error) = self.file.set_len(0) {
            tracing::error!(%error, path = %self.path.display(), "failed to empty table of NFS file handles");
        }
    }

    /// Returns true if records are dropped until the log is rewritten.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Returns true if most of the log is obsolete, because its files were removed or moved since. `files` is the
    /// number of present files.
    pub(super) fn is_wasteful(&self, files: usize) -> bool {
        self.length > COMPACT_MIN && self.length / 4 > self.compacted.max(files as u64 * RECORD_LEN_MEAN)
    }
}

/// Writes a new log. Returns the file and its length in bytes.
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

/// Reader of the records of a log.
pub(super) struct Records {
    input: BufReader<File>,
    /// Payload of the record that was read last.
    payload: Vec<u8>,
    /// Length in bytes of the header and of all undamaged records that were read.
    undamaged: u64,
}

/// Reads the header of a log, and returns it with a reader of the records. `None` if the header is not valid.
fn open_records(file: File) -> io::Result<Option<(Header, Records)>> {
    let input = BufReader::with_capacity(BUFFER_LEN, file);
    let mut records = Records { input, payload: Vec::new(), undamaged: 0 };
    let header = if records.next_payload()? { Header::decode(&records.payload) } else { None };
    Ok(header.map(|header| (header, records)))
}

impl Records {
    /// Reads the next record. `None` at the end of the log or at a damaged record.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        let before = self.undamaged;
        let record = if self.next_payload()? { Record::decode(&self.payload) } else { None };
        if record.is_none() {
            self.undamaged = before;
        }
        Ok(record)
    }

    /// Reads the next payload into `payload`. Returns false at the end of the log or at a damaged record.
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

    /// Fills a buffer. Returns false if the log ends before the buffer is full.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.input.read_exact(buffer) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}
