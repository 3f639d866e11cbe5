//! Packs: append-only files of records, from which everything else in a store that must not be lost can be rebuilt.
//!
//! All packs have the same format (16 bytes of header, then one record after the other), but two roles:
//!
//! - A **log** pack is shared. The log packs together have all commit records, and the objects (chunks of file content,
//!   and nodes of trees) of small commits. A process appends to the newest log pack while it holds the write lock of
//!   the index, at the end that is recorded in the index. Bytes after this end are leftovers of a killed writer, or
//!   zeros that were written in advance.
//! - A **bulk** pack has the objects of one large commit, and is complete before the commit record is appended to the
//!   log. Garbage collection moves objects into bulk packs too.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

use crate::error::{IoContext, Result, StoreError};
use crate::file_ops::remove_if_exists;
use crate::record::{Header, Kind, RECORD_HEADER_LEN};

/// Length of the header of a pack in bytes: magic, role, number.
pub(crate) const PACK_HEADER_LEN: u64 = 16;
const MAGIC: &[u8; 8] = b"EWPACK\x00\x01";
/// Maximum number of packs that are kept open for reading.
const OPEN_MAX: usize = 256;

/// Role of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    Log = 1,
    Bulk = 2,
}

/// Location of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    /// Number of the pack.
    pub(crate) pack: u32,
    /// Offset in the pack in bytes.
    pub(crate) offset: u32,
    /// Length of the whole record in bytes, header included.
    pub(crate) len: u32,
}

impl Location {
    /// Returns the offset after the record.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(self.len)
    }

    pub(crate) fn encode(self) -> [u8; 12] {
        let mut out = [0; 12];
        out[..4].copy_from_slice(&self.pack.to_le_bytes());
        out[4..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..].copy_from_slice(&self.len.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |offset: usize| Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?));
        Some(Self { pack: word(0)?, offset: word(4)?, len: word(8)? })
    }
}

/// Returns true unless an open file was deleted.
pub(crate) fn has_name(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.nlink() > 0)
}

/// The directory of packs, with a cache of open files.
pub(crate) struct Packs {
    directory: PathBuf,
    /// Packs that are open for reading, by number.
    open: Mutex<HashMap<u32, Arc<File>>>,
}

