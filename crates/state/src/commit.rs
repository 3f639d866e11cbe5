//! Commits: new objects (chunks of file content, and nodes of trees) and changes of records (snapshots, references and
//! others) become part of the store, all or nothing.
//!
//! One thread at a time is the leader. It takes all queued requests (a group) and the write lock of the index (an LMDB
//! database), which also excludes other processes. It appends the whole group to the log, the append-only files with
//! all commit records, in one write, and updates the index in one transaction. Requests for a synced commit then wait
//! until the log is synced up to their end; one `fdatasync` serves all of them. This order makes commits atomic and
//! durable:
//!
//! 1. If a request of the group is for a synced commit, all unsynced bulk packs are synced: the files into which
//!    large commits have written their objects.
//! 2. Objects and commit records are written at the end of the log, whose offset is in the index.
//! 3. One transaction of the index moves this end, and adds the objects. Those of a small commit become a single
//!    *unsettled row*, and are moved to their tables later, together with many others.
//! 4. The log is synced. Only then is a synced commit acknowledged.
//!
//! If the process is killed before step 3, the next commit overwrites the bytes. A machine crash before step 4 may
//! lose the commit, but the log then holds either all of it or nothing.

mod alive;
mod check;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use heed::RwTxn;

use crate::commit_options::Durability;
use crate::commit_queue::{CommitRequest, CommitWaiter};
use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::id::{ChunkId, NodeId};
use crate::log::LogAppend;
use crate::log_record::{Change, CommitRecord, LogPosition};
use crate::log_state::LogState;
use crate::new_objects::{NewObjects, PackedObject};
use crate::pack::Location;
use crate::record::Kind;
use crate::store::Inner;
use crate::unsettled_cache::Row;
use check::PendingReferences;

impl Inner {
    /// Commits objects and changes. Returns `Ok` once they are committed, and on disk if `durability` requires that.
    pub(crate) fn commit(
        &self,
        objects: NewObjects,
        changes: Vec<Change>,
        durability: Durability,
    ) -> Result<()> {
        // After a failed sync or a panic, it is unknown which data is on disk, so nothing more is written.
        if self.log.has_failed() {
            return Err(StoreError::Poisoned);
        }
        self.mark_index_dirty()?;
        if durability == Durability::Synced {
            self.sync_bulk(&objects)?;
        }
        failpoint::hit("before-commit").context("commit to", &self.path)?;
        self.enqueue(objects, changes, durability)
    }

    /// Syncs the bulk packs of a request, and their directory.
    fn sync_bulk(&self, objects: &NewObjects) -> Result<()> {
        for pack in &objects.bulk {
            let synced = failpoint::hit("bulk-sync").and_then(|()| pack.file.sync_data());
            self.log.poison_on_error(synced).context("sync", &self.packs.path(pack.number))?;
        }
        if objects.bulk.is_empty() { Ok(()) } else { self.packs.sync_directory() }
    }

    /// Queues the request and waits until the leader has committed it. Becomes the leader if there is none.
    fn enqueue(&self, objects: NewObjects, changes: Vec<Change>, durability: Durability) -> Result<()> {
        let waiter = Arc::new(CommitWaiter::default());
        let request = CommitRequest { objects, changes, durability, waiter: Arc::clone(&waiter) };
        let is_leader = self.commit_queue.push(request);
        // `wait` returns `None` if the previous leader has made this thread the next one.
        if !is_leader && let Some(result) = waiter.wait() {
            return result;
        }
        self.lead(self.commit_queue.take_group());
        // The leader's own request is in its group.
        waiter.wait().unwrap_or(Err(StoreError::Poisoned))
    }

    /// Commits a group, passes the lead to another thread, and syncs the log once for all synced requests.
    fn lead(&self, mut group: Vec<CommitRequest>) {
        let results = match catch_unwind(AssertUnwindSafe(|| self.commit_all(&mut group))) {
            Ok(results) => results,
            Err(panic) => {
                self.fail_all(group.iter().map(|request| &request.waiter));
                self.commit_queue.pass_lead();
                resume_unwind(panic);
            }
        };
        self.commit_queue.pass_lead();
        // End of the last synced commit in the log.
        let mut sync_target = None;
        let mut waiting = Vec::new();
        for (request, result) in group.into_iter().zip(results) {
            match result {
                Ok(end) if request.durability == Durability::Synced => {
                    sync_target = sync_target.max(Some(end));
                    waiting.push(request.waiter);
                }
                other => request.waiter.finish(other.map(drop)),
            }
        }
        let Some(sync_target) = sync_target else { return };
        let mut synced = match catch_unwind(AssertUnwindSafe(|| self.sync_log(sync_target))) {
            Ok(synced) => synced,
            Err(panic) => {
                self.fail_all(waiting.iter());
                resume_unwind(panic);
            }
        };
        for waiter in waiting {
            // Errors cannot be cloned: the first request gets the error, the others get `Poisoned`.
            let result = std::mem::replace(&mut synced, Ok(()));
            if result.is_err() {
                synced = Err(StoreError::Poisoned);
            }
            waiter.finish(result);
        }
    }

