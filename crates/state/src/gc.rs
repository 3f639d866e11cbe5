//! Garbage collection: deletes unreachable objects (chunks of file content, and nodes of trees), concurrently with
//! other operations.
//!
//! 1. **Mark** everything reachable from snapshots and pins (records that keep the content of a snapshot while it is
//!    in use) in one read transaction.
//! 2. **Condemn** the rest: move the index rows of these objects to the table of condemned objects. Each transaction
//!    condemns one batch, after marking objects committed since. Nodes are condemned before the objects that they refer
//!    to, so that live objects refer only to live objects after each batch. New commits do not reuse a condemned
//!    object. Operations that began before the condemnation can still read it. If they commit a reference to it, the
//!    object becomes live again (`commit/alive.rs`).
//! 3. **Delete** the index rows of condemned objects, except those that running operations may still use because they
//!    began before the condemnation (`gc_guards.rs`). A later collection deletes these.
//! 4. **Rewrite** packs (append-only files of objects) that consist mostly of deleted objects: copy the other objects
//!    to new packs, and delete the old packs after the new ones are synced and in the index.
//!
//! A write transaction of the index (an LMDB database) blocks all commits and keeps its changes in memory, so it
//! handles at most one batch of objects.
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

/// Percentage of bytes of deleted objects above which a pack is rewritten.
const REWRITE_PERCENT: u64 = 50;
/// Size in bytes below which the current log pack (the one to which commits are appended) is not rewritten.
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
    /// All snapshots with the size of their objects in bytes. An object in several snapshots counts for one of them.
    #[serde(skip)]
    pub snapshots: Vec<(SnapshotId, u64)>,
}

impl Store {
    /// Deletes objects that are not reachable from a snapshot or a pin. Blocks commits of this and other processes
    /// only for short times. Fails if another collection of this store is running.
    pub fn collect_garbage(&self, options: &GcOptions, progress: &dyn Progress) -> Result<GcReport> {
        // On a full disk, a collection uses disk space that is reserved for it (`reserve.rs`).
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
            // Objects that only a damaged row refers to would be deleted. And the collection ends the old log with a
            // copy of all rows, so that the damage could no longer be repaired from the log.
            inner.check_against_log()?;
            self.remove_dead_pins()?;
            inner.delete_condemned(cancel)?;
            // Objects are found faster in their tables than in unsettled rows, each of which has the objects and
            // snapshots of a small commit until they are moved to their tables (`unsettled_rows.rs`).
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

/// Kind of an object and the first half of its hash, to save memory. A collision only keeps a dead object.
type ShortId = (Kind, [u8; 16]);

fn short_id((kind, id): &ObjectId) -> ShortId {
    let mut half = [0; 16];
    half.copy_from_slice(&id[..16]);
    (*kind, half)
}

/// Reachable objects, each with the number of the snapshot from which it was reached first.
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

/// Lock of a running collection, released explicitly on drop. Closing the file might not release the lock, because a
/// child process that another thread is just forking inherits the file until it calls `exec`.
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

/// Objects in unsettled rows and their locations.
type UnsettledObjects = HashMap<ObjectId, Location, IdHashBuilder>;

/// Ids of the snapshots and pins from which objects were marked.
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

    /// Moves the content of unsettled rows to the tables.
    fn settle_rows(&self) -> Result<()> {
        self.mark_index_dirty()?;
        let mut txn = self.index.write()?;
        self.index.settle(&mut txn)?;
        self.index.commit(txn)
    }

    /// Marks all reachable objects. Returns the unreachable objects, the reachable ones, and the snapshots and pins
    /// from which they were marked.
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

    /// Returns the objects in the unsettled rows that `txn` sees. Reads the rows and not their cache, which changes
    /// with every commit. If an object is in two rows, the older location wins, as it does when rows are moved to the
    /// tables.
    fn unsettled(&self, txn: &RoTxn<'_>) -> Result<UnsettledObjects> {
        let mut unsettled = UnsettledObjects::default();
        self.index.for_each_unsettled(txn, |object, location| {
            unsettled.entry(object).or_insert(location);
        })?;
        Ok(unsettled)
    }

    /// Returns the root nodes of snapshots and pins that are not in `seen`, and adds these snapshots and pins to
    /// `seen`. Also appends the snapshots to `numbered`; the position there is the number of a snapshot.
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

    /// Adds everything reachable from `roots` to `live`. Fails on a damaged node, because it is unknown to which
    /// objects the node refers.
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
            // Chunks are marked too, but refer to no objects.
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

    /// Rewrites or deletes packs that consist mostly of deleted objects. On a full disk, deletes those without live
    /// objects first.
    fn rewrite_packs(&self, report: &mut GcReport, cancel: &Cancel, progress: &dyn Progress) -> Result<()> {
        self.close_sparse_log()?;
        let plan = self.plan_rewrite()?;
        if plan.packs.is_empty() {
            return Ok(());
        }
        match self.replace_packs(&plan, report, cancel, progress) {
            // Does not retry after a failed sync: the process must not write any more.
            Err(error) if error.is_full() && !self.log.has_failed() => {
                // There is no space for copies of objects. Deleting packs without live objects frees some.
                let (dead, rest) = plan.split();
                if dead.packs.is_empty() {
                    return Err(error);
                }
                self.replace_packs(&dead, report, cancel, progress)?;
                match self.replace_packs(&rest, report, cancel, progress) {
                    // A later collection rewrites the other packs.
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

    /// Starts a new log pack if the current one consists mostly of deleted objects, so that the current one can be
    /// rewritten like any other pack. In a store with only small commits, log packs hold nearly all objects.
    fn close_sparse_log(&self) -> Result<()> {
        self.mark_index_dirty()?;
        let mut txn = self.index.write()?;
        let Some(state) = self.index.log_state(&txn)? else { return Ok(()) };
        // Bytes of objects in the current log pack.
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

    /// Selects the packs to remove, and the objects to move to other packs before.
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
        // An object that was condemned and written again has two locations, and both copies are moved. Equal locations
        // are one copy.
        moves.dedup();
        plan.moves = moves;
        Ok(plan)
    }

    /// Calls `visit` once for each object that is not condemned. Skips copies in unsettled rows of objects that are
    /// already in their table.
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

    /// Calls `visit` for all objects in the index, condemned ones included.
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

    /// Copies the objects of a plan into new bulk packs (packs that only one process writes), and appends these packs
    /// to `new`. Returns the old and new locations of the objects.
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
            // On a damaged record the collection fails and its pack is kept, so that `verify` reports the damage.
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
            // The row is a location and the epoch in which the object was condemned. Only the location changes.
            row[..12].copy_from_slice(&to.encode());
            self.index.condemned.put(txn, &key, &row)?;
        }
        Ok(())
    }

    /// Removes the packs of a plan from the index. Starts a new log pack with a checkpoint (a copy of all snapshots,
    /// references, episodes and pins), so that commit records in these packs are no longer needed.
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

    /// Deletes files that killed processes have left in the directory of the packs: packs that are not in the index,
    /// and packs that were not renamed to their final name yet (`*.new`).
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
    /// Objects in these packs that are still needed, with their current locations.
    moves: Vec<(ObjectId, Location)>,
    /// Number of packs in the plan that have such objects.
    rewritten: u64,
}

impl RewritePlan {
    /// Splits the plan into the packs without objects to move and the other packs.
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
