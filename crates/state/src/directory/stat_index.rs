//! Stat index: fingerprints of files at the time they were read, so that unchanged files need not be read
//! again.
//!
//! One record per directory, in the store's index. It holds the node of the directory and, per entry, type
//! and mode, size, mtime, ctime and inode. An entry is trusted only if it was read well after its ctime:
//! otherwise a file changed within the same clock tick looks unchanged (racy timestamp).

use rustix::fs::FileType;

use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::id::NodeId;
use crate::platform::mode_from_u32;

use super::read::is_trustworthy;

/// Metadata of a file that reveals changes: a file whose fingerprint is the same was not changed.
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
    /// True if an equal fingerprint proves that the entry is unchanged: it was taken well after the ctime.
    pub(super) trusted: bool,
}

impl StatFingerprint {
    /// Returns true if any later change to an entry with this fingerprint, which was read at `now` (nanoseconds since
    /// 1970) or later, is certain to change the fingerprint.
    pub fn is_certain_at(&self, now: i64) -> bool {
        is_trustworthy(self, now)
    }

    pub(super) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(mode_from_u32(self.mode)) == FileType::Directory
    }

    /// Returns a fingerprint derived from a directory's nodes: directories are compared by content, not by
    /// metadata.
    pub(super) fn of_directory(mode: u32, node: NodeId, times: NodeId) -> Self {
        let hash = blake3::hash(&[&node.as_bytes()[..], times.as_bytes()].concat());
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&hash.as_bytes()[index * 8..index * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Self { mode, size: word(0), mtime: word(1) as i64, ctime: word(2) as i64, inode: word(3) }
    }
}

/// A directory in the stat index. Entries are those of the node, in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StatRecord {
    pub(super) node: NodeId,
    pub(super) times: NodeId,
    /// Fingerprint of the directory itself.
    pub(super) own_fingerprint: StatFingerprint,
    /// As [`StatEntry::trusted`], for the directory itself.
    pub(super) own_trusted: bool,
    pub(super) entries: Vec<StatEntry>,
}

impl StatRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(72 + self.entries.len() * 40);
        out.extend_from_slice(self.node.as_bytes());
        out.extend_from_slice(self.times.as_bytes());
        encode_fingerprint(&mut out, &self.own_fingerprint, self.own_trusted, &StatFingerprint::default());
        out.varint(self.entries.len() as u64);
        let mut last = self.own_fingerprint;
        for entry in &self.entries {
            out.blob(&entry.name);
            encode_fingerprint(&mut out, &entry.fingerprint, entry.trusted, &last);
            if !entry.fingerprint.is_directory() {
                last = entry.fingerprint;
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let node = NodeId::from_bytes(reader.array()?);
        let times = NodeId::from_bytes(reader.array()?);
        let (own_fingerprint, own_trusted) = decode_fingerprint(&mut reader, &StatFingerprint::default())?;
        let count = reader.count(6)?;
        let mut entries = Vec::with_capacity(count);
        let mut last = own_fingerprint;
        for _ in 0..count {
            let name = reader.blob()?.to_vec();
            let (fingerprint, trusted) = decode_fingerprint(&mut reader, &last)?;
            if !fingerprint.is_directory() {
                last = fingerprint;
            }
            entries.push(StatEntry { name, fingerprint, trusted });
        }
        reader.expect_end()?;
        Ok(Self { node, times, own_fingerprint, own_trusted, entries })
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<&StatEntry> {
        let index = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()?;
        Some(&self.entries[index])
    }
}

/// Encodes a fingerprint as a difference to the previous one: neighbours are similar, so this is short.
fn encode_fingerprint(
    out: &mut Vec<u8>,
    fingerprint: &StatFingerprint,
    trusted: bool,
    last: &StatFingerprint,
) {
    out.varint(u64::from(fingerprint.mode) << 1 | u64::from(trusted));
    out.varint(fingerprint.size);
    out.zigzag(fingerprint.mtime.wrapping_sub(last.mtime));
    out.zigzag(fingerprint.ctime.wrapping_sub(last.ctime));
    out.zigzag(fingerprint.inode.wrapping_sub(last.inode) as i64);
}

fn decode_fingerprint(reader: &mut Reader<'_>, last: &StatFingerprint) -> Decoded<(StatFingerprint, bool)> {
    let mode = reader.varint()?;
    let fingerprint = StatFingerprint {
        mode: u32::try_from(mode >> 1).map_err(|_| DecodeError("an impossible mode"))?,
        size: reader.varint()?,
        mtime: last.mtime.wrapping_add(reader.zigzag()?),
        ctime: last.ctime.wrapping_add(reader.zigzag()?),
        inode: last.inode.wrapping_add(reader.zigzag()? as u64),
    };
    Ok((fingerprint, mode & 1 == 1))
}

/// Returns the key of a directory's record: hash of the root's path, and hash of the path below.
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
            times: NodeId::of(b"times"),
            own_fingerprint: fingerprint(5),
            own_trusted: true,
            entries: (0..5)
                .map(|number| StatEntry {
                    name: vec![b'a' + number as u8],
                    fingerprint: fingerprint(number * 99),
                    trusted: number % 2 == 0,
                })
                .collect(),
        };
        let decoded = StatRecord::decode(&record.encode()).unwrap();
        assert_eq!(decoded, record);
        assert_eq!(decoded.find(b"c").map(|entry| entry.fingerprint.mtime), Some(198));
    }
}
