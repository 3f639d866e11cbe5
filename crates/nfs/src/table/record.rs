//! Encoding of the records in the log of a [`Table`](super::Table), which maps the ids in file handles to files.
//!
//! All numbers are little-endian. A record in the log is `length: u32, crc32: u32, payload`. The first byte of the
//! payload is the kind. The rest:
//!
//! ```text
//! 0 header          version: u32, generation: u64, root: inode, revision: rest
//! 1 file            id: u64, inode, fileid: u64, parent: u64, name: rest     (parent 0: no known name)
//! 2 other location  id: u64, parent: u64, name: rest
//! 3 forgotten       id: u64
//! 4 verifier        boot id: 16 bytes, verifier: u64
//! inode             device: u64, number: u64, birth time: u64
//! ```
//!
//! The records are applied in the order of the log. A `file` record replaces everything that was known of its id; the
//! `other location` records after it add further hard links. `parent` is the id of a directory.

use std::ffi::CString;
use std::sync::Arc;

use super::entry::{FileId, Inode, Location};

/// Version of the format. A log of another version is replaced by an empty one, so all handles become stale.
const VERSION: u32 = 1;

/// Number of bytes before the payload: its length and its checksum.
pub(super) const FRAME_LEN: usize = 8;

/// First record of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// Random number of the table, which all of its file handles contain.
    pub(crate) generation: u64,
    /// Inode of the exported directory. The table is only valid for this directory.
    pub(crate) root: Inode,
    /// Revision of the directory, set by [`Export::revision`](crate::Export::revision). The table is only valid for
    /// this revision. In place of a long one, this is its hash.
    pub(crate) revision: String,
    /// Hash of the kernel's boot id. Not part of the encoded header: set by the verifier record.
    pub(crate) boot_id: [u8; 16],
}

/// Change of a table.
///
/// An `id` is the number of a file in its handles, and `fileid` its inode number in NFS attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// File with its main location; `None` if no name of it is known.
    File { id: FileId, inode: Inode, fileid: u64, location: Option<Location> },
    /// Further hard link to a file.
    OtherLocation { id: FileId, location: Location },
    /// The id is no longer in the table, so its handles are stale: the file was removed, another one has its inode
    /// number, or the table was full.
    Forgotten { id: FileId },
    /// NFS write verifier, and the boot in which it was chosen: another boot needs another verifier, because writes
    /// that were not synced may be lost.
    Verifier { boot_id: [u8; 16], verifier: u64 },
}

impl Header {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        frame(out, |out| {
            out.push(0);
            out.extend(VERSION.to_le_bytes());
            put(out, self.generation);
            put_inode(out, self.root);
            out.extend(self.revision.as_bytes());
        });
    }

    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut input = Input(payload);
        if input.byte()? != 0 || input.array::<4>()? != VERSION.to_le_bytes() {
            return None;
        }
        let (generation, root) = (input.number()?, input.inode()?);
        let revision = String::from_utf8(input.0.to_vec()).ok()?;
        Some(Self { generation, root, revision, boot_id: [0; 16] })
    }
}

impl Record {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        frame(out, |out| match self {
            Self::File { id, inode, fileid, location } => {
                out.push(1);
                put(out, id.0);
                put_inode(out, *inode);
                put(out, *fileid);
                match location {
                    Some(location) => put_location(out, location),
                    None => put(out, 0),
                }
            }
            Self::OtherLocation { id, location } => {
                out.push(2);
                put(out, id.0);
                put_location(out, location);
            }
            Self::Forgotten { id } => {
                out.push(3);
                put(out, id.0);
            }
            Self::Verifier { boot_id, verifier } => {
                out.push(4);
                out.extend(boot_id);
                put(out, *verifier);
            }
        });
    }

    /// Decodes a payload. `None` if it is truncated or its kind is unknown.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut input = Input(payload);
        Some(match input.byte()? {
            1 => Self::File {
                id: FileId(input.number()?),
                inode: input.inode()?,
                fileid: input.number()?,
                location: input.location()?,
            },
            2 => Self::OtherLocation { id: FileId(input.number()?), location: input.location()?? },
            3 => Self::Forgotten { id: FileId(input.number()?) },
            4 => Self::Verifier { boot_id: input.array()?, verifier: input.number()? },
            _ => return None,
        })
    }
}

/// Appends the payload that `encode` writes, after its length and its checksum.
fn frame(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; FRAME_LEN]);
    encode(out);
    let payload = start + FRAME_LEN;
    let length = u32::try_from(out.len() - payload).unwrap_or(u32::MAX);
    let checksum = crc32fast::hash(&out[payload..]);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..payload].copy_from_slice(&checksum.to_le_bytes());
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

fn put_inode(out: &mut Vec<u8>, inode: Inode) {
    put(out, inode.device);
    put(out, inode.number);
    put(out, inode.born);
}

fn put_location(out: &mut Vec<u8>, location: &Location) {
    put(out, location.parent.0);
    out.extend(location.name.to_bytes());
}

/// Rest of a payload that was not decoded yet.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn inode(&mut self) -> Option<Inode> {
        Some(Inode { device: self.number()?, number: self.number()?, born: self.number()? })
    }

    /// Reads a parent and a name, which is the rest. `Some(None)` if the parent is 0; `None` if the payload is
    /// malformed.
    fn location(&mut self) -> Option<Option<Location>> {
        let parent = self.number()?;
        if parent == 0 {
            return Some(None);
        }
        let name = CString::new(self.0).ok()?;
        self.0 = &[];
        Some(Some(Location { parent: FileId(parent), name: Arc::from(name) }))
    }
}