impl Packs {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, open: Mutex::new(HashMap::new()) }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self, pack: u32) -> PathBuf {
        self.directory.join(format!("{pack:08x}.pack"))
    }

    /// Creates a pack with only a header. The file is locked before it gets its final name, so that garbage collection
    /// can tell a pack that is being written from a leftover. After a machine crash, the file exists only if
    /// [`Packs::sync_directory`] was called.
    pub(crate) fn create(&self, pack: u32, role: Role) -> Result<File> {
        let path = self.path(pack);
        let new = path.with_extension("new");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)
            .context("create", &new)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).context("lock", &new)?;
        let mut header = [0; PACK_HEADER_LEN as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8] = role as u8;
        header[12..].copy_from_slice(&pack.to_le_bytes());
        file.write_all_at(&header, 0).context("write", &new)?;
        fs::rename(&new, &path).context("rename", &new)?;
        // An abandoned pack, which was never used, may have had the same number.
        self.open.lock().remove(&pack);
        Ok(file)
    }

    pub(crate) fn sync_directory(&self) -> Result<()> {
        sync_directory(&self.directory)
    }

    pub(crate) fn open_for_writing(&self, pack: u32) -> Result<File> {
        let path = self.path(pack);
        OpenOptions::new().read(true).write(true).open(&path).context("open", &path)
    }

    /// Opens a pack for reading, through the cache.
    pub(crate) fn open(&self, pack: u32) -> std::io::Result<Arc<File>> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(&pack) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(File::open(self.path(pack))?);
        // Close packs that garbage collection has removed, maybe in another process: open files keep their disk space.
        open.retain(|_, file| has_name(file));
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(pack, Arc::clone(&file));
        Ok(file)
    }

    /// Removes a pack that the index no longer refers to. Processes that have the file open can still read it.
    pub(crate) fn remove(&self, pack: u32) -> Result<()> {
        self.open.lock().remove(&pack);
        remove_if_exists(&self.path(pack))
    }

    /// Lists the numbers of all pack files, sorted.
    pub(crate) fn list(&self) -> Result<Vec<u32>> {
        let mut packs = Vec::new();
        for entry in fs::read_dir(&self.directory).context("list", &self.directory)? {
            let name = entry.context("list", &self.directory)?.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_suffix(".pack"))
                .and_then(|hex| u32::from_str_radix(hex, 16).ok());
            packs.extend(number);
        }
        packs.sort_unstable();
        Ok(packs)
    }

    /// Reads the record at `location` and verifies its checksum. Returns the decoded header and the whole record;
    /// `Ok(None)` if the pack no longer exists.
    fn read_record(&self, location: Location) -> Result<Option<(Header, Vec<u8>)>> {
        let file = match self.open(location.pack) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("open", &self.path(location.pack)),
        };
        let damaged = |reason| StoreError::Damaged {
            what: "a record".to_owned(),
            pack: location.pack,
            offset: u64::from(location.offset),
            reason,
        };
        let mut bytes = vec![0; location.len as usize];
        if let Err(error) = file.read_exact_at(&mut bytes, u64::from(location.offset)) {
            if error.kind() == std::io::ErrorKind::UnexpectedEof {
                return Err(damaged("the pack is shorter than it was"));
            }
            return Err(error).context("read", &self.path(location.pack));
        }
        let Some((head, stored)) = bytes.split_first_chunk::<RECORD_HEADER_LEN>() else {
            return Err(damaged("the index has an impossible length for it"));
        };
        let header = Header::decode(head)
            .map_err(|error| damaged(error.0))?
            .ok_or_else(|| damaged("its record was overwritten with zeros"))?;
        if !header.is_intact(head, stored) {
            return Err(damaged("its checksum does not match"));
        }
        Ok(Some((header, bytes)))
    }

    /// Reads the content of the record at `location` and verifies its hash. Returns `Ok(None)` if the pack no longer
    /// exists.
    pub(crate) fn read(&self, location: Location, kind: Kind, id: &[u8; 32]) -> Result<Option<Vec<u8>>> {
        let Some((header, bytes)) = self.read_record(location)? else { return Ok(None) };
        let damaged = |reason| StoreError::Damaged {
            what: format!("{} {}", kind.name(), crate::id::ChunkId::from_bytes(*id)),
            pack: location.pack,
            offset: u64::from(location.offset),
            reason,
        };
        if header.kind != kind || &header.id != id {
            return Err(damaged("another record is at its location"));
        }
        header.open(&bytes[RECORD_HEADER_LEN..]).map(Some).map_err(|error| damaged(error.0))
    }

    /// Returns the role in the header of a pack; `None` if the header is damaged.
    pub(crate) fn role(&self, pack: u32) -> Result<Option<Role>> {
        let path = self.path(pack);
        Ok(read_role(&File::open(&path).context("open", &path)?))
    }

    /// Returns true if the header of a pack can be read and is intact.
    pub(crate) fn has_intact_header(&self, pack: u32) -> bool {
        self.role(pack).is_ok_and(|role| role.is_some())
    }

    /// Calls `visit` for every intact record of a pack, with the bytes after its header. Returns the role of the pack.
    /// If the header of the pack is damaged, it counts as a log pack if it has a commit or checkpoint record.
    ///
    /// In a log pack, a record header of zeros after an intact record is the end. Damaged bytes are skipped up to the
    /// next intact record, so that one flipped bit costs only one record.
    pub(crate) fn scan(
        &self,
        pack: u32,
        mut visit: impl FnMut(Location, &Header, &[u8]) -> Result<()>,
    ) -> Result<Role> {
        let path = self.path(pack);
        let file = File::open(&path).context("open", &path)?;
        let length = file.metadata().context("stat", &path)?.len();
        let mut role = read_role(&file);
        let mut window = Window::new(&file, length);
        let mut offset = PACK_HEADER_LEN;
        // True since the last intact record, if damaged bytes follow it.
        let mut in_damage = false;
        while offset + RECORD_HEADER_LEN as u64 <= length {
            match window.read_record(offset).context("read", &path)? {
                WindowItem::Record(header, stored) => {
                    let location = Location { pack, offset: offset as u32, len: header.total() as u32 };
                    visit(location, &header, stored)?;
                    offset += header.total();
                    in_damage = false;
                    if matches!(header.kind, Kind::Commit | Kind::Checkpoint) {
                        role = Some(Role::Log);
                    }
                }
                WindowItem::End if role == Some(Role::Log) && !in_damage => break,
                // The zeros may be damage. A record never begins with a zero byte.
                WindowItem::End => {
                    offset = window.next_nonzero(offset).context("read", &path)?;
                    in_damage = true;
                }
                WindowItem::Damage => {
                    offset += 1;
                    in_damage = true;
                }
            }
        }
        Ok(role.unwrap_or(Role::Bulk))
    }
}

