//! Commit and checkpoint records of the log, read back for a replay.
//!
//! The log is written to a sequence of append-only files, the log packs. A checkpoint is a copy of all existing records
//! (snapshots, references, episodes and pins) at the start of a log pack, maybe in several parts. After it, earlier
//! commit records are no longer needed. Only the headers of
//! commit and checkpoint records are kept in memory, because their changes may be as large as all records of the store
//! together. The replay reads the changes later, one record at a time.

use crate::codec::Decoded;
use crate::error::{IoContext, Result, StoreError};
use crate::log_record::{Change, CheckpointOrigin, CheckpointRecord, CommitRecord, LogPosition};
use crate::pack::{Location, PACK_HEADER_LEN, Packs, Role};
use crate::record::{Header, Kind};

/// The intact records of the log, in the order in which they were written.
#[derive(Default)]
pub(crate) struct LogRecords(Vec<LogRecord>);

enum LogRecord {
    Commit(CommitHeader),
    Checkpoint(CheckpointPart),
}

/// Header of a commit record, and its location in the log.
pub(crate) struct CommitHeader {
    pub(crate) id: [u8; 32],
    pub(crate) sequence: u64,
    pub(crate) previous: [u8; 32],
    /// As [`CommitRecord::synced`].
    pub(crate) synced: bool,
    /// As [`CommitRecord::durable`].
    durable: LogPosition,
    location: Location,
}

/// Header of one part of a checkpoint, and its location in the log.
pub(crate) struct CheckpointPart {
    id: [u8; 32],
    pub(crate) sequence: u64,
    pub(crate) last_commit_id: [u8; 32],
    is_first: bool,
    is_last: bool,
    origin: CheckpointOrigin,
    part_number: Option<u64>,
    location: Location,
}

/// The last checkpoint and the commits after it: the part of the log that a replay needs.
#[derive(Default)]
pub(crate) struct LogReplay<'a> {
    /// Parts of the checkpoint; empty in a log without one. Some are missing if `is_lossy` is set.
    pub(crate) checkpoint: Vec<&'a CheckpointPart>,
    pub(crate) commits: Vec<&'a CommitHeader>,
    /// Sequence number of the newest checkpoint, if parts of it are missing.
    pub(crate) incomplete_checkpoint: Option<u64>,
    /// True if the log before the incomplete checkpoint cannot replace it, so that `checkpoint` has its remaining
    /// parts.
    pub(crate) is_lossy: bool,
}

impl CommitHeader {
    fn new(id: [u8; 32], location: Location, record: &CommitRecord) -> Self {
        let CommitRecord { sequence, previous, synced, durable, .. } = *record;
        Self { id, sequence, previous, synced, durable, location }
    }

    /// Returns the end of the record in the log.
    pub(crate) fn end(&self) -> LogPosition {
        LogPosition { pack: self.location.pack, offset: self.location.end() }
    }

    /// Reads the changes from the log.
    pub(crate) fn read_changes(&self, packs: &Packs) -> Result<Vec<Change>> {
        let payload = read(packs, self.location, Kind::Commit, &self.id)?;
        decoded(CommitRecord::decode(&payload)).map(|record| record.changes)
    }
}

impl CheckpointPart {
    fn new(id: [u8; 32], location: Location, record: &CheckpointRecord) -> Self {
        let CheckpointRecord { sequence, last_commit_id, is_first, is_last, origin, part_number, .. } =
            *record;
        Self { id, sequence, last_commit_id, is_first, is_last, origin, part_number, location }
    }

    /// Reads the changes from the log.
    pub(crate) fn read_changes(&self, packs: &Packs) -> Result<Vec<Change>> {
        let payload = read(packs, self.location, Kind::Checkpoint, &self.id)?;
        decoded(CheckpointRecord::decode(&payload)).map(|record| record.changes)
    }

    /// Returns true if this part belongs to the same checkpoint as `earlier`, which was written before it.
    /// Parts between the two may be missing.
    fn is_later_part_of(&self, earlier: &Self) -> bool {
        let key = |part: &Self| (part.sequence, part.last_commit_id, part.origin);
        !self.is_first && key(self) == key(earlier) && self.part_number >= earlier.part_number
    }

