//! Locks that prevent a store from being open for reading only and for writing at the same time.
//!
//! A process that opens the index on a read-only file system cannot register in LMDB's reader table, so a
//! writer could overwrite pages that it reads. Both kinds of processes lock a byte of the store's lock file
//! while they have the store open, and each waits until no process of the other kind is left, for at most 10 seconds.
//! While a reader waits, it releases its byte, so that it does not block a writer that waits for it.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::byte_lock;
use crate::error::{IoContext, Result, StoreError};
use crate::gc_guards::EPOCH_OFFSETS_END;
use crate::index::Access;
use crate::lock_wait::PolledWait;

/// Offset of the byte that processes with the store open for writing lock. The bytes before it belong to garbage
/// collection.
const WRITER_BYTE: u64 = EPOCH_OFFSETS_END;
/// Offset of the byte that processes with the store open read-only lock.
const READER_BYTE: u64 = EPOCH_OFFSETS_END + 1;
/// Longest wait for processes of the other kind.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Locks the byte of this access mode in `lock`, the lock file of the store in the directory `store`. The byte stays
/// locked until the file is closed. Fails with [`StoreError::InUse`] after [`TIMEOUT`].
pub(crate) fn acquire(lock: &File, store: &Path, access: Access) -> Result<()> {
    let (own_byte, other_byte) = match access {
        Access::ReadWrite => (WRITER_BYTE, READER_BYTE),
        Access::ReadOnly => (READER_BYTE, WRITER_BYTE),
    };
    let mut wait = PolledWait::new(store, "to open it");
    loop {
        byte_lock::share(lock, own_byte).context("lock", store)?;
        if byte_lock::lowest_locked(lock, other_byte, other_byte + 1).context("lock", store)?.is_none() {
            return Ok(());
        }
        if access == Access::ReadOnly || wait.elapsed() > TIMEOUT {
            byte_lock::release(lock, own_byte).context("unlock", store)?;
        }
        if wait.elapsed() > TIMEOUT {
            return Err(StoreError::InUse { path: store.to_owned() });
        }
        // The process in the way is unknown.
        wait.sleep(|| None);
    }
}
