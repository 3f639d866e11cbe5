//! The commit records and checkpoints of the log, read back from the packs.

use crate::change::{CheckpointRecord, CommitRecord, LogEnd};
use crate::error::Result;
use crate::pack::{Location, PACK_HEADER, Packs, Role};
use crate::record::{Header, Kind};

/// The intact records of the log, in the order they were written.
#[derive(Default)]
pub(crate) struct LogRecords(Vec<LogRecord>);

enum LogRecord {
    Commit(LoggedCommit),
    Checkpoint(CheckpointRecord),
}

/// A commit record and its place in the log.
pub(crate) struct LoggedCommit {
    pub(crate) id: [u8; 32],
    pub(crate) record: CommitRecord,
    /// End of the record in the log.
    pub(crate) end: LogEnd,
}

/// The last complete checkpoint and the commits after it.
pub(crate) struct Tail<'a> {
    /// Parts of the checkpoint; empty in a log that never had one.
    pub(crate) checkpoint: Vec<&'a CheckpointRecord>,
    pub(crate) commits: Vec<&'a LoggedCommit>,
}

impl LogRecords {
    /// Takes up a record of the log; other kinds are ignored. A record that is intact and yet cannot be decoded is
    /// left out: it is not ours to guess at.
    pub(crate) fn add(&mut self, location: Location, header: &Header, stored: &[u8]) {
        let payload = || header.open(stored);
        let record = match header.kind {
            Kind::Commit => payload().and_then(|payload| CommitRecord::decode(&payload)).map(|record| {
                let end = u64::from(location.offset) + u64::from(location.len);
                let end = LogEnd { pack: location.pack, end };
                LogRecord::Commit(LoggedCommit { id: header.id, record, end })
            }),
            Kind::Checkpoint => {
                payload().and_then(|payload| CheckpointRecord::decode(&payload)).map(LogRecord::Checkpoint)
            }
            Kind::Chunk | Kind::Node => return,
        };
        self.0.extend(record);
    }

    pub(crate) fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    /// Reads the log back from `end` to the last checkpoint before it.
    pub(crate) fn read_back(packs: &Packs, end: LogEnd) -> Result<Self> {
        let mut read = Self::default();
        for pack in packs.list()?.into_iter().rev().filter(|pack| *pack <= end.pack) {
            if packs.role(pack)? == Some(Role::Bulk) {
                continue;
            }
            let mut records = Self::default();
            packs.scan(pack, |location, header, stored| {
                // Bytes behind the end are leftovers of killed writers.
                if pack < end.pack || u64::from(location.offset) < end.end {
                    records.add(location, header, stored);
                }
                Ok(())
            })?;
            // It may go on in the logs after this one.
            let begins = records.begin_checkpoint();
            records.append(read);
            read = records;
            if begins && !read.tail().checkpoint.is_empty() {
                break;
            }
        }
        Ok(read)
    }

    fn begin_checkpoint(&self) -> bool {
        self.0.iter().any(|record| matches!(record, LogRecord::Checkpoint(part) if part.first))
    }

    pub(crate) fn tail(&self) -> Tail<'_> {
        let mut checkpoint: Vec<&CheckpointRecord> = Vec::new();
        let mut open: Vec<&CheckpointRecord> = Vec::new();
        let mut commits: Vec<&LoggedCommit> = Vec::new();
        for record in &self.0 {
            match record {
                LogRecord::Checkpoint(part) => {
                    // A part that was left of another checkpoint ends none.
                    let follows = open
                        .last()
                        .is_some_and(|last| (last.sequence, last.previous) == (part.sequence, part.previous));
                    if part.first || !follows {
                        open.clear();
                    }
                    open.push(part);
                    if part.last && open.first().is_some_and(|part| part.first) {
                        checkpoint = std::mem::take(&mut open);
                        // One that was written but never taken into use is behind its predecessor's log,
                        // unless a rebuild wrote it: then what it does not cover was given up.
                        let (covered, cut) = (checkpoint[0].sequence, checkpoint[0].cut);
                        commits.retain(|commit| !cut && commit.record.sequence > covered);
                    }
                }
                LogRecord::Commit(commit) => {
                    let last = commits.last().map(|last| last.record.sequence);
                    let last = last.or_else(|| checkpoint.first().map(|part| part.sequence));
                    if last.is_none_or(|last| commit.record.sequence > last) {
                        commits.push(commit);
                    }
                }
            }
        }
        Tail { checkpoint, commits }
    }

    /// How far the log is known to have been on disk. A log is synced before the next one begins.
    pub(crate) fn durable(&self) -> LogEnd {
        let of_commit = |record: &LogRecord| match record {
            LogRecord::Commit(commit) => {
                Some(commit.record.durable.max(LogEnd { pack: commit.end.pack, end: PACK_HEADER }))
            }
            LogRecord::Checkpoint(_) => None,
        };
        self.0.iter().filter_map(of_commit).max().unwrap_or_default()
    }
}
