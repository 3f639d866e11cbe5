//! Batches: new objects (chunks of file content, and nodes of trees) that are collected for a commit.
//!
//! Objects are hashed, looked up, compressed and collected; objects that are already in the store are not
//! written again. A small batch stays in memory. Its commit appends it to the log, the sequence of files with all
//! commit records, in one write. A large batch spills into bulk packs while it grows: append-only files that belong to
//! this batch alone. Nothing of a batch is visible before its commit.

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::gc_guards::Guard;
use crate::id::{ChunkId, IdHashBuilder, NodeId};
use crate::new_objects::{BulkPack, NewObjects, PackedObject};
use crate::node::Extent;
use crate::pack::Role;
use crate::page::{EncodedList, NodeSink};
use crate::record::{self, Compression, Kind};
use crate::store::{Inner, Store};

/// Buffer size in bytes above which a batch spills into a bulk pack.
const SPILL_SIZE: usize = 4 << 20;
/// Largest chunk, in bytes, that a low-latency batch stores uncompressed: compressing it takes longer than
/// writing it. Garbage collection compresses chunks when it moves them.
const UNCOMPRESSED_MAX: usize = 16 << 10;
/// Initial capacity of the buffer of a low-latency batch in bytes, about the size of a typical commit of a
/// virtual tree.
const LOW_LATENCY_CAPACITY: usize = 32 << 10;
/// Maximum number of small objects that a low-latency batch adds without a lookup. At commit, the chunks among them are
/// looked up together.
const UNCHECKED_MAX: usize = 64;

/// Purpose of a batch, which decides how objects are compressed and looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchMode {
    /// Compresses well and looks up every object before it is added. For large amounts of content.
    Throughput,
    /// Compresses little, adds the first small objects without a lookup, and puts the directory lists that it writes
    /// (encoded entries, see `page.rs`) into the store's cache. For a virtual tree (a mutable tree in memory), which
    /// may be committed many times a second.
    LowLatency,
    /// Only computes ids: nothing is looked up or collected.
    IdsOnly,
}

/// New objects that are collected for a commit.
pub(crate) struct Batch {
    store: Store,
    /// Protects stored objects that the batch relies on from garbage collection until it commits.
    _guard: Arc<Guard>,
    mode: BatchMode,
    state: Mutex<State>,
    spill_finished: Condvar,
}

#[derive(Default)]
struct State {
    /// Objects that were added since the last commit. A second copy is skipped without a lookup.
    known: HashSet<(Kind, [u8; 32]), IdHashBuilder>,
    /// Encoded records of the objects that are not in a bulk pack.
    buffer: Vec<u8>,
    /// Objects in `buffer`; offsets count from its start.
    objects: Vec<PackedObject>,
    /// Number of leading entries of `objects` that were added without a lookup, and may already be in the store.
    unchecked: usize,
    /// Bulk packs of this batch, the newest one last.
    bulk: Vec<BulkPack>,
    /// Number of writes into bulk packs that are in progress.
    running_spills: usize,
    /// Objects of a commit that is in progress, see [`Batch::start_commit`].
    in_flight: Option<NewObjects>,
}

impl Batch {
    /// Creates a batch for large amounts of content.
    pub(crate) fn new(store: Store) -> Result<Self> {
        let guard = Arc::new(store.guard()?);
        Ok(Self::with_mode(store, guard, BatchMode::Throughput))
    }

    /// Creates a batch that is quick to commit. The store's cache has the directory lists that it writes.
    pub(crate) fn low_latency(store: Store, guard: Arc<Guard>) -> Self {
        Self::with_mode(store, guard, BatchMode::LowLatency)
    }

    /// Creates a batch that only computes the ids that objects would have.
    pub(crate) fn ids_only(store: Store, guard: Arc<Guard>) -> Self {
        Self::with_mode(store, guard, BatchMode::IdsOnly)
    }

    fn with_mode(store: Store, guard: Arc<Guard>, mode: BatchMode) -> Self {
        Self { store, _guard: guard, mode, state: Mutex::default(), spill_finished: Condvar::new() }
    }

