//! Reading and writing of archives one member at a time, for callers whose files are neither in a store nor in a
//! directory of this machine.
//!
//! [`TarReader`] has the same checks and limits as an import. [`TarWriter`] writes the same format as an export.

use std::collections::HashMap;
use std::io::Read;

use tar::EntryType;

use super::block::BLOCK;
use super::error::{Result, refused};
use super::header::{MemberHeader, padding};
use super::limits::{ArchiveLimits, MemoryBudget, MemoryUsage, Usage, check_relative, path_components};
use super::member::{Kind, Member};
use super::pax::Records;
use super::reader::Reader;
use super::sparse::{SparseMap, SparseRun};
use crate::cancel::Cancel;
use crate::node::is_valid_target;
use crate::quote::shorten_path;
use crate::snapshot::Timestamp;

/// Mode bits that are kept: permissions and the sticky bit. Set-id bits are dropped.
const MODE_MASK: u16 = 0o1777;
/// Source of zeros for holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Member of an archive, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarMember {
    /// Path in the archive, relative and without `.` and empty components. It need not be UTF-8.
    pub path: Vec<u8>,
    /// Kind of the member.
    pub kind: TarMemberKind,
    /// Permission bits and the sticky bit.
    pub mode: u16,
    /// Modification time; `None` if it is not known, or if a [`Timestamp`] cannot hold it.
    pub modified: Option<Timestamp>,
}

/// Kind of a [`TarMember`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TarMemberKind {
    /// Regular file, whose content follows.
    File {
        /// Length of the content in bytes.
        size: u64,
    },
    /// Directory.
    Directory,
    /// Symlink.
    Symlink {
        /// Target, not resolved.
        target: Vec<u8>,
    },
    /// Hard link.
    HardLink {
        /// Path of an earlier file in the archive.
        target: Vec<u8>,
    },
}

/// Reader of the members of an archive.
///
/// Like an import, fails if a path leads outside of the archive. Skips devices and pipes.
pub struct TarReader<'r> {
    reader: Reader<'r>,
    usage: Usage,
    memory: MemoryUsage<'r>,
    /// Sizes of the files so far, by path, for hard links to them.
    files: HashMap<Vec<u8>, u64>,
    /// Content of the current file; `None` once it is read, and for other members.
    content: Option<Content>,
    /// Number of skipped members.
    skipped: u64,
}

/// Content of a file in the archive.
struct Content {
    /// Map of a sparse file; `None` for other files.
    map: Option<SparseMap>,
    /// Length of the content in the archive, in bytes. Not used if there is a map, which has the length of the data.
    stored: u64,
}

impl<'r> TarReader<'r> {
    /// Creates a reader, which fails once `cancel` is set. The reader keeps all paths in memory, which is taken from
    /// the budget `memory`.
    pub fn new(
        input: &'r mut dyn Read,
        limits: ArchiveLimits,
        memory: Option<&'r dyn MemoryBudget>,
        cancel: Cancel,
    ) -> Self {
        Self {
            reader: Reader::new(input, cancel),
            usage: Usage::new(limits),
            memory: MemoryUsage(memory),
            files: HashMap::new(),
            content: None,
            skipped: 0,
        }
    }

