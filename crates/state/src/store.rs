//! The store: one directory, opened by any number of processes at once.
//!
//! ```text
//! format      the version of this layout, and a copy of it with a checksum (`format.rs`)
//! lock        held shared by every process that has the store open, exclusively for rebuilding the index;
//!             locks on single bytes of it protect objects (`session.rs`) and separate readers from writers
//!             (`access_lock.rs`)
//! packs/      the source of truth (`pack.rs`)
//! index/      LMDB index of the packs (`index.rs`); `index.old-N` is one that a repair kept (`loss.rs`)
//! boot        trust marker of the index (`index_trust.rs`)
//! reserve     disk space for removals and garbage collections on a full disk (`reserve.rs`)
//! pins/       lock files of pins that end with their process (`pin.rs`)
//! directories/ state of each checked-out directory (`directory/state.rs`); stat records are in the index
//! ```

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use heed::MdbError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use uuid::Uuid;

use crate::access_lock;
use crate::batch::Batch;
use crate::cache::Cache;
use crate::cancel::Cancel;
use crate::commit::Committer;
use crate::error::{IoContext, Result, StoreError};
use crate::format;
use crate::id::{ById, ChunkId, NodeId};
use crate::index::{Access, Index};
use crate::index_trust;
use crate::limit::WalkLimits;
use crate::lock_holder;
use crate::lock_wait::PolledWait;
use crate::log::Log;
use crate::loss::RebuildReport;
use crate::notice::{self, Notice};
use crate::pack::{PACK_HEADER, Packs};
use crate::page::Page;
use crate::record::Kind;
use crate::recovery;
use crate::reserve::Reserve;
use crate::session::{Guard, Sessions};
use crate::uncommitted_objects::UncommittedObjects;

/// Decoded directory pages kept in memory, in bytes (up to twice this).
const PAGE_CACHE: usize = 32 << 20;

/// Longest wait for other processes to close a store whose index must be rebuilt.
const EXCLUSIVE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time between the creation of a store's first pack and its row in the index.
const FIRST_COMMIT_TIMEOUT: Duration = Duration::from_secs(1);

/// An open store. Cheap to clone; all clones share caches, locks and the commit queue.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// Objects that this handle reads like those of the store.
    uncommitted: Option<Arc<UncommittedObjects>>,
    /// Stops reads and new objects of this handle.
    cancel: Cancel,
    /// Memory limits of this handle's walks.
    walk_limits: WalkLimits,
}

pub(crate) struct Inner {
    pub(crate) path: PathBuf,
    pub(crate) packs: Packs,
    pub(crate) index: Index,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) committer: Committer,
    pub(crate) log: Log,
    pub(crate) pages: Cache<NodeId, Arc<Page>, ById>,
    /// Set once this process has recorded that it writes the index in this boot.
    is_marked_written: AtomicBool,
    lock: File,
    pub(crate) reserve: Reserve,
    /// Report of the rebuild that opening the store required.
    rebuild: Option<RebuildReport>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store").field(&self.path()).finish()
    }
}

/// Stores that this process has open, by canonical path. LMDB must not be opened twice by one process, so
/// opening a store twice gives the same one.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Inner>>>> = LazyLock::new(Mutex::default);

