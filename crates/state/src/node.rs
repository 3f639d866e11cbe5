//! Nodes: the immutable files, directories and symlinks of a tree, canonically encoded and named by their hash.
//!
//! ```text
//! file       1, flags u8 (1 xattrs, 2 extents), mode u16, size, [xattrs], content
//!            content: nothing when empty; one chunk id; or with flag 2 a count and for each extent
//!            its length × 2 + (1 if hole) and, unless a hole, its chunk id
//! symlink    2, target
//! directory  3, flags u8 (1 xattrs), mode u16, [xattrs], list
//! page       4, list
//! times      5, times of a directory, list
//! times page 6, list
//! ```
//!
//! - List: the entries of a directory, sorted by name. A long list is split into pages, which are nodes of their
//!   own (`page.rs`).
//! - Times: the modification times and link labels of the entries of a directory. They are in separate nodes, so
//!   that the id of a tree does not depend on them. A link label is a number that all hard links to one file have in
//!   common.
//! - Chunk: a piece of file content, stored by its hash.
//!
//! Numbers are varints unless they have a type here. Byte strings such as targets have their length before them. File
//! and symlink nodes of at most [`INLINE_MAX`] bytes are stored inside their directory's entry; larger ones are objects
//! of their own.

use std::collections::BTreeMap;

use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::id::{ChunkId, NodeId};

pub(crate) const TAG_FILE: u8 = 1;
pub(crate) const TAG_SYMLINK: u8 = 2;
pub(crate) const TAG_DIRECTORY: u8 = 3;
pub(crate) const TAG_PAGE: u8 = 4;
pub(crate) const TAG_TIMES: u8 = 5;
pub(crate) const TAG_TIMES_PAGE: u8 = 6;

/// Flag of a file or directory with extended attributes.
const WITH_XATTRS: u8 = 1;
/// Flag of a file with a list of extents: its content is neither empty nor one chunk.
const WITH_EXTENTS: u8 = 2;

/// Minimum length of an encoded extent, in bytes.
const EXTENT_LEN_MIN: usize = 1;
/// Minimum length of an encoded extended attribute, in bytes: the lengths of its name and value.
const XATTR_LEN_MIN: usize = 2;

/// Largest node that is kept inside its directory's entry, in bytes. Files of one chunk without attributes and
/// ordinary symlinks fit.
pub(crate) const INLINE_MAX: usize = 128;
/// Longest symlink target on Linux, in bytes.
pub(crate) const TARGET_MAX: usize = 4095;
/// Longest file name on Linux, in bytes.
pub(crate) const NAME_MAX: usize = 255;
/// Permission, set-id and sticky bits.
pub(crate) const MODE_BITS: u16 = 0o7777;

/// Extended attributes of the namespace `user.`, by full name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// A piece of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extent {
    /// Content of a chunk.
    Data {
        /// Length in bytes.
        len: u64,
        /// Id of the chunk.
        chunk: ChunkId,
    },
    /// Zeros that are not stored, as in a sparse file.
    Hole {
        /// Length in bytes.
        len: u64,
    },
}

impl Extent {
    /// Returns the length of the extent in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Data { len, .. } | Self::Hole { len } => *len,
        }
    }

    /// Returns true for an empty extent, which no valid node has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileNode {
    /// Permission bits, set-id bits included.
    pub mode: u16,
    /// User extended attributes.
    pub xattrs: Xattrs,
    /// Content, in order; empty for an empty file.
    pub extents: Vec<Extent>,
}

impl FileNode {
    /// Returns the length of the content in bytes.
    pub fn size(&self) -> u64 {
        self.extents.iter().map(Extent::len).sum()
    }

