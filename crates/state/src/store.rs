//! The store: one directory, opened by any number of processes at once.
//!
//! ```text
//! format        version of this layout; `format.copy` is the same with a checksum (`format.rs`)
//! lock          `flock`: shared by every process that has the store open, exclusive to rebuild the index.
//!               Locks on single bytes of it are independent of that: a byte per epoch of garbage collection
//!               protects the objects in use (`gc_guards.rs`), and two bytes keep processes on a read-only
//!               file system and writers apart (`access_lock.rs`)
//! packs/        append-only files of checksummed records, which hold all commits and objects: chunks of file content,
//!               and nodes of trees (`pack.rs`)
//! index/        LMDB index of the packs, which can be rebuilt from them (`index.rs`)
//! index.old-N   old index that a rebuild has kept, because its records differ from those of the new one
//!               (`old_index.rs`)
//! boot          trust marker of the index: `clean`, or the boot id of the machine that writes the index; after
//!               another boot the index is rebuilt (`index_trust.rs`)
//! reserve       disk space for removals and garbage collections on a full disk (`reserve.rs`)
//! pins/         lock files of pins that end with their process (a pin protects the content of a snapshot while a mount
//!               or a workspace uses it, `pin_store.rs`), and of processes with pending snapshots (which they must
//!               still record elsewhere, `pending.rs`)
//! directories/  state of each directory that was stored as a snapshot or checked out
//!               (`directory/tracked_directory.rs`). The fingerprints of its files are in the index
//!               (`directory/stat_index.rs`)
//! ```
//!
//! This file has the handle [`Store`] and the reading of objects; `store/open.rs` opens and creates stores. Other
//! operations are methods of [`Store`] in the file of their subject.

mod open;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

use crate::cache::Cache;
use crate::cancel::Cancel;
use crate::commit_queue::CommitQueue;
use crate::counts::IndexCounts;
use crate::error::{Result, StoreError};
use crate::format;
use crate::gc_guards::{GcGuards, Guard};
use crate::id::{ChunkId, IdHashBuilder, NodeId};
use crate::index::Index;
use crate::index_trust;
use crate::limit::WalkLimits;
use crate::log::Log;
use crate::pack::Packs;
use crate::page::EncodedList;
use crate::pending::ProcessLock;
use crate::rebuild_report::RebuildReport;
use crate::record::Kind;
use crate::reference_targets::ReferenceTargets;
use crate::reserve::Reserve;

/// An open store. Cheap to clone; all clones share caches, locks and the commit queue.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// Uncommitted objects that this handle reads like those of the store.
    uncommitted: Option<Arc<dyn ObjectSource>>,
    /// Cancels reads and writes of objects through this handle.
    cancel: Cancel,
    /// Memory limits of traversals of directories and trees through this handle.
    walk_limits: WalkLimits,
}

/// Source of objects that are not committed to the store.
pub(crate) trait ObjectSource: Send + Sync {
    /// Returns the content of an object; `None` if the source does not have it.
    fn read(&self, kind: Kind, id: &[u8; 32]) -> Result<Option<Vec<u8>>>;
}

/// An open store, shared by all its handles.
pub(crate) struct Inner {
    pub(crate) path: PathBuf,
    pub(crate) packs: Packs,
    pub(crate) index: Index,
    pub(crate) gc_guards: Arc<GcGuards>,
    pub(crate) commit_queue: CommitQueue,
    pub(crate) log: Log,
    pub(crate) reference_targets: ReferenceTargets,
    /// Cache of the lists of entries of directories, decoded, and of their times (`page.rs`).
    pub(crate) lists: Cache<NodeId, Arc<EncodedList>, IdHashBuilder>,
    /// True once the file `boot` has the id of this boot; see [`Inner::mark_index_dirty`].
    is_index_dirty: AtomicBool,
    /// Version of the format on disk, as this process last read or wrote it.
    format: AtomicU32,
    /// The open file `lock`, on which this process has a shared `flock`.
    lock: File,
    pub(crate) reserve: Reserve,
    /// Lock that shows other processes that this one is alive, if it has committed pending snapshots.
    pub(crate) process_lock: ProcessLock,
    /// Report of the rebuild of the index when the store was opened, because that was necessary or requested;
    /// `None` if the index was not rebuilt.
    rebuild: Option<RebuildReport>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store").field(&self.path()).finish()
    }
}

/// Stores that this process has open, by canonical path. A process must not open an LMDB database twice, so if a store
/// is opened again, the result is another handle of the same [`Inner`].
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Inner>>>> = LazyLock::new(Mutex::default);