/// Returns the role in a pack's header, if it can be read.
fn read_role(file: &File) -> Option<Role> {
    let mut head = [0; PACK_HEADER_LEN as usize];
    file.read_exact_at(&mut head, 0).ok()?;
    match (head.starts_with(MAGIC), head[8]) {
        (true, 1) => Some(Role::Log),
        (true, 2) => Some(Role::Bulk),
        _ => None,
    }
}

/// Content of a pack at some offset.
enum WindowItem<'a> {
    /// An intact record: its header, and the bytes after it.
    Record(Header, &'a [u8]),
    /// A record header of zeros.
    End,
    Damage,
}

/// Sequential reader of a pack. Its buffer holds a part of the file, and grows for a large record.
struct Window<'a> {
    file: &'a File,
    /// Length of the file in bytes.
    length: u64,
    /// Offset in the file of the first byte in `buffer`.
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> Window<'a> {
    /// Number of bytes read at once, unless a record is larger.
    const STEP: u64 = 1 << 20;

    fn new(file: &'a File, length: u64) -> Self {
        Self { file, length, start: 0, buffer: Vec::new() }
    }

    fn read_record(&mut self, offset: u64) -> std::io::Result<WindowItem<'_>> {
        let mut head = [0; RECORD_HEADER_LEN];
        head.copy_from_slice(self.bytes_at(offset, RECORD_HEADER_LEN)?);
        let header = match Header::decode(&head) {
            Ok(Some(header)) if offset + header.total() <= self.length => header,
            Ok(None) => return Ok(WindowItem::End),
            _ => return Ok(WindowItem::Damage),
        };
        let stored = self.bytes_at(offset + RECORD_HEADER_LEN as u64, header.stored as usize)?;
        let intact = header.is_intact(&head, stored);
        Ok(if intact { WindowItem::Record(header, stored) } else { WindowItem::Damage })
    }

    /// Returns the first offset from `offset` on with a non-zero byte, or the end.
    fn next_nonzero(&mut self, mut offset: u64) -> std::io::Result<u64> {
        while offset < self.length {
            let len = (self.length - offset).min(4096) as usize;
            match self.bytes_at(offset, len)?.iter().position(|byte| *byte != 0) {
                Some(zeros) => return Ok(offset + zeros as u64),
                None => offset += len as u64,
            }
        }
        Ok(offset)
    }

    /// Returns bytes of the file. Refills the buffer if it does not hold them.
    fn bytes_at(&mut self, offset: u64, len: usize) -> std::io::Result<&[u8]> {
        let end = offset + len as u64;
        if offset < self.start || end > self.start + self.buffer.len() as u64 {
            let fill = (end - offset).max(Self::STEP).min(self.length - offset);
            self.buffer.resize(fill as usize, 0);
            self.start = offset;
            self.file.read_exact_at(&mut self.buffer, offset)?;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from..from + len])
    }
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).context("sync", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_that_another_process_removed_is_closed_when_the_next_one_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let [packs, other] = [(); 2].map(|()| Packs::new(directory.path().to_owned()));
        for pack in 1..=3 {
            other.create(pack, Role::Bulk).unwrap();
        }
        packs.open(1).unwrap();
        packs.open(2).unwrap();
        other.remove(1).unwrap();
        packs.open(3).unwrap();
        let mut open: Vec<u32> = packs.open.lock().keys().copied().collect();
        open.sort_unstable();
        assert_eq!(open, [2, 3]);
    }
}
