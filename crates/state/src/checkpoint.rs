//! Checkpoints: the whole state of the records, at the start of a new log.
//!
//! Commit records before a checkpoint are no longer needed: a rebuild of the index starts at the last
//! complete checkpoint, and garbage collection can delete older packs.

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

/// Sizes at which a checkpoint is split. It may be as large as all records of the store together, so it is
/// written in parts: lengths and offsets stay within 32 bits, and only one part is in memory.
#[derive(Clone, Copy)]
struct Limits {
    /// Size in bytes at which a record is ended.
    record: usize,
    /// Size in bytes at which a log is ended.
    log: u64,
}

const LIMITS: Limits = Limits { record: 16 << 20, log: 1 << 30 };

/// Starts a new log with a checkpoint of the state in `txn`. It is on disk when this returns. The old log
/// must be complete on disk (`Inner::close_log`).
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
    // Parts left by a killed process must not be mistaken for parts of this checkpoint.
    remove_packs_from(packs, first_unused)?;
    let written = write_parts(limits, packs, index, txn, state, origin);
    if written.is_err() {
        // The parts may be large, and the disk full.
        drop(remove_packs_from(packs, first_unused));
    }
    let (state, logs) = written?;
    for log in logs {
        index.packs.put(txn, &log.to_be_bytes(), &[])?;
    }
    index.put_log_state(txn, &state)?;
    Ok(state)
}

/// Removes packs from number `first` on. Under the write lock, unallocated numbers are not in use.
fn remove_packs_from(packs: &Packs, first: u32) -> Result<()> {
    for pack in packs.list()?.into_iter().filter(|pack| *pack >= first) {
        packs.remove(pack)?;
    }
    Ok(())
}

/// Writes the checkpoint. Returns the new state of the log and the created packs.
fn write_parts(
    limits: Limits,
    packs: &Packs,
    index: &Index,
    txn: &RwTxn<'_>,
    mut state: LogState,
    origin: CheckpointOrigin,
) -> Result<(LogState, Vec<u32>)> {
    create_log_pack(packs, &mut state)?;
    let logs = vec![state.pack];
    let mut writer = CheckpointWriter {
        limits,
        packs,
        state,
        logs,
        origin,
        part_number: 0,
        changes: Vec::new(),
        bytes: 0,
    };
    add_state(index, txn, &mut writer)?;
    writer.write_part(PartPosition::Last)?;
    writer.sync()?;
    Ok((writer.state, writer.logs))
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
    logs: Vec<u32>,
    origin: CheckpointOrigin,
    /// Number of the next part.
    part_number: u64,
    /// Changes of the part that is not written yet, and its approximate size in bytes.
    changes: Vec<Change>,
    bytes: usize,
}

