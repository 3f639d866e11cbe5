//! Garbage collection: deletes unreachable objects, concurrently with other operations.
//!
//! 1. **Mark** everything reachable from snapshots and pins in one read transaction.
//! 2. **Condemn** the rest, one batch per transaction, after marking objects committed since. Nodes are
//!    condemned before the objects that they refer to, so that live objects refer only to live objects after
//!    each batch. Commits do not reuse a condemned object. Operations that already rely on it can still read
//!    it, and a commit that refers to it revives it (`commit.rs`, `keep_alive`).
//! 3. **Delete** condemned objects that no batch or virtual tree from before the condemnation can use. The
//!    next collection deletes the others.
//! 4. **Rewrite** packs that are mostly dead, and delete them after the new packs are synced and indexed.
//!
//! A transaction blocks all commits and keeps its changes in memory, so it handles at most one batch of
//! objects.
//!
//! A crash or a cancellation at any point loses no live object: the index is consistent after each
//! transaction, and files are deleted last.

mod condemn;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use heed::{RoTxn, RwTxn};
use rayon::prelude::*;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::cancel::Cancel;
use crate::checkpoint;
use crate::child_objects::{ObjectId, for_each_child};
use crate::commit::missing;
use crate::commit_options::Durability;
use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::file_ops::remove_if_exists;
use crate::id::{IdHashBuilder, SnapshotId};
use crate::index::condemned_key;
use crate::log_record::{Change, CheckpointOrigin};
use crate::new_objects::BulkPack;
use crate::pack::Location;
use crate::pin;
use crate::progress::Progress;
use crate::record::Kind;
use crate::store::{Inner, Store};

/// Percentage of dead bytes above which a pack is rewritten.
const REWRITE_PERCENT: u64 = 50;
/// Size in bytes below which a log is not rewritten.
const LOG_REWRITE_MIN: u64 = 4 << 20;
/// Maximum number of objects that one transaction moves or deletes.
const BATCH_SIZE: usize = 4096;
/// Minimum age of an unused file before it is deleted: its creator may be about to lock it.
const ORPHAN_MIN_AGE: Duration = Duration::from_secs(60);

/// Options of a garbage collection.
#[derive(Debug, Clone, Default)]
pub struct GcOptions {
    /// True to report the objects that would be deleted, without deleting them.
    pub dry_run: bool,
}

/// Result of a garbage collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// Number of reachable objects.
    pub live_objects: u64,
    /// Size of reachable objects in packs, in bytes.
    pub live_bytes: u64,
    /// Number of unreachable objects.
    pub dead_objects: u64,
    /// Size of unreachable objects in packs, in bytes.
    pub dead_bytes: u64,
    /// Bytes of dead objects that running operations may rely on; a later collection deletes them.
    pub condemned_bytes: u64,
    /// Number of bytes by which the packs on disk shrank.
    pub freed_bytes: u64,
    /// Number of packs deleted.
    pub packs_removed: u64,
    /// Number of deleted packs whose live objects were moved to a new pack.
    pub packs_rewritten: u64,
    /// All snapshots with the size of their objects in bytes. A shared object counts for one snapshot.
    #[serde(skip)]
    pub snapshots: Vec<(SnapshotId, u64)>,
}

impl Store {
    /// Deletes objects that are not reachable from a snapshot or a pin. Does not block commits in this or
    /// other processes for long.
    pub fn collect_garbage(&self, options: &GcOptions, progress: &dyn Progress) -> Result<GcReport> {
        let report = self.retry_with_disk_reserve(|| self.collect(options, progress))?;
        if !options.dry_run {
            self.inner.reserve.try_allocate();
        }
        Ok(report)
    }

