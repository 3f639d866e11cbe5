//! Checkpoints: copies of all records of a store at the start of a new log pack. Records are snapshots, references
//! (names of snapshots), episodes (steps of searches) and pins (which protect snapshots from garbage collection).
//!
//! A pack is an append-only file. The log is the sequence of commit records of the store, written to one log pack
//! after the other. Commit records before a checkpoint are no longer needed: a rebuild of the index (the LMDB database
//! of the store) starts at the last complete checkpoint, and garbage collection can delete older log packs.

use std::os::unix::fs::FileExt;

use heed::RwTxn;

use crate::codec::DecodeError;
use crate::commit_options::Expect;
use crate::episode;
use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::id::{PinId, SnapshotId};
use crate::index::Index;
use crate::log::{LogAppend, create_log_pack};
use crate::log_record::{Change, CheckpointOrigin, CheckpointRecord};
use crate::log_state::LogState;
use crate::pack::Packs;
use crate::record::Kind;

/// Sizes at which a checkpoint is split. A checkpoint may be large, so it is written in parts, each in a log record of
/// its own: lengths and offsets stay within 32 bits, and only one part is in memory.
#[derive(Clone, Copy)]
struct Limits {
    /// Approximate maximum size of a part in bytes. A single larger change has a part of its own.
    part: usize,
    /// Size in bytes of a log pack from which on the next part begins a new log pack.
    log_pack: u64,
}

const LIMITS: Limits = Limits { part: 16 << 20, log_pack: 1 << 30 };

/// Starts a new log pack with a checkpoint of all records that `txn` sees, and syncs it. The caller must have truncated
/// and synced the current log pack (`Inner::close_log`). Stores the new state of the log in the index, and returns it.
pub(crate) fn write(
    packs: &Packs,
    index: &Index,
    txn: &mut RwTxn<'_>,
    state: LogState,
    origin: CheckpointOrigin,
) -> Result<LogState> {
    write_within(LIMITS, packs, index, txn, state, origin)
}

fn write_within(
    limits: Limits,
    packs: &Packs,
    index: &Index,
    txn: &mut RwTxn<'_>,
    state: LogState,
    origin: CheckpointOrigin,
) -> Result<LogState> {
    let first_unused = state.next_pack;
    // Parts that a killed process has left there must not be mistaken for parts of this checkpoint.
    remove_packs_from(packs, first_unused)?;
    let written = write_parts(limits, packs, index, txn, state, origin);
    if written.is_err() {
        // The parts may be large, and the disk full.
        drop(remove_packs_from(packs, first_unused));
    }
    let (state, log_packs) = written?;
    for pack in log_packs {
        index.packs.put(txn, &pack.to_be_bytes(), &[])?;
    }
    index.put_log_state(txn, &state)?;
    Ok(state)
}

/// Removes all packs with the number `first` or a higher one, which must not be allocated yet. Numbers are allocated
/// under the write lock of the index, which the caller holds, so no process is using these packs.
fn remove_packs_from(packs: &Packs, first: u32) -> Result<()> {
    for pack in packs.list()?.into_iter().filter(|pack| *pack >= first) {
        packs.remove(pack)?;
    }
    Ok(())
}

/// Writes and syncs the checkpoint. Returns the new state of the log, and the numbers of the created log packs.
fn write_parts(
    limits: Limits,
    packs: &Packs,
    index: &Index,
    txn: &RwTxn<'_>,
    mut state: LogState,
    origin: CheckpointOrigin,
) -> Result<(LogState, Vec<u32>)> {
    create_log_pack(packs, &mut state)?;
    let log_packs = vec![state.pack];
    let mut writer = CheckpointWriter {
        limits,
        packs,
        state,
        log_packs,
        origin,
        part_number: 0,
        changes: Vec::new(),
        bytes: 0,
    };
    add_all_records(index, txn, &mut writer)?;
    writer.write_part(PartPosition::Last)?;
    writer.sync()?;
    Ok((writer.state, writer.log_packs))
}

/// Position of a part in its checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartPosition {
    NotLast,
    Last,
}

/// A checkpoint that is being written.
struct CheckpointWriter<'a> {
    limits: Limits,
    packs: &'a Packs,
    state: LogState,
    /// Numbers of the log packs that were created for the checkpoint.
    log_packs: Vec<u32>,
    /// Operation that writes the checkpoint.
    origin: CheckpointOrigin,
    /// Number of the next part.
    part_number: u64,
    /// Changes of the part that is not written yet.
    changes: Vec<Change>,
    /// Approximate size of that part in bytes.
    bytes: usize,
}

