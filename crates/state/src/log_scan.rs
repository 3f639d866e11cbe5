//! Commit records and checkpoints of the log, read back from the packs.
//!
//! Only their headers are kept in memory: changes may be as large as all records that a store ever had. A
//! replay reads them again, one record at a time.

use crate::codec::Decoded;
use crate::error::{IoContext, Result, StoreError};
use crate::log_record::{Change, CheckpointRecord, CommitRecord, LogEnd};
use crate::pack::{Location, PACK_HEADER, Packs, Role};
use crate::record::{Header, Kind};

/// The intact records of the log, in the order they were written.
#[derive(Default)]
pub(crate) struct LogRecords(Vec<LogRecord>);

enum LogRecord {
    Commit(LoggedCommit),
    Checkpoint(CheckpointPart),
}

/// Header of a commit record and its location in the log.
pub(crate) struct LoggedCommit {
    pub(crate) id: [u8; 32],
    pub(crate) sequence: u64,
    pub(crate) previous: [u8; 32],
    pub(crate) synced: bool,
    durable: LogEnd,
    location: Location,
}

/// Header of one part of a checkpoint and its location in the log.
pub(crate) struct CheckpointPart {
    id: [u8; 32],
    pub(crate) sequence: u64,
    pub(crate) previous: [u8; 32],
    first: bool,
    last: bool,
    cut: bool,
    number: Option<u64>,
    location: Location,
}

/// The last checkpoint and the commits after it.
#[derive(Default)]
pub(crate) struct Tail<'a> {
    /// Parts of the checkpoint; empty in a log without one. Some are missing if `lossy` is set.
    pub(crate) checkpoint: Vec<&'a CheckpointPart>,
    pub(crate) commits: Vec<&'a LoggedCommit>,
    /// Sequence number of a later checkpoint that lacks parts.
    pub(crate) incomplete: Option<u64>,
    /// Set if the older log cannot replace the incomplete checkpoint, so that `checkpoint` holds its
    /// remaining parts.
    pub(crate) lossy: bool,
}

impl LoggedCommit {
    fn new(id: [u8; 32], location: Location, record: &CommitRecord) -> Self {
        let CommitRecord { sequence, previous, synced, durable, .. } = *record;
        Self { id, sequence, previous, synced, durable, location }
    }

    /// Returns the end of the record in the log.
    pub(crate) fn end(&self) -> LogEnd {
        LogEnd { pack: self.location.pack, end: self.location.end() }
    }

    /// Reads the changes from the log.
    pub(crate) fn changes(&self, packs: &Packs) -> Result<Vec<Change>> {
        let payload = read(packs, self.location, Kind::Commit, &self.id)?;
        decoded(CommitRecord::decode(&payload)).map(|record| record.changes)
    }
}

impl CheckpointPart {
    fn new(id: [u8; 32], location: Location, record: &CheckpointRecord) -> Self {
        let CheckpointRecord { sequence, previous, first, last, cut, number, .. } = *record;
        Self { id, sequence, previous, first, last, cut, number, location }
    }

    /// Reads the changes from the log.
    pub(crate) fn changes(&self, packs: &Packs) -> Result<Vec<Change>> {
        let payload = read(packs, self.location, Kind::Checkpoint, &self.id)?;
        decoded(CheckpointRecord::decode(&payload)).map(|record| record.changes)
    }

    /// Returns true if both are parts of one checkpoint, `earlier` before this one.
    fn continues(&self, earlier: &Self) -> bool {
        let of = |part: &Self| (part.sequence, part.previous, part.cut);
        !self.first && of(self) == of(earlier) && self.number >= earlier.number
    }

    /// Returns true if no part is missing between `last` and this one.
    fn follows(&self, last: &Self) -> bool {
        let (from, to) = (last.location, self.location);
        // Parts are written back to back.
        let behind = (to.pack == from.pack && u64::from(to.offset) == from.end())
            || (to.pack == from.pack + 1 && u64::from(to.offset) == PACK_HEADER);
        let next = match (last.number, self.number) {
            (Some(last), Some(number)) => last + 1 == number,
            // Earlier versions did not number them.
            (None, None) => true,
            _ => false,
        };
        // A leftover part of another checkpoint does not continue this one.
        self.continues(last) && behind && next
    }
}

fn read(packs: &Packs, location: Location, kind: Kind, id: &[u8; 32]) -> Result<Vec<u8>> {
    let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
    packs.read(location, kind, id)?.ok_or_else(gone).context("open", &packs.path(location.pack))
}

fn decoded<T>(record: Decoded<T>) -> Result<T> {
    record.map_err(|source| StoreError::Undecodable { what: "a record of the log".to_owned(), source })
}

impl LogRecords {
    /// Adds a record of the log; other kinds are ignored. An intact record that cannot be decoded is skipped.
    pub(crate) fn add(&mut self, location: Location, header: &Header, stored: &[u8]) {
        let payload = || header.open(stored);
        let record = match header.kind {
            Kind::Commit => payload().and_then(|payload| {
                let record = CommitRecord::decode(&payload)?;
                Ok(LogRecord::Commit(LoggedCommit::new(header.id, location, &record)))
            }),
            Kind::Checkpoint => payload().and_then(|payload| {
                let record = CheckpointRecord::decode(&payload)?;
                Ok(LogRecord::Checkpoint(CheckpointPart::new(header.id, location, &record)))
            }),
            Kind::Chunk | Kind::Node => return,
        };
        self.0.extend(record);
    }

