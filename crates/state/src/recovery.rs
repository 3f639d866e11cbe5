//! Rebuilding the index from the packs, after a crash of the machine or on request.
//!
//! The log is replayed from its last complete checkpoint. Up to the last synced commit that some record
//! knows to have reached the disk, everything is kept, damaged or not, for `verify` to judge. Behind that,
//! what the disk holds may have gaps, and leftovers of killed writers: a commit counts only if it follows
//! the one before it and all its content is there; the first that does not, and all after it, are as if
//! they had never been made. If the machine did not crash, nothing acknowledged is missing, and only what
//! does not follow is looked at so closely. The rebuild ends with a new log that begins with a checkpoint, so what was
//! left out stays out.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use heed::RwTxn;

use crate::change::{Change, CheckpointRecord, CommitRecord, LogEnd};
use crate::checkpoint;
use crate::error::{IoContext, Result};
use crate::index::{Index, LogState};
use crate::mark;
use crate::pack::{Location, PACK_HEADER, Packs, Role};
use crate::pin;
use crate::record::Kind;
use crate::references_of::{ObjectId, references_of};

/// Rebuilds the index of the store in `path`. The caller holds the store's lock exclusively.
pub(crate) fn rebuild(path: &Path) -> Result<()> {
    let crashed = may_have_crashed(path);
    // Until the end, whoever opens the store must rebuild as well, and from as little.
    mark::set(path, &if crashed { "rebuilding".to_owned() } else { rebuilding() })?;
    let directory = path.join("index");
    if directory.exists() {
        fs::remove_dir_all(&directory).at("remove", &directory)?;
    }
    fs::create_dir_all(&directory).at("create", &directory)?;

    let packs = Packs::new(path.join("packs"));
    let found = Found::scan(&packs)?;
    {
        let index = Index::open(path)?;
        let mut txn = index.write()?;
        replay(&packs, &found, &index, &mut txn, crashed)?;
        index.commit(txn)?;
        index.sync()?;
    }
    mark::set(path, &mark::boot_id())
}

/// Whether the machine may have crashed since the packs were last written.
fn may_have_crashed(path: &Path) -> bool {
    let mark = mark::read(path).unwrap_or_default();
    !mark::is_clean(&mark) && mark != mark::boot_id() && mark != rebuilding()
}

/// The boot mark of a rebuild that no crash came before.
fn rebuilding() -> String {
    format!("rebuilding in {}", mark::boot_id())
}

/// Everything intact in the packs.
#[derive(Default)]
struct Found {
    objects: HashMap<ObjectId, Location>,
    log: Vec<LogItem>,
    packs: Vec<u32>,
    last_pack: u32,
}

enum LogItem {
    Commit(LoggedCommit),
    Checkpoint(CheckpointRecord),
}

struct LoggedCommit {
    id: [u8; 32],
    record: CommitRecord,
    /// Where its record ends.
    end: LogEnd,
}

impl Found {
    fn scan(packs: &Packs) -> Result<Self> {
        let mut found = Self::default();
        for pack in packs.list()? {
            found.last_pack = found.last_pack.max(pack);
            let mut log = Vec::new();
            let role = packs.scan(pack, |location, header, stored| {
                match header.kind {
                    Kind::Chunk | Kind::Node => {
                        found.objects.insert((header.kind, header.id), location);
                    }
                    // A record that is intact and yet unreadable is not ours to guess at.
                    Kind::Commit => log.extend(
                        header.open(stored).and_then(|payload| CommitRecord::decode(&payload)).map(
                            |record| {
                                let end = u64::from(location.offset) + u64::from(location.len);
                                let end = LogEnd { pack, end };
                                LogItem::Commit(LoggedCommit { id: header.id, record, end })
                            },
                        ),
                    ),
                    Kind::Checkpoint => log.extend(
                        header
                            .open(stored)
                            .and_then(|payload| CheckpointRecord::decode(&payload))
                            .map(LogItem::Checkpoint),
                    ),
                }
                Ok(())
            })?;
            found.packs.push(pack);
            if role == Role::Log {
                found.log.append(&mut log);
            }
        }
        Ok(found)
    }

