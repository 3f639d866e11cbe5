//! Stat index: fingerprints of files from the time when they were read, so that unchanged files need not be read again.
//!
//! The index of the store has a *stat record* for each directory: the node of the directory and, for each entry, type
//! and mode, size, mtime, ctime and inode. An entry is reliable only if it was read well after its ctime. Otherwise a
//! change within the same tick of the clock would not change the fingerprint (racy timestamp).

use rustix::fs::FileType;

use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::id::NodeId;
use crate::platform::mode_from_u32;

use super::read::is_reliable;

/// Minimum length of an encoded entry in bytes: an empty name, mode, size, mtime, ctime and inode.
const ENTRY_LEN_MIN: usize = 6;

/// Metadata of a file that shows changes of the file. A file with an equal fingerprint is unchanged if the fingerprint
/// is reliable ([`StatFingerprint::is_reliable_at`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatFingerprint {
    /// Type and permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, in nanoseconds since the Unix epoch.
    pub mtime: i64,
    /// Status change time, in nanoseconds since the Unix epoch. Users cannot set it.
    pub ctime: i64,
    /// Inode number.
    pub inode: u64,
}

/// One entry of a directory in the stat index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StatEntry {
    pub(super) name: Vec<u8>,
    pub(super) fingerprint: StatFingerprint,
    /// True if an equal fingerprint proves that the entry is unchanged, because it was taken well after the ctime.
    pub(super) reliable: bool,
}

impl StatFingerprint {
    /// Returns true if every later change of the file will change this fingerprint. `now` is the time at which it was
    /// taken, in nanoseconds since the Unix epoch, or an earlier time.
    pub fn is_reliable_at(&self, now: i64) -> bool {
        is_reliable(self, now)
    }

    pub(super) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(mode_from_u32(self.mode)) == FileType::Directory
    }

    /// Returns the fingerprint of a subdirectory in the record of its parent. It is derived from the content of the
    /// subdirectory: the hash of its node and its times fills all fields except the mode.
    pub(super) fn of_directory_content(mode: u32, node: NodeId, times: NodeId) -> Self {
        let hash = blake3::hash(&[&node.as_bytes()[..], times.as_bytes()].concat());
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&hash.as_bytes()[index * 8..index * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Self { mode, size: word(0), mtime: word(1) as i64, ctime: word(2) as i64, inode: word(3) }
    }
}

/// Stat record: a directory in the stat index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StatRecord {
    /// Node of the directory at the last snapshot or checkout.
    pub(super) node: NodeId,
    /// Node of the directory in the tree of modification times.
    pub(super) times_node: NodeId,
    /// Fingerprint of the directory itself.
    pub(super) own_fingerprint: StatFingerprint,
    /// True if an equal `own_fingerprint` proves that the directory itself is unchanged.
    pub(super) own_reliable: bool,
    /// Entries of the node, in the same order: sorted by name.
    pub(super) entries: Vec<StatEntry>,
}

impl StatRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(72 + self.entries.len() * 40);
        out.extend_from_slice(self.node.as_bytes());
        out.extend_from_slice(self.times_node.as_bytes());
        encode_fingerprint(&mut out, &self.own_fingerprint, self.own_reliable, &StatFingerprint::default());
        out.varint(self.entries.len() as u64);
        let mut previous = self.own_fingerprint;
        for entry in &self.entries {
            out.blob(&entry.name);
            encode_fingerprint(&mut out, &entry.fingerprint, entry.reliable, &previous);
            if !entry.fingerprint.is_directory() {
                previous = entry.fingerprint;
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let node = NodeId::from_bytes(reader.array()?);
        let times_node = NodeId::from_bytes(reader.array()?);
        let (own_fingerprint, own_reliable) = decode_fingerprint(&mut reader, &StatFingerprint::default())?;
        let count = reader.item_count(ENTRY_LEN_MIN)?;
        let mut entries = Vec::with_capacity(count);
        let mut previous = own_fingerprint;
        for _ in 0..count {
            let name = reader.blob()?.to_vec();
            let (fingerprint, reliable) = decode_fingerprint(&mut reader, &previous)?;
            if !fingerprint.is_directory() {
                previous = fingerprint;
            }
            entries.push(StatEntry { name, fingerprint, reliable });
        }
        reader.expect_end()?;
        Ok(Self { node, times_node, own_fingerprint, own_reliable, entries })
    }

    /// Returns the entry with this name.
    pub(super) fn find(&self, name: &[u8]) -> Option<&StatEntry> {
        let index = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()?;
        Some(&self.entries[index])
    }
}

/// Encodes times and inode of a fingerprint as differences to `previous`, the fingerprint of the previous entry that is
/// not a directory. Fingerprints of neighbours are similar, so the encoding is short.
fn encode_fingerprint(
    out: &mut Vec<u8>,
    fingerprint: &StatFingerprint,
    reliable: bool,
    previous: &StatFingerprint,
) {
    out.varint(u64::from(fingerprint.mode) << 1 | u64::from(reliable));
    out.varint(fingerprint.size);
    out.zigzag(fingerprint.mtime.wrapping_sub(previous.mtime));
    out.zigzag(fingerprint.ctime.wrapping_sub(previous.ctime));
    out.zigzag(fingerprint.inode.wrapping_sub(previous.inode) as i64);
}

/// Reverses [`encode_fingerprint`]. Returns the fingerprint and true if it is reliable.
fn decode_fingerprint(
    reader: &mut Reader<'_>,
    previous: &StatFingerprint,
) -> Decoded<(StatFingerprint, bool)> {
    let mode = reader.varint()?;
    let fingerprint = StatFingerprint {
        mode: u32::try_from(mode >> 1).map_err(|_| DecodeError("file mode out of range"))?,
        size: reader.varint()?,
        mtime: previous.mtime.wrapping_add(reader.zigzag()?),
        ctime: previous.ctime.wrapping_add(reader.zigzag()?),
        inode: previous.inode.wrapping_add(reader.zigzag()? as u64),
    };
    Ok((fingerprint, mode & 1 == 1))
}

/// Returns the key of a directory's record: `root`, the hash of the path of the tracked directory, and the hash of
/// `path`, which is relative to it.
pub(super) fn key(root: &[u8; 16], path: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(root);
    key[16..].copy_from_slice(&blake3::hash(path).as_bytes()[..16]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let fingerprint = |number: i64| StatFingerprint {
            mode: 0o100_644,
            size: 7,
            mtime: number,
            ctime: i64::MAX - number,
            inode: u64::MAX - number as u64,
        };
        let record = StatRecord {
            node: NodeId::of(b"node"),
            times_node: NodeId::of(b"times"),
            own_fingerprint: fingerprint(5),
            own_reliable: true,
            entries: (0..5)
                .map(|number| StatEntry {
                    name: vec![b'a' + number as u8],
                    fingerprint: fingerprint(number * 99),
                    reliable: number % 2 == 0,
                })
                .collect(),
        };
        let decoded = StatRecord::decode(&record.encode()).unwrap();
        assert_eq!(decoded, record);
        assert_eq!(decoded.find(b"c").map(|entry| entry.fingerprint.mtime), Some(198));
    }
}
