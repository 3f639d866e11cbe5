//! Rebuilding the index from the packs, after a machine crash or on request.
//!
//! The index is the LMDB database of a store. Packs are append-only files with all objects (chunks of file content, and
//! nodes of trees) and the log, the sequence of all commits. A checkpoint is a copy of all snapshots, references,
//! episodes and pins in the log.
//!
//! The log is replayed from its last complete checkpoint. If parts of a later checkpoint are missing and the log before
//! this checkpoint cannot replace them, its remaining parts are used and the rest is reported as lost.
//!
//! All commits up to the last synced one that is known to have reached the disk are kept, even if they are damaged;
//! `verify` reports the damage. After that position, the log may have gaps and leftovers of killed writers. There, a
//! commit is valid only if its record names the commit before it and all its content exists. The first invalid commit
//! and all later ones are dropped. Without a machine crash, no acknowledged commit is missing, so the content of a
//! commit is checked only if its record does not name the commit before it.
//!
//! At the end, the rebuild starts a new log pack with a checkpoint, so that dropped commits stay dropped.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use heed::RwTxn;

use crate::checkpoint;
use crate::child_objects::{ObjectId, for_each_child};
use crate::error::{IoContext, Result};
use crate::file_ops::remove_directory;
use crate::index::Index;
use crate::index_trust;
use crate::log_record::{Change, CheckpointOrigin};
use crate::log_scan::{LogRecords, LogReplay};
use crate::log_state::LogState;
use crate::old_index::{self, OldIndexState};
use crate::pack::{Location, Packs, Role, sync_directory};
use crate::pin;
use crate::rebuild_report::RebuildReport;
use crate::record::Kind;

/// Name of the directory of the new index until it is complete.
const NEW_INDEX: &str = "index.new";

/// Rebuilds the index of the store in `path`. The caller holds the store's lock exclusively.
///
/// The new index is built next to the old one and replaces it when it is complete. Afterwards, the two are compared.
/// The old index is kept under another name if it differs or cannot be read.
pub(crate) fn rebuild(path: &Path) -> Result<RebuildReport> {
    let state = old_index_state(path);
    // If this rebuild is interrupted, the next process that opens the store must rebuild the index, with the same
    // assumption about a crash.
    let marker = match state {
        OldIndexState::MaybeInconsistent => "rebuilding".to_owned(),
        OldIndexState::Consistent => rebuilding_marker(),
    };
    index_trust::set(path, &marker)?;
    let new = path.join(NEW_INDEX);
    remove_directory(&new)?;
    fs::create_dir_all(&new).context("create", &new)?;
    let report = match build(path, &new, state) {
        Ok(report) => report,
        Err(error) => {
            // The disk may be full. The partial index would take space that the next attempt needs.
            drop(remove_directory(&new));
            return Err(error);
        }
    };
    let old = install_index(path, &new)?;
    index_trust::set(path, &index_trust::boot_id())?;
    old_index::compare(path, old, report, state)
}

/// Builds an index in the directory `new`.
fn build(path: &Path, new: &Path, old: OldIndexState) -> Result<RebuildReport> {
    let packs = Packs::new(path.join("packs"));
    let contents = PackContents::scan(&packs)?;
    let index = Index::open(new)?;
    let mut txn = index.write()?;
    let ReplayResult { commits_given_up, log_damaged } = replay(&packs, &contents, &index, &mut txn, old)?;
    index.commit(txn)?;
    index.sync()?;
    let txn = index.read()?;
    Ok(RebuildReport {
        index: index.counts(&txn)?,
        commits_given_up,
        log_damaged,
        ..RebuildReport::default()
    })
}

/// Replaces the old index by the new one. Returns the path to which the old one was moved; `None` if there was none.
fn install_index(path: &Path, new: &Path) -> Result<Option<PathBuf>> {
    let directory = path.join("index");
    // An empty index is removed.
    let old = if fs::metadata(directory.join("data.mdb")).is_ok_and(|data| data.len() > 0) {
        let old = old_index::name_for_old_index(path)?;
        fs::rename(&directory, &old).context("rename", &directory)?;
        Some(old)
    } else {
        remove_directory(&directory)?;
        None
    };
    fs::rename(new, &directory).context("rename", new)?;
    sync_directory(path)?;
    Ok(old)
}

/// Returns the state of the old index: the machine may have crashed since the packs were last written.
fn old_index_state(path: &Path) -> OldIndexState {
    let marker = index_trust::read(path).unwrap_or_default();
    let is_of_boot = marker == index_trust::boot_id() || marker == rebuilding_marker();
    if index_trust::is_clean(&marker) || is_of_boot {
        OldIndexState::Consistent
    } else {
        OldIndexState::MaybeInconsistent
    }
}

/// Returns the trust marker (`index_trust.rs`) during a rebuild without a machine crash before it.
fn rebuilding_marker() -> String {
    format!("rebuilding in {}", index_trust::boot_id())
}

/// All intact records of the packs.
#[derive(Default)]
struct PackContents {
    objects: HashMap<ObjectId, Location>,
    /// Commit and checkpoint records.
    log: LogRecords,
    /// Numbers of the packs.
    packs: Vec<u32>,
    /// Highest number of a pack.
    last_pack: u32,
}

impl PackContents {
    fn scan(packs: &Packs) -> Result<Self> {
        let mut contents = Self::default();
        for pack in packs.list()? {
            contents.last_pack = contents.last_pack.max(pack);
            let mut log = LogRecords::default();
            let role = packs.scan(pack, |location, header, stored| {
                if matches!(header.kind, Kind::Chunk | Kind::Node) {
                    contents.objects.insert((header.kind, header.id), location);
                }
                log.add(location, header, stored);
                Ok(())
            })?;
            contents.packs.push(pack);
            if role == Role::Log {
                contents.log.append(log);
            }
        }
        Ok(contents)
    }
}