impl Store {
    /// Opens the store in `path`; creates it if the directory is missing or empty.
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        fs::create_dir_all(path).context("create", path)?;
        if !format::exists(path) {
            create(path)?;
        }
        Self::open(path)
    }

    /// Opens the store in `path`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        format::check(path)?;
        Self::open_at(fs::canonicalize(path).context("open", path)?, None)
    }

    fn open_at(path: PathBuf, rebuild: Option<RebuildReport>) -> Result<Self> {
        loop {
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            match open.get(&path) {
                Some(weak) => {
                    if let Some(inner) = weak.upgrade() {
                        return Ok(Self::of(inner));
                    }
                    // The last owner is closing it right now in another thread.
                    drop(open);
                    std::thread::sleep(Duration::from_millis(1));
                }
                None => {
                    let inner = Arc::new(Inner::open(path.clone(), rebuild)?);
                    open.insert(path, Arc::downgrade(&inner));
                    return Ok(Self::of(inner));
                }
            }
        }
    }

    fn of(inner: Arc<Inner>) -> Self {
        Self { inner, uncommitted: None, cancel: Cancel::new(), walk_limits: WalkLimits::default() }
    }

    /// Returns the directory of the store.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Returns the report of the rebuild that opening the store required, or that was requested.
    pub fn rebuild_report(&self) -> Option<&RebuildReport> {
        self.inner.rebuild.as_ref()
    }

    /// Rebuilds the index from the packs, repairs the format files, and opens the store.
    ///
    /// No other process may have the store open.
    pub fn rebuild_index(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        format::check(path)?;
        let path = fs::canonicalize(path).context("open", path)?;
        let (lock, _) = open_lock(&path)?;
        lock_exclusively(&lock, &path)?;
        format::repair(&path)?;
        let report = recovery::rebuild(&path)?;
        drop(lock);
        Self::open_at(path, Some(report))
    }

    /// Returns a handle whose operations fail with [`StoreError::Cancelled`] once `cancel` is set. It also
    /// applies to trees opened through the handle. A commit that has begun to write its record is finished.
    pub fn with_cancel(&self, cancel: Cancel) -> Self {
        Self { cancel, ..self.clone() }
    }

    /// Returns the flag that cancels operations of this handle.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Returns a handle whose walks through directories and trees are bounded by `limits`. It also applies to
    /// comparisons of trees opened through the handle.
    pub fn with_walk_limits(&self, limits: WalkLimits) -> Self {
        Self { walk_limits: limits, ..self.clone() }
    }

    /// Returns the limits of this handle's walks.
    pub fn walk_limits(&self) -> WalkLimits {
        self.walk_limits
    }

    /// Starts a batch: objects that become part of the store together.
    pub(crate) fn batch(&self) -> Result<Batch> {
        Batch::new(self.clone())
    }

    pub(crate) fn guard(&self) -> Result<Guard> {
        self.inner.sessions.guard(|| self.inner.epoch())
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

    /// Returns a handle that also reads the given uncommitted objects.
    pub(crate) fn with_uncommitted(&self, uncommitted: UncommittedObjects) -> Self {
        Self { uncommitted: Some(Arc::new(uncommitted)), ..self.clone() }
    }

    /// Reads a list: a directory or one of its pages, or their times. Cached.
    pub(crate) fn read_page(&self, id: &NodeId) -> Result<Arc<Page>> {
        self.cancel.check()?;
        if let Some(page) = self.inner.pages.get(id) {
            return Ok(page);
        }
        let page = Page::decode(self.read_node(id)?)
            .map_err(|source| StoreError::Undecodable { what: format!("node {id}"), source })?;
        let page = Arc::new(page);
        self.inner.pages.insert(*id, Arc::clone(&page), page.weight());
        Ok(page)
    }

    /// Adds a page that was just written to the cache.
    pub(crate) fn remember_page(&self, id: NodeId, page: Page) {
        let weight = page.weight();
        self.inner.pages.insert(id, Arc::new(page), weight);
    }
}

impl Inner {
    fn open(path: PathBuf, rebuild: Option<RebuildReport>) -> Result<Self> {
        let (lock, access) = open_lock(&path)?;
        access_lock::acquire(&lock, &path, access)?;
        let packs = Packs::new(path.join("packs"));
        let (index, on_open) = match access {
            Access::Shared => {
                format::add_missing_copy(&path);
                open_or_rebuild_index(&path, &lock, &packs)?
            }
            Access::ReadOnly => (open_read_only_index(&path, &lock, &packs)?, None),
        };
        if let Some(report) = &on_open {
            notice::send(&Notice::Rebuilt { store: &path, report });
        }
        Ok(Self {
            packs,
            sessions: Arc::new(Sessions::new(path.join("lock"))?),
            reserve: Reserve::new(&path),
            committer: Committer::default(),
            log: Log::default(),
            pages: Cache::new(PAGE_CACHE),
            is_marked_written: AtomicBool::new(false),
            index,
            lock,
            rebuild: on_open.or(rebuild),
            path,
        })
    }