impl CheckpointWriter<'_> {
    fn add(&mut self, change: Change) -> Result<()> {
        let len = change.encoded_len();
        // A large change may fill a record alone.
        if !self.changes.is_empty() && self.bytes + len > self.limits.record {
            self.write_part(PartPosition::NotLast)?;
        }
        self.bytes += len;
        self.changes.push(change);
        if self.bytes < self.limits.record { Ok(()) } else { self.write_part(PartPosition::NotLast) }
    }

    fn write_part(&mut self, position: PartPosition) -> Result<()> {
        if self.state.end >= self.limits.log {
            self.sync()?;
            create_log_pack(self.packs, &mut self.state)?;
            self.logs.push(self.state.pack);
        }
        let (is_first, is_last) = (self.part_number == 0, position == PartPosition::Last);
        let record = CheckpointRecord {
            sequence: self.state.sequence,
            last_commit_id: self.state.last_commit_id,
            is_first,
            is_last,
            origin: self.origin,
            // Without a number, earlier versions can read a checkpoint of one part.
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

fn add_state(index: &Index, txn: &RwTxn<'_>, writer: &mut CheckpointWriter<'_>) -> Result<()> {
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

        /// Stores episodes with actions of `bytes` bytes, and returns the changes in the order of a
        /// checkpoint.
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
    fn large_records_are_split_over_parts_and_logs_by_their_bytes() {
        let fixture = Fixture::new();
        let changes = fixture.put_episodes(100, 10_000);
        let state = fixture.write(Limits { record: 32 << 10, log: 128 << 10 }, 7);
        let parts = parts_of(&fixture.packs, &state);
        assert!(parts.len() > 20, "{}", parts.len());
        let bytes = |part: &Vec<Change>| part.iter().map(Change::encoded_len).sum::<usize>();
        assert!(parts.iter().all(|part| bytes(part) < 43 << 10));
        assert_eq!(parts.concat(), changes);
        let logs = fixture.packs.list().unwrap();
        assert!(logs.len() > 5, "{logs:?}");
        for log in &logs {
            let len = std::fs::metadata(fixture.packs.path(*log)).unwrap().len();
            assert!(len < 172 << 10, "{len}");
        }
        let txn = fixture.index.read().unwrap();
        assert_eq!(fixture.index.packs.len(&txn).unwrap(), logs.len() as u64);
        assert_eq!((state.pack, state.next_pack), (logs[logs.len() - 1], logs[logs.len() - 1] + 1));
    }

    #[test]
    fn parts_of_an_unfinished_checkpoint_never_complete_another() {
        let fixture = Fixture::new();
        fixture.put_episodes(20, 10_000);
        // The index does not know of the first one.
        let limits = Limits { record: 16 << 10, log: 32 << 10 };
        fixture.write(limits, 7);
        let before = fixture.packs.list().unwrap().len();
        let state = fixture.write(Limits { log: 1 << 20, ..limits }, 7);
        assert!(before > 1);
        assert_eq!(fixture.packs.list().unwrap(), [state.pack]);
    }

    /// Returns all records, each with its pack.
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

    /// Damages the record with this number in the log.
    fn flip(packs: &Packs, number: usize) {
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

    /// Reads parts as earlier versions wrote them, all in one log or each in its own log.
    #[test]
    fn unnumbered_parts_are_read_and_a_missing_one_is_detected() {
        for (limits, in_one_log) in
            [(Limits { record: 16 << 10, log: 1 << 20 }, true), (Limits { record: 16 << 10, log: 17 }, false)]
        {
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
            if in_one_log {
                flip(&fixture.packs, 1);
                assert!(is_incomplete(&fixture.packs, &state));
            } else {
                fixture.packs.remove(2).unwrap();
                assert!(is_incomplete(&fixture.packs, &state));
            }
        }
    }

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
        let limits = Limits { record: 16 << 10, log: 1 << 20 };
        let parts = parts_of(&fixture.packs, &fixture.write(limits, 7)).len();
        assert!(parts > 3);
        for damaged in 0..parts {
            let state = fixture.write(limits, 7);
            assert!(!is_incomplete(&fixture.packs, &state));
            flip(&fixture.packs, damaged);
            assert!(is_incomplete(&fixture.packs, &state), "part {damaged} of {parts}");
        }
    }

    #[test]
    fn a_damaged_last_part_of_a_log_is_detected() {
        let fixture = Fixture::new();
        fixture.put_episodes(20, 10_000);
        // Two parts in each log: after a damaged one the next log begins.
        let state = fixture.write(Limits { record: 16 << 10, log: 15 << 10 }, 7);
        assert!(!is_incomplete(&fixture.packs, &state));
        flip(&fixture.packs, 1);
        assert!(is_incomplete(&fixture.packs, &state));
    }

    #[test]
    fn leftover_parts_never_complete_another_checkpoint() {
        let fixture = Fixture::new();
        fixture.put_episodes(10, 10_000);
        // One log per part, so that the first part of one checkpoint can replace another's.
        let limits = Limits { record: 16 << 10, log: 17 };
        fixture.write(limits, 7);
        let first = std::fs::read(fixture.packs.path(1)).unwrap();
        let state = fixture.write(limits, 8);
        assert!(!is_incomplete(&fixture.packs, &state));
        std::fs::write(fixture.packs.path(1), first).unwrap();
        assert!(is_incomplete(&fixture.packs, &state));
    }

    #[test]
    fn a_state_without_records_has_a_checkpoint_too() {
        let fixture = Fixture::new();
        let state = fixture.write(LIMITS, 1);
        assert_eq!(parts_of(&fixture.packs, &state), [[]]);
    }
}