    /// Returns true if two files have the same content: equal content is always cut into equal extents.
    pub fn same_content(&self, other: &Self) -> bool {
        self.extents == other.extents
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let simple = matches!(self.extents.as_slice(), [] | [Extent::Data { .. }]);
        let mut out = Vec::with_capacity(48 + self.extents.len() * 36);
        out.push(TAG_FILE);
        out.push(xattrs_flag(&self.xattrs) | if simple { 0 } else { WITH_EXTENTS });
        out.extend_from_slice(&self.mode.to_le_bytes());
        out.varint(self.size());
        encode_xattrs(&mut out, &self.xattrs);
        if !simple {
            out.varint(self.extents.len() as u64);
        }
        for extent in &self.extents {
            if !simple {
                out.varint(extent.len() << 1 | u64::from(matches!(extent, Extent::Hole { .. })));
            }
            if let Extent::Data { chunk, .. } = extent {
                out.extend_from_slice(chunk.as_bytes());
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        expect_tag(&mut reader, TAG_FILE)?;
        let flags = reader.u8()?;
        if flags & !(WITH_XATTRS | WITH_EXTENTS) != 0 {
            return Err(DecodeError("unknown flags of a file"));
        }
        let mode = decode_mode(&mut reader)?;
        let size = reader.varint()?;
        let xattrs = decode_xattrs(&mut reader, flags)?;
        let extents = if flags & WITH_EXTENTS == 0 {
            decode_simple(&mut reader, size)?
        } else {
            decode_extents(&mut reader, size)?
        };
        reader.expect_end()?;
        Ok(Self { mode, xattrs, extents })
    }
}

/// Decodes content without a list of extents: empty, or one chunk.
fn decode_simple(reader: &mut Reader<'_>, size: u64) -> Decoded<Vec<Extent>> {
    if size == 0 {
        return Ok(Vec::new());
    }
    let chunk = ChunkId::from_bytes(reader.array()?);
    Ok(vec![Extent::Data { len: size, chunk }])
}

/// Decodes a list of extents, which must have `size` bytes together.
fn decode_extents(reader: &mut Reader<'_>, size: u64) -> Decoded<Vec<Extent>> {
    let count = reader.item_count(EXTENT_LEN_MIN)?;
    let mut extents = Vec::with_capacity(count);
    let mut total = 0u64;
    let mut after_hole = false;
    for _ in 0..count {
        let word = reader.varint()?;
        let len = word >> 1;
        let hole = word & 1 == 1;
        if len == 0 || (hole && after_hole) {
            return Err(DecodeError("an extent that is empty or could be joined"));
        }
        after_hole = hole;
        total = total.checked_add(len).ok_or(DecodeError("a file too large"))?;
        extents.push(if hole {
            Extent::Hole { len }
        } else {
            Extent::Data { len, chunk: ChunkId::from_bytes(reader.array()?) }
        });
    }
    let simple = matches!(extents.as_slice(), [] | [Extent::Data { .. }]);
    if total != size || simple {
        return Err(DecodeError("extents do not add up to the file"));
    }
    Ok(extents)
}

/// A symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymlinkNode {
    /// Link target as it was written.
    pub target: Vec<u8>,
}

impl SymlinkNode {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.target.len() + 3);
        out.push(TAG_SYMLINK);
        out.blob(&self.target);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        expect_tag(&mut reader, TAG_SYMLINK)?;
        let target = reader.blob()?;
        reader.expect_end()?;
        if !is_valid_target(target) {
            return Err(DecodeError("not a symlink target"));
        }
        Ok(Self { target: target.to_vec() })
    }
}

/// Returns true if a symlink may have this target.
pub(crate) fn is_valid_target(target: &[u8]) -> bool {
    !target.is_empty() && target.len() <= TARGET_MAX && !target.contains(&0)
}

