//! Commits: how batches and changes become part of the store, all or nothing.
//!
//! One thread at a time leads: it takes everything that waits, takes the index's write lock (which also
//! keeps other processes out), appends all of it to the log in one write and updates the index in one
//! transaction. Whoever asked for a synced commit then waits until the log is synced that far; one
//! `fdatasync` serves all who wait. The order is what makes it safe:
//!
//! 1. bulk packs are synced (if this or any earlier commit needs them and this one is to be synced);
//! 2. objects and the commit record are written behind the end of the log that the index knows;
//! 3. the index moves that end, and knows the objects, in one transaction;
//! 4. the log is synced, and only then is the commit acknowledged.
//!
//! Killed before 3, what was written is overwritten by the next commit. A machine that crashes before 4
//! may lose the commit, but finds either all of it in the log or none.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use heed::RwTxn;

use crate::batch::{Contents, Placed};
use crate::change::{Change, CommitRecord, Durability, Expect, LogEnd};
use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::id::{ById, ChunkId, NodeId, SnapshotId};
use crate::index::{Index, LogState, Table, condemned_key, joined};
use crate::pack::{Location, PACK_HEADER, Packs, Role};
use crate::recent::Row;
use crate::record::{self, Effort, HEADER, Kind};
use crate::references_of::{ObjectId, references_of};
use crate::store::Inner;

/// A log pack is closed when it is larger than this.
const LOG_MAX: u64 = 64 << 20;
/// How far the log is filled with zeros ahead of its end. Overwriting blocks that exist needs no
/// journal commit of the filesystem: a sync takes about half the time.
const ZEROS_AHEAD: u64 = 1 << 20;
/// A process that has made fewer synced commits than this is not worth the zeros.
const WORTH_ZEROS: u32 = 4;

#[derive(Default)]
pub(crate) struct Committer {
    queue: Mutex<Queue>,
    log: Mutex<Option<(u32, Arc<File>)>>,
    /// Groups written that are to be synced.
    synced_writes: AtomicU32,
    sync: Mutex<SyncState>,
    synced: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Request>,
    leading: bool,
}

pub(crate) struct Request {
    contents: Contents,
    changes: Vec<Change>,
    durability: Durability,
    seat: Arc<Seat>,
}

/// Where a committer waits: for its result, or to be told to lead.
#[derive(Default)]
struct Seat {
    state: Mutex<SeatState>,
    changed: Condvar,
}

#[derive(Default)]
struct SeatState {
    turn: Turn,
    /// A wake-up takes a system call: only who sleeps is woken.
    sleeps: bool,
}

#[derive(Default)]
enum Turn {
    #[default]
    Waiting,
    Lead,
    Done(Result<()>),
}

impl Seat {
    fn set(&self, turn: Turn) {
        let mut state = lock(&self.state);
        state.turn = turn;
        if state.sleeps {
            self.changed.notify_one();
        }
    }

    /// The result, or nothing when it is this one's turn to lead.
    fn wait(&self) -> Option<Result<()>> {
        let mut state = lock(&self.state);
        loop {
            match std::mem::take(&mut state.turn) {
                Turn::Waiting => {
                    state.sleeps = true;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Turn::Lead => return None,
                Turn::Done(result) => return Some(result),
            }
        }
    }
}

#[derive(Default)]
struct SyncState {
    done: LogEnd,
    waiting: usize,
    running: bool,
    failed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Makes a batch and changes part of the store. Acknowledged when this returns `Ok`.
    pub(crate) fn commit(
        &self,
        contents: Contents,
        changes: Vec<Change>,
        durability: Durability,
    ) -> Result<()> {
        if lock(&self.committer.sync).failed {
            return Err(StoreError::Poisoned);
        }
        self.mark_written()?;
        if durability == Durability::Synced {
            self.sync_bulk(&contents)?;
        }
        failpoint::hit("before-commit").at("commit to", &self.path)?;
        self.enqueue(contents, changes, durability)
    }

    fn sync_bulk(&self, contents: &Contents) -> Result<()> {
        for pack in &contents.bulk {
            pack.file.sync_data().at("sync", &self.packs.path(pack.number))?;
        }
        if contents.bulk.is_empty() { Ok(()) } else { self.packs.sync_directory() }
    }

