//! Opens and creates stores. If the index (an LMDB database) cannot be trusted, it is rebuilt from the packs
//! (append-only files with all objects and commits) first.
//!
//! The *trust marker*, the file `boot`, is `clean`, or has the id of the boot in which the index was last written. The
//! index is not synced, so after another boot it cannot be trusted.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use heed::MdbError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::access_lock;
use crate::cache::Cache;
use crate::commit_queue::CommitQueue;
use crate::error::{IoContext, Result, StoreError};
use crate::format;
use crate::gc_guards::GcGuards;
use crate::index::{Access, Index};
use crate::index_trust;
use crate::lock_holder;
use crate::lock_wait::PolledWait;
use crate::log::Log;
use crate::notice::{self, Notice};
use crate::pack::{PACK_HEADER_LEN, Packs};
use crate::pending::ProcessLock;
use crate::rebuild_report::RebuildReport;
use crate::recovery;
use crate::reference_targets::ReferenceTargets;
use crate::reserve::Reserve;

use super::{Inner, OPEN, Store};

/// Budget in bytes of the cache of decoded directory lists (`page.rs`). The cache may use twice as much memory.
const LIST_CACHE_SIZE: usize = 32 << 20;

/// Maximum time to wait until other processes have closed a store whose index must be rebuilt.
const EXCLUSIVE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time between the creation of a store's first pack and the commit of its index row.
const FIRST_COMMIT_TIMEOUT: Duration = Duration::from_secs(1);

impl Store {
    /// Opens the store in the directory `path`. Creates the store if the directory is missing or empty.
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        fs::create_dir_all(path).context("create", path)?;
        if !format::exists(path) {
            create(path)?;
        }
        Self::open(path)
    }

    /// Opens the store in the directory `path`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        format::check(path)?;
        Self::open_at(fs::canonicalize(path).context("open", path)?, None)
    }

    /// Opens a store by its canonical path. If this process has it open already, returns another handle. `rebuild` is
    /// the report of a rebuild that the caller has just done.
    fn open_at(path: PathBuf, rebuild: Option<RebuildReport>) -> Result<Self> {
        loop {
            let mut open = OPEN.lock();
            match open.get(&path) {
                Some(weak) => {
                    if let Some(inner) = weak.upgrade() {
                        return Ok(Self::from_inner(inner));
                    }
                    // Another thread is closing the store.
                    drop(open);
                    std::thread::sleep(Duration::from_millis(1));
                }
                None => {
                    let inner = Arc::new(Inner::open(path.clone(), rebuild)?);
                    open.insert(path, Arc::downgrade(&inner));
                    return Ok(Self::from_inner(inner));
                }
            }
        }
    }

    /// Rebuilds the index from the packs, repairs the format files, and opens the store.
    ///
    /// No other process may have the store open.
    pub fn rebuild_index(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let version = format::check(path)?;
        let path = fs::canonicalize(path).context("open", path)?;
        let (lock, _) = open_lock(&path)?;
        lock_exclusively(&lock, &path)?;
        format::repair(&path, version)?;
        let report = recovery::rebuild(&path)?;
        drop(lock);
        let store = Self::open_at(path, Some(report))?;
        if store.snapshots()?.iter().any(|snapshot| snapshot.root.is_some()) {
            store.inner.raise_format(format::WITH_ROOT_FILESYSTEMS)?;
        }
        Ok(store)
    }
}

impl Inner {
    /// Opens a store that this process does not have open.
    fn open(path: PathBuf, rebuild: Option<RebuildReport>) -> Result<Self> {
        let (lock, access) = open_lock(&path)?;
        access_lock::acquire(&lock, &path, access)?;
        let version = format::check(&path)?;
        let packs = Packs::new(path.join("packs"));
        let (index, open_report) = match access {
            Access::ReadWrite => {
                format::complete(&path, version);
                open_or_rebuild_index(&path, &lock, &packs)?
            }
            Access::ReadOnly => (open_read_only_index(&path, &lock, &packs)?, None),
        };
        if let Some(report) = &open_report {
            notice::send(&Notice::Rebuilt { store: &path, report });
        }
        Ok(Self {
            packs,
            gc_guards: Arc::new(GcGuards::new(path.join("lock"))?),
            reserve: Reserve::new(&path),
            commit_queue: CommitQueue::default(),
            log: Log::default(),
            reference_targets: ReferenceTargets::default(),
            process_lock: ProcessLock::default(),
            lists: Cache::new(LIST_CACHE_SIZE),
            is_index_dirty: AtomicBool::new(false),
            format: AtomicU32::new(version),
            index,
            lock,
            rebuild: open_report.or(rebuild),
            path,
        })
    }
}

/// Opens the index. Rebuilds it first if it cannot be used. Returns with the store's lock held shared, so that other
/// processes cannot replace the index.
fn open_or_rebuild_index(path: &Path, lock: &File, packs: &Packs) -> Result<(Index, Option<RebuildReport>)> {
    let mut report = None;
    loop {
        lock_shared(lock, path)?;
        if let Some(index) = usable_index(path, packs)? {
            return Ok((index, report));
        }
        flock(lock, FlockOperation::Unlock).context("unlock", path)?;
        lock_exclusively(lock, path)?;
        // Another process may have rebuilt the index in the meantime.
        if usable_index(path, packs)?.is_none() {
            report = Some(recovery::rebuild(path)?);
        }
    }
}