    pub(crate) fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    /// Reads the log back from `end` to the last complete checkpoint before it.
    pub(crate) fn read_back(packs: &Packs, end: LogEnd) -> Result<Self> {
        let mut read = Self::default();
        for pack in packs.list()?.into_iter().rev().filter(|pack| *pack <= end.pack) {
            if packs.role(pack)? == Some(Role::Bulk) {
                continue;
            }
            let mut records = Self::default();
            packs.scan(pack, |location, header, stored| {
                // Bytes after the end are leftovers of killed writers.
                if pack < end.pack || u64::from(location.offset) < end.end {
                    records.add(location, header, stored);
                }
                Ok(())
            })?;
            // The checkpoint may continue in later logs.
            let begins = records.begin_checkpoint();
            records.append(read);
            read = records;
            if begins && read.tail().is_complete() {
                break;
            }
        }
        Ok(read)
    }

    fn begin_checkpoint(&self) -> bool {
        self.0.iter().any(|record| matches!(record, LogRecord::Checkpoint(part) if part.first))
    }

    pub(crate) fn tail(&self) -> Tail<'_> {
        let mut tail = Tail::default();
        // Intact parts of a checkpoint that is not complete so far, and whether a part is missing.
        let (mut open, mut broken): (Vec<&CheckpointPart>, bool) = (Vec::new(), false);
        for record in &self.0 {
            match record {
                LogRecord::Checkpoint(part) => {
                    let last = open.last().filter(|last| part.continues(last)).copied();
                    broken = match last {
                        Some(last) => broken || !part.follows(last),
                        None => !part.first,
                    };
                    if last.is_none() {
                        open.clear();
                    }
                    open.push(part);
                    if part.last && !broken {
                        tail.begin_at(std::mem::take(&mut open));
                    }
                }
                LogRecord::Commit(commit) => tail.add(commit, open.first().copied()),
            }
        }
        if !open.is_empty() {
            tail.add_incomplete(open);
        }
        tail
    }

    /// Returns the end of the log that is known to have been on disk. A log is synced before the next one is
    /// started.
    pub(crate) fn durable(&self) -> LogEnd {
        let of_commit = |record: &LogRecord| match record {
            LogRecord::Commit(commit) => {
                Some(commit.durable.max(LogEnd { pack: commit.location.pack, end: PACK_HEADER }))
            }
            LogRecord::Checkpoint(_) => None,
        };
        self.0.iter().filter_map(of_commit).max().unwrap_or_default()
    }
}

impl<'a> Tail<'a> {
    /// Returns true if it begins with a complete checkpoint.
    fn is_complete(&self) -> bool {
        !self.checkpoint.is_empty() && !self.lossy
    }

    fn begin_at(&mut self, checkpoint: Vec<&'a CheckpointPart>) {
        // A checkpoint that was written but never used comes before commits of the older log. If a rebuild
        // wrote it, the commits that it does not cover were dropped.
        let (covered, cut) = (checkpoint[0].sequence, checkpoint[0].cut);
        self.commits.retain(|commit| !cut && commit.sequence > covered);
        self.checkpoint = checkpoint;
    }

    /// Adds a commit that follows the parts of `open`, an incomplete checkpoint.
    fn add(&mut self, commit: &'a LoggedCommit, open: Option<&CheckpointPart>) {
        if let Some(part) = open.filter(|part| part.cut)
            && (part.sequence + 1, part.previous) == (commit.sequence, commit.previous)
        {
            // The rebuild that wrote it was completed: commits that it dropped stay dropped.
            self.commits.retain(|commit| commit.sequence <= part.sequence);
        }
        let last = self.commits.last().map(|last| last.sequence);
        let last = last.or_else(|| self.checkpoint.first().map(|part| part.sequence));
        if last.is_none_or(|last| commit.sequence > last) {
            self.commits.push(commit);
        }
    }

    /// Handles the remaining parts of the last checkpoint. It is not needed if the log before it holds
    /// everything up to there.
    fn add_incomplete(&mut self, parts: Vec<&'a CheckpointPart>) {
        let part = parts[0];
        self.incomplete = Some(part.sequence);
        let behind = |commit: &&LoggedCommit| commit.location.pack >= part.location.pack;
        // A process killed while writing it had not switched away from the log before it.
        let in_use = parts.iter().any(|part| part.last) || self.commits.iter().any(behind);
        if self.reaches(part) || (!in_use && self.has_begin()) {
            return;
        }
        self.commits.retain(|commit| commit.sequence > part.sequence);
        self.checkpoint = parts;
        self.lossy = true;
    }

    /// Returns true if it begins with a complete state: a checkpoint, or the first commit of the store.
    fn has_begin(&self) -> bool {
        !self.checkpoint.is_empty() || self.commits.first().is_some_and(|first| first.previous == [0; 32])
    }

    /// Returns true if the checkpoint and the commits lead, without a gap, to the state that `part` belongs
    /// to.
    fn reaches(&self, part: &CheckpointPart) -> bool {
        let mut at = self.checkpoint.first().map_or((0, [0; 32]), |part| (part.sequence, part.previous));
        for commit in &self.commits {
            if at.0 >= part.sequence || commit.previous != at.1 {
                break;
            }
            at = (commit.sequence, commit.id);
        }
        at == (part.sequence, part.previous)
    }
}