/// Returns true if an entry may have this name.
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// Reference from a directory entry to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeRef<'a> {
    Directory(NodeId),
    File(NodeId),
    Symlink(NodeId),
    /// The encoded node itself.
    InlineFile(&'a [u8]),
    /// The encoded node itself.
    InlineSymlink(&'a [u8]),
}

impl<'a> NodeRef<'a> {
    const DIRECTORY: u8 = 0;
    const FILE: u8 = 1;
    const SYMLINK: u8 = 2;
    const INLINE: u8 = 3;

    pub(crate) fn kind(&self) -> NodeKind {
        match self {
            Self::Directory(_) => NodeKind::Directory,
            Self::File(_) | Self::InlineFile(_) => NodeKind::File,
            Self::Symlink(_) | Self::InlineSymlink(_) => NodeKind::Symlink,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let by_id = |tag, id: &NodeId| {
            let mut out = Vec::with_capacity(33);
            out.push(tag);
            out.extend_from_slice(id.as_bytes());
            out
        };
        match self {
            Self::Directory(id) => by_id(Self::DIRECTORY, id),
            Self::File(id) => by_id(Self::FILE, id),
            Self::Symlink(id) => by_id(Self::SYMLINK, id),
            Self::InlineFile(node) | Self::InlineSymlink(node) => {
                let mut out = Vec::with_capacity(node.len() + 2);
                out.push(Self::INLINE);
                out.blob(node);
                out
            }
        }
    }

    /// Reads a reference. Does not decode an inline node, which may be invalid.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Decoded<Self> {
        let tag = reader.u8()?;
        if tag == Self::INLINE {
            let node = reader.blob()?;
            return match node.first() {
                Some(&TAG_FILE) if node.len() <= INLINE_MAX => Ok(Self::InlineFile(node)),
                Some(&TAG_SYMLINK) if node.len() <= INLINE_MAX => Ok(Self::InlineSymlink(node)),
                _ => Err(DecodeError("not an inline node")),
            };
        }
        let id = NodeId::from_bytes(reader.array()?);
        match tag {
            Self::DIRECTORY => Ok(Self::Directory(id)),
            Self::FILE => Ok(Self::File(id)),
            Self::SYMLINK => Ok(Self::Symlink(id)),
            _ => Err(DecodeError("unknown kind of entry")),
        }
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let node = Self::read(&mut reader)?;
        reader.expect_end()?;
        Ok(node)
    }
}

/// Returns [`WITH_XATTRS`] if there are extended attributes, else 0.
pub(crate) fn xattrs_flag(xattrs: &Xattrs) -> u8 {
    if xattrs.is_empty() { 0 } else { WITH_XATTRS }
}

pub(crate) fn expect_tag(reader: &mut Reader<'_>, tag: u8) -> Decoded<()> {
    if reader.u8()? == tag { Ok(()) } else { Err(DecodeError("another kind of node")) }
}

pub(crate) fn decode_mode(reader: &mut Reader<'_>) -> Decoded<u16> {
    let mode = reader.u16()?;
    if mode & !MODE_BITS == 0 { Ok(mode) } else { Err(DecodeError("unknown mode bits")) }
}

pub(crate) fn encode_xattrs(out: &mut Vec<u8>, xattrs: &Xattrs) {
    if xattrs.is_empty() {
        return;
    }
    out.varint(xattrs.len() as u64);
    for (name, value) in xattrs {
        out.blob(name);
        out.blob(value);
    }
}

pub(crate) fn decode_xattrs(reader: &mut Reader<'_>, flags: u8) -> Decoded<Xattrs> {
    let mut xattrs = Xattrs::new();
    if flags & WITH_XATTRS == 0 {
        return Ok(xattrs);
    }
    let count = reader.item_count(XATTR_LEN_MIN)?;
    if count == 0 {
        return Err(DecodeError("an empty list of attributes"));
    }
    for _ in 0..count {
        let name = reader.blob()?.to_vec();
        let sorted = xattrs.last_key_value().is_none_or(|(last, _)| *last < name);
        if !sorted || !name.starts_with(b"user.") || name.len() > NAME_MAX || name.contains(&0) {
            return Err(DecodeError("attributes are not sorted user attributes"));
        }
        xattrs.insert(name, reader.blob()?.to_vec());
    }
    Ok(xattrs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_round_trip() {
        let chunk = ChunkId::of(b"x");
        let xattrs = Xattrs::from([(b"user.note".to_vec(), b"\0\xff".to_vec())]);
        for extents in [
            vec![],
            vec![Extent::Data { len: 7, chunk }],
            vec![Extent::Hole { len: 4096 }],
            vec![Extent::Data { len: 7, chunk }, Extent::Hole { len: 4096 }, Extent::Data { len: 1, chunk }],
        ] {
            for xattrs in [Xattrs::new(), xattrs.clone()] {
                let node = FileNode { mode: 0o4755, xattrs, extents: extents.clone() };
                let bytes = node.encode();
                assert_eq!(FileNode::decode(&bytes).unwrap(), node);
                assert!(FileNode::decode(&bytes[..bytes.len() - 1]).is_err());
                assert!(FileNode::decode(&[bytes, vec![0]].concat()).is_err());
            }
        }
    }

    #[test]
    fn invalid_names_and_symlink_targets_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &[b'a'; 256]] {
            assert!(!is_valid_name(name), "{name:?}");
        }
        assert!(is_valid_name(&[b'a'; 255]) && is_valid_name(b"...") && is_valid_name(b"\xff\n"));
        assert!(!is_valid_target(b"") && !is_valid_target(&[b'a'; 4096]) && is_valid_target(b"/x"));
    }

    #[test]
    fn an_ordinary_file_is_inline() {
        let node = FileNode {
            mode: 0o644,
            extents: vec![Extent::Data { len: 1 << 40, chunk: ChunkId::of(b"") }],
            ..FileNode::default()
        };
        assert!(node.encode().len() <= INLINE_MAX);
    }
}