impl CheckpointWriter<'_> {
    /// Adds a change to the next part. Writes the part when it is full.
    fn add(&mut self, change: Change) -> Result<()> {
        let len = change.encoded_len();
        // A large change may fill a part alone.
        if !self.changes.is_empty() && self.bytes + len > self.limits.part {
            self.write_part(PartPosition::NotLast)?;
        }
        self.bytes += len;
        self.changes.push(change);
        if self.bytes < self.limits.part { Ok(()) } else { self.write_part(PartPosition::NotLast) }
    }

    /// Writes the collected changes as a part. Starts another log pack first if the current one is full.
    fn write_part(&mut self, position: PartPosition) -> Result<()> {
        if self.state.end >= self.limits.log_pack {
            self.sync()?;
            create_log_pack(self.packs, &mut self.state)?;
            self.log_packs.push(self.state.pack);
        }
        let (is_first, is_last) = (self.part_number == 0, position == PartPosition::Last);
        let record = CheckpointRecord {
            sequence: self.state.sequence,
            last_commit_id: self.state.last_commit_id,
            is_first,
            is_last,
            origin: self.origin,
            // Earlier versions of this program can read a checkpoint of one part if the part has no number.
            part_number: (!is_first || !is_last).then_some(self.part_number),
            changes: std::mem::take(&mut self.changes),
        };
        self.part_number += 1;
        self.bytes = 0;
        let mut append = LogAppend { start: self.state.end, bytes: Vec::new() };
        append.append_record(Kind::Checkpoint, &record.encode())?;
        let file = self.packs.open_for_writing(self.state.pack)?;
        failpoint::hit("checkpoint-write")
            .and_then(|()| file.write_all_at(&append.bytes, append.start))
            .context("write", &self.packs.path(self.state.pack))?;
        self.state.end = append.end();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let file = self.packs.open_for_writing(self.state.pack)?;
        file.sync_all().context("sync", &self.packs.path(self.state.pack))
    }
}

