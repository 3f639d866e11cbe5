//! Index of the files of an upper directory (the changes of a workspace made by overlay) at the last commit: their
//! fingerprints (mode, size, mtime, ctime and inode). The next commit does not read files with the same fingerprint.
//!
//! The index is stored next to the upper directory. It is only a cache: if it is missing or torn, or its snapshot is no
//! longer in the store, all files are read again.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use workspace_state::{SnapshotId, StatFingerprint};

/// Index of the files at the last commit.
///
/// On disk, it is the id of the snapshot (16 bytes), one row per file, and the BLAKE3 hash of all bytes before. A row
/// has the length of the path (4 bytes), the path, the mode (4 bytes), and size, mtime, ctime and inode (8 bytes each).
/// All numbers are little-endian.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FingerprintIndex {
    /// Snapshot of the last commit, which has the content of the files; `None` before the first commit.
    pub(crate) snapshot: Option<SnapshotId>,
    /// Fingerprints by path relative to the upper directory.
    pub(crate) files: HashMap<Vec<u8>, StatFingerprint>,
}

impl FingerprintIndex {
    /// Reads the index. Returns an empty index if the file is missing or torn.
    pub(crate) fn read(path: &Path) -> Self {
        fs::read(path).ok().and_then(|bytes| Self::decode(&bytes)).unwrap_or_default()
    }

    /// Writes the index atomically. Failures are only logged: they make the next commit slower.
    pub(crate) fn write(&self, path: &Path) {
        let new = path.with_extension("new");
        if let Err(error) = fs::write(&new, self.encode()).and_then(|()| fs::rename(&new, path)) {
            tracing::debug!(path = %path.display(), %error, "failed to write the file fingerprint index");
            drop(fs::remove_file(&new));
        }
    }

    fn encode(&self) -> Vec<u8> {
        let Some(snapshot) = &self.snapshot else { return Vec::new() };
        let mut out = Vec::with_capacity(48 + self.files.len() * 80);
        out.extend_from_slice(snapshot.as_bytes());
        for (path, fingerprint) in &self.files {
            out.extend_from_slice(&(path.len() as u32).to_le_bytes());
            out.extend_from_slice(path);
            out.extend_from_slice(&fingerprint.mode.to_le_bytes());
            for word in
                [fingerprint.size, fingerprint.mtime as u64, fingerprint.ctime as u64, fingerprint.inode]
            {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        out.extend_from_slice(blake3::hash(&out).as_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut rest, hash) = bytes.split_last_chunk::<32>()?;
        if blake3::hash(rest).as_bytes() != hash {
            return None;
        }
        let mut take = |len: usize| {
            let (taken, remaining) = rest.split_at_checked(len)?;
            rest = remaining;
            Some(taken)
        };
        let snapshot = SnapshotId::from_bytes(take(16)?.try_into().ok()?);
        let mut files = HashMap::new();
        while let Some(len) = take(4) {
            let path = take(u32::from_le_bytes(len.try_into().ok()?) as usize)?.to_vec();
            let mode = u32::from_le_bytes(take(4)?.try_into().ok()?);
            let mut word = || Some(u64::from_le_bytes(take(8)?.try_into().ok()?));
            let (size, mtime, ctime, inode) = (word()?, word()? as i64, word()? as i64, word()?);
            files.insert(path, StatFingerprint { mode, size, mtime, ctime, inode });
        }
        Some(Self { snapshot: Some(snapshot), files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_round_trips_and_a_torn_one_is_ignored() {
        let fingerprint =
            StatFingerprint { mode: 0o100_644, size: 3, mtime: -5, ctime: i64::MAX, inode: u64::MAX };
        let files = HashMap::from([(b"a/b".to_vec(), fingerprint), (vec![0xff], StatFingerprint::default())]);
        let index = FingerprintIndex { snapshot: Some(SnapshotId::generate()), files };
        let bytes = index.encode();
        assert_eq!(FingerprintIndex::decode(&bytes), Some(index));
        for cut in [0, 1, 20, bytes.len() - 1] {
            assert_eq!(FingerprintIndex::decode(&bytes[..cut]), None);
        }
    }
}