    /// Fails all waiting requests after a panic. The effects of the panic are unknown, so all later writes of this
    /// process fail too.
    fn fail_all<'s>(&self, waiters: impl Iterator<Item = &'s Arc<CommitWaiter>>) {
        self.log.poison();
        for waiter in waiters {
            waiter.finish(Err(StoreError::Poisoned));
        }
    }

    /// Commits a group in one transaction. If that fails, commits each request on its own.
    fn commit_all(&self, group: &mut [CommitRequest]) -> Vec<Result<LogPosition>> {
        if self.log.has_failed() {
            return group.iter().map(|_| Err(StoreError::Poisoned)).collect();
        }
        match self.commit_group(group) {
            Ok(results) => results,
            Err(error) if group.len() == 1 => vec![Err(error)],
            // One request may be the cause of the error, and the others succeed.
            Err(_) => group
                .iter_mut()
                .map(|request| {
                    let mut results = self.commit_group(std::slice::from_mut(request))?;
                    results.remove(0)
                })
                .collect(),
        }
    }

    /// Commits a group in one write to the log and one transaction. Returns for each request the end of its commit in
    /// the log, or the reason why it was rejected. If the whole group fails, nothing of it is committed.
    fn commit_group(&self, group: &mut [CommitRequest]) -> Result<Vec<Result<LogPosition>>> {
        let mut txn = self.index.write()?;
        self.settle_before(&mut txn, group)?;
        let mut state = self.log_for_writing(&mut txn)?;
        let is_synced = group.iter().any(|request| request.durability == Durability::Synced);
        let durability = if is_synced { Durability::Synced } else { Durability::Buffered };
        if is_synced {
            self.sync_unsynced_packs(&mut txn, group)?;
        }
        let (is_only_request, pack, commit_before) = (group.len() == 1, state.pack, state.last_commit_id);
        // Requests of the group may set references that later requests of the group expect or remove.
        let pending_references = match is_only_request {
            true => PendingReferences::Unchanged,
            false => PendingReferences::of(group.iter().flat_map(|request| &request.changes)),
        };
        let mut append = LogAppend { start: state.end, bytes: Vec::new() };
        let mut results = Vec::with_capacity(group.len());
        let mut log_offsets = Vec::with_capacity(group.len());
        for request in &mut *group {
            if let Err(error) = self.check(&txn, &request.changes, &commit_before, pending_references) {
                results.push(Err(error));
                log_offsets.push(None);
                continue;
            }
            let log_offset = append.end();
            append.append_encoded(&mut request.objects.buffer, is_only_request);
            results.push(Ok(self.append_commit(&mut txn, &mut state, &mut append, request)?));
            log_offsets.push(Some((log_offset, state.sequence)));
        }
        if !append.bytes.is_empty() {
            // `write_log` only starts the write-back to disk, which goes on while the index is updated.
            let written = self.write_log(&mut append, &mut state, durability).and_then(|()| {
                let last_commit = state.last_commit_id;
                self.update_index(txn, state, &append, group, &log_offsets).map(|()| last_commit)
            });
            if written.is_err() {
                // The original error is more useful than a second one.
                drop(self.discard_log_tail(pack, append.start));
            }
            let last_commit = written?;
            let changes = group.iter().zip(&log_offsets).filter(|(_, log_offset)| log_offset.is_some());
            let changes = changes.flat_map(|(request, _)| &request.changes);
            self.reference_targets.advance(&commit_before, &last_commit, changes);
            failpoint::hit("after-index").context("commit to", &self.path)?;
        }
        Ok(results)
    }

    /// Adds the objects and snapshots of the whole group to the index, and commits the transaction. `log_offsets` has
    /// for each request the offset of its objects in the log and the number of its commit; `None` if it was rejected.
    fn update_index(
        &self,
        mut txn: RwTxn<'_>,
        mut state: LogState,
        append: &LogAppend,
        group: &[CommitRequest],
        log_offsets: &[Option<(u64, u64)>],
    ) -> Result<()> {
        for (request, log_offset) in group.iter().zip(log_offsets) {
            if let Some((log_offset, sequence)) = *log_offset {
                state.unsettled_count +=
                    self.insert_objects(&mut txn, state.pack, log_offset, sequence, request)?;
                // Garbage collection may be about to delete objects that the request refers to.
                self.keep_alive(&mut txn, append, log_offset, request)?;
            }
        }
        self.index.put_log_state(&mut txn, &state)?;
        failpoint::hit("before-index").context("commit to", &self.path)?;
        self.index.commit(txn)
    }

    /// Moves the content of unsettled rows into the tables if there are many rows. Does so too if the group removes a
    /// snapshot, because only snapshots in the tables can be removed.
    fn settle_before(&self, txn: &mut RwTxn<'_>, group: &[CommitRequest]) -> Result<()> {
        let removes = |change: &Change| matches!(change, Change::RemoveSnapshot(_));
        if group.iter().any(|request| request.changes.iter().any(removes)) {
            return self.index.settle(txn);
        }
        self.index.settle_if_many(txn)
    }

    /// Syncs the bulk packs of earlier commits and of the group that were committed without a sync
    /// ([`Durability::Buffered`]). A synced commit must not reach the disk before them.
    pub(crate) fn sync_unsynced_packs(&self, txn: &mut RwTxn<'_>, group: &[CommitRequest]) -> Result<()> {
        let index = &self.index;
        for request in group.iter().filter(|request| request.durability == Durability::Buffered) {
            self.sync_bulk(&request.objects)?;
        }
        if index.unsynced.is_empty(txn)? {
            return Ok(());
        }
        let group_packs: HashSet<u32> =
            group.iter().flat_map(|request| &request.objects.bulk).map(|pack| pack.number).collect();
        let mut packs = Vec::new();
        for entry in index.unsynced.iter(txn)? {
            let (key, _) = entry?;
            packs.extend(key.try_into().ok().map(u32::from_be_bytes));
        }
        for pack in packs.iter().filter(|pack| !group_packs.contains(pack)) {
            let file = self.packs.open_for_writing(*pack)?;
            let synced = failpoint::hit("unsynced-sync").and_then(|()| file.sync_data());
            self.log.poison_on_error(synced).context("sync", &self.packs.path(*pack))?;
        }
        self.packs.sync_directory()?;
        Ok(index.unsynced.clear(txn)?)
    }

    /// Appends the commit record of a request to `append`, the bytes for the log. Applies its changes to the index,
    /// except new snapshots. Returns the end of the record in the log.
    fn append_commit(
        &self,
        txn: &mut RwTxn<'_>,
        state: &mut LogState,
        append: &mut LogAppend,
        request: &mut CommitRequest,
    ) -> Result<LogPosition> {
        state.sequence += 1;
        let record = CommitRecord {
            sequence: state.sequence,
            previous: state.last_commit_id,
            synced: request.durability == Durability::Synced,
            durable: self.log.durable_end(),
            packs: request.objects.bulk.iter().map(|pack| pack.number).collect(),
            changes: std::mem::take(&mut request.changes),
        };
        let appended = append.append_record(Kind::Commit, &record.encode());
        request.changes = record.changes;
        state.last_commit_id = appended?;
        // `insert_objects` adds the snapshots.
        for change in request.changes.iter().filter(|change| !matches!(change, Change::PutSnapshot(_))) {
            self.index.apply(txn, change)?;
        }
        Ok(LogPosition { pack: state.pack, offset: append.end() })
    }

    /// Adds a request's snapshots and objects to the index. `log` is the number of the log pack, and `log_offset` the
    /// offset in it at which the objects begin. Returns the number of snapshots and objects in the new unsettled row; 0
    /// if they were added to the tables.
    fn insert_objects(
        &self,
        txn: &mut RwTxn<'_>,
        log: u32,
        log_offset: u64,
        sequence: u64,
        request: &CommitRequest,
    ) -> Result<u32> {
        let new = &request.objects;
        let in_log = |object: &PackedObject| {
            let offset = (log_offset + u64::from(object.offset)) as u32;
            ((object.kind, object.id), Location { pack: log, offset, len: object.len })
        };
        let snapshots = request.changes.iter().filter_map(|change| match change {
            Change::PutSnapshot(snapshot) => Some(snapshot.clone()),
            _ => None,
        });
        let row = Row { objects: new.objects.iter().map(in_log).collect(), snapshots: snapshots.collect() };
        if new.bulk.is_empty()
            && let Some(encoded) = row.encode_if_small()
        {
            self.index.put_unsettled(txn, sequence, &encoded)?;
            return Ok(row.len() as u32);
        }
        let mut objects = row.objects;
        for pack in &new.bulk {
            objects
                .extend(pack.objects.iter().map(|object| ((object.kind, object.id), pack.location(object))));
        }
        // In key order, LMDB fills each page before it starts the next.
        objects.sort_unstable_by_key(|(object, _)| *object);
        for (object, location) in objects {
            self.index.put_object(txn, &object, location)?;
        }
        for snapshot in row.snapshots {
            self.index.apply(txn, &Change::PutSnapshot(snapshot))?;
        }
        for pack in &new.bulk {
            self.index.packs.put(txn, &pack.number.to_be_bytes(), &[])?;
            if request.durability == Durability::Buffered {
                self.index.unsynced.put(txn, &pack.number.to_be_bytes(), &[])?;
            }
        }
        Ok(0)
    }
}

/// Returns the error for an object that is not in the store.
pub(crate) fn missing(kind: Kind, id: [u8; 32]) -> StoreError {
    if kind == Kind::Chunk {
        StoreError::MissingChunk(ChunkId::from_bytes(id))
    } else {
        StoreError::MissingNode(NodeId::from_bytes(id))
    }
}