    fn compression(&self, kind: Kind, len: usize) -> Compression {
        match (self.mode, kind) {
            (BatchMode::Throughput, _) => Compression::Thorough,
            (_, Kind::Chunk) if len > UNCOMPRESSED_MAX => Compression::Fast,
            _ => Compression::None,
        }
    }

    /// Adds a chunk and returns its id.
    pub(crate) fn put_chunk(&self, content: &[u8]) -> Result<ChunkId> {
        let id = ChunkId::of(content);
        self.put(Kind::Chunk, id.as_bytes(), content)?;
        Ok(id)
    }

    /// Adds an object unless the batch or the store already has it. Afterwards, nodes of this batch may refer to it.
    /// Does nothing in a batch that only computes ids.
    fn put(&self, kind: Kind, id: &[u8; 32], content: &[u8]) -> Result<()> {
        self.store.cancel_flag().check()?;
        if self.mode == BatchMode::IdsOnly || self.lock().known.contains(&(kind, *id)) {
            return Ok(());
        }
        self.put_unknown(kind, id, content)
    }

    /// Adds an object that is not in the batch, unless the store has it. The first small objects of a low-latency
    /// batch are added without a lookup in the store.
    fn put_unknown(&self, kind: Kind, id: &[u8; 32], content: &[u8]) -> Result<()> {
        let compression = self.compression(kind, content.len());
        if compression == Compression::None && content.len() <= UNCOMPRESSED_MAX {
            let mut state = self.lock();
            if state.objects.len() < UNCHECKED_MAX && state.unchecked == state.objects.len() {
                if !state.known.insert((kind, *id)) {
                    return Ok(());
                }
                if state.buffer.is_empty() {
                    state.buffer.reserve(LOW_LATENCY_CAPACITY);
                }
                let offset = state.buffer.len() as u32;
                let len = record::append(&mut state.buffer, kind, id, content, compression)?;
                state.objects.push(PackedObject { kind, id: *id, offset, len });
                state.unchecked += 1;
                return Ok(());
            }
        }
        if self.is_stored(kind, id)? {
            return Ok(());
        }
        let mut encoded = Vec::new();
        let len = record::append(&mut encoded, kind, id, content, compression)?;
        let mut state = self.lock();
        if state.buffer.len() + encoded.len() > SPILL_SIZE && !state.buffer.is_empty() {
            state = self.spill(state)?;
        }
        if !state.known.insert((kind, *id)) {
            return Ok(());
        }
        let offset = state.buffer.len() as u32;
        state.buffer.extend_from_slice(&encoded);
        state.objects.push(PackedObject { kind, id: *id, offset, len });
        Ok(())
    }

    fn is_stored(&self, kind: Kind, id: &[u8; 32]) -> Result<bool> {
        let index = &self.store.inner.index;
        let txn = index.read()?;
        Ok(index.find_live(&txn, kind, id)?.is_some())
    }

    /// Removes chunks from the buffer that were added without a lookup and are already in the store. Nodes that were
    /// added without a lookup are kept. A commit rarely contains a node that the store already has, and writing such a
    /// node a second time is cheaper than looking up all nodes.
    fn drop_stored(&self, state: &mut State) -> Result<()> {
        let index = &self.store.inner.index;
        let mut stored = HashSet::new();
        if state.unchecked > 0 {
            let txn = index.read()?;
            let unchecked = &state.objects[..state.unchecked];
            for object in unchecked.iter().filter(|object| object.kind == Kind::Chunk) {
                if index.find_live(&txn, object.kind, &object.id)?.is_some() {
                    stored.insert((object.kind, object.id));
                }
            }
        }
        state.unchecked = 0;
        if !stored.is_empty() {
            let (buffer, objects) = (std::mem::take(&mut state.buffer), std::mem::take(&mut state.objects));
            for object in objects.iter().filter(|object| !stored.contains(&(object.kind, object.id))) {
                let offset = object.offset as usize;
                state.append(
                    &buffer[offset..offset + object.len as usize],
                    &[PackedObject { offset: 0, ..*object }],
                );
            }
        }
        Ok(())
    }