impl Store {
    fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner, uncommitted: None, cancel: Cancel::new(), walk_limits: WalkLimits::default() }
    }

    /// Returns the directory of the store.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Returns the report of the rebuild of the index when the store was opened, because that was necessary or
    /// requested; `None` if the index was not rebuilt.
    pub fn rebuild_report(&self) -> Option<&RebuildReport> {
        self.inner.rebuild.as_ref()
    }

    /// Returns a handle whose operations fail with [`StoreError::Cancelled`] once `cancel` is set. This also applies to
    /// trees opened through the handle. A commit that has already begun to write to the log is not cancelled.
    pub fn with_cancel(&self, cancel: Cancel) -> Self {
        Self { cancel, ..self.clone() }
    }

    /// Returns the flag that cancels operations of this handle.
    pub fn cancel_flag(&self) -> &Cancel {
        &self.cancel
    }

    /// Returns a handle that limits the memory of traversals of directories and trees. The limits also apply to
    /// comparisons of trees opened through the handle.
    pub fn with_walk_limits(&self, limits: WalkLimits) -> Self {
        Self { walk_limits: limits, ..self.clone() }
    }

    /// Returns the memory limits of traversals through this handle.
    pub fn walk_limits(&self) -> WalkLimits {
        self.walk_limits
    }

    /// Returns a handle that reads an object from `source` if the source has it, and otherwise from the store.
    pub(crate) fn with_object_source(&self, source: Arc<dyn ObjectSource>) -> Self {
        Self { uncommitted: Some(source), ..self.clone() }
    }

    /// Counts the records in the index. Does not check that the packs have them.
    pub fn index_counts(&self) -> Result<IndexCounts> {
        let txn = self.inner.index.read()?;
        self.inner.index.counts(&txn)
    }

    /// Runs an operation that frees space. If it fails because the disk is full, releases the disk space that is
    /// reserved for this case and retries once.
    pub(crate) fn retry_with_disk_reserve<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let inner = &self.inner;
        match work() {
            // After a failed sync, this process must not write.
            Err(error) if error.is_full() && !inner.log.has_failed() && inner.reserve.release() => work(),
            other => other,
        }
    }

    /// Takes a guard: objects that exist now are not deleted by garbage collection before the guard is dropped.
    pub(crate) fn guard(&self) -> Result<Guard> {
        self.inner.gc_guards.guard(|| self.inner.gc_epoch())
    }

    /// Returns the content of a chunk.
    pub fn read_chunk(&self, id: &ChunkId) -> Result<Vec<u8>> {
        self.read_object(Kind::Chunk, id.as_bytes())?.ok_or(StoreError::MissingChunk(*id))
    }

    /// Returns the encoding of a node.
    pub(crate) fn read_node(&self, id: &NodeId) -> Result<Vec<u8>> {
        self.read_object(Kind::Node, id.as_bytes())?.ok_or(StoreError::MissingNode(*id))
    }

    fn read_object(&self, kind: Kind, id: &[u8; 32]) -> Result<Option<Vec<u8>>> {
        self.cancel.check()?;
        if let Some(uncommitted) = &self.uncommitted
            && let Some(content) = uncommitted.read(kind, id)?
        {
            return Ok(Some(content));
        }
        self.inner.read_object(kind, id)
    }

    /// Reads a node with a list of entries or of their times, through the cache: a directory, one of its pages, the
    /// times of a directory, or a page of them.
    pub(crate) fn read_list(&self, id: &NodeId) -> Result<Arc<EncodedList>> {
        self.cancel.check()?;
        if let Some(list) = self.inner.lists.get(id) {
            return Ok(list);
        }
        let list = EncodedList::decode(self.read_node(id)?)
            .map_err(|source| StoreError::Undecodable { what: format!("node {id}"), source })?;
        let list = Arc::new(list);
        self.inner.lists.insert(*id, Arc::clone(&list), list.weight());
        Ok(list)
    }

    /// Puts a list into the cache, because it was just written and may be read soon.
    pub(crate) fn cache_list(&self, id: NodeId, list: EncodedList) {
        let weight = list.weight();
        self.inner.lists.insert(id, Arc::new(list), weight);
    }
}

impl Inner {
    /// Returns the current epoch of garbage collection: a number that increases whenever objects are condemned (about
    /// to be deleted); 0 for an empty store.
    pub(crate) fn gc_epoch(&self) -> Result<u64> {
        let txn = self.index.read()?;
        Ok(self.index.log_state(&txn)?.map_or(0, |state| state.epoch))
    }

    /// Returns the content of an object; `None` if the store does not have it.
    pub(crate) fn read_object(&self, kind: Kind, id: &[u8; 32]) -> Result<Option<Vec<u8>>> {
        // Garbage collection may move the object to another pack between the lookup and the read.
        for _ in 0..8 {
            let location = {
                let txn = self.index.read()?;
                self.index.find(&txn, kind, id)?
            };
            let Some(location) = location else { return Ok(None) };
            if let Some(content) = self.packs.read(location, kind, id)? {
                return Ok(Some(content));
            }
        }
        Ok(None)
    }

    /// Writes the id of this boot to the file `boot`, the trust marker of the index. The index is not synced, so after
    /// another boot it must be rebuilt. Must be called before every write to the index. Only the first call of a
    /// process writes.
    pub(crate) fn mark_index_dirty(&self) -> Result<()> {
        if self.is_index_dirty.load(Ordering::Acquire) {
            return Ok(());
        }
        let boot_id = index_trust::boot_id();
        if index_trust::read(&self.path).as_deref() != Some(boot_id.as_str()) {
            index_trust::set(&self.path, &boot_id)?;
        }
        self.is_index_dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Sets the version of the format on disk to `version` if it is lower. Several threads may call this at once.
    pub(crate) fn raise_format(&self, version: u32) -> Result<()> {
        if self.format.load(Ordering::Acquire) < version {
            format::write(&self.path, version)?;
            self.format.fetch_max(version, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Syncs the index and marks it as clean, so that it need not be rebuilt after a reboot. Does nothing if another
    /// process has the store open.
    fn close_cleanly(&self) -> Result<()> {
        if !self.is_index_dirty.load(Ordering::Acquire) {
            return Ok(());
        }
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        if self.log.has_failed() {
            // The content of the disk is unknown: the next open must rebuild the index.
            return index_trust::set_untrusted(&self.path, "a sync failed");
        }
        self.truncate_preallocation()?;
        // Objects must be on disk before index rows that refer to them.
        self.sync_packs()?;
        self.index.sync()?;
        self.reserve.try_allocate();
        index_trust::set_clean(&self.path)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // After a failure, the index is not marked clean: the first open after a reboot rebuilds it.
        drop(self.close_cleanly());
        OPEN.lock().remove(&self.path);
    }
}
