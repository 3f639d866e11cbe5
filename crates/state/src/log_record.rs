//! Commit and checkpoint records of the log, and the changes they hold.
//!
//! The log is the sequence of all commit records, written to append-only files (log packs). Both kinds of records begin
//! with a sequence number, the id of a commit record and flags. Commit records form a chain: each has the id of the
//! commit record before it. The numbers of its bulk packs follow (files into which large commits write their objects),
//! then its changes. Checkpoint records repeat all existing records as changes, so that older log packs can be deleted.

use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::commit_options::Expect;
use crate::id::{EpisodeId, PinId, SnapshotId};
use crate::snapshot::Snapshot;

/// Minimum length of an encoded change in bytes: its type.
const CHANGE_LEN_MIN: usize = 1;

/// One change to the records of a store: snapshots, references (names of snapshots), episodes (steps of searches) and
/// pins (which protect snapshots from garbage collection).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    PutSnapshot(Snapshot),
    RemoveSnapshot(SnapshotId),
    SetReference {
        name: String,
        /// Target that is required before the change. Not part of the log.
        expect: Expect,
        to: SnapshotId,
    },
    RemoveReference {
        name: String,
        /// Target that is required before the change. Not part of the log.
        expect: Expect,
    },
    /// Adds or replaces an episode; `record` is its JSON.
    PutEpisode {
        id: EpisodeId,
        parent: Option<EpisodeId>,
        record: Vec<u8>,
    },
    RemoveEpisode {
        id: EpisodeId,
        parent: Option<EpisodeId>,
    },
    /// Adds or replaces a pin.
    PutPin {
        id: PinId,
        /// Encoded [`Pin`](crate::Pin).
        record: Vec<u8>,
    },
    RemovePin(PinId),
}

impl Change {
    /// Returns the length of the encoded change in bytes.
    pub(crate) fn encoded_len(&self) -> usize {
        let mut out = Vec::new();
        encode_change(&mut out, self);
        out.len()
    }
}

/// Position in the log. All smaller positions come before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct LogPosition {
    /// Number of a pack of the log.
    pub(crate) pack: u32,
    /// Offset in the pack, in bytes.
    pub(crate) offset: u64,
}

/// First fields of commit and checkpoint records.
struct RecordHead {
    sequence: u64,
    /// Id of the last commit record before this record.
    previous: [u8; 32],
    flags: u8,
}

impl RecordHead {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.previous);
        out.push(self.flags);
        out
    }

    fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self { sequence: reader.u64()?, previous: reader.array()?, flags: reader.u8()? })
    }
}

/// Payload of a commit record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitRecord {
    /// Number of the commit, one more than that of the commit before it.
    pub(crate) sequence: u64,
    /// Id of the commit before it; zeros for the first one.
    pub(crate) previous: [u8; 32],
    /// True if the commit is acknowledged only after a sync. Then all earlier packs were synced before this record was
    /// written.
    pub(crate) synced: bool,
    /// End of the part of the log that was known to be on disk when the record was written. Recovery must keep
    /// every synced commit before this position, because it may have been acknowledged.
    pub(crate) durable: LogPosition,
    /// Numbers of the bulk packs of the commit.
    pub(crate) packs: Vec<u32>,
    pub(crate) changes: Vec<Change>,
}

impl CommitRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let head =
            RecordHead { sequence: self.sequence, previous: self.previous, flags: u8::from(self.synced) };
        let mut out = head.encode();
        out.extend_from_slice(&self.durable.pack.to_le_bytes());
        out.extend_from_slice(&self.durable.offset.to_le_bytes());
        out.varint(self.packs.len() as u64);
        for pack in &self.packs {
            out.extend_from_slice(&pack.to_le_bytes());
        }
        encode_changes(&mut out, &self.changes);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let RecordHead { sequence, previous, flags } = RecordHead::decode(&mut reader)?;
        let synced = match flags {
            0 => false,
            1 => true,
            _ => return Err(DecodeError("unknown flags of a commit record")),
        };
        let durable = LogPosition { pack: reader.u32()?, offset: reader.u64()? };
        let packs = reader.item_count(size_of::<u32>())?;
        let packs = (0..packs).map(|_| reader.u32()).collect::<Decoded<_>>()?;
        let changes = decode_changes(&mut reader)?;
        reader.expect_end()?;
        Ok(Self { sequence, previous, synced, durable, packs, changes })
    }
}

/// Operation that wrote a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckpointOrigin {
    /// Garbage collection: the checkpoint covers all commits before it.
    GarbageCollection,
    /// A rebuild of the index: commits in older log packs that the checkpoint does not cover were dropped
    /// permanently.
    Rebuild,
}

/// One part of a checkpoint, a copy of all existing records after commit `sequence`. A large checkpoint has many parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckpointRecord {
    /// Number of the last commit that the checkpoint covers.
    pub(crate) sequence: u64,
    /// Id of the last commit that the checkpoint covers.
    pub(crate) last_commit_id: [u8; 32],
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
    pub(crate) origin: CheckpointOrigin,
    /// Number of this part, from 0. `None` in a checkpoint of one part, and in parts written by earlier versions of
    /// this program.
    pub(crate) part_number: Option<u64>,
    pub(crate) changes: Vec<Change>,
}