    /// Moves the buffer into a bulk pack. Other threads can add objects during the write, because the lock of the
    /// state is released until the write has finished.
    fn spill<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        self.drop_stored(&mut state)?;
        let len = state.buffer.len() as u64;
        if state.bulk.last().is_none_or(|pack| !pack.has_room(len)) {
            let pack = self.store.inner.create_bulk()?;
            state.bulk.push(pack);
        }
        let buffer = std::mem::take(&mut state.buffer);
        let objects = std::mem::take(&mut state.objects);
        let Some(pack) = state.bulk.last_mut() else { unreachable!("a pack was just created") };
        let start = pack.end;
        pack.end += buffer.len() as u64;
        pack.objects.extend(
            objects.iter().map(|object| PackedObject { offset: object.offset + start as u32, ..*object }),
        );
        let (file, number) = (Arc::clone(&pack.file), pack.number);
        state.running_spills += 1;
        drop(state);
        let written = failpoint::hit("bulk-write").and_then(|()| file.write_all_at(&buffer, start));
        let mut state = self.lock();
        state.running_spills -= 1;
        self.spill_finished.notify_all();
        if let Err(error) = written {
            state.undo_spill(number, start, &buffer, &objects);
            return Err(error).context("write", &self.store.inner.packs.path(number));
        }
        Ok(state)
    }

    /// Takes the collected objects. A batch that has spilled before also spills the rest.
    pub(crate) fn finish(&self) -> Result<NewObjects> {
        Ok(self.finish_spills()?.take_objects())
    }

    /// Takes the collected objects as [`Batch::finish`] does, but keeps them readable while their commit is in
    /// progress. Call [`Batch::finish_commit`] or [`Batch::abort_commit`] afterwards.
    pub(crate) fn start_commit(&self) -> Result<NewObjects> {
        let mut state = self.finish_spills()?;
        let objects = state.take_objects();
        state.in_flight = Some(objects.clone());
        Ok(objects)
    }

    /// Puts the objects of a failed commit back, for the next commit.
    pub(crate) fn abort_commit(&self) {
        let mut state = self.lock();
        if let Some(objects) = state.in_flight.take() {
            state.append(&objects.buffer, &objects.objects);
            state.bulk.splice(0..0, objects.bulk);
        }
    }

    /// Drops the objects of a finished commit: they are in the store now.
    pub(crate) fn finish_commit(&self) {
        self.lock().in_flight = None;
    }

    /// Waits for running spills, after spilling the rest of a batch that has spilled before.
    fn finish_spills(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        if !state.bulk.is_empty() && !state.buffer.is_empty() {
            state = self.spill(state)?;
        }
        while state.running_spills > 0 {
            self.spill_finished.wait(&mut state);
        }
        self.drop_stored(&mut state)?;
        Ok(state)
    }

    /// Reads content whose chunks may be in the store or still in this batch.
    pub(crate) fn read_extents(&self, extents: &[Extent], offset: u64, len: u64) -> Result<Vec<u8>> {
        crate::tree::read_extents(extents, offset, len, |chunk| {
            match self.read_object(Kind::Chunk, chunk.as_bytes())? {
                Some(content) => Ok(content),
                None => self.store.read_chunk(chunk),
            }
        })
    }

    /// Returns the content of an object of this batch; `None` if it is not in the batch.
    pub(crate) fn read_object(&self, kind: Kind, id: &[u8; 32]) -> Result<Option<Vec<u8>>> {
        let mut state = self.lock();
        // The records of a running spill are no longer in the buffer, and not completely in their pack.
        while state.running_spills > 0 && find_in_packs(&state.bulk, kind, id).is_some() {
            self.spill_finished.wait(&mut state);
        }
        let in_flight = state
            .in_flight
            .as_ref()
            .map(|in_flight| (&in_flight.buffer, &in_flight.objects, &in_flight.bulk));
        for (buffer, objects, bulk) in
            in_flight.into_iter().chain([(&state.buffer, &state.objects, &state.bulk)])
        {
            if let Some(object) = find(objects, kind, id) {
                let offset = object.offset as usize;
                let record = record::open(&buffer[offset..offset + object.len as usize]);
                return record.map(Some).map_err(|source| StoreError::Undecodable {
                    what: "a record of this batch".to_owned(),
                    source,
                });
            }
            if let Some((pack, object)) = find_in_packs(bulk, kind, id) {
                return self.store.inner.packs.read(pack.location(object), kind, id);
            }
        }
        Ok(None)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn find<'a>(objects: &'a [PackedObject], kind: Kind, id: &[u8; 32]) -> Option<&'a PackedObject> {
    objects.iter().find(|object| object.kind == kind && object.id == *id)
}

