//! The log: its state in this process, and the bytes that a commit appends to it.
//!
//! The log is the sequence of the commit records of the store, with the objects of small commits between them. It is
//! written to a sequence of packs (append-only files, `pack.rs`), the log packs. All processes append to the newest log
//! pack.

mod writer;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use heed::RwTxn;
use parking_lot::{Condvar, Mutex};

use crate::error::{IoContext, Result};
use crate::failpoint;
use crate::index::Index;
use crate::log_record::LogPosition;
use crate::log_state::LogState;
use crate::pack::{PACK_HEADER_LEN, Packs, Role};
use crate::record::{self, Compression, Kind};

/// State of the log in this process.
#[derive(Default)]
pub(crate) struct Log {
    /// The newest log pack, open for writing, and its number. `None` before the first write.
    file: Mutex<Option<(u32, Arc<File>)>>,
    /// Number of writes to the log with a synced commit. After a few of them, space at the end of the log is allocated
    /// in advance.
    synced_writes: AtomicU32,
    sync: Mutex<SyncState>,
    /// Signalled at the end of a sync.
    synced: Condvar,
}

#[derive(Default)]
struct SyncState {
    /// End of the part of the log that is known to be on disk.
    synced_to: LogPosition,
    /// Number of threads that wait for a sync.
    waiting: usize,
    /// True while a thread syncs the log, for itself and for the waiting threads.
    is_running: bool,
    /// True after [`Log::poison`].
    has_failed: bool,
}

impl Log {
    /// Returns the end of the part of the log that is known to be on disk.
    pub(crate) fn durable_end(&self) -> LogPosition {
        self.sync.lock().synced_to
    }

    /// Returns true if a sync has failed, or a commit has panicked. It is unknown which data is on disk since then.
    pub(crate) fn has_failed(&self) -> bool {
        self.sync.lock().has_failed
    }

    /// Makes all later writes of this process fail, because a sync has failed or a commit has panicked.
    pub(crate) fn poison(&self) {
        let mut sync = self.sync.lock();
        sync.has_failed = true;
        sync.is_running = false;
        self.synced.notify_all();
    }

    /// Poisons the log if a sync failed. A failed sync is never retried: the kernel may have dropped the
    /// dirty pages and would report success.
    pub(crate) fn poison_on_error(&self, synced: std::io::Result<()>) -> std::io::Result<()> {
        if synced.is_err() {
            self.poison();
        }
        synced
    }
}

/// Starts a new log pack and adds it to the index. The caller must have truncated and synced the current one
/// (`Inner::close_log`). Returns the new state of the log, which the caller must store in the index.
pub(crate) fn start_log(
    packs: &Packs,
    index: &Index,
    txn: &mut RwTxn<'_>,
    mut state: LogState,
) -> Result<LogState> {
    create_log_pack(packs, &mut state)?;
    index.packs.put(txn, &state.pack.to_be_bytes(), &[])?;
    Ok(state)
}

/// Creates a new log pack and changes `state` to its start. Does not change the index, because a checkpoint (a copy of
/// all records at the start of a log pack) is written completely before its packs are added to the index.
pub(crate) fn create_log_pack(packs: &Packs, state: &mut LogState) -> Result<()> {
    failpoint::hit("next-log").context("extend the log in", packs.directory())?;
    state.pack = state.next_pack.max(1);
    state.next_pack = state.pack + 1;
    state.end = PACK_HEADER_LEN;
    let file = packs.create(state.pack, Role::Log)?;
    file.sync_all().context("sync", &packs.path(state.pack))?;
    packs.sync_directory()
}

/// Bytes that are about to be appended to the log.
pub(crate) struct LogAppend {
    /// Offset of the bytes in the newest log pack.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

impl LogAppend {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Appends the encoded objects of a commit request. All requests of a group commit are appended to the same bytes
    /// (see `commit.rs`). If there is only one request, `records` is moved instead of copied, and empty afterwards.
    pub(crate) fn append_encoded(&mut self, records: &mut Vec<u8>, is_only_request: bool) {
        if is_only_request && self.bytes.is_empty() {
            self.bytes = std::mem::take(records);
        } else {
            self.bytes.extend_from_slice(records);
        }
    }

    /// Appends a record that is not compressed. Returns its id, the hash of `payload`.
    pub(crate) fn append_record(&mut self, kind: Kind, payload: &[u8]) -> Result<[u8; 32]> {
        let id = *blake3::hash(payload).as_bytes();
        record::append(&mut self.bytes, kind, &id, payload, Compression::None)?;
        Ok(id)
    }
}