    /// Returns true if this part belongs to the same checkpoint as `earlier` and follows it directly.
    fn is_next_part_after(&self, earlier: &Self) -> bool {
        let (from, to) = (earlier.location, self.location);
        // The next part is written directly after the earlier one, or at the start of the next pack.
        let is_adjacent = (to.pack == from.pack && u64::from(to.offset) == from.end())
            || (to.pack == from.pack + 1 && u64::from(to.offset) == PACK_HEADER_LEN);
        let is_next_number = match (earlier.part_number, self.part_number) {
            (Some(earlier), Some(number)) => earlier + 1 == number,
            // Earlier versions did not number parts.
            (None, None) => true,
            _ => false,
        };
        self.is_later_part_of(earlier) && is_adjacent && is_next_number
    }
}

/// Reads the content of a record of the log. Fails if its pack does not exist.
fn read(packs: &Packs, location: Location, kind: Kind, id: &[u8; 32]) -> Result<Vec<u8>> {
    let not_found = || std::io::Error::from(std::io::ErrorKind::NotFound);
    packs.read(location, kind, id)?.ok_or_else(not_found).context("open", &packs.path(location.pack))
}

fn decoded<T>(record: Decoded<T>) -> Result<T> {
    record.map_err(|source| StoreError::Undecodable { what: "a record of the log".to_owned(), source })
}

impl LogRecords {
    /// Adds a commit or checkpoint record. Ignores other kinds, and records that cannot be decoded. `stored` is the
    /// content of the record as it is stored.
    pub(crate) fn add(&mut self, location: Location, header: &Header, stored: &[u8]) {
        let payload = || header.open(stored);
        let record = match header.kind {
            Kind::Commit => payload().and_then(|payload| {
                let record = CommitRecord::decode(&payload)?;
                Ok(LogRecord::Commit(CommitHeader::new(header.id, location, &record)))
            }),
            Kind::Checkpoint => payload().and_then(|payload| {
                let record = CheckpointRecord::decode(&payload)?;
                Ok(LogRecord::Checkpoint(CheckpointPart::new(header.id, location, &record)))
            }),
            Kind::Chunk | Kind::Node => return,
        };
        self.0.extend(record);
    }

    /// Appends the records of later packs.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    /// Reads the log backwards from `end`, pack by pack, to the last complete checkpoint before `end`.
    pub(crate) fn read_since_checkpoint(packs: &Packs, end: LogPosition) -> Result<Self> {
        let mut newer = Self::default();
        for pack in packs.list()?.into_iter().rev().filter(|pack| *pack <= end.pack) {
            // Bulk packs have only objects of large commits.
            if packs.role(pack)? == Some(Role::Bulk) {
                continue;
            }
            let mut records = Self::default();
            packs.scan(pack, |location, header, stored| {
                // Bytes after the end are leftovers of killed writers.
                if pack < end.pack || u64::from(location.offset) < end.offset {
                    records.add(location, header, stored);
                }
                Ok(())
            })?;
            // The checkpoint may continue in later packs, which have been read already.
            let has_checkpoint_start = records.has_checkpoint_start();
            records.append(newer);
            newer = records;
            if has_checkpoint_start && newer.replay_plan().starts_with_complete_checkpoint() {
                break;
            }
        }
        Ok(newer)
    }

    fn has_checkpoint_start(&self) -> bool {
        self.0.iter().any(|record| matches!(record, LogRecord::Checkpoint(part) if part.is_first))
    }

