//! Locks that prevent a store from being open for reading only and for writing at the same time.
//!
//! A process that opens the index (an LMDB database) on a read-only file system cannot register in LMDB's reader
//! table, so a writer could overwrite pages that it reads. Readers lock one byte of the store's lock file while they
//! have the store open, writers another byte. A process that opens the store waits for at most 10 seconds until no
//! process of the other kind has it open. A waiting reader releases its byte, so that it does not block a waiting
//! writer.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::byte_lock;
use crate::error::{IoContext, Result, StoreError};
use crate::gc_guards::EPOCH_OFFSETS_END;
use crate::index::Access;
use crate::lock_wait::PolledWait;

/// Offset of the byte that a process locks while it has the store open for writing. The bytes before it are for
/// the locks of garbage collection (`gc_guards.rs`).
const WRITER_BYTE: u64 = EPOCH_OFFSETS_END;
/// Offset of the byte that a process locks while it has the store open for reading only.
const READER_BYTE: u64 = EPOCH_OFFSETS_END + 1;
/// Longest wait of a reader for writers, or of a writer for readers.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Locks the byte of an access mode in `lock`, the lock file of the store in the directory `store`, once no process has
/// locked the other byte. The byte stays locked until the file is closed. Fails with [`StoreError::InUse`] after
/// [`TIMEOUT`].
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
        // The PID of the process that has locked the other byte is unknown.
        wait.sleep(|| None);
    }
}
