//! Reading of file content through a small cache of chunks, with a read-ahead thread.
//!
//! The kernel caches file content. The cache of this module only avoids loading a chunk once for each of the kernel's
//! smaller reads, and holds the chunks that were read ahead.

use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard};
use workspace_state::{ChunkId, DecodeError, Result, Store, StoreError};

use crate::content::{Content, ExtentRange};

/// Size of the cache in bytes.
const CACHE_BYTES: usize = 32 << 20;
/// Number of bytes that are read ahead of a sequential reader.
const READ_AHEAD: u64 = 2 << 20;
/// Maximum number of chunks in the queue of the read-ahead thread; further chunks are not read ahead.
const QUEUE_MAX: usize = 64;

/// Bytes of a file: a range of a chunk, or a copy assembled from several chunks.
pub(crate) enum Bytes {
    Shared(Arc<Vec<u8>>, Range<usize>),
    Owned(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared(chunk, range) => &chunk[range.clone()],
            Self::Owned(bytes) => bytes,
        }
    }
}

/// Reader of content with read-ahead.
pub(crate) struct Reader {
    cache: Arc<Cache>,
    /// Queue of the read-ahead thread, which ends when this is dropped.
    ahead: Option<SyncSender<ChunkId>>,
    worker: Option<JoinHandle<()>>,
}

impl Reader {
    pub(crate) fn new(store: Store) -> std::io::Result<Self> {
        let cache = Arc::new(Cache { store, state: Mutex::default(), loaded: Condvar::new() });
        let (ahead, queue) = sync_channel(QUEUE_MAX);
        let worker = {
            let cache = Arc::clone(&cache);
            std::thread::Builder::new()
                .name("read-ahead".to_owned())
                .spawn(move || cache.fetch_ahead(&queue))?
        };
        Ok(Self { cache, ahead: Some(ahead), worker: Some(worker) })
    }

    /// Reads up to `len` bytes from `offset`; fewer only at the end of the file.
    pub(crate) fn read(&self, content: &Content, offset: u64, len: u64) -> Result<Bytes> {
        let end = offset.saturating_add(len).min(content.size());
        if offset >= end {
            return Ok(Bytes::Owned(Vec::new()));
        }
        let sequential = content.record_read(offset, end);
        let bytes = self.read_extents(content, offset..end)?;
        if sequential {
            self.fetch_after(content, end);
        }
        Ok(bytes)
    }

    fn read_extents(&self, content: &Content, wanted: Range<u64>) -> Result<Bytes> {
        let mut out = Vec::new();
        for extent in content.extents_from(wanted.start).take_while(|extent| extent.range.start < wanted.end)
        {
            let from = wanted.start.max(extent.range.start) - extent.range.start;
            let to = wanted.end.min(extent.range.end) - extent.range.start;
            let range = from as usize..to as usize;
            let Some(id) = extent.chunk else {
                // A hole.
                out.resize(out.len() + range.len(), 0);
                continue;
            };
            let chunk = self.chunk_of(id, &extent, range.len())?;
            if range.len() as u64 == wanted.end - wanted.start {
                return Ok(Bytes::Shared(chunk, range));
            }
            out.reserve_exact((wanted.end - wanted.start) as usize - out.len());
            out.extend_from_slice(&chunk[range]);
        }
        Ok(Bytes::Owned(out))
    }

    /// Reads the chunk of an extent and checks its length. `wanted` is the number of bytes that the caller needs.
    fn chunk_of(&self, id: ChunkId, extent: &ExtentRange, wanted: usize) -> Result<Arc<Vec<u8>>> {
        let len = extent.range.end - extent.range.start;
        // After a read of the whole chunk, the kernel has it in its cache.
        let chunk = if wanted as u64 == len { self.cache.get_uncached(id)? } else { self.cache.get(id)? };
        if chunk.len() as u64 != len {
            let source = DecodeError("its length differs from the one that the file records");
            return Err(StoreError::Undecodable { what: format!("chunk {id}"), source });
        }
        Ok(chunk)
    }

    /// Queues the chunks of the next [`READ_AHEAD`] bytes after `end` for the read-ahead thread.
    fn fetch_after(&self, content: &Content, end: u64) {
        let Some(ahead) = &self.ahead else { return };
        let next_extents =
            content.extents_from(end).take_while(|extent| extent.range.start < end + READ_AHEAD);
        for id in next_extents.filter_map(|extent| extent.chunk).filter(|id| !self.cache.contains(id)) {
            if ahead.try_send(id).is_err() {
                return;
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.ahead.take());
        if let Some(worker) = self.worker.take() {
            // A panic of the thread was already printed, and nothing is read any more.
            drop(worker.join());
        }
    }
}

/// Cache of chunks. Threads that need the same chunk at once load it only once.
struct Cache {
    store: Store,
    state: Mutex<State>,
    /// Notified when a thread has read a chunk, or failed to.
    loaded: Condvar,
}

#[derive(Default)]
struct State {
    /// Cached chunks; `None` while a thread reads the chunk.
    chunks: HashMap<ChunkId, Option<Arc<Vec<u8>>>>,
    /// Ids of the cached chunks in insertion order, oldest first.
    order: VecDeque<ChunkId>,
    /// Size of the cached chunks in bytes.
    bytes: usize,
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn contains(&self, id: &ChunkId) -> bool {
        self.lock().chunks.contains_key(id)
    }

    /// Returns a chunk and caches it.
    fn get(&self, id: ChunkId) -> Result<Arc<Vec<u8>>> {
        let mut state = self.lock();
        loop {
            match state.chunks.get(&id) {
                Some(Some(chunk)) => return Ok(Arc::clone(chunk)),
                Some(None) => self.loaded.wait(&mut state),
                None => break,
            }
        }
        state.chunks.insert(id, None);
        drop(state);
        let mut loading = Loading { cache: self, id, is_done: false };
        let chunk = Arc::new(self.store.read_chunk(&id)?);
        self.lock().insert(id, Arc::clone(&chunk));
        loading.is_done = true;
        Ok(chunk)
    }

    /// Returns a chunk without caching it: it is not expected to be read again.
    fn get_uncached(&self, id: ChunkId) -> Result<Arc<Vec<u8>>> {
        if self.contains(&id) { self.get(id) } else { self.store.read_chunk(&id).map(Arc::new) }
    }

    /// Reads queued chunks into the cache until the queue is closed; runs in the read-ahead thread.
    fn fetch_ahead(&self, queue: &Receiver<ChunkId>) {
        for id in queue {
            // A reader that needs the chunk reads it again and reports the error.
            drop(self.get(id));
        }
    }
}

/// Read of a chunk for which other threads may wait. Its end wakes them. If it failed, by an error or a panic, each of
/// them tries by itself.
struct Loading<'a> {
    cache: &'a Cache,
    id: ChunkId,
    /// True if the chunk is in the cache.
    is_done: bool,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.cache.lock().chunks.remove(&self.id);
        }
        self.cache.loaded.notify_all();
    }
}

impl State {
    fn insert(&mut self, id: ChunkId, chunk: Arc<Vec<u8>>) {
        self.bytes += chunk.len();
        self.chunks.insert(id, Some(chunk));
        self.order.push_back(id);
        while self.bytes > CACHE_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            if let Some(Some(chunk)) = self.chunks.remove(&oldest) {
                self.bytes -= chunk.len();
            }
        }
    }
}