fn find_in_packs<'a>(
    packs: &'a [BulkPack],
    kind: Kind,
    id: &[u8; 32],
) -> Option<(&'a BulkPack, &'a PackedObject)> {
    packs.iter().find_map(|pack| Some((pack, find(&pack.objects, kind, id)?)))
}

impl State {
    fn take_objects(&mut self) -> NewObjects {
        self.known.clear();
        NewObjects {
            buffer: std::mem::take(&mut self.buffer),
            objects: std::mem::take(&mut self.objects),
            bulk: std::mem::take(&mut self.bulk),
        }
    }

    /// Appends encoded records to the buffer.
    fn append(&mut self, buffer: &[u8], objects: &[PackedObject]) {
        let base = self.buffer.len() as u32;
        self.buffer.extend_from_slice(buffer);
        self.objects
            .extend(objects.iter().map(|object| PackedObject { offset: object.offset + base, ..*object }));
    }

    /// Undoes a failed write into a bulk pack: its records are back in the buffer.
    fn undo_spill(&mut self, number: u32, start: u64, buffer: &[u8], objects: &[PackedObject]) {
        let end = start + buffer.len() as u64;
        if let Some(pack) = self.bulk.iter_mut().find(|pack| pack.number == number) {
            pack.objects.retain(|object| !(start..end).contains(&u64::from(object.offset)));
            if pack.end == end {
                pack.end = start;
            }
        }
        self.append(buffer, objects);
    }
}

impl Drop for Batch {
    /// Deletes packs that were never handed to a commit.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for pack in &state.bulk {
            // Garbage collection removes a pack that could not be deleted here.
            drop(std::fs::remove_file(self.store.inner.packs.path(pack.number)));
        }
    }
}

impl NodeSink for Batch {
    fn put_node(&self, node: &[u8]) -> Result<NodeId> {
        let id = NodeId::of(node);
        self.put(Kind::Node, id.as_bytes(), node)?;
        Ok(id)
    }

    fn put_list(&self, list: EncodedList) -> Result<NodeId> {
        let id = self.put_node(list.bytes())?;
        if self.mode == BatchMode::LowLatency {
            self.store.cache_list(id, list);
        }
        Ok(id)
    }

    fn put_times(&self, times: EncodedList) -> Result<NodeId> {
        // The id of a tree does not depend on the nodes with its modification times, so any id will do.
        match self.mode {
            BatchMode::IdsOnly => Ok(NodeId::from_bytes([0; 32])),
            BatchMode::Throughput | BatchMode::LowLatency => self.put_list(times),
        }
    }
}

impl Store {
    /// Starts a batch: objects that become part of the store together.
    pub(crate) fn batch(&self) -> Result<Batch> {
        Batch::new(self.clone())
    }
}

impl Inner {
    /// Creates a bulk pack with a new number. The file is locked, so that garbage collection does not remove it.
    pub(crate) fn create_bulk(&self) -> Result<BulkPack> {
        let number = self.allocate_pack()?;
        let file = self.packs.create(number, Role::Bulk)?;
        Ok(BulkPack::new(number, file))
    }
}