    /// The records after the last complete checkpoint, and that checkpoint.
    fn tail(&self) -> (Vec<&CheckpointRecord>, Vec<&LoggedCommit>) {
        let mut checkpoint: Vec<&CheckpointRecord> = Vec::new();
        let mut open: Vec<&CheckpointRecord> = Vec::new();
        let mut commits: Vec<&LoggedCommit> = Vec::new();
        for item in &self.log {
            match item {
                LogItem::Checkpoint(part) => {
                    if part.first {
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
                LogItem::Commit(commit) => {
                    let last = commits.last().map(|last| last.record.sequence);
                    let last = last.or_else(|| checkpoint.first().map(|part| part.sequence));
                    if last.is_none_or(|last| commit.record.sequence > last) {
                        commits.push(commit);
                    }
                }
            }
        }
        (checkpoint, commits)
    }

    /// How far the log is known to have been on disk. A log is synced before the next one begins.
    fn durable(&self) -> LogEnd {
        let of_commit = |item: &LogItem| match item {
            LogItem::Commit(commit) => {
                Some(commit.record.durable.max(LogEnd { pack: commit.end.pack, end: PACK_HEADER }))
            }
            LogItem::Checkpoint(_) => None,
        };
        self.log.iter().filter_map(of_commit).max().unwrap_or_default()
    }
}

fn replay(packs: &Packs, found: &Found, index: &Index, txn: &mut RwTxn<'_>, crashed: bool) -> Result<()> {
    let (checkpoint, commits) = found.tail();
    let mut state = LogState { next_pack: found.last_pack + 1, epoch: 1, ..LogState::default() };
    for part in &checkpoint {
        state.sequence = part.sequence;
        state.previous = part.previous;
        for change in &part.changes {
            index.apply(txn, change)?;
        }
    }
    let durable = found.durable();
    let promised = commits.iter().rposition(|commit| commit.record.synced && commit.end <= durable);
    let promised = promised.map_or(0, |last| last + 1);
    let mut whole = Reach::new(packs, found);
    for (position, LoggedCommit { id, record, .. }) in commits.into_iter().enumerate() {
        let follows = record.previous == state.previous;
        if position >= promised && (crashed || !follows) {
            let whole = whole.has_all(&roots(&record.changes))?;
            if !whole || (crashed && !follows) {
                break;
            }
        }
        state.sequence = record.sequence;
        state.previous = *id;
        for change in &record.changes {
            index.apply(txn, change)?;
        }
    }
    index_reachable(packs, found, index, txn)?;
    for pack in &found.packs {
        index.packs.put(txn, &pack.to_be_bytes(), &[])?;
        // The checkpoint promises all of it, and the machine may not have crashed at all.
        packs.open_for_writing(*pack)?.sync_data().at("sync", &packs.path(*pack))?;
    }
    packs.sync_directory()?;
    state.settled = state.sequence;
    checkpoint::write(packs, index, txn, state, true)?;
    Ok(())
}

/// Only what records reach is live: what else lies in the packs may refer to what was collected long ago.
fn index_reachable(packs: &Packs, found: &Found, index: &Index, txn: &mut RwTxn<'_>) -> Result<()> {
    let mut reach = Reach::new(packs, found);
    let mut snapshots = Vec::new();
    index.for_each_snapshot(txn, |snapshot| snapshots.push(Change::PutSnapshot(snapshot)))?;
    reach.has_all(&roots(&snapshots))?;
    for (_, record) in index.rows(txn, &index.pins)? {
        reach.has_all(&pin::roots(&record))?;
    }
    let mut live: Vec<ObjectId> = reach.seen.into_iter().collect();
    live.sort_unstable();
    for (kind, id) in live {
        if let Some(location) = found.objects.get(&(kind, id)) {
            index.objects(kind).put(txn, &id, &location.encode())?;
        }
    }
    Ok(())
}

fn roots(changes: &[Change]) -> Vec<ObjectId> {
    let mut roots = Vec::new();
    for change in changes {
        if let Change::PutSnapshot(snapshot) = change {
            roots.push((Kind::Node, *snapshot.tree.as_bytes()));
            roots.push((Kind::Node, *snapshot.times.as_bytes()));
        }
    }
    roots
}

/// Walks what is reachable, each object once.
struct Reach<'a> {
    packs: &'a Packs,
    found: &'a Found,
    seen: HashSet<ObjectId>,
}

impl<'a> Reach<'a> {
    fn new(packs: &'a Packs, found: &'a Found) -> Self {
        Self { packs, found, seen: HashSet::new() }
    }

    /// Whether everything below `roots` that was not seen before is there.
    fn has_all(&mut self, roots: &[ObjectId]) -> Result<bool> {
        let mut complete = true;
        let mut open = roots.to_vec();
        while let Some(object) = open.pop() {
            if self.seen.contains(&object) {
                continue;
            }
            let Some(location) = self.found.objects.get(&object) else {
                complete = false;
                continue;
            };
            self.seen.insert(object);
            let (kind, id) = object;
            if kind == Kind::Node {
                let node = self.packs.read(*location, kind, &id)?.unwrap_or_default();
                complete &= references_of(node, &mut |child| open.push(child)).is_ok();
            }
        }
        Ok(complete)
    }
}