    fn collect(&self, options: &GcOptions, progress: &dyn Progress) -> Result<GcReport> {
        let (inner, cancel) = (&self.inner, self.cancel_flag());
        let _lock = inner.lock_collection()?;
        if inner.log.has_failed() {
            return Err(StoreError::Poisoned);
        }
        cancel.check()?;
        if !options.dry_run {
            // Objects that only a damaged row refers to would be deleted, and the checkpoint would make the
            // damage permanent.
            inner.check_against_log()?;
            self.remove_dead_pins()?;
            inner.delete_condemned(cancel)?;
            // Looking objects up is faster in the tables than in the rows of small commits.
            inner.settle_rows()?;
        }
        let mut report = GcReport::default();
        progress.begin("marking nodes", None);
        let marked = crate::pool::run(|| inner.find_dead(&mut report, cancel, progress));
        progress.end();
        let (dead, live, seen) = marked?;
        if options.dry_run {
            return Ok(report);
        }
        failpoint::hit("gc-marked").context("collect", &inner.path)?;
        inner.condemn(dead, live, seen, cancel)?;
        failpoint::hit("gc-condemned").context("collect", &inner.path)?;
        cancel.check()?;
        report.condemned_bytes = inner.delete_condemned(cancel)?;
        failpoint::hit("gc-deleted").context("collect", &inner.path)?;
        cancel.check()?;
        inner.rewrite_packs(&mut report, cancel, progress)?;
        inner.remove_orphans(&mut report)?;
        Ok(report)
    }
}

/// First half of a hash, to save memory. A collision only keeps a dead object alive.
type ShortId = (Kind, [u8; 16]);

fn short_id((kind, id): &ObjectId) -> ShortId {
    let mut half = [0; 16];
    half.copy_from_slice(&id[..16]);
    (*kind, half)
}

/// Reachable objects, each with the number of the snapshot that reached it first.
type LiveObjects = HashMap<ShortId, u32>;

/// Snapshot number of objects reached from a pin, or from a snapshot that was committed during the
/// collection.
const NO_SNAPSHOT_NUMBER: u32 = u32::MAX;

/// Object from which marking starts or continues, and the number of its snapshot.
type Root = (ObjectId, u32);

/// Unreachable objects and their locations.
type DeadObjects = Vec<(ObjectId, Location)>;

/// Marks an object as reachable. Returns true the first time.
fn mark_object(live: &mut LiveObjects, (object, number): &Root) -> bool {
    match live.entry(short_id(object)) {
        Entry::Vacant(new) => {
            new.insert(*number);
            true
        }
        Entry::Occupied(_) => false,
    }
}

/// Lock of a running collection. It is released explicitly: a child process that another thread is forking
/// inherits the file until it calls `exec`, so closing the file might not release the lock.
struct CollectionLock(File);

impl Drop for CollectionLock {
    fn drop(&mut self) {
        // On failure, the lock is released when the file is closed.
        flock(&self.0, FlockOperation::Unlock).unwrap_or(());
    }
}

/// Execution mode of marking.
#[derive(Clone, Copy)]
enum Marking<'a> {
    /// On all cores.
    Parallel(&'a dyn Progress),
    /// On the calling thread. A thread that holds the write lock of the index must not wait for pool threads,
    /// which may be waiting for that lock themselves.
    SingleThreaded,
}

/// Objects in unsettled rows.
type UnsettledObjects = HashMap<ObjectId, Location, IdHashBuilder>;

/// Ids of the marked snapshots and pins.
type MarkedRoots = HashSet<Vec<u8>>;