impl CheckpointRecord {
    // Bits of the flags.
    const FIRST: u8 = 1;
    const LAST: u8 = 2;
    const REBUILD: u8 = 4;
    const NUMBERED: u8 = 8;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.is_first, Self::FIRST)
            | flag(self.is_last, Self::LAST)
            | flag(self.origin == CheckpointOrigin::Rebuild, Self::REBUILD)
            | flag(self.part_number.is_some(), Self::NUMBERED);
        let mut out = RecordHead { sequence: self.sequence, previous: self.last_commit_id, flags }.encode();
        if let Some(part_number) = self.part_number {
            out.varint(part_number);
        }
        encode_changes(&mut out, &self.changes);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let RecordHead { sequence, previous: last_commit_id, flags } = RecordHead::decode(&mut reader)?;
        if flags & !(Self::FIRST | Self::LAST | Self::REBUILD | Self::NUMBERED) != 0 {
            return Err(DecodeError("unknown flags of a checkpoint"));
        }
        let (is_first, is_last) = (flags & Self::FIRST != 0, flags & Self::LAST != 0);
        let origin = match flags & Self::REBUILD {
            0 => CheckpointOrigin::GarbageCollection,
            _ => CheckpointOrigin::Rebuild,
        };
        let part_number = if flags & Self::NUMBERED != 0 { Some(reader.varint()?) } else { None };
        if part_number.is_some_and(|number| (number == 0) != is_first) {
            return Err(DecodeError("the number of a part of a checkpoint contradicts its flags"));
        }
        let changes = decode_changes(&mut reader)?;
        reader.expect_end()?;
        Ok(Self { sequence, last_commit_id, is_first, is_last, origin, part_number, changes })
    }
}

fn encode_changes(out: &mut Vec<u8>, changes: &[Change]) {
    out.varint(changes.len() as u64);
    for change in changes {
        encode_change(out, change);
    }
}

fn encode_change(out: &mut Vec<u8>, change: &Change) {
    match change {
        Change::PutSnapshot(snapshot) => {
            out.push(1);
            out.blob(&snapshot.encode());
        }
        Change::RemoveSnapshot(id) => {
            out.push(2);
            out.extend_from_slice(id.as_bytes());
        }
        // The expected target is not written, because it was checked before the commit.
        Change::SetReference { name, to, .. } => {
            out.push(3);
            out.blob(name.as_bytes());
            out.extend_from_slice(to.as_bytes());
        }
        Change::RemoveReference { name, .. } => {
            out.push(4);
            out.blob(name.as_bytes());
        }
        Change::PutEpisode { id, parent, record } => {
            out.push(5);
            encode_episode_ids(out, *id, *parent);
            out.blob(record);
        }
        Change::RemoveEpisode { id, parent } => {
            out.push(6);
            encode_episode_ids(out, *id, *parent);
        }
        Change::PutPin { id, record } => {
            out.push(7);
            out.extend_from_slice(id.as_bytes());
            out.blob(record);
        }
        Change::RemovePin(id) => {
            out.push(8);
            out.extend_from_slice(id.as_bytes());
        }
    }
}

fn encode_episode_ids(out: &mut Vec<u8>, id: EpisodeId, parent: Option<EpisodeId>) {
    out.extend_from_slice(id.as_bytes());
    out.blob(parent.as_ref().map_or(&[], |parent| parent.as_bytes()));
}

fn decode_changes(reader: &mut Reader<'_>) -> Decoded<Vec<Change>> {
    let count = reader.item_count(CHANGE_LEN_MIN)?;
    (0..count).map(|_| decode_change(reader)).collect()
}

fn decode_change(reader: &mut Reader<'_>) -> Decoded<Change> {
    let expect = Expect::Anything;
    Ok(match reader.u8()? {
        1 => Change::PutSnapshot(Snapshot::decode(reader.blob()?)?),
        2 => Change::RemoveSnapshot(SnapshotId::from_bytes(reader.array()?)),
        3 => {
            Change::SetReference { name: reader.text()?, expect, to: SnapshotId::from_bytes(reader.array()?) }
        }
        4 => Change::RemoveReference { name: reader.text()?, expect },
        5 => {
            let (id, parent) = decode_episode_ids(reader)?;
            Change::PutEpisode { id, parent, record: reader.blob()?.to_vec() }
        }
        6 => {
            let (id, parent) = decode_episode_ids(reader)?;
            Change::RemoveEpisode { id, parent }
        }
        7 => Change::PutPin { id: PinId::from_bytes(reader.array()?), record: reader.blob()?.to_vec() },
        8 => Change::RemovePin(PinId::from_bytes(reader.array()?)),
        _ => return Err(DecodeError("unknown change in a log record")),
    })
}

fn decode_episode_ids(reader: &mut Reader<'_>) -> Decoded<(EpisodeId, Option<EpisodeId>)> {
    let id = EpisodeId::from_bytes(reader.array()?);
    let parent = match reader.blob()? {
        [] => None,
        bytes => Some(EpisodeId::from_bytes(
            bytes.try_into().map_err(|_| DecodeError("episode id of the wrong length"))?,
        )),
    };
    Ok((id, parent))
}