    /// Waits in the queue until someone has committed this, or leads.
    fn enqueue(&self, contents: Contents, changes: Vec<Change>, durability: Durability) -> Result<()> {
        let seat = Arc::new(Seat::default());
        let leads = {
            let mut queue = lock(&self.committer.queue);
            queue.waiting.push(Request { contents, changes, durability, seat: Arc::clone(&seat) });
            !std::mem::replace(&mut queue.leading, true)
        };
        if !leads && let Some(result) = seat.wait() {
            return result;
        }
        let group = std::mem::take(&mut lock(&self.committer.queue).waiting);
        self.lead(group);
        // A leader's own request was in its group.
        seat.wait().unwrap_or(Err(StoreError::Poisoned))
    }

    /// Commits a group, lets the next begin, and syncs once for all who asked for it.
    fn lead(&self, mut group: Vec<Request>) {
        let results = match catch_unwind(AssertUnwindSafe(|| self.commit_all(&mut group))) {
            Ok(results) => results,
            Err(panic) => {
                self.give_up(&group);
                resume_unwind(panic);
            }
        };
        self.hand_over();
        let mut target = None;
        let mut waiting = Vec::new();
        for (request, result) in group.into_iter().zip(results) {
            match result {
                Ok(end) if request.durability == Durability::Synced => {
                    target = target.max(Some(end));
                    waiting.push(request.seat);
                }
                other => request.seat.set(Turn::Done(other.map(drop))),
            }
        }
        let Some(target) = target else { return };
        let mut synced = self.sync_log(target);
        for seat in waiting {
            // The first hears what happened, the others that it did.
            let result = std::mem::replace(&mut synced, Ok(()));
            if result.is_err() {
                synced = Err(StoreError::Poisoned);
            }
            seat.set(Turn::Done(result));
        }
    }

    /// A panic must not leave others waiting. What it left undone nobody knows, so nothing is written by this
    /// process any more.
    fn give_up(&self, group: &[Request]) {
        lock(&self.committer.sync).failed = true;
        self.hand_over();
        for request in group {
            request.seat.set(Turn::Done(Err(StoreError::Poisoned)));
        }
    }

    fn commit_all(&self, group: &mut [Request]) -> Vec<Result<LogEnd>> {
        match self.commit_group(group) {
            Ok(results) => results,
            Err(error) if group.len() == 1 => vec![Err(error)],
            // Each alone, so that nobody fails for another.
            Err(_) => group
                .iter_mut()
                .map(|request| {
                    let mut results = self.commit_group(std::slice::from_mut(request))?;
                    results.remove(0)
                })
                .collect(),
        }
    }

    /// Lets the first in the queue lead, or leaves the lead to whoever comes.
    fn hand_over(&self) {
        let mut queue = lock(&self.committer.queue);
        match queue.waiting.first() {
            Some(next) => next.seat.set(Turn::Lead),
            None => queue.leading = false,
        }
    }

    fn commit_group(&self, group: &mut [Request]) -> Result<Vec<Result<LogEnd>>> {
        let mut txn = self.index.write()?;
        self.settle_before(&mut txn, group)?;
        let mut state = self.log_for_writing(&mut txn)?;
        let synced = group.iter().any(|request| request.durability == Durability::Synced);
        if synced {
            self.settle_unsynced(&mut txn, group)?;
        }
        let (alone, pack) = (group.len() == 1, state.pack);
        let mut writing = Writing { start: state.end, bytes: Vec::new() };
        let mut results = Vec::with_capacity(group.len());
        let mut bases = Vec::with_capacity(group.len());
        for request in &mut *group {
            if let Err(refused) = self.check(&txn, &request.changes) {
                results.push(Err(refused));
                bases.push(None);
                continue;
            }
            let base = writing.end();
            writing.take(&mut request.contents.buffer, alone);
            results.push(Ok(self.record(&mut txn, &mut state, &mut writing, request)?));
            bases.push(Some((base, state.sequence)));
        }
        if !writing.bytes.is_empty() {
            // The disk works on the log while the index is brought up to date.
            let done = self
                .write_log(&mut writing, &mut state, synced)
                .and_then(|()| self.update_index(txn, state, &writing, group, &bases));
            if done.is_err() {
                // The error on its way says more than that this one failed as well.
                drop(self.void_log(pack, writing.start));
            }
            done?;
            failpoint::hit("after-index").at("commit to", &self.path)?;
        }
        Ok(results)
    }

