//! Writing to the log: appending commits, syncing them in groups, and starting a new log pack.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use heed::RwTxn;

use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::log_record::LogPosition;
use crate::log_state::LogState;
use crate::mutex::lock;
use crate::pack::has_name;
use crate::platform::start_writeback;
use crate::record::RECORD_HEADER_LEN;
use crate::store::Inner;

use super::{LogAppend, start_log};

/// Size in bytes above which a log pack is closed.
const LOG_MAX: u64 = 64 << 20;
/// Number of zero bytes preallocated after the end of the log. Overwriting existing blocks needs no journal
/// commit of the file system: a sync takes about half the time.
const PREALLOCATION: u64 = 1 << 20;
/// Number of synced commits of a process before it preallocates.
const PREALLOCATE_AFTER: u32 = 4;

impl Inner {
    /// Returns the state of the log, after starting a new pack if the current one is full.
    pub(crate) fn log_for_writing(&self, txn: &mut RwTxn<'_>) -> Result<LogState> {
        match self.index.log_state(txn)? {
            Some(state) if state.end < LOG_MAX => Ok(state),
            Some(state) => {
                self.close_log(&state)?;
                start_log(&self.packs, &self.index, txn, state)
            }
            None => start_log(&self.packs, &self.index, txn, LogState::default()),
        }
    }

    /// Truncates and syncs the log before the next one is started, so that the logs together always hold a
    /// prefix of the commits.
    pub(crate) fn close_log(&self, state: &LogState) -> Result<()> {
        let (file, path) = (self.log_file(state.pack)?, self.packs.path(state.pack));
        file.set_len(state.end).context("shorten", &path)?;
        let synced = failpoint::hit("old-log-sync").and_then(|()| file.sync_all());
        self.log.poison_on_error(synced).context("sync", &path)
    }

    /// Allocates a pack number that was never used.
    pub(crate) fn allocate_pack(&self) -> Result<u32> {
        self.mark_index_dirty()?;
        let mut txn = self.index.write()?;
        let mut state = self.log_for_writing(&mut txn)?;
        let number = state.next_pack;
        state.next_pack += 1;
        self.index.put_log_state(&mut txn, &state)?;
        self.index.commit(txn)?;
        Ok(number)
    }