/// Adds all snapshots, references, episodes and pins, as the changes that would create them.
fn add_all_records(index: &Index, txn: &RwTxn<'_>, writer: &mut CheckpointWriter<'_>) -> Result<()> {
    let undecodable = |what: &str, source| StoreError::Undecodable { what: what.to_owned(), source };
    let parse_id = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map_err(|_| DecodeError("not an id"));
    let mut added = Ok(());
    index.for_each_snapshot(txn, |snapshot| {
        if added.is_ok() {
            added = writer.add(Change::PutSnapshot(snapshot));
        }
    })?;
    added?;
    for row in index.references.iter(txn)? {
        let (name, target) = row?;
        writer.add(Change::SetReference {
            name: String::from_utf8_lossy(name).into_owned(),
            expect: Expect::Anything,
            to: SnapshotId::from_bytes(
                parse_id(target).map_err(|source| undecodable("a reference", source))?,
            ),
        })?;
    }
    for row in index.episodes.iter(txn)? {
        let (key, record) = row?;
        let change = episode::as_change(key, record.to_vec());
        writer.add(change.map_err(|source| undecodable("an episode", source))?)?;
    }
    for row in index.pins.iter(txn)? {
        let (key, record) = row?;
        let id = PinId::from_bytes(parse_id(key).map_err(|source| undecodable("a pin", source))?);
        writer.add(Change::PutPin { id, record: record.to_vec() })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Episode;
    use crate::id::EpisodeId;
    use crate::log_record::LogPosition;
    use crate::log_scan::LogRecords;

    struct Fixture {
        _home: tempfile::TempDir,
        packs: Packs,
        index: Index,
    }

    impl Fixture {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            for name in ["packs", "index"] {
                std::fs::create_dir(home.path().join(name)).unwrap();
            }
            let index = Index::open(&home.path().join("index")).unwrap();
            Self { packs: Packs::new(home.path().join("packs")), index, _home: home }
        }

        /// Stores `count` episodes (steps of a search), each with a description of `bytes` bytes. Returns the changes
        /// in the order of a checkpoint.
        fn put_episodes(&self, count: usize, bytes: usize) -> Vec<Change> {
            let mut txn = self.index.write().unwrap();
            let mut changes: Vec<Change> = (0..count)
                .map(|_| {
                    let episode = Episode::new(SnapshotId::generate(), None, "x".repeat(bytes), 1.0);
                    let record = serde_json::to_vec(&episode).unwrap();
                    Change::PutEpisode { id: episode.id, parent: None, record }
                })
                .collect();
            for change in &changes {
                self.index.apply(&mut txn, change).unwrap();
            }
            self.index.commit(txn).unwrap();
            let id = |change: &Change| match change {
                Change::PutEpisode { id, .. } => *id,
                _ => EpisodeId::from_bytes([0; 16]),
            };
            changes.sort_by_key(id);
            changes
        }

        fn write(&self, limits: Limits, sequence: u64) -> LogState {
            let mut txn = self.index.write().unwrap();
            let state = LogState { sequence, next_pack: 1, ..LogState::default() };
            let origin = CheckpointOrigin::GarbageCollection;
            let state = write_within(limits, &self.packs, &self.index, &mut txn, state, origin).unwrap();
            self.index.commit(txn).unwrap();
            state
        }
    }

    /// Returns the changes of each part of the last checkpoint.
    fn parts_of(packs: &Packs, state: &LogState) -> Vec<Vec<Change>> {
        let log =
            LogRecords::read_since_checkpoint(packs, LogPosition { pack: state.pack, offset: state.end })
                .unwrap();
        log.replay_plan().checkpoint.into_iter().map(|part| part.read_changes(packs).unwrap()).collect()
    }

    #[test]
    fn large_checkpoints_are_split_into_parts_and_log_packs_by_size() {
        let fixture = Fixture::new();
        let changes = fixture.put_episodes(100, 10_000);
        let state = fixture.write(Limits { part: 32 << 10, log_pack: 128 << 10 }, 7);
        let parts = parts_of(&fixture.packs, &state);
        assert!(parts.len() > 20, "{}", parts.len());
        let bytes = |part: &Vec<Change>| part.iter().map(Change::encoded_len).sum::<usize>();
        assert!(parts.iter().all(|part| bytes(part) < 43 << 10));
        assert_eq!(parts.concat(), changes);
        let packs = fixture.packs.list().unwrap();
        assert!(packs.len() > 5, "{packs:?}");
        for pack in &packs {
            let len = std::fs::metadata(fixture.packs.path(*pack)).unwrap().len();
            assert!(len < 172 << 10, "{len}");
        }
        let txn = fixture.index.read().unwrap();
        assert_eq!(fixture.index.packs.len(&txn).unwrap(), packs.len() as u64);
        assert_eq!((state.pack, state.next_pack), (packs[packs.len() - 1], packs[packs.len() - 1] + 1));
    }

    #[test]
    fn parts_of_an_unfinished_checkpoint_never_complete_another() {
        let fixture = Fixture::new();
        fixture.put_episodes(20, 10_000);
        let limits = Limits { part: 16 << 10, log_pack: 32 << 10 };
        fixture.write(limits, 7);
        let before = fixture.packs.list().unwrap().len();
        // The second checkpoint starts at the same pack number, as if the process had been killed during the first one.
        let state = fixture.write(Limits { log_pack: 1 << 20, ..limits }, 7);
        assert!(before > 1);
        assert_eq!(fixture.packs.list().unwrap(), [state.pack]);
    }

    /// Returns all checkpoint records, each with the number of its pack.
    fn records(packs: &Packs) -> Vec<(u32, CheckpointRecord)> {
        let mut records = Vec::new();
        for pack in packs.list().unwrap() {
            packs
                .scan(pack, |_, header, stored| {
                    let payload = header.open(stored).unwrap();
                    records.push((pack, CheckpointRecord::decode(&payload).unwrap()));
                    Ok(())
                })
                .unwrap();
        }
        records
    }

    /// Replaces the records of a pack.
    fn rewrite(packs: &Packs, pack: u32, records: &[CheckpointRecord]) {
        let file = packs.create(pack, crate::pack::Role::Log).unwrap();
        let mut append = LogAppend { start: crate::pack::PACK_HEADER_LEN, bytes: Vec::new() };
        for record in records {
            append.append_record(Kind::Checkpoint, &record.encode()).unwrap();
        }
        file.write_all_at(&append.bytes, append.start).unwrap();
    }

    /// Overwrites the end of the record with this number, counted from 0 over all packs.
    fn damage_record(packs: &Packs, number: usize) {
        let mut locations = Vec::new();
        for pack in packs.list().unwrap() {
            packs
                .scan(pack, |location, _, _| {
                    locations.push(location);
                    Ok(())
                })
                .unwrap();
        }
        let file = packs.open_for_writing(locations[number].pack).unwrap();
        file.write_all_at(&[0xff; 8], locations[number].end() - 8).unwrap();
    }

    /// Reads parts as earlier versions wrote them, all in one log pack or each in its own.
    #[test]
    fn unnumbered_parts_are_read_and_a_missing_one_is_detected() {
        for (log_pack, in_one_pack) in [(1 << 20, true), (17, false)] {
            let limits = Limits { part: 16 << 10, log_pack };
            let fixture = Fixture::new();
            let changes = fixture.put_episodes(10, 10_000);
            let state = fixture.write(limits, 7);
            let all = records(&fixture.packs);
            assert!(all.len() > 3 && all.iter().all(|(_, record)| record.part_number.is_some()));
            for pack in fixture.packs.list().unwrap() {
                let unnumbered =
                    |record: &CheckpointRecord| CheckpointRecord { part_number: None, ..record.clone() };
                let of_pack = all.iter().filter(|(of, _)| *of == pack);
                let records: Vec<_> = of_pack.map(|(_, record)| unnumbered(record)).collect();
                rewrite(&fixture.packs, pack, &records);
            }
            assert_eq!(parts_of(&fixture.packs, &state).concat(), changes);
            if in_one_pack {
                damage_record(&fixture.packs, 1);
                assert!(is_incomplete(&fixture.packs, &state));
            } else {
                fixture.packs.remove(2).unwrap();
                assert!(is_incomplete(&fixture.packs, &state));
            }
        }
    }

    /// Returns true if parts of the last checkpoint are missing, and older log packs cannot replace them.
    fn is_incomplete(packs: &Packs, state: &LogState) -> bool {
        let log =
            LogRecords::read_since_checkpoint(packs, LogPosition { pack: state.pack, offset: state.end })
                .unwrap();
        let plan = log.replay_plan();
        plan.incomplete_checkpoint == Some(state.sequence) && plan.is_lossy
    }

    #[test]
    fn a_checkpoint_that_lacks_any_part_is_not_complete() {
        let fixture = Fixture::new();
        fixture.put_episodes(10, 10_000);
        let limits = Limits { part: 16 << 10, log_pack: 1 << 20 };
        let parts = parts_of(&fixture.packs, &fixture.write(limits, 7)).len();
        assert!(parts > 3);
        for damaged in 0..parts {
            let state = fixture.write(limits, 7);
            assert!(!is_incomplete(&fixture.packs, &state));
            damage_record(&fixture.packs, damaged);
            assert!(is_incomplete(&fixture.packs, &state), "part {damaged} of {parts}");
        }
    }

    #[test]
    fn a_damaged_last_part_of_a_log_pack_is_detected() {
        let fixture = Fixture::new();
        fixture.put_episodes(20, 10_000);
        // Each log pack holds two parts, so record 1 is the last one of its pack.
        let state = fixture.write(Limits { part: 16 << 10, log_pack: 15 << 10 }, 7);
        assert!(!is_incomplete(&fixture.packs, &state));
        damage_record(&fixture.packs, 1);
        assert!(is_incomplete(&fixture.packs, &state));
    }

    #[test]
    fn leftover_parts_never_complete_another_checkpoint() {
        let fixture = Fixture::new();
        fixture.put_episodes(10, 10_000);
        // One log pack per part, so that the file of the first part can be replaced by that of another checkpoint.
        let limits = Limits { part: 16 << 10, log_pack: 17 };
        fixture.write(limits, 7);
        let first = std::fs::read(fixture.packs.path(1)).unwrap();
        let state = fixture.write(limits, 8);
        assert!(!is_incomplete(&fixture.packs, &state));
        std::fs::write(fixture.packs.path(1), first).unwrap();
        assert!(is_incomplete(&fixture.packs, &state));
    }

    #[test]
    fn a_checkpoint_of_an_empty_store_has_one_part_without_changes() {
        let fixture = Fixture::new();
        let state = fixture.write(LIMITS, 1);
        assert_eq!(parts_of(&fixture.packs, &state), [[]]);
    }
}