impl Inner {
    fn lock_collection(&self) -> Result<CollectionLock> {
        let path = self.path.join("gc.lock");
        let lock = File::create(&path).context("open", &path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            StoreError::Refused("another garbage collection of this store is running".to_owned())
        })?;
        Ok(CollectionLock(lock))
    }

    /// Moves unsettled rows (the objects and snapshots of a small commit in one row) into the tables.
    fn settle_rows(&self) -> Result<()> {
        self.mark_index_dirty()?;
        let mut txn = self.index.write()?;
        self.index.settle(&mut txn)?;
        self.index.commit(txn)
    }

    /// Marks everything reachable. Returns the dead objects, the live ones, and the snapshots and pins that marking
    /// started from.
    fn find_dead(
        &self,
        report: &mut GcReport,
        cancel: &Cancel,
        progress: &dyn Progress,
    ) -> Result<(DeadObjects, LiveObjects, MarkedRoots)> {
        let txn = self.index.read()?;
        let mut live = LiveObjects::new();
        let mut seen = MarkedRoots::new();
        let roots = self.roots(&txn, &mut seen, &mut report.snapshots)?;
        let unsettled = self.unsettled(&txn)?;
        self.mark((&txn, &unsettled), roots, &mut live, Marking::Parallel(progress), cancel)?;
        let mut dead = Vec::new();
        self.for_each_live(&txn, |object, location| {
            if let Some(number) = live.get(&short_id(&object)) {
                report.live_objects += 1;
                report.live_bytes += u64::from(location.len);
                if let Some((_, bytes)) = report.snapshots.get_mut(*number as usize) {
                    *bytes += u64::from(location.len);
                }
            } else {
                report.dead_objects += 1;
                report.dead_bytes += u64::from(location.len);
                dead.push((object, location));
            }
        })?;
        Ok((dead, live, seen))
    }

    /// Returns the objects in unsettled rows as of `txn`. The shared cache is not used, because it follows
    /// commits, which may settle rows at any time. The older of two copies wins, as it does when rows are
    /// settled.
    fn unsettled(&self, txn: &RoTxn<'_>) -> Result<UnsettledObjects> {
        let mut unsettled = UnsettledObjects::default();
        self.index.for_each_unsettled(txn, |object, location| {
            unsettled.entry(object).or_insert(location);
        })?;
        Ok(unsettled)
    }

    /// Returns the roots of snapshots and pins that are not in `seen`, and adds them to it. Snapshots are
    /// also appended to `numbered`: their index there is their number.
    fn roots(
        &self,
        txn: &RoTxn<'_>,
        seen: &mut MarkedRoots,
        numbered: &mut Vec<(SnapshotId, u64)>,
    ) -> Result<Vec<Root>> {
        let mut roots = Vec::new();
        self.index.for_each_snapshot(txn, |snapshot| {
            if seen.insert(snapshot.id.as_bytes().to_vec()) {
                let number = u32::try_from(numbered.len()).unwrap_or(NO_SNAPSHOT_NUMBER);
                roots.extend(snapshot.nodes().map(|node| ((Kind::Node, node), number)));
                numbered.push((snapshot.id, 0));
            }
        })?;
        for row in self.index.pins.iter(txn)? {
            let (id, record) = row?;
            if seen.insert(id.to_vec()) {
                roots.extend(pin::roots(record).into_iter().map(|root| (root, NO_SNAPSHOT_NUMBER)));
            }
        }
        Ok(roots)
    }

    /// Adds everything reachable from `roots` to `live`. Fails on a damaged node: objects that only
    /// this node refers to cannot be distinguished from garbage.
    fn mark(
        &self,
        (txn, unsettled): (&RoTxn<'_>, &UnsettledObjects),
        roots: Vec<Root>,
        live: &mut LiveObjects,
        marking: Marking<'_>,
        cancel: &Cancel,
    ) -> Result<()> {
        let mut frontier: Vec<Root> = roots.into_iter().filter(|root| mark_object(live, root)).collect();
        while !frontier.is_empty() {
            if let Marking::Parallel(progress) = marking {
                progress.advance(frontier.len() as u64);
            }
            let mut located = Vec::with_capacity(frontier.len());
            for ((kind, id), number) in &frontier {
                cancel.check()?;
                let settled = self.index.objects(*kind).get(txn, id)?.and_then(Location::decode);
                let location = settled.or_else(|| unsettled.get(&(*kind, *id)).copied());
                located.push((*id, location.ok_or_else(|| missing(*kind, *id))?, *number));
            }
            let read = |(id, location, number): &([u8; 32], Location, u32)| -> Result<Vec<Root>> {
                cancel.check()?;
                let references = self.children_at(id, *location)?;
                Ok(references.into_iter().map(|object| (object, *number)).collect())
            };
            let references: Vec<Vec<Root>> = match marking {
                Marking::Parallel(_) => located.par_iter().map(read).collect::<Result<_>>()?,
                Marking::SingleThreaded => located.iter().map(read).collect::<Result<_>>()?,
            };
            // Chunks are marked too, but have no references to follow.
            frontier = references
                .into_iter()
                .flatten()
                .filter(|root| mark_object(live, root) && root.0.0 == Kind::Node)
                .collect();
        }
        Ok(())
    }

    /// Returns the objects that the node stored at `location` refers to.
    fn children_at(&self, id: &[u8; 32], location: Location) -> Result<Vec<ObjectId>> {
        let node = self.packs.read(location, Kind::Node, id)?.ok_or_else(|| missing(Kind::Node, *id))?;
        let mut references = Vec::new();
        for_each_child(node, &mut |object| references.push(object)).map_err(|source| {
            StoreError::Undecodable { what: format!("node {}", crate::id::NodeId::from_bytes(*id)), source }
        })?;
        Ok(references)
    }

    fn rewrite_packs(&self, report: &mut GcReport, cancel: &Cancel, progress: &dyn Progress) -> Result<()> {
        self.close_sparse_log()?;
        let plan = self.plan_rewrite()?;
        if plan.packs.is_empty() {
            return Ok(());
        }
        match self.replace_packs(&plan, report, cancel, progress) {
            // A failed sync is not retried.
            Err(error) if error.is_full() && !self.log.has_failed() => {
                // There is no space for moved objects. Deleting packs without live objects frees some.
                let (dead, rest) = plan.split();
                if dead.packs.is_empty() {
                    return Err(error);
                }
                self.replace_packs(&dead, report, cancel, progress)?;
                match self.replace_packs(&rest, report, cancel, progress) {
                    // The next collection does the rest.
                    Err(error) if error.is_full() && !self.log.has_failed() => Ok(()),
                    other => other,
                }
            }
            other => other,
        }
    }

    /// Moves the live objects of a plan's packs into new packs, and removes the old ones.
    fn replace_packs(
        &self,
        plan: &RewritePlan,
        report: &mut GcReport,
        cancel: &Cancel,
        progress: &dyn Progress,
    ) -> Result<()> {
        if plan.packs.is_empty() {
            return Ok(());
        }
        progress.begin("rewriting packs", Some(plan.moves.len() as u64));
        let mut new = Vec::new();
        // Set once the index refers to the new packs.
        let mut in_use = false;
        let moved = self.copy_objects(plan, &mut new, cancel, progress).and_then(|moved| {
            failpoint::hit("gc-rewritten").context("collect", &self.path)?;
            self.relocate_objects(&new, &moved, &mut in_use)?;
            self.remove_packs_from_index(plan)?;
            Ok(moved)
        });
        progress.end();
        if moved.is_err() && !in_use {
            // Free the space of the new packs. A later collection deletes packs that cannot be deleted here.
            new.iter().for_each(|pack| drop(self.packs.remove(pack.number)));
        }
        let moved = moved?;
        drop(new);
        failpoint::hit("gc-before-remove").context("collect", &self.path)?;
        for (pack, size) in &plan.packs {
            self.packs.remove(*pack)?;
            report.freed_bytes += size;
            report.packs_removed += 1;
        }
        report.packs_rewritten += plan.rewritten;
        let moved_bytes: u64 = moved.iter().map(|(_, _, to)| u64::from(to.len)).sum();
        report.freed_bytes = report.freed_bytes.saturating_sub(moved_bytes);
        self.packs.sync_directory()
    }

    /// Starts a new log if most of the current one is dead, so that it can be rewritten like any other pack.
    /// The log of a store with only small commits holds nearly all objects.
    fn close_sparse_log(&self) -> Result<()> {
        self.mark_index_dirty()?;
        let mut txn = self.index.write()?;
        let Some(state) = self.index.log_state(&txn)? else { return Ok(()) };
        let mut used = 0;
        self.for_each_object(&txn, |_, location| {
            if location.pack == state.pack {
                used += u64::from(location.len);
            }
        })?;
        if state.end < LOG_REWRITE_MIN || state.end.saturating_sub(used) * 100 <= state.end * REWRITE_PERCENT
        {
            return Ok(());
        }
        self.sync_unsynced_packs(&mut txn, &[])?;
        self.close_log(&state)?;
        checkpoint::write(&self.packs, &self.index, &mut txn, state, CheckpointOrigin::GarbageCollection)?;
        self.index.commit(txn)
    }

    /// Selects the packs to remove and the objects to move first.
    fn plan_rewrite(&self) -> Result<RewritePlan> {
        let txn = self.index.read()?;
        let Some(state) = self.index.log_state(&txn)? else { return Ok(RewritePlan::default()) };
        let mut used: HashMap<u32, u64> = HashMap::new();
        self.for_each_object(&txn, |_, location| {
            *used.entry(location.pack).or_insert(0) += u64::from(location.len);
        })?;
        let mut plan = RewritePlan::default();
        for row in self.index.packs.iter(&txn)? {
            let Ok(pack) = <[u8; 4]>::try_from(row?.0).map(u32::from_be_bytes) else { continue };
            if pack == state.pack {
                continue;
            }
            let path = self.packs.path(pack);
            let size = match fs::metadata(&path) {
                Ok(meta) => meta.len(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
                Err(error) => return Err(error).context("stat", &path),
            };
            let used = used.get(&pack).copied().unwrap_or(0);
            if used == 0 || size.saturating_sub(used) * 100 > size * REWRITE_PERCENT {
                plan.rewritten += u64::from(used > 0);
                plan.packs.insert(pack, size);
            }
        }
        let packs = &plan.packs;
        let mut moves = Vec::new();
        self.for_each_object(&txn, |object, location| {
            if packs.contains_key(&location.pack) {
                moves.push((object, location));
            }
        })?;
        // Sorted by location on disk, for sequential reads.
        moves.sort_unstable_by_key(|(_, location)| *location);
        // An object that was condemned and written again exists twice: both copies are moved.
        moves.dedup();
        plan.moves = moves;
        Ok(plan)
    }

    /// Calls `visit` once for each object that is not condemned. Second copies are skipped.
    fn for_each_live(&self, txn: &RoTxn<'_>, mut visit: impl FnMut(ObjectId, Location)) -> Result<()> {
        for kind in [Kind::Chunk, Kind::Node] {
            for row in self.index.objects(kind).iter(txn)? {
                let (id, location) = row?;
                if let (Ok(id), Some(location)) = (id.try_into(), Location::decode(location)) {
                    visit((kind, id), location);
                }
            }
        }
        for ((kind, id), location) in self.unsettled(txn)? {
            if self.index.objects(kind).get(txn, &id)?.is_none() {
                visit((kind, id), location);
            }
        }
        Ok(())
    }

    /// Calls `visit` for all readable objects in the packs, including condemned ones.
    fn for_each_object(&self, txn: &RoTxn<'_>, mut visit: impl FnMut(ObjectId, Location)) -> Result<()> {
        self.for_each_live(txn, &mut visit)?;
        for row in self.index.condemned.iter(txn)? {
            let (key, location) = row?;
            // The index may be damaged.
            let Some((kind, id)) = key.split_first() else { continue };
            let kind = if *kind == Kind::Chunk as u8 { Kind::Chunk } else { Kind::Node };
            if let (Ok(id), Some(location)) = (id.try_into(), Location::decode(location)) {
                visit((kind, id), location);
            }
        }
        Ok(())
    }

    /// Copies objects into `new` packs. Returns their old and new locations.
    fn copy_objects(
        &self,
        plan: &RewritePlan,
        new: &mut Vec<BulkPack>,
        cancel: &Cancel,
        progress: &dyn Progress,
    ) -> Result<Vec<(ObjectId, Location, Location)>> {
        let mut moved = Vec::with_capacity(plan.moves.len());
        for ((kind, id), from) in &plan.moves {
            cancel.check()?;
            progress.advance(1);
            // A damaged record fails the collection and keeps its pack, so that `verify` reports it.
            let content = self.packs.read(*from, *kind, id)?.ok_or_else(|| missing(*kind, *id))?;
            let mut encoded = Vec::new();
            let len = crate::record::append(
                &mut encoded,
                *kind,
                id,
                &content,
                crate::record::Compression::Thorough,
            )?;
            if new.last().is_none_or(BulkPack::is_full) {
                new.push(self.create_bulk()?);
            }
            let Some(pack) = new.last_mut() else { unreachable!("a pack was just made") };
            let path = self.packs.path(pack.number);
            let offset = pack.append(&encoded, &path)?;
            moved.push(((*kind, *id), *from, Location { pack: pack.number, offset, len }));
        }
        for pack in &*new {
            pack.file.sync_all().context("sync", &self.packs.path(pack.number))?;
        }
        self.packs.sync_directory()?;
        Ok(moved)
    }

    /// Updates the locations of moved objects in the index. Sets `in_use` once the first batch is committed:
    /// from then on, the new packs must not be deleted on failure.
    fn relocate_objects(
        &self,
        new: &[BulkPack],
        moved: &[(ObjectId, Location, Location)],
        in_use: &mut bool,
    ) -> Result<()> {
        for batch in moved.chunks(BATCH_SIZE) {
            self.mark_index_dirty()?;
            let mut txn = self.index.write()?;
            self.index.settle(&mut txn)?;
            // The first batch adds all new packs to the index.
            for pack in new.iter().filter(|_| !*in_use) {
                self.index.packs.put(&mut txn, &pack.number.to_be_bytes(), &[])?;
            }
            for (object, from, to) in batch {
                self.relocate(&mut txn, object, *from, *to)?;
            }
            self.index.commit(txn)?;
            *in_use = true;
            failpoint::hit("gc-moved-batch").context("collect", &self.path)?;
        }
        Ok(())
    }

    /// Updates the location of an object in the index, live or condemned.
    fn relocate(&self, txn: &mut RwTxn<'_>, object: &ObjectId, from: Location, to: Location) -> Result<()> {
        let (kind, id) = object;
        if self.index.find_live(txn, *kind, id)? == Some(from) {
            return Ok(self.index.objects(*kind).put(txn, id, &to.encode())?);
        }
        let key = condemned_key(*kind, id);
        let row = self.index.condemned.get(txn, &key)?.map(<[u8]>::to_vec);
        if let Some(mut row) = row.filter(|row| Location::decode(row) == Some(from)) {
            // The epoch of the condemnation follows the location.
            row[..12].copy_from_slice(&to.encode());
            self.index.condemned.put(txn, &key, &row)?;
        }
        Ok(())
    }

    /// Removes the packs of a plan from the index. Starts a new log with a checkpoint, so that commit records
    /// in these packs are no longer needed.
    fn remove_packs_from_index(&self, plan: &RewritePlan) -> Result<()> {
        self.mark_index_dirty()?;
        let mut txn = self.index.write()?;
        self.sync_unsynced_packs(&mut txn, &[])?;
        self.index.settle(&mut txn)?;
        for pack in plan.packs.keys() {
            self.index.packs.delete(&mut txn, &pack.to_be_bytes())?;
        }
        if let Some(state) = self.index.log_state(&txn)? {
            self.close_log(&state)?;
            checkpoint::write(
                &self.packs,
                &self.index,
                &mut txn,
                state,
                CheckpointOrigin::GarbageCollection,
            )?;
        }
        self.index.commit(txn)
    }

    /// Deletes files that killed processes left in the directory of the packs.
    fn remove_orphans(&self, report: &mut GcReport) -> Result<()> {
        let indexed: HashSet<u32> = {
            let txn = self.index.read()?;
            let rows = self.index.read_all_rows(&txn, &self.index.packs)?;
            rows.into_iter().filter_map(|(key, _)| Some(u32::from_be_bytes(key.try_into().ok()?))).collect()
        };
        for pack in self.packs.list()? {
            let path = self.packs.path(pack);
            if indexed.contains(&pack) || !is_abandoned(&path) {
                continue;
            }
            // The pack may have been committed in the meantime.
            let txn = self.index.read()?;
            if self.index.packs.get(&txn, &pack.to_be_bytes())?.is_none() {
                report.freed_bytes += fs::metadata(&path).map_or(0, |meta| meta.len());
                report.packs_removed += 1;
                self.packs.remove(pack)?;
            }
        }
        remove_abandoned(self.packs.directory(), |path| {
            path.extension().is_some_and(|extension| extension == "new")
        })
    }
}

/// Packs to remove, and the live objects to move out of them first.
#[derive(Default)]
struct RewritePlan {
    /// Packs to remove, with their sizes in bytes.
    packs: HashMap<u32, u64>,
    moves: Vec<(ObjectId, Location)>,
    /// Number of packs in the plan that have live objects.
    rewritten: u64,
}

impl RewritePlan {
    /// Splits the plan into packs without live objects and the others.
    fn split(mut self) -> (Self, Self) {
        let with_live: HashSet<u32> = self.moves.iter().map(|(_, location)| location.pack).collect();
        let (rest, dead) = self.packs.into_iter().partition(|(pack, _)| with_live.contains(pack));
        self.packs = rest;
        (Self { packs: dead, ..Self::default() }, self)
    }
}

/// Returns true if no process is writing the file, and none has written to it for [`ORPHAN_MIN_AGE`].
fn is_abandoned(path: &Path) -> bool {
    let is_old = fs::metadata(path)
        .and_then(|meta| meta.modified())
        .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ORPHAN_MIN_AGE));
    let is_unlocked =
        || File::open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
    is_old && is_unlocked()
}

/// Removes unfinished files that their creator abandoned.
fn remove_abandoned(directory: &Path, is_unfinished: impl Fn(&Path) -> bool) -> Result<()> {
    for entry in fs::read_dir(directory).context("list", directory)? {
        let path = entry.context("list", directory)?.path();
        if is_unfinished(&path) && is_abandoned(&path) {
            remove_if_exists(&path)?;
        }
    }
    Ok(())
}

impl Store {
    /// Makes all previous commits durable, by an empty synced commit.
    pub fn sync(&self) -> Result<()> {
        self.commit_changes(Vec::<Change>::new(), Durability::Synced)
    }
}