/// Result of a replay of the log.
struct ReplayResult {
    /// Number of commits at the end of the log that were dropped.
    commits_given_up: u64,
    /// True if commits or parts of a checkpoint are missing before the end of the replayed log.
    log_damaged: bool,
}

/// Fills the index from the log.
fn replay(
    packs: &Packs,
    contents: &PackContents,
    index: &Index,
    txn: &mut RwTxn<'_>,
    old: OldIndexState,
) -> Result<ReplayResult> {
    let has_crashed = old == OldIndexState::MaybeInconsistent;
    let LogReplay { checkpoint, commits, incomplete_checkpoint, is_lossy } = contents.log.replay_plan();
    let mut state = LogState { next_pack: contents.last_pack + 1, epoch: 1, ..LogState::default() };
    for part in &checkpoint {
        state.sequence = part.sequence;
        state.last_commit_id = part.last_commit_id;
        for change in part.read_changes(packs)? {
            index.apply(txn, &change)?;
        }
    }
    let durable_end = contents.log.durable_end();
    let last_durable = commits.iter().rposition(|commit| commit.synced && commit.end() <= durable_end);
    // Number of leading commits that are kept in any case.
    let durable_count = last_durable.map_or(0, |last| last + 1);
    let mut reachability = Reachability::new(packs, contents);
    let mut result = ReplayResult { commits_given_up: commits.len() as u64, log_damaged: is_lossy };
    for (position, commit) in commits.into_iter().enumerate() {
        let changes = commit.read_changes(packs)?;
        let follows = commit.previous == state.last_commit_id;
        if position >= durable_count && (has_crashed || !follows) {
            let is_complete = reachability.visit(&roots(&changes))?;
            if !is_complete || (has_crashed && !follows) {
                break;
            }
        }
        result.commits_given_up -= 1;
        result.log_damaged |= !follows;
        state.sequence = commit.sequence;
        state.last_commit_id = commit.id;
        for change in &changes {
            index.apply(txn, change)?;
        }
    }
    // A checkpoint is written only when everything before it is on disk. So if commits before a checkpoint are missing,
    // the log is damaged.
    result.log_damaged |= incomplete_checkpoint.is_some_and(|sequence| sequence > state.sequence);
    index_reachable(packs, contents, index, txn)?;
    for pack in &contents.packs {
        index.packs.put(txn, &pack.to_be_bytes(), &[])?;
        // A checkpoint may be written only when everything before it is on disk.
        packs.open_for_writing(*pack)?.sync_data().context("sync", &packs.path(*pack))?;
    }
    packs.sync_directory()?;
    // The new index has the objects of all commits in their tables.
    state.settled_up_to = state.sequence;
    checkpoint::write(packs, index, txn, state, CheckpointOrigin::Rebuild)?;
    Ok(result)
}

/// Adds the objects to the index that are reachable from snapshots and pins. Other objects in the packs may refer to
/// objects that garbage collection has deleted.
fn index_reachable(packs: &Packs, contents: &PackContents, index: &Index, txn: &mut RwTxn<'_>) -> Result<()> {
    let mut reachability = Reachability::new(packs, contents);
    let mut snapshots = Vec::new();
    index.for_each_snapshot(txn, |snapshot| snapshots.push(Change::PutSnapshot(snapshot)))?;
    reachability.visit(&roots(&snapshots))?;
    for (_, record) in index.read_all_rows(txn, &index.pins)? {
        reachability.visit(&pin::roots(&record))?;
    }
    let mut live: Vec<ObjectId> = reachability.seen.into_iter().collect();
    live.sort_unstable();
    for (kind, id) in live {
        if let Some(location) = contents.objects.get(&(kind, id)) {
            index.objects(kind).put(txn, &id, &location.encode())?;
        }
    }
    Ok(())
}

/// Returns the root nodes of the snapshots that these changes add.
fn roots(changes: &[Change]) -> Vec<ObjectId> {
    let mut roots = Vec::new();
    for change in changes {
        if let Change::PutSnapshot(snapshot) = change {
            roots.extend(snapshot.nodes().map(|node| (Kind::Node, node)));
        }
    }
    roots
}

/// Traversal of reachable objects that visits each object once.
struct Reachability<'a> {
    packs: &'a Packs,
    contents: &'a PackContents,
    /// Objects that were visited and exist.
    seen: HashSet<ObjectId>,
}

impl<'a> Reachability<'a> {
    fn new(packs: &'a Packs, contents: &'a PackContents) -> Self {
        Self { packs, contents, seen: HashSet::new() }
    }

    /// Visits all objects reachable from `roots`, except those that were visited before. Returns true if all of them
    /// exist and can be decoded.
    fn visit(&mut self, roots: &[ObjectId]) -> Result<bool> {
        let mut complete = true;
        let mut queue = roots.to_vec();
        while let Some(object) = queue.pop() {
            if self.seen.contains(&object) {
                continue;
            }
            let Some(location) = self.contents.objects.get(&object) else {
                complete = false;
                continue;
            };
            self.seen.insert(object);
            let (kind, id) = object;
            if kind == Kind::Node {
                let node = self.packs.read(*location, kind, &id)?.unwrap_or_default();
                complete &= for_each_child(node, &mut |child| queue.push(child)).is_ok();
            }
        }
        Ok(complete)
    }
}