    /// Makes the index know what was written: all of the group, or nothing.
    fn update_index(
        &self,
        mut txn: RwTxn<'_>,
        mut state: LogState,
        writing: &Writing,
        group: &[Request],
        bases: &[Option<(u64, u64)>],
    ) -> Result<()> {
        for (request, base) in group.iter().zip(bases) {
            if let Some((base, sequence)) = *base {
                state.waiting += self.insert_objects(&mut txn, state.pack, base, sequence, request)?;
                self.keep_alive(&mut txn, writing, base, request)?;
            }
        }
        self.index.put_log_state(&mut txn, &state)?;
        failpoint::hit("before-index").at("commit to", &self.path)?;
        self.index.commit(txn)
    }

    /// Takes back from the log what the index never came to know. The next commit would overwrite it; without
    /// one, a rebuild would find commits there whose makers were told that they failed.
    fn void_log(&self, pack: u32, start: u64) -> Result<()> {
        // The write lock went with the transaction that failed: someone else may have written there since.
        let txn = self.index.write()?;
        let state = self.index.log_state(&txn)?;
        if state.is_some_and(|state| state.pack == pack && state.end == start) {
            let file = self.log_file(pack)?;
            let voided = file.write_all_at(&[0; HEADER], start).and_then(|()| file.sync_data());
            voided.at("write", &self.packs.path(pack))?;
        }
        Ok(())
    }

    /// Settles what waits when there is much of it, or when something is to be taken out of the tables.
    fn settle_before(&self, txn: &mut RwTxn<'_>, group: &[Request]) -> Result<()> {
        let removes = |change: &Change| matches!(change, Change::RemoveSnapshot(_));
        if group.iter().any(|request| request.changes.iter().any(removes)) {
            return self.index.settle(txn);
        }
        self.index.settle_if_many(txn)
    }

    /// Packs of earlier buffered commits, and of those in the same group, reach the disk before a synced
    /// commit is written.
    pub(crate) fn settle_unsynced(&self, txn: &mut RwTxn<'_>, group: &[Request]) -> Result<()> {
        let index = &self.index;
        for request in group.iter().filter(|request| request.durability == Durability::Buffered) {
            self.sync_bulk(&request.contents)?;
        }
        if index.unsynced.is_empty(txn)? {
            return Ok(());
        }
        let own: HashSet<u32> =
            group.iter().flat_map(|request| &request.contents.bulk).map(|pack| pack.number).collect();
        let mut packs = Vec::new();
        for entry in index.unsynced.iter(txn)? {
            let (key, ()) = entry.map(|(key, _)| (key, ()))?;
            packs.extend(key.try_into().ok().map(u32::from_be_bytes));
        }
        for pack in packs.iter().filter(|pack| !own.contains(pack)) {
            let file = self.packs.open_for_writing(*pack)?;
            file.sync_data().at("sync", &self.packs.path(*pack))?;
        }
        self.packs.sync_directory()?;
        Ok(index.unsynced.clear(txn)?)
    }

    /// Cuts off the zeros ahead of the log's end. Only for the last who has the store open.
    pub(crate) fn trim_log(&self) -> Result<()> {
        let txn = self.index.read()?;
        let Some(state) = self.index.log_state(&txn)? else { return Ok(()) };
        let file = self.log_file(state.pack)?;
        let path = self.packs.path(state.pack);
        if file.metadata().at("stat", &path)?.len() > state.end {
            file.set_len(state.end).at("shorten", &path)?;
        }
        Ok(())
    }

    /// Makes everything committed so far durable, buffered commits included.
    pub(crate) fn sync_packs(&self) -> Result<()> {
        let mut txn = self.index.write()?;
        self.settle_unsynced(&mut txn, &[])?;
        if let Some(state) = self.index.log_state(&txn)? {
            self.log_file(state.pack)?.sync_data().at("sync", &self.packs.path(state.pack))?;
        }
        self.index.commit(txn)
    }