    /// Returns the part of the log that a replay needs.
    pub(crate) fn replay_plan(&self) -> LogReplay<'_> {
        let mut plan = LogReplay::default();
        // Parts of a checkpoint whose last part has not been found yet, or that has a gap.
        let mut pending: Vec<&CheckpointPart> = Vec::new();
        let mut has_gap = false;
        for record in &self.0 {
            match record {
                LogRecord::Checkpoint(part) => {
                    let earlier = pending.last().filter(|earlier| part.is_later_part_of(earlier)).copied();
                    has_gap = match earlier {
                        Some(earlier) => has_gap || !part.is_next_part_after(earlier),
                        None => !part.is_first,
                    };
                    if earlier.is_none() {
                        pending.clear();
                    }
                    pending.push(part);
                    if part.is_last && !has_gap {
                        plan.restart_from(std::mem::take(&mut pending));
                    }
                }
                LogRecord::Commit(commit) => plan.add(commit, pending.first().copied()),
            }
        }
        if !pending.is_empty() {
            plan.add_incomplete_checkpoint(pending);
        }
        plan
    }

    /// Returns the end of the part of the log that is known to have been on disk. A log pack is synced before the next
    /// one is started.
    pub(crate) fn durable_end(&self) -> LogPosition {
        let of_commit = |record: &LogRecord| match record {
            LogRecord::Commit(commit) => {
                Some(commit.durable.max(LogPosition { pack: commit.location.pack, offset: PACK_HEADER_LEN }))
            }
            LogRecord::Checkpoint(_) => None,
        };
        self.0.iter().filter_map(of_commit).max().unwrap_or_default()
    }
}

impl<'a> LogReplay<'a> {
    fn starts_with_complete_checkpoint(&self) -> bool {
        !self.checkpoint.is_empty() && !self.is_lossy
    }

    /// Replaces everything so far by a complete checkpoint, except commits that the checkpoint does not cover.
    fn restart_from(&mut self, checkpoint: Vec<&'a CheckpointPart>) {
        // Commits that the checkpoint does not cover were written to the older log pack after the checkpoint, because
        // its writer was killed before the index referred to the new log pack. But if a rebuild wrote the checkpoint,
        // they are commits that the rebuild dropped.
        let (last_covered, origin) = (checkpoint[0].sequence, checkpoint[0].origin);
        let is_rebuild = origin == CheckpointOrigin::Rebuild;
        self.commits.retain(|commit| !is_rebuild && commit.sequence > last_covered);
        self.checkpoint = checkpoint;
    }

    /// Adds a commit; `pending` is the first part of an incomplete checkpoint before it.
    fn add(&mut self, commit: &'a CommitHeader, pending: Option<&CheckpointPart>) {
        if let Some(part) = pending.filter(|part| part.origin == CheckpointOrigin::Rebuild)
            && (part.sequence + 1, part.last_commit_id) == (commit.sequence, commit.previous)
        {
            // The commit continues the checkpoint, so the rebuild that wrote the checkpoint was completed. Commits that
            // the rebuild dropped stay dropped.
            self.commits.retain(|commit| commit.sequence <= part.sequence);
        }
        let last = self.commits.last().map(|last| last.sequence);
        let last = last.or_else(|| self.checkpoint.first().map(|part| part.sequence));
        if last.is_none_or(|last| commit.sequence > last) {
            self.commits.push(commit);
        }
    }

    /// Handles a last checkpoint of which only these parts are left. They are not needed if the log before the
    /// checkpoint has all commits that it covers.
    fn add_incomplete_checkpoint(&mut self, parts: Vec<&'a CheckpointPart>) {
        let part = parts[0];
        self.incomplete_checkpoint = Some(part.sequence);
        let is_after_checkpoint = |commit: &&CommitHeader| commit.location.pack >= part.location.pack;
        // If a process is killed while it writes a checkpoint, the index still refers to the older log pack.
        let was_used = parts.iter().any(|part| part.is_last) || self.commits.iter().any(is_after_checkpoint);
        if self.leads_to(part) || (!was_used && self.has_start()) {
            return;
        }
        self.commits.retain(|commit| commit.sequence > part.sequence);
        self.checkpoint = parts;
        self.is_lossy = true;
    }

    /// Returns true if the plan starts with a complete state: a checkpoint, or the first commit of the store.
    fn has_start(&self) -> bool {
        !self.checkpoint.is_empty() || self.commits.first().is_some_and(|first| first.previous == [0; 32])
    }

    /// Returns true if the checkpoint and the commits lead to the state of `part` without a gap.
    fn leads_to(&self, part: &CheckpointPart) -> bool {
        let start = self.checkpoint.first().map_or((0, [0; 32]), |part| (part.sequence, part.last_commit_id));
        let (mut sequence, mut id) = start;
        for commit in &self.commits {
            if sequence >= part.sequence || commit.previous != id {
                break;
            }
            (sequence, id) = (commit.sequence, commit.id);
        }
        (sequence, id) == (part.sequence, part.last_commit_id)
    }
}