/// Opens the index; `None` if it must be rebuilt.
fn usable_index(path: &Path, packs: &Packs) -> Result<Option<Index>> {
    if !index_is_trustworthy(path)? {
        return Ok(None);
    }
    let index = open_index(path);
    if is_unusable(&index, packs)? { Ok(None) } else { index.map(Some) }
}

/// Opens the index. Waits up to 10 s until another thread has closed it.
fn open_index(path: &Path) -> Result<Index> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match Index::open(&path.join("index")) {
            // Another thread drops the last handle of the index, but LMDB has not closed it yet.
            Err(StoreError::Index { source: heed::Error::EnvAlreadyOpened }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// Names that may exist in a store whose creation was interrupted or is in progress.
const STORE_ENTRIES: [&str; 6] = ["packs", "index", "pins", "directories", "lock", "format"];

/// Creates a store in an empty directory. Fails if the directory has other files.
fn create(path: &Path) -> Result<()> {
    let mut entries = fs::read_dir(path).context("list", path)?;
    let has_foreign_entry = entries.any(|entry| {
        entry.is_ok_and(|entry| {
            let name = entry.file_name();
            !STORE_ENTRIES.iter().any(|known| name == *known)
                && !name.as_encoded_bytes().starts_with(b"format.")
        })
    });
    if has_foreign_entry && !format::exists(path) {
        return Err(StoreError::NotAStore { path: path.to_owned() });
    }
    // The process that gets the lock creates the store; other processes wait.
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
    format::create(path)?;
    // Disk space for removals and garbage collections on a full disk.
    Reserve::new(path).try_allocate();
    Ok(())
}

/// Opens the lock file. Returns read-only access if the lock file cannot be opened for writing.
fn open_lock(path: &Path) -> Result<(File, Access)> {
    let lock = path.join("lock");
    match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&lock) {
        Err(error) if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => {
            // If the file cannot be opened for reading either, the error of the first attempt is returned.
            File::open(&lock).map(|lock| (lock, Access::ReadOnly)).map_err(|_| error).context("open", &lock)
        }
        other => Ok((other.context("open", &lock)?, Access::ReadWrite)),
    }
}

/// Opens the index of a store on a read-only file system. Fails if the index must be rebuilt.
fn open_read_only_index(path: &Path, lock: &File, packs: &Packs) -> Result<Index> {
    lock_shared(lock, path)?;
    let directory = path.join("index");
    let unusable = || Err(Errno::ROFS).context("rebuild the index in", &directory);
    if !index_is_trustworthy(path)? {
        return unusable();
    }
    let index = Index::open_read_only(&directory);
    if is_unusable(&index, packs)? { unusable() } else { index }
}

/// Takes the store's lock shared. Waits while another process rebuilds the index.
fn lock_shared(lock: &File, store: &Path) -> Result<()> {
    let mut wait = PolledWait::new(store, "to open it");
    loop {
        match flock(lock, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => wait.sleep(|| holder_of(lock, store)),
            other => return other.context("lock", store),
        }
    }
}

/// Takes the store's lock exclusively. Fails if other processes still have the store open after [`EXCLUSIVE_TIMEOUT`].
fn lock_exclusively(lock: &File, store: &Path) -> Result<()> {
    let mut wait = PolledWait::new(store, "to rebuild its index");
    while flock(lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if wait.elapsed() > EXCLUSIVE_TIMEOUT {
            return Err(StoreError::Busy { path: store.to_owned() });
        }
        wait.sleep(|| holder_of(lock, store));
    }
    Ok(())
}

/// Returns the PID of the process that holds the lock exclusively; `None` if it is not known.
fn holder_of(lock: &File, store: &Path) -> Option<u32> {
    lock_holder::of_exclusive_lock(lock, &store.join("lock"))
}

/// Returns true if an index cannot be used although no crash was detected: it is damaged, or of another version, or it
/// is empty and the packs are not. `index` is the result of opening it; returns false for other errors.
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
    // Returns true if the log state of the index is undecodable; `None` if the index has no log state.
    let is_state_unusable = |txn: &heed::RoTxn<'_>| match index.log_state(txn) {
        // Another version has written the state. A rebuild reads the same records from the packs.
        Err(StoreError::Undecodable { .. }) => Ok(Some(true)),
        Ok(Some(_)) => Ok(Some(false)),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    let txn = index.read()?;
    if let Some(unusable) = is_state_unusable(&txn)? {
        return Ok(unusable);
    }
    drop(txn);
    // The first commit of a store writes its pack before the row in the index, so wait for the row. If it does not
    // appear, the rebuild waits until no process has the store open, and calls this again.
    let deadline = Instant::now() + FIRST_COMMIT_TIMEOUT;
    while has_records(packs)? {
        let txn = index.read()?;
        if let Some(unusable) = is_state_unusable(&txn)? {
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

/// Returns true if a pack has records.
fn has_records(packs: &Packs) -> Result<bool> {
    let has_records = |pack| fs::metadata(packs.path(pack)).is_ok_and(|meta| meta.len() > PACK_HEADER_LEN);
    Ok(packs.list()?.into_iter().any(has_records))
}

/// Returns true if the index exists and no crash of the machine can have made it inconsistent. Without packs, a missing
/// index is trustworthy too.
fn index_is_trustworthy(path: &Path) -> Result<bool> {
    if !path.join("index/data.mdb").exists() {
        return Ok(Packs::new(path.join("packs")).list()?.is_empty());
    }
    match index_trust::read(path) {
        Some(marker) => Ok(index_trust::is_clean(&marker) || marker == index_trust::boot_id()),
        // The index was never written to.
        None => Ok(Packs::new(path.join("packs")).list()?.is_empty()),
    }
}