    /// Returns the log pack, open for writing. It is opened again if it was replaced by another file.
    pub(crate) fn log_file(&self, pack: u32) -> Result<Arc<File>> {
        let mut log = lock(&self.log.file);
        match &*log {
            // A commit that failed right after it started a log deletes the pack, and the next one reuses its number.
            Some((number, file)) if *number == pack && has_name(file) => Ok(Arc::clone(file)),
            _ => {
                let file = Arc::new(self.packs.open_for_writing(pack)?);
                *log = Some((pack, Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    /// Writes the pending bytes at the end of the log and moves `state.end`. If `synced` is set, a sync
    /// follows, so that writing to disk is started early.
    pub(crate) fn write_log(&self, append: &mut LogAppend, state: &mut LogState, synced: bool) -> Result<()> {
        let file = self.log_file(state.pack)?;
        let path = self.packs.path(state.pack);
        let length = file.metadata().context("stat", &path)?.len();
        let end = append.end();
        // A header of zeros after the last record cuts off leftovers of a killed writer.
        let terminator = RECORD_HEADER_LEN.min(length.saturating_sub(end) as usize);
        append.bytes.resize(append.bytes.len() + terminator, 0);
        failpoint::hit("log-write")
            .and_then(|()| file.write_all_at(&append.bytes, append.start))
            .context("write", &path)?;
        append.bytes.truncate((end - append.start) as usize);
        if synced {
            let writes = self.log.synced_writes.fetch_add(1, Ordering::Relaxed);
            if writes >= PREALLOCATE_AFTER && end + PREALLOCATION / 16 > length {
                let zeros = vec![0; PREALLOCATION as usize];
                // Only an optimisation; on a full disk the log simply ends here.
                drop(file.write_all_at(&zeros, end.max(length)));
            }
            start_writeback(&file, append.start, end - append.start);
        }
        state.end = end;
        Ok(())
    }

    /// Syncs the log at least up to `target`, together with all other waiting threads.
    pub(crate) fn sync_log(&self, target: LogPosition) -> Result<()> {
        let log = &self.log;
        let mut sync = lock(&log.sync);
        while sync.synced_to < target {
            if sync.has_failed {
                return Err(StoreError::Poisoned);
            }
            if sync.is_running {
                sync.waiting += 1;
                sync = log.synced.wait(sync).unwrap_or_else(PoisonError::into_inner);
                sync.waiting -= 1;
                continue;
            }
            sync.is_running = true;
            drop(sync);
            let reached = self.sync_log_now(target);
            sync = lock(&log.sync);
            sync.is_running = false;
            if let Ok(reached) = reached {
                sync.synced_to = sync.synced_to.max(reached);
            }
            if sync.waiting > 0 {
                log.synced.notify_all();
            }
            reached?;
        }
        Ok(())
    }

    /// Returns the current end of the log, at least `target`, and its file. Everything committed so far is
    /// synced along.
    fn current_log(&self, target: LogPosition) -> Result<(LogPosition, Arc<File>)> {
        loop {
            let reached = {
                let txn = self.index.read()?;
                let state = self.index.log_state(&txn)?;
                state.map_or(target, |state| LogPosition { pack: state.pack, offset: state.end })
            };
            match self.log_file(reached.pack) {
                // A garbage collection has closed and removed this log since. It was synced before the next log
                // was started.
                Err(StoreError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && self.has_newer_log(reached)? => {}
                other => return Ok((reached, other?)),
            }
        }
    }

    fn has_newer_log(&self, from: LogPosition) -> Result<bool> {
        let txn = self.index.read()?;
        Ok(self.index.log_state(&txn)?.is_some_and(|state| state.pack > from.pack))
    }

    fn sync_log_now(&self, target: LogPosition) -> Result<LogPosition> {
        let (reached, file) = self.current_log(target)?;
        let synced = failpoint::hit("log-sync")
            .and_then(|()| file.sync_data())
            .and_then(|()| failpoint::hit("after-sync"));
        self.log.poison_on_error(synced).context("sync", &self.packs.path(reached.pack))?;
        Ok(reached)
    }

    /// Discards bytes of a failed commit from the log. The next commit would overwrite them; without one, a
    /// rebuild would find commits that were reported as failed.
    pub(crate) fn discard_log_tail(&self, pack: u32, start: u64) -> Result<()> {
        // The write lock was released with the failed transaction: another process may have written there
        // since.
        let txn = self.index.write()?;
        let state = self.index.log_state(&txn)?;
        if state.as_ref().is_none_or(|state| state.next_pack <= pack) {
            // This commit started the log: no other process knows its number.
            *lock(&self.log.file) = None;
            self.packs.remove(pack)?;
            return self.packs.sync_directory();
        }
        if state.is_some_and(|state| state.pack == pack && state.end == start) {
            let file = self.log_file(pack)?;
            // Overwrites bytes that were already written, so it needs no free space.
            file.write_all_at(&[0; RECORD_HEADER_LEN], start).context("write", &self.packs.path(pack))?;
            self.log.poison_on_error(file.sync_data()).context("sync", &self.packs.path(pack))?;
        }
        Ok(())
    }

    /// Truncates the preallocated zeros after the end of the log. Only for the last process that has the store
    /// open.
    pub(crate) fn truncate_preallocation(&self) -> Result<()> {
        let txn = self.index.read()?;
        let Some(state) = self.index.log_state(&txn)? else { return Ok(()) };
        let file = self.log_file(state.pack)?;
        let path = self.packs.path(state.pack);
        if file.metadata().context("stat", &path)?.len() > state.end {
            failpoint::hit("trim-log").and_then(|()| file.set_len(state.end)).context("shorten", &path)?;
        }
        Ok(())
    }

    /// Makes everything committed so far durable, buffered commits included.
    pub(crate) fn sync_packs(&self) -> Result<()> {
        let mut txn = self.index.write()?;
        self.sync_unsynced_packs(&mut txn, &[])?;
        if let Some(state) = self.index.log_state(&txn)? {
            let synced = self.log_file(state.pack)?.sync_data();
            self.log.poison_on_error(synced).context("sync", &self.packs.path(state.pack))?;
        }
        self.index.commit(txn)
    }
}