    /// Returns the next member; `None` at the end of the archive. Skips unread content, and the member of the root
    /// directory.
    pub fn next_member(&mut self) -> Result<Option<TarMember>> {
        self.content = None;
        while let Some(member) = self.reader.next()? {
            self.usage.add_member(&member)?;
            self.memory.add_member(&member)?;
            self.memory.add_entries(1)?;
            if let Some(member) = self.accept(member)? {
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    /// Passes the content of the current file to `take`, piece by piece. A hole is passed as zeros.
    pub fn read_content(&mut self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Some(Content { map, stored }) = self.content.take() else { return Ok(()) };
        let Some(map) = map else { return self.reader.read_content(stored, take) };
        for run in map.runs() {
            match run {
                SparseRun::Data(len) => self.reader.read_content(len, &mut take)?,
                SparseRun::Hole(mut len) => {
                    while len > 0 {
                        let step = len.min(ZEROS.len() as u64);
                        take(&ZEROS[..step as usize])?;
                        len -= step;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the number of skipped devices, pipes and entries of unknown kinds.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Checks a member and counts it against the limits. Returns `None` if it is skipped.
    fn accept(&mut self, mut member: Member) -> Result<Option<TarMember>> {
        let path = normalized(&member.path)?;
        let kind = match &member.kind {
            Kind::Other(_) => {
                self.skipped += 1;
                return Ok(None);
            }
            // The root directory.
            Kind::Directory if path.is_empty() => return Ok(None),
            _ if path.is_empty() => return Err(refused(&member.path, "only a directory can be the root")),
            Kind::Directory => TarMemberKind::Directory,
            Kind::Symlink if !is_valid_target(&member.target) => {
                return Err(refused(&path, "its symlink target is empty, too long or contains a NUL byte"));
            }
            Kind::Symlink => {
                self.files.remove(&path);
                TarMemberKind::Symlink { target: std::mem::take(&mut member.target) }
            }
            Kind::HardLink => {
                let target = normalized(&member.target)?;
                if target == path && self.files.contains_key(&path) {
                    return Ok(None);
                }
                let size = self.linked_size(&path, &target)?;
                self.usage.add_bytes(size)?;
                self.files.insert(path.clone(), size);
                TarMemberKind::HardLink { target }
            }
            Kind::File | Kind::Sparse(_) => {
                self.usage.add_bytes(member.size)?;
                let map = self.reader.sparse_map(&mut member)?;
                self.content = Some(Content { map, stored: member.stored });
                self.files.insert(path.clone(), member.size);
                TarMemberKind::File { size: member.size }
            }
        };
        Ok(Some(TarMember { path, kind, mode: member.mode & MODE_MASK, modified: member.modified }))
    }

    /// Returns the size of the target of a hard link. Fails if the target is not an earlier file of the archive.
    fn linked_size(&self, path: &[u8], target: &[u8]) -> Result<u64> {
        self.files.get(target).copied().ok_or_else(|| {
            let target = shorten_path(target);
            refused(path, format!("it is a link to `{target}`, which is no file in the archive before it"))
        })
    }
}

/// Returns the path of a member without `.` and empty components. Refuses absolute paths and `..`.
fn normalized(path: &[u8]) -> Result<Vec<u8>> {
    check_relative(path)?;
    Ok(path_components(path)?.join(&b'/'))
}

/// Error of a caller of [`TarWriter`]: the content of a file does not match its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TarWriteError {
    /// The previous file has less content than its size.
    #[error("a file has less content than its size")]
    Incomplete,
    /// The current file has more content than its size, or there is no current file.
    #[error("a file has more content than its size")]
    TooLong,
}

/// Writer of an archive into memory. The caller takes the bytes out piece by piece.
#[derive(Debug, Default)]
pub struct TarWriter {
    /// Bytes that the caller has not taken.
    bytes: Vec<u8>,
    /// Number of bytes of content that are still to be added to the current file.
    remaining: u64,
    /// Number of zero bytes to add after the content of the current file.
    padding: usize,
}

impl TarWriter {
    /// Creates a writer of an empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member. The content of a file must follow with [`Self::add_content`].
    pub fn add_member(&mut self, member: &TarMember) -> std::result::Result<(), TarWriteError> {
        if self.remaining > 0 {
            return Err(TarWriteError::Incomplete);
        }
        let (kind, target, size): (_, &[u8], u64) = match &member.kind {
            TarMemberKind::File { size } => (EntryType::Regular, b"", *size),
            TarMemberKind::Directory => (EntryType::Directory, b"", 0),
            TarMemberKind::Symlink { target } => (EntryType::Symlink, target, 0),
            TarMemberKind::HardLink { target } => (EntryType::Link, target, 0),
        };
        let mut path = member.path.clone();
        if kind == EntryType::Directory && !path.ends_with(b"/") {
            path.push(b'/');
        }
        let (mode, modified) = (member.mode, member.modified);
        let header = MemberHeader { kind, path: &path, target, mode, modified, size };
        self.bytes.extend(header.encode(Records::default()));
        self.remaining = size;
        self.padding = padding(size) as usize;
        Ok(())
    }

    /// Adds a part of the current file's content.
    pub fn add_content(&mut self, data: &[u8]) -> std::result::Result<(), TarWriteError> {
        self.remaining = self.remaining.checked_sub(data.len() as u64).ok_or(TarWriteError::TooLong)?;
        self.bytes.extend_from_slice(data);
        if self.remaining == 0 {
            let padding = std::mem::take(&mut self.padding);
            self.pad(padding);
        }
        Ok(())
    }

    /// Writes the end of the archive.
    pub fn finish(&mut self) -> std::result::Result<(), TarWriteError> {
        if self.remaining > 0 {
            return Err(TarWriteError::Incomplete);
        }
        // Two blocks of zeros end an archive.
        self.pad(2 * BLOCK as usize);
        Ok(())
    }

    /// Returns the number of bytes that the caller has not taken.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if the caller has taken all bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the bytes since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Appends `len` zeros.
    fn pad(&mut self, len: usize) {
        self.bytes.resize(self.bytes.len() + len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::ArchiveError;
    use super::*;
    use crate::limit::LimitKind;

    /// Members with their content.
    type Members = Vec<(TarMember, Vec<u8>)>;

    /// Small limits, so that tests exceed them quickly.
    const LIMITS: ArchiveLimits = ArchiveLimits { bytes: 1 << 20, entries: 100, metadata: 64 << 10 };

    fn member(path: &[u8], kind: TarMemberKind) -> TarMember {
        TarMember { path: path.to_vec(), kind, mode: 0o640, modified: Some(Timestamp(1_500_000_000)) }
    }

    fn file(path: &[u8], size: usize) -> TarMember {
        member(path, TarMemberKind::File { size: size as u64 })
    }

    fn link(path: &[u8], target: &[u8]) -> TarMember {
        member(path, TarMemberKind::HardLink { target: target.to_vec() })
    }

    /// Writes an archive with these members and contents.
    fn archive(members: &[(TarMember, &[u8])]) -> Vec<u8> {
        let mut writer = TarWriter::new();
        for (member, content) in members {
            writer.add_member(member).unwrap();
            writer.add_content(content).unwrap();
        }
        writer.finish().unwrap();
        writer.take()
    }

    /// Reads all members with their content, and the number of skipped ones.
    fn read(bytes: &[u8]) -> Result<(Members, u64)> {
        let mut input = bytes;
        let mut reader = TarReader::new(&mut input, LIMITS, None, Cancel::new());
        let mut members = Vec::new();
        while let Some(member) = reader.next_member()? {
            let mut content = Vec::new();
            reader.read_content(|data| {
                content.extend_from_slice(data);
                Ok(())
            })?;
            members.push((member, content));
        }
        Ok((members, reader.skipped()))
    }

    #[test]
    fn members_round_trip() {
        let long = [b'n'; 200];
        let members: [(TarMember, &[u8]); 6] = [
            (member(b"d", TarMemberKind::Directory), b""),
            (file(b"d/\xff", 3), b"abc"),
            (file(&[b"d/", &long[..]].concat(), 512), &[7; 512]),
            (file(b"empty", 0), b""),
            (member(b"s", TarMemberKind::Symlink { target: [b"../", &long[..]].concat() }), b""),
            (link(b"h", b"d/\xff"), b""),
        ];
        let (found, skipped) = read(&archive(&members)).unwrap();
        assert_eq!(skipped, 0);
        assert_eq!(found.len(), members.len());
        for ((member, content), (found, found_content)) in members.iter().zip(&found) {
            assert_eq!((member, *content), (found, &found_content[..]));
        }
    }

    #[test]
    fn paths_that_lead_outside_are_refused() {
        let symlink = member(b"a", TarMemberKind::Symlink { target: b"b".to_vec() });
        let hostile: [&[(TarMember, &[u8])]; 6] = [
            &[(file(b"../out", 1), b"x")],
            &[(file(b"a/../../out", 1), b"x")],
            &[(file(b"/out", 1), b"x")],
            &[(link(b"a", b"../secret"), b"")],
            &[(link(b"a", b"not-there"), b"")],
            &[(symlink, b""), (link(b"b", b"a"), b"")],
        ];
        for members in hostile {
            let done = read(&archive(members));
            assert!(matches!(done, Err(ArchiveError::Refused { .. })), "{members:?}: {done:?}");
        }
    }

    #[test]
    fn each_hard_link_counts_with_the_size_of_its_file() {
        let large = vec![0; LIMITS.bytes as usize / 2];
        let twice = [(file(b"a", large.len()), &large[..]), (link(b"b", b"a"), &b""[..])];
        assert_eq!(read(&archive(&twice)).unwrap().0.len(), 2);
        let thrice = [twice[0].clone(), twice[1].clone(), (link(b"c", b"a"), &b""[..])];
        let done = read(&archive(&thrice));
        assert!(matches!(done, Err(ArchiveError::TooLarge { kind: LimitKind::Bytes, .. })), "{done:?}");
    }

    #[test]
    fn a_file_must_have_the_content_of_its_size() {
        let mut writer = TarWriter::new();
        assert_eq!(writer.add_content(b"x"), Err(TarWriteError::TooLong));
        writer.add_member(&file(b"a", 2)).unwrap();
        writer.add_content(b"x").unwrap();
        assert_eq!(writer.add_member(&file(b"b", 0)), Err(TarWriteError::Incomplete));
        assert_eq!(writer.finish(), Err(TarWriteError::Incomplete));
        assert_eq!(writer.add_content(b"xy"), Err(TarWriteError::TooLong));
    }
}
