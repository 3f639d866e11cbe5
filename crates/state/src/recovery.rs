//! Rebuilding the index from the packs, after a crash of the machine or on request.
//!
//! The log is replayed from its last complete checkpoint. A commit that was never synced may miss content
//! that never reached the disk: then it and all after it are as if they had never been made. Everything a
//! synced commit promised is kept, damaged or not, for `verify` to judge. The rebuild ends with a new log
//! that begins with a checkpoint, so what was left out stays out.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use heed::RwTxn;

use crate::change::{Change, CheckpointRecord, CommitRecord};
use crate::checkpoint;
use crate::error::{IoContext, Result};
use crate::index::{Index, LogState};
use crate::pack::{Location, Packs, Role, sync_directory};
use crate::pin;
use crate::record::Kind;
use crate::references_of::{ObjectId, references_of};
use crate::store::{boot_id, remove_if_there, replace_file};

/// Rebuilds the index of the store in `path`. The caller holds the store's lock exclusively.
pub(crate) fn rebuild(path: &Path) -> Result<()> {
    // Until the end, whoever opens the store must rebuild as well.
    remove_if_there(&path.join("clean"))?;
    replace_file(&path.join("boot"), b"rebuilding")?;
    sync_directory(path)?;
    let directory = path.join("index");
    if directory.exists() {
        fs::remove_dir_all(&directory).at("remove", &directory)?;
    }
    fs::create_dir_all(&directory).at("create", &directory)?;

    let packs = Packs::new(path.join("packs"));
    let found = Found::scan(&packs)?;
    {
        let index = Index::open(&directory)?;
        let mut txn = index.write()?;
        replay(&packs, &found, &index, &mut txn)?;
        txn.commit()?;
        index.env.force_sync()?;
    }
    replace_file(&path.join("boot"), boot_id().as_bytes())?;
    sync_directory(path)
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
    Commit { id: [u8; 32], record: CommitRecord },
    Checkpoint(CheckpointRecord),
}

impl Found {
    fn scan(packs: &Packs) -> Result<Self> {
        let mut found = Self::default();
        for pack in packs.list()? {
            found.last_pack = found.last_pack.max(pack);
            let mut log = Vec::new();
            let scan = packs.scan(pack, |location, header, stored| {
                match header.kind {
                    Kind::Chunk | Kind::Node => {
                        found.objects.insert((header.kind, header.id), location);
                    }
                    // A record that is intact and yet unreadable is not ours to guess at.
                    Kind::Commit => log.extend(
                        header
                            .open(stored)
                            .and_then(|payload| CommitRecord::decode(&payload))
                            .map(|record| LogItem::Commit { id: header.id, record }),
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
            if scan.role.is_some() {
                found.packs.push(pack);
            }
            if scan.role == Some(Role::Log) {
                found.log.append(&mut log);
            }
        }
        Ok(found)
    }

    /// The records after the last complete checkpoint, and that checkpoint.
    fn tail(&self) -> (Vec<&CheckpointRecord>, Vec<(&[u8; 32], &CommitRecord)>) {
        let mut checkpoint: Vec<&CheckpointRecord> = Vec::new();
        let mut open: Vec<&CheckpointRecord> = Vec::new();
        let mut commits: Vec<(&[u8; 32], &CommitRecord)> = Vec::new();
        for item in &self.log {
            match item {
                LogItem::Checkpoint(part) => {
                    if part.first {
                        open.clear();
                    }
                    open.push(part);
                    if part.last && open.first().is_some_and(|part| part.first) {
                        checkpoint = std::mem::take(&mut open);
                        // One that was written but never taken into use is behind its predecessor's log.
                        let covered = checkpoint[0].sequence;
                        commits.retain(|(_, commit)| commit.sequence > covered);
                    }
                }
                LogItem::Commit { id, record } => {
                    let last = commits.last().map(|(_, last)| last.sequence);
                    let last = last.or_else(|| checkpoint.first().map(|part| part.sequence));
                    if last.is_none_or(|last| record.sequence > last) {
                        commits.push((id, record));
                    }
                }
            }
        }
        (checkpoint, commits)
    }
}

fn replay(packs: &Packs, found: &Found, index: &Index, txn: &mut RwTxn<'_>) -> Result<()> {
    let (checkpoint, commits) = found.tail();
    let mut state = LogState { next_pack: found.last_pack + 1, epoch: 1, ..LogState::default() };
    for part in &checkpoint {
        state.sequence = part.sequence;
        state.previous = part.previous;
        for change in &part.changes {
            index.apply(txn, change)?;
        }
    }
    let promised = commits.iter().rposition(|(_, commit)| commit.synced).map_or(0, |last| last + 1);
    let mut whole = Reach::new(packs, found);
    for (position, (id, commit)) in commits.iter().enumerate() {
        if position >= promised && !whole.has_all(&roots(&commit.changes))? {
            break;
        }
        state.sequence = commit.sequence;
        state.previous = **id;
        for change in &commit.changes {
            index.apply(txn, change)?;
        }
    }
    index_reachable(packs, found, index, txn)?;
    for pack in &found.packs {
        index.packs.put(txn, &pack.to_be_bytes(), &[])?;
    }
    checkpoint::write(packs, index, txn, state, None)?;
    Ok(())
}

/// Only what records reach is live: what else lies in the packs may refer to what was collected long ago.
fn index_reachable(packs: &Packs, found: &Found, index: &Index, txn: &mut RwTxn<'_>) -> Result<()> {
    let mut reach = Reach::new(packs, found);
    for (_, record) in index.rows(txn, &index.snapshots)? {
        if let Ok(snapshot) = crate::snapshot::Snapshot::decode(&record) {
            reach.has_all(&roots(&[Change::PutSnapshot(snapshot)]))?;
        }
    }
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