    /// Appends the commit record to the log's next bytes and makes its changes.
    fn record(
        &self,
        txn: &mut RwTxn<'_>,
        state: &mut LogState,
        writing: &mut Writing,
        request: &mut Request,
    ) -> Result<LogEnd> {
        state.sequence += 1;
        let record = CommitRecord {
            sequence: state.sequence,
            previous: state.previous,
            synced: request.durability == Durability::Synced,
            durable: lock(&self.committer.sync).done,
            packs: request.contents.bulk.iter().map(|pack| pack.number).collect(),
            changes: std::mem::take(&mut request.changes),
        };
        let appended = writing.append_record(Kind::Commit, &record.encode());
        request.changes = record.changes;
        state.previous = appended?;
        // Snapshots follow with the objects.
        for change in request.changes.iter().filter(|change| !matches!(change, Change::PutSnapshot(_))) {
            self.index.apply(txn, change)?;
        }
        Ok(LogEnd { pack: state.pack, end: writing.end() })
    }

    /// Tells the index of a request's snapshots, and where its objects are; those in the log begin at `base`.
    /// Says how many of them wait to settle.
    fn insert_objects(
        &self,
        txn: &mut RwTxn<'_>,
        log: u32,
        base: u64,
        sequence: u64,
        request: &Request,
    ) -> Result<u32> {
        let contents = &request.contents;
        let in_log = |object: &Placed| {
            let offset = (base + u64::from(object.offset)) as u32;
            ((object.kind, object.id), Location { pack: log, offset, len: object.len })
        };
        let snapshots = request.changes.iter().filter_map(|change| match change {
            Change::PutSnapshot(snapshot) => Some(snapshot.clone()),
            _ => None,
        });
        let row =
            Row { objects: contents.objects.iter().map(in_log).collect(), snapshots: snapshots.collect() };
        if contents.bulk.is_empty()
            && let Some(encoded) = row.encode_small()
        {
            self.index.put_recent(txn, sequence, &encoded)?;
            return Ok(row.len() as u32);
        }
        let mut objects = row.objects;
        for pack in &contents.bulk {
            objects
                .extend(pack.objects.iter().map(|object| ((object.kind, object.id), pack.location(object))));
        }
        // In key order LMDB fills its pages one after the other, to the brim.
        objects.sort_unstable_by_key(|(object, _)| *object);
        for (object, location) in objects {
            self.index.put_object(txn, &object, location)?;
        }
        for snapshot in row.snapshots {
            self.index.apply(txn, &Change::PutSnapshot(snapshot))?;
        }
        for pack in &contents.bulk {
            self.index.packs.put(txn, &pack.number.to_be_bytes(), &[])?;
            if request.durability == Durability::Buffered {
                self.index.unsynced.put(txn, &pack.number.to_be_bytes(), &[])?;
            }
        }
        Ok(0)
    }

    /// Makes sure that everything the new objects refer to is live. Usually nothing is condemned and there
    /// is nothing to do; during a collection, what this commit relies on is taken back.
    fn keep_alive(&self, txn: &mut RwTxn<'_>, writing: &Writing, base: u64, request: &Request) -> Result<()> {
        let mut roots: Vec<ObjectId> = Vec::new();
        for change in &request.changes {
            match change {
                Change::PutSnapshot(snapshot) => {
                    roots.push((Kind::Node, *snapshot.tree.as_bytes()));
                    roots.push((Kind::Node, *snapshot.times.as_bytes()));
                }
                Change::PutPin { record, .. } => roots.extend(crate::pin::roots(record)),
                _ => {}
            }
        }
        if !self.index.condemned.is_empty(txn)? {
            let buffer = &writing.bytes[(base - writing.start) as usize..];
            self.references_of_contents(buffer, &request.contents, &mut |object| roots.push(object))?;
        }
        // What the commit brings is not in sight before it is done.
        let own: HashSet<ObjectId, ById> =
            request.contents.objects.iter().map(|object| (object.kind, object.id)).collect();
        for root in roots.into_iter().filter(|root| !own.contains(root)) {
            self.revive(txn, root)?;
        }
        Ok(())
    }

    fn references_of_contents(
        &self,
        buffer: &[u8],
        contents: &Contents,
        found: &mut impl FnMut(ObjectId),
    ) -> Result<()> {
        let undecodable = |source| StoreError::Undecodable { what: "a new node".to_owned(), source };
        for object in contents.objects.iter().filter(|object| object.kind == Kind::Node) {
            let at = object.offset as usize;
            let node = record::open(&buffer[at..at + object.len as usize]).map_err(undecodable)?;
            references_of(node, found).map_err(undecodable)?;
        }
        for pack in &contents.bulk {
            for object in pack.objects.iter().filter(|object| object.kind == Kind::Node) {
                let node = self.packs.read(pack.location(object), Kind::Node, &object.id)?;
                references_of(node.unwrap_or_default(), found).map_err(undecodable)?;
            }
        }
        Ok(())
    }

