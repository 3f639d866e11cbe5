//! Checkpoints: the whole state of the records, at the start of a new log.
//!
//! After a checkpoint, the commit records of older logs say nothing any more: a rebuild of the index begins
//! at the last complete one, and a collection can give up the packs behind it.

use std::os::unix::fs::FileExt;

use heed::RwTxn;

use crate::change::{Change, CheckpointRecord, Expect};
use crate::codec::DecodeError;
use crate::episode;
use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::id::{PinId, SnapshotId};
use crate::index::{Index, LogState};
use crate::log::{Writing, next_log};
use crate::pack::Packs;
use crate::record::Kind;

/// Changes in one record of a checkpoint.
const PART: usize = 4096;

/// Begins a new log with a checkpoint of what `txn` sees, on disk when this returns. The old one was closed. A
/// `cut` says that the state was rebuilt, and commits that are not part of it never will be.
pub(crate) fn write(
    packs: &Packs,
    index: &Index,
    txn: &mut RwTxn<'_>,
    state: LogState,
    cut: bool,
) -> Result<LogState> {
    let mut state = next_log(packs, index, txn, state)?;
    let changes = state_as_changes(index, txn)?;
    let mut writing = Writing { start: state.end, bytes: Vec::new() };
    let parts = changes.len().div_ceil(PART).max(1);
    for part in 0..parts {
        let from = part * PART;
        let record = CheckpointRecord {
            sequence: state.sequence,
            previous: state.previous,
            first: part == 0,
            last: part + 1 == parts,
            cut,
            changes: changes[from..changes.len().min(from + PART)].to_vec(),
        };
        writing.append_record(Kind::Checkpoint, &record.encode())?;
    }
    let path = packs.path(state.pack);
    let file = packs.open_for_writing(state.pack)?;
    failpoint::hit("checkpoint-write")
        .and_then(|()| file.write_all_at(&writing.bytes, writing.start))
        .and_then(|()| file.sync_all())
        .at("write", &path)?;
    state.end = writing.end();
    index.put_log_state(txn, &state)?;
    Ok(state)
}

fn state_as_changes(index: &Index, txn: &RwTxn<'_>) -> Result<Vec<Change>> {
    let undecodable = |what: &str, source| StoreError::Undecodable { what: what.to_owned(), source };
    let id = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map_err(|_| DecodeError("not an id"));
    let mut changes = Vec::new();
    index.for_each_snapshot(txn, |snapshot| changes.push(Change::PutSnapshot(snapshot)))?;
    for (name, target) in index.rows(txn, &index.references)? {
        changes.push(Change::SetReference {
            name: String::from_utf8_lossy(&name).into_owned(),
            expect: Expect::Anything,
            to: SnapshotId::from_bytes(id(&target).map_err(|source| undecodable("a reference", source))?),
        });
    }
    for (key, record) in index.rows(txn, &index.episodes)? {
        changes.push(episode::as_change(&key, record).map_err(|source| undecodable("an episode", source))?);
    }
    for (key, record) in index.rows(txn, &index.pins)? {
        let id = PinId::from_bytes(id(&key).map_err(|source| undecodable("a pin", source))?);
        changes.push(Change::PutPin { id, record });
    }
    Ok(changes)
}
