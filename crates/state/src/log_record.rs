//! Commit and checkpoint records of the log, and the changes they hold.
//!
//! A commit record holds its sequence number, the id of the commit before it, the numbers of its bulk packs,
//! whether it was synced, and its changes. Checkpoint records repeat the whole state as changes, so that
//! older logs can be deleted.

use crate::codec::{DecodeError, Decoded, Reader, Write};
use crate::commit_options::Expect;
use crate::id::{EpisodeId, PinId, SnapshotId};
use crate::snapshot::Snapshot;

/// One change to the records of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    PutSnapshot(Snapshot),
    RemoveSnapshot(SnapshotId),
    SetReference {
        name: String,
        expect: Expect,
        to: SnapshotId,
    },
    RemoveReference {
        name: String,
        expect: Expect,
    },
    /// The episode's record and its parent.
    PutEpisode {
        id: EpisodeId,
        parent: Option<EpisodeId>,
        record: Vec<u8>,
    },
    RemoveEpisode {
        id: EpisodeId,
        parent: Option<EpisodeId>,
    },
    PutPin {
        id: PinId,
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

/// A position in the log. Everything before it is on disk once the log is synced up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct LogEnd {
    pub(crate) pack: u32,
    pub(crate) end: u64,
}

/// The payload of a commit record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitRecord {
    pub(crate) sequence: u64,
    pub(crate) previous: [u8; 32],
    /// Every pack that commits before this one brought was on disk before its record was written.
    pub(crate) synced: bool,
    /// End of the log that was known to be on disk when the record was written. A synced commit before it may
    /// have been acknowledged, so recovery never drops it.
    pub(crate) durable: LogEnd,
    pub(crate) packs: Vec<u32>,
    pub(crate) changes: Vec<Change>,
}

impl CommitRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.previous);
        out.push(u8::from(self.synced));
        out.extend_from_slice(&self.durable.pack.to_le_bytes());
        out.extend_from_slice(&self.durable.end.to_le_bytes());
        out.varint(self.packs.len() as u64);
        for pack in &self.packs {
            out.extend_from_slice(&pack.to_le_bytes());
        }
        encode_changes(&mut out, &self.changes);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let sequence = reader.u64()?;
        let previous = reader.array()?;
        let synced = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError("neither synced nor buffered")),
        };
        let durable = LogEnd { pack: reader.u32()?, end: reader.u64()? };
        let packs = reader.count(4)?;
        let packs = (0..packs).map(|_| reader.u32()).collect::<Decoded<_>>()?;
        let changes = decode_changes(&mut reader)?;
        reader.end()?;
        Ok(Self { sequence, previous, synced, durable, packs, changes })
    }
}

/// One part of a checkpoint: the state after commit `sequence`, spread over one or more records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckpointRecord {
    pub(crate) sequence: u64,
    pub(crate) previous: [u8; 32],
    pub(crate) first: bool,
    pub(crate) last: bool,
    /// Set in a checkpoint written by a rebuild: commits in older logs that it does not cover were dropped
    /// for good.
    pub(crate) cut: bool,
    /// Number of this part, from 0; the number of the last part tells how many there are. `None` in a
    /// checkpoint of one part, and in parts written by earlier versions.
    pub(crate) number: Option<u64>,
    pub(crate) changes: Vec<Change>,
}

impl CheckpointRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.previous);
        let numbered = u8::from(self.number.is_some()) << 3;
        out.push(u8::from(self.first) | u8::from(self.last) << 1 | u8::from(self.cut) << 2 | numbered);
        if let Some(number) = self.number {
            out.varint(number);
        }
        encode_changes(&mut out, &self.changes);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let sequence = reader.u64()?;
        let previous = reader.array()?;
        let flags = reader.u8()?;
        if flags > 15 {
            return Err(DecodeError("unknown flags of a checkpoint"));
        }
        let (first, last, cut) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let number = if flags & 8 != 0 { Some(reader.varint()?) } else { None };
        if number.is_some_and(|number| (number == 0) != first) {
            return Err(DecodeError("the number of a part of a checkpoint contradicts its flags"));
        }
        let changes = decode_changes(&mut reader)?;
        reader.end()?;
        Ok(Self { sequence, previous, first, last, cut, number, changes })
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
        // The expected value is not written: the log holds only what was done.
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
            encode_episode(out, *id, *parent);
            out.blob(record);
        }
        Change::RemoveEpisode { id, parent } => {
            out.push(6);
            encode_episode(out, *id, *parent);
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

fn encode_episode(out: &mut Vec<u8>, id: EpisodeId, parent: Option<EpisodeId>) {
    out.extend_from_slice(id.as_bytes());
    out.blob(parent.as_ref().map_or(&[], |parent| parent.as_bytes()));
}

fn decode_changes(reader: &mut Reader<'_>) -> Decoded<Vec<Change>> {
    let count = reader.count(1)?;
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
            let (id, parent) = decode_episode(reader)?;
            Change::PutEpisode { id, parent, record: reader.blob()?.to_vec() }
        }
        6 => {
            let (id, parent) = decode_episode(reader)?;
            Change::RemoveEpisode { id, parent }
        }
        7 => Change::PutPin { id: PinId::from_bytes(reader.array()?), record: reader.blob()?.to_vec() },
        8 => Change::RemovePin(PinId::from_bytes(reader.array()?)),
        _ => return Err(DecodeError("unknown change in a commit")),
    })
}

fn decode_episode(reader: &mut Reader<'_>) -> Decoded<(EpisodeId, Option<EpisodeId>)> {
    let id = EpisodeId::from_bytes(reader.array()?);
    let parent = match reader.blob()? {
        [] => None,
        bytes => Some(EpisodeId::from_bytes(bytes.try_into().map_err(|_| DecodeError("not an episode id"))?)),
    };
    Ok((id, parent))
}