    /// Takes a condemned object and all it refers to back among the living.
    pub(crate) fn revive(&self, txn: &mut RwTxn<'_>, root: ObjectId) -> Result<()> {
        let mut open = vec![root];
        while let Some((kind, id)) = open.pop() {
            // What is live refers to nothing but what is live.
            if self.index.live(txn, kind, &id)?.is_some() {
                continue;
            }
            let key = condemned_key(kind, &id);
            let Some(location) = self.index.condemned.get(txn, &key)?.and_then(Location::decode) else {
                return Err(missing(kind, id));
            };
            if kind == Kind::Node {
                let node = self.packs.read(location, kind, &id)?.ok_or_else(|| missing(kind, id))?;
                references_of(node, &mut |object| open.push(object)).map_err(|source| {
                    StoreError::Undecodable { what: format!("node {}", NodeId::from_bytes(id)), source }
                })?;
            }
            self.index.condemned.delete(txn, &key)?;
            self.index.objects(kind).put(txn, &id, &location.encode())?;
        }
        Ok(())
    }

    /// Whether every change may be made. Nothing is written before all of a commit was checked.
    fn check(&self, txn: &RwTxn<'_>, changes: &[Change]) -> Result<()> {
        let new = |id: &SnapshotId| {
            changes.iter().any(|change| matches!(change, Change::PutSnapshot(new) if new.id == *id))
        };
        let exists =
            |id: &SnapshotId| -> Result<bool> { Ok(new(id) || self.index.snapshot(txn, id)?.is_some()) };
        for change in changes {
            match change {
                Change::SetReference { name, expect, to } => {
                    crate::reference::check_reference_name(name)?;
                    if !exists(to)? {
                        return Err(StoreError::UnknownSnapshot(*to));
                    }
                    self.check_reference(txn, name, *expect)?;
                }
                Change::RemoveReference { name, expect } => self.check_reference(txn, name, *expect)?,
                Change::RemoveSnapshot(id) => {
                    if !exists(id)? {
                        return Err(StoreError::UnknownSnapshot(*id));
                    }
                    self.check_unreferenced(txn, id, changes)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_reference(&self, txn: &RwTxn<'_>, name: &str, expect: Expect) -> Result<()> {
        let found = snapshot_id(self.index.references.get(txn, name.as_bytes())?);
        let fits = match expect {
            Expect::Anything => true,
            Expect::Absent => found.is_none(),
            Expect::At(id) => found == Some(id),
        };
        if fits {
            return Ok(());
        }
        let shown = |id: Option<SnapshotId>| id.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
        let expected = if let Expect::At(id) = expect { Some(id) } else { None };
        Err(StoreError::ReferenceMoved {
            name: name.to_owned(),
            expected: shown(expected),
            found: shown(found),
        })
    }

    fn check_unreferenced(&self, txn: &RwTxn<'_>, id: &SnapshotId, changes: &[Change]) -> Result<()> {
        for entry in self.index.references.iter(txn)? {
            let (name, target) = entry?;
            let name = String::from_utf8_lossy(name);
            let moved = changes.iter().any(|change| match change {
                Change::SetReference { name: other, .. } | Change::RemoveReference { name: other, .. } => {
                    *other == name
                }
                _ => false,
            });
            if !moved && snapshot_id(Some(target)) == Some(*id) {
                return Err(StoreError::Refused(format!(
                    "snapshot {id} is what reference `{name}` points to"
                )));
            }
        }
        Ok(())
    }

    /// The state of the log, with room in its pack.
    fn log_for_writing(&self, txn: &mut RwTxn<'_>) -> Result<LogState> {
        match self.index.log_state(txn)? {
            Some(state) if state.end < LOG_MAX => Ok(state),
            Some(state) => {
                let file = self.log_file(state.pack)?;
                next_log(&self.packs, &self.index, txn, state, Some(&file))
            }
            None => next_log(&self.packs, &self.index, txn, LogState::default(), None),
        }
    }

    /// A number that no pack has had.
    pub(crate) fn allocate_pack(&self) -> Result<u32> {
        self.mark_written()?;
        let mut txn = self.index.write()?;
        let mut state = self.log_for_writing(&mut txn)?;
        let number = state.next_pack;
        state.next_pack += 1;
        self.index.put_log_state(&mut txn, &state)?;
        self.index.commit(txn)?;
        Ok(number)
    }

    pub(crate) fn log_file(&self, pack: u32) -> Result<Arc<File>> {
        let mut log = lock(&self.committer.log);
        match &*log {
            Some((number, file)) if *number == pack && has_name(file) => Ok(Arc::clone(file)),
            _ => {
                let file = Arc::new(self.packs.open_for_writing(pack)?);
                *log = Some((pack, Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    fn write_log(&self, writing: &mut Writing, state: &mut LogState, synced: bool) -> Result<()> {
        let file = self.log_file(state.pack)?;
        let path = self.packs.path(state.pack);
        let length = file.metadata().at("stat", &path)?.len();
        let end = writing.end();
        // A header of zeros behind the last record: what a killed writer left there is cut off.
        let terminator = HEADER.min(length.saturating_sub(end) as usize);
        writing.bytes.resize(writing.bytes.len() + terminator, 0);
        failpoint::hit("log-write")
            .and_then(|()| file.write_all_at(&writing.bytes, writing.start))
            .at("write", &path)?;
        writing.bytes.truncate((end - writing.start) as usize);
        if synced {
            let writes = self.committer.synced_writes.fetch_add(1, Ordering::Relaxed);
            if writes >= WORTH_ZEROS && end + ZEROS_AHEAD / 16 > length {
                let zeros = vec![0; ZEROS_AHEAD as usize];
                // Only saves time; on a full disk the log simply ends here.
                drop(file.write_all_at(&zeros, end.max(length)));
            }
            start_writeback(&file, writing.start, end - writing.start);
        }
        state.end = end;
        Ok(())
    }

    /// Syncs the log at least to `target`, together with everyone else who waits.
    fn sync_log(&self, target: LogEnd) -> Result<()> {
        let committer = &self.committer;
        let mut sync = lock(&committer.sync);
        while sync.done < target {
            if sync.failed {
                return Err(StoreError::Poisoned);
            }
            if sync.running {
                sync.waiting += 1;
                sync = committer.synced.wait(sync).unwrap_or_else(PoisonError::into_inner);
                sync.waiting -= 1;
                continue;
            }
            sync.running = true;
            drop(sync);
            let reached = self.sync_log_now(target);
            sync = lock(&committer.sync);
            sync.running = false;
            match reached {
                Ok(reached) => sync.done = sync.done.max(reached),
                Err(_) => sync.failed = true,
            }
            if sync.waiting > 0 {
                committer.synced.notify_all();
            }
            reached?;
        }
        Ok(())
    }

    /// The log as it is now, at least up to `target`: everything committed so far rides along.
    fn present_log(&self, target: LogEnd) -> Result<(LogEnd, Arc<File>)> {
        loop {
            let reached = {
                let txn = self.index.read()?;
                let state = self.index.log_state(&txn)?;
                state.map_or(target, |state| LogEnd { pack: state.pack, end: state.end })
            };
            match self.log_file(reached.pack) {
                // A collection has closed and removed it meanwhile. It was synced before the next one began.
                Err(StoreError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && self.has_moved_on(reached)? => {}
                other => return Ok((reached, other?)),
            }
        }
    }

    fn has_moved_on(&self, from: LogEnd) -> Result<bool> {
        let txn = self.index.read()?;
        Ok(self.index.log_state(&txn)?.is_some_and(|state| state.pack > from.pack))
    }

    fn sync_log_now(&self, target: LogEnd) -> Result<LogEnd> {
        let (reached, file) = self.present_log(target)?;
        failpoint::hit("log-sync")
            .and_then(|()| file.sync_data())
            .at("sync", &self.packs.path(reached.pack))?;
        failpoint::hit("after-sync").at("commit to", &self.path)?;
        Ok(reached)
    }
}

/// Lets the disk begin to write a part of a file, without waiting for it.
fn start_writeback(file: &File, offset: u64, len: u64) {
    // SAFETY: the call takes an open file and numbers, and touches no memory of ours. It is a hint: whether
    // it worked shows in nothing but the time the sync takes.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// A commit that failed right after it began a log leaves a pack whose number the next one takes again.
fn has_name(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.nlink() > 0)
}

/// Closes the log's pack, if there is one, and begins a new one. What the old one holds is on disk before
/// the new one is written: the log as a whole is always a prefix of what was committed.
pub(crate) fn next_log(
    packs: &Packs,
    index: &Index,
    txn: &mut RwTxn<'_>,
    mut state: LogState,
    old: Option<&File>,
) -> Result<LogState> {
    if let Some(old) = old {
        old.set_len(state.end).and_then(|()| old.sync_all()).at("sync", &packs.path(state.pack))?;
    }
    failpoint::hit("next-log").at("extend the log in", packs.directory())?;
    state.pack = state.next_pack.max(1);
    state.next_pack = state.pack + 1;
    state.end = PACK_HEADER;
    let file = packs.create(state.pack, Role::Log)?;
    file.sync_all().at("sync", &packs.path(state.pack))?;
    packs.sync_directory()?;
    index.packs.put(txn, &state.pack.to_be_bytes(), &[])?;
    Ok(state)
}

/// Bytes on their way to the end of the log.
pub(crate) struct Writing {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Writing {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Takes encoded records. Who is alone in its group needs them no more.
    fn take(&mut self, records: &mut Vec<u8>, alone: bool) {
        if alone && self.bytes.is_empty() {
            self.bytes = std::mem::take(records);
        } else {
            self.bytes.extend_from_slice(records);
        }
    }

    pub(crate) fn append_record(&mut self, kind: Kind, payload: &[u8]) -> Result<[u8; 32]> {
        let id = *blake3::hash(payload).as_bytes();
        record::append(&mut self.bytes, kind, &id, payload, Effort::None)?;
        Ok(id)
    }
}

impl Index {
    /// Makes a change to the tables of records.
    pub(crate) fn apply(&self, txn: &mut RwTxn<'_>, change: &Change) -> Result<()> {
        match change {
            Change::PutSnapshot(snapshot) => {
                self.snapshots.put(txn, snapshot.id.as_bytes(), &snapshot.encode())?;
                self.trees.put(txn, &joined(snapshot.tree.as_bytes(), snapshot.id.as_bytes()), &[])?;
            }
            Change::RemoveSnapshot(id) => {
                if let Some(snapshot) = self.snapshot(txn, id)? {
                    self.snapshots.delete(txn, id.as_bytes())?;
                    self.trees.delete(txn, &joined(snapshot.tree.as_bytes(), id.as_bytes()))?;
                }
            }
            Change::SetReference { name, to, .. } => {
                self.references.put(txn, name.as_bytes(), to.as_bytes())?;
            }
            Change::RemoveReference { name, .. } => {
                self.references.delete(txn, name.as_bytes())?;
            }
            Change::PutEpisode { id, parent, record } => {
                self.episodes.put(txn, id.as_bytes(), record)?;
                let key = episode_key(parent.as_ref().map(super::id::EpisodeId::as_bytes), id.as_bytes());
                self.episode_children.put(txn, &key, &[])?;
            }
            Change::RemoveEpisode { id, parent } => {
                self.episodes.delete(txn, id.as_bytes())?;
                let key = episode_key(parent.as_ref().map(super::id::EpisodeId::as_bytes), id.as_bytes());
                self.episode_children.delete(txn, &key)?;
            }
            Change::PutPin { id, record } => self.pins.put(txn, id.as_bytes(), record)?,
            Change::RemovePin(id) => {
                self.pins.delete(txn, id.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Takes all rows of a table; for tables that are small or wanted whole.
    pub(crate) fn rows(&self, txn: &heed::RoTxn<'_>, table: &Table) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut rows = Vec::new();
        for entry in table.iter(txn)? {
            let (key, value) = entry?;
            rows.push((key.to_vec(), value.to_vec()));
        }
        Ok(rows)
    }
}

/// Roots have sixteen zeros for a parent.
pub(crate) fn episode_key(parent: Option<&[u8; 16]>, id: &[u8; 16]) -> Vec<u8> {
    joined(parent.unwrap_or(&[0; 16]), id)
}

fn snapshot_id(bytes: Option<&[u8]>) -> Option<SnapshotId> {
    bytes.and_then(|bytes| bytes.try_into().ok()).map(SnapshotId::from_bytes)
}

pub(crate) fn missing(kind: Kind, id: [u8; 32]) -> StoreError {
    if kind == Kind::Chunk {
        StoreError::MissingChunk(ChunkId::from_bytes(id))
    } else {
        StoreError::MissingNode(NodeId::from_bytes(id))
    }
}
