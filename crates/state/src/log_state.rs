//! State of the log in the index.
//!
//! The log is the sequence of all commit records, written to append-only files (log packs). The index is the LMDB
//! database that has the locations of objects and all other records of a store.

use crate::codec::{Decoded, Reader};

/// Current state of the log. Changed only in write transactions of the index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogState {
    /// Number of the last commit.
    pub(crate) sequence: u64,
    /// Id of the last commit record. The next one refers to it, so that leftovers of failed writes are never mistaken
    /// for commits.
    pub(crate) last_commit_id: [u8; 32],
    /// Number of the log pack that commits are appended to.
    pub(crate) pack: u32,
    /// Offset in the log pack at which the next commit is appended.
    pub(crate) end: u64,
    /// Number of the next pack that is created, a log pack or another one.
    pub(crate) next_pack: u32,
    /// Epoch of garbage collection: a number that grows with every batch of objects that is condemned (about to be
    /// deleted).
    pub(crate) epoch: u64,
    /// Number of the last commit whose objects and snapshots are certainly in their tables. Those of later small
    /// commits may be in unsettled rows, one for each commit (`unsettled_rows.rs`).
    pub(crate) settled_up_to: u64,
    /// Number of objects and snapshots in unsettled rows.
    pub(crate) unsettled_count: u32,
}

impl LogState {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(80);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.last_commit_id);
        out.extend_from_slice(&self.pack.to_le_bytes());
        out.extend_from_slice(&self.end.to_le_bytes());
        out.extend_from_slice(&self.next_pack.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.settled_up_to.to_le_bytes());
        out.extend_from_slice(&self.unsettled_count.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let state = Self {
            sequence: reader.u64()?,
            last_commit_id: reader.array()?,
            pack: reader.u32()?,
            end: reader.u64()?,
            next_pack: reader.u32()?,
            epoch: reader.u64()?,
            settled_up_to: reader.u64()?,
            unsettled_count: reader.u32()?,
        };
        reader.expect_end()?;
        Ok(state)
    }
}