    pub(crate) fn epoch(&self) -> Result<u64> {
        let txn = self.index.read()?;
        Ok(self.index.log_state(&txn)?.map_or(0, |state| state.epoch))
    }

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

    /// Records on disk that only this boot of the machine may trust the index. Must be called before the
    /// index is written.
    pub(crate) fn mark_written(&self) -> Result<()> {
        if self.is_marked_written.load(Ordering::Acquire) {
            return Ok(());
        }
        let boot_id = index_trust::boot_id();
        if index_trust::read(&self.path).as_deref() != Some(boot_id.as_str()) {
            index_trust::set(&self.path, &boot_id)?;
        }
        self.is_marked_written.store(true, Ordering::Release);
        Ok(())
    }

    /// Syncs the index and marks it clean if this is the last process to close the store, so that a reboot
    /// needs no rebuild.
    fn close_cleanly(&self) -> Result<()> {
        if !self.is_marked_written.load(Ordering::Acquire) {
            return Ok(());
        }
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        if self.log.has_failed() {
            // The content of the disk is unknown: the next open must rebuild the index.
            return index_trust::set(&self.path, "a sync failed");
        }
        self.trim_log()?;
        // Objects must be on disk before index rows that refer to them.
        self.sync_packs()?;
        self.index.sync()?;
        self.reserve.fill();
        index_trust::set_clean(&self.path)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A failure only costs a rebuild after a machine crash.
        drop(self.close_cleanly());
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}

/// Opens the index, after rebuilding it if it cannot be used. The store's lock is held shared afterwards, so
/// that other processes cannot replace the index.
fn open_or_rebuild_index(path: &Path, lock: &File, packs: &Packs) -> Result<(Index, Option<RebuildReport>)> {
    let mut report = None;
    loop {
        lock_shared(lock, path)?;
        if let Some(index) = usable_index(path, packs)? {
            return Ok((index, report));
        }
        flock(lock, FlockOperation::Unlock).context("unlock", path)?;
        lock_exclusively(lock, path)?;
        // Another process may have rebuilt it meanwhile.
        if usable_index(path, packs)?.is_none() {
            report = Some(recovery::rebuild(path)?);
        }
    }
}

fn usable_index(path: &Path, packs: &Packs) -> Result<Option<Index>> {
    if !index_is_trustworthy(path)? {
        return Ok(None);
    }
    let index = open_index(path);
    if is_unusable(&index, packs)? { Ok(None) } else { index.map(Some) }
}

fn open_index(path: &Path) -> Result<Index> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match Index::open(&path.join("index")) {
            // The last owner in this process has dropped it but not closed it yet.
            Err(StoreError::Index { source: heed::Error::EnvAlreadyOpened }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// Names that may exist in a store whose creation was interrupted or is in progress.
const STORE_ENTRIES: [&str; 6] = ["packs", "index", "pins", "directories", "lock", "format"];

fn create(path: &Path) -> Result<()> {
    let mut entries = fs::read_dir(path).context("list", path)?;
    let foreign = entries.any(|entry| {
        entry.is_ok_and(|entry| {
            let name = entry.file_name();
            !STORE_ENTRIES.iter().any(|own| name == *own) && !name.as_encoded_bytes().starts_with(b"format.")
        })
    });
    if foreign && !format::exists(path) {
        return Err(StoreError::NotAStore { path: path.to_owned() });
    }
    // One process creates the store; the others wait for it.
    let (lock, _) = open_lock(path)?;
    while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if format::exists(path) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if format::exists(path) {
        return Ok(());
    }
    for part in ["packs", "index", "pins", "directories"] {
        let part = path.join(part);
        fs::create_dir_all(&part).context("create", &part)?;
    }
    format::write(path)?;
    Reserve::new(path).fill();
    Ok(())
}

/// Opens the lock file and determines the access mode.
fn open_lock(path: &Path) -> Result<(File, Access)> {
    let lock = path.join("lock");
    match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&lock) {
        Err(error) if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => {
            // If it cannot be read either, report why it cannot be written.
            File::open(&lock).map(|lock| (lock, Access::ReadOnly)).map_err(|_| error).context("open", &lock)
        }
        other => Ok((other.context("open", &lock)?, Access::Shared)),
    }
}

/// Opens the index of a store on a read-only file system. Fails if it would need a rebuild.
fn open_read_only_index(path: &Path, lock: &File, packs: &Packs) -> Result<Index> {
    lock_shared(lock, path)?;
    let directory = path.join("index");
    let unusable = || Err(Errno::ROFS).context("rebuild the index in", &directory);
    if !index_is_trustworthy(path)? {
        return unusable();
    }
    let index = Index::open_to_read(&directory);
    if is_unusable(&index, packs)? { unusable() } else { index }
}

/// Takes the lock shared. Waits while another process rebuilds the index.
fn lock_shared(lock: &File, path: &Path) -> Result<()> {
    let mut wait = PolledWait::new(path, "to open it");
    loop {
        match flock(lock, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => wait.sleep(|| holder_of(lock, path)),
            other => return other.context("lock", path),
        }
    }
}

fn lock_exclusively(lock: &File, path: &Path) -> Result<()> {
    let mut wait = PolledWait::new(path, "to rebuild its index");
    while flock(lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if wait.elapsed() > EXCLUSIVE_TIMEOUT {
            return Err(StoreError::Busy { path: path.to_owned() });
        }
        wait.sleep(|| holder_of(lock, path));
    }
    Ok(())
}

fn holder_of(lock: &File, path: &Path) -> Option<u32> {
    lock_holder::of_exclusive_lock(lock, &path.join("lock"))
}

/// Returns true if an index without a sign of a crash does not belong to these packs: it is damaged, or
/// empty.
fn is_unusable(index: &Result<Index>, packs: &Packs) -> Result<bool> {
    let index = match index {
        Ok(index) => index,
        Err(StoreError::Index { source: heed::Error::Mdb(error) }) => {
            return Ok(matches!(
                error,
                MdbError::Invalid | MdbError::Corrupted | MdbError::VersionMismatch | MdbError::PageNotFound
            ));
        }
        Err(_) => return Ok(false),
    };
    let known = |txn: &heed::RoTxn<'_>| match index.log_state(txn) {
        // Written by another version; the packs hold the same records.
        Err(StoreError::Undecodable { .. }) => Ok(Some(true)),
        Ok(Some(_)) => Ok(Some(false)),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    let txn = index.read()?;
    if let Some(unusable) = known(&txn)? {
        return Ok(unusable);
    }
    drop(txn);
    // The first commit of a store writes its pack before the index has a row for it, so wait a moment. A
    // rebuild after that waits until no process has the store open, and checks again.
    let deadline = Instant::now() + FIRST_COMMIT_TIMEOUT;
    while has_records(packs)? {
        let txn = index.read()?;
        if let Some(unusable) = known(&txn)? {
            return Ok(unusable);
        }
        drop(txn);
        if Instant::now() > deadline {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(false)
}

fn has_records(packs: &Packs) -> Result<bool> {
    let has_records = |pack| fs::metadata(packs.path(pack)).is_ok_and(|meta| meta.len() > PACK_HEADER);
    Ok(packs.list()?.into_iter().any(has_records))
}

fn index_is_trustworthy(path: &Path) -> Result<bool> {
    if !path.join("index/data.mdb").exists() {
        return Ok(Packs::new(path.join("packs")).list()?.is_empty());
    }
    match index_trust::read(path) {
        Some(mark) => Ok(index_trust::is_clean(&mark) || mark == index_trust::boot_id()),
        // Never written to.
        None => Ok(Packs::new(path.join("packs")).list()?.is_empty()),
    }
}

/// Replaces a small file atomically; durable once its directory is synced. Several processes may do so at
/// once: the last one wins.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> Result<()> {
    let new = path.with_extension(format!("new-{}", Uuid::now_v7()));
    let written = File::create(&new)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .context("write", &new)
        .and_then(|()| fs::rename(&new, path).context("rename", &new));
    if written.is_err() {
        // The original error is more useful than a failure to clean up.
        drop(fs::remove_file(&new));
    }
    written
}

pub(crate) fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.context("remove", path),
    }
}
