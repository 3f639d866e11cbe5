//! Writes to the log: appends commits, syncs them, and starts a new log pack.
//!
//! The log is a sequence of append-only files, the log packs. Its end is the state in the index (`LogState`), which a
//! commit moves in its transaction. Bytes after that end are leftovers of failed or killed writers, or preallocated.
//!
//! A failed sync or a panic *poisons* the log: this process does not write any more, because the content of the disk is
//! unknown.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use heed::RwTxn;

use crate::commit_options::Durability;
use crate::error::{IoContext, Result, StoreError};
use crate::failpoint;
use crate::log_record::LogPosition;
use crate::log_state::LogState;
use crate::pack::has_name;
use crate::platform::start_writeback;
use crate::record::RECORD_HEADER_LEN;
use crate::store::Inner;

use super::{LogAppend, start_log};

/// Size in bytes above which a log pack is closed.
const LOG_MAX: u64 = 64 << 20;
/// Number of zero bytes preallocated after the end of the log. If a write only overwrites existing blocks, a sync needs
/// no journal commit of the file system and takes about half the time.
const PREALLOCATION: u64 = 1 << 20;
/// Number of writes with a synced commit after which a process preallocates.
const PREALLOCATE_AFTER: u32 = 4;

impl Inner {
    /// Returns the state of the log. Starts a new pack first if there is none, or if the current one is full.
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

    /// Truncates and syncs the current log pack before the next one is started, so that the packs on disk always hold a
    /// prefix of the commits.
    pub(crate) fn close_log(&self, state: &LogState) -> Result<()> {
        let (file, path) = (self.log_file(state.pack)?, self.packs.path(state.pack));
        file.set_len(state.end).context("shorten", &path)?;
        let synced = failpoint::hit("old-log-sync").and_then(|()| file.sync_all());
        self.log.poison_on_error(synced).context("sync", &path)
    }

    /// Allocates an unused pack number.
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

    /// Returns log pack `pack`, open for writing. Opens it again if another file has its name now.
    pub(crate) fn log_file(&self, pack: u32) -> Result<Arc<File>> {
        let mut log = self.log.file.lock();
        match &*log {
            // A commit that fails right after it started a log pack deletes the pack, and the next commit reuses its
            // number.
            Some((number, file)) if *number == pack && has_name(file) => Ok(Arc::clone(file)),
            _ => {
                let file = Arc::new(self.packs.open_for_writing(pack)?);
                *log = Some((pack, Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    /// Writes the bytes of a commit to the end of the log and moves `state.end`. For [`Durability::Synced`], the caller
    /// syncs later, so the writeback to disk is already started here.
    pub(crate) fn write_log(
        &self,
        append: &mut LogAppend,
        state: &mut LogState,
        durability: Durability,
    ) -> Result<()> {
        let file = self.log_file(state.pack)?;
        let path = self.packs.path(state.pack);
        let length = file.metadata().context("stat", &path)?.len();
        let end = append.end();
        // A header of zeros ends the log here for readers, if leftovers of a killed writer follow.
        let terminator = RECORD_HEADER_LEN.min(length.saturating_sub(end) as usize);
        append.bytes.resize(append.bytes.len() + terminator, 0);
        failpoint::hit("log-write")
            .and_then(|()| file.write_all_at(&append.bytes, append.start))
            .context("write", &path)?;
        append.bytes.truncate((end - append.start) as usize);
        if durability == Durability::Synced {
            let writes = self.log.synced_writes.fetch_add(1, Ordering::Relaxed);
            if writes >= PREALLOCATE_AFTER && end + PREALLOCATION / 16 > length {
                let zeros = vec![0; PREALLOCATION as usize];
                // This is only an optimisation, so an error (such as a full disk) is ignored.
                drop(file.write_all_at(&zeros, end.max(length)));
            }
            start_writeback(&file, append.start, end - append.start);
        }
        state.end = end;
        Ok(())
    }

    /// Syncs the log at least up to `target`. One sync serves all threads that wait for it.
    pub(crate) fn sync_log(&self, target: LogPosition) -> Result<()> {
        let log = &self.log;
        let mut sync = log.sync.lock();
        while sync.synced_to < target {
            if sync.has_failed {
                return Err(StoreError::Poisoned);
            }
            if sync.is_running {
                sync.waiting += 1;
                log.synced.wait(&mut sync);
                sync.waiting -= 1;
                continue;
            }
            sync.is_running = true;
            drop(sync);
            let reached = self.sync_log_now(target);
            sync = log.sync.lock();
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

    /// Returns the current end of the log, which is `target` or later, and its file. The sync of the file then includes
    /// all commits so far.
    fn current_log(&self, target: LogPosition) -> Result<(LogPosition, Arc<File>)> {
        loop {
            let reached = {
                let txn = self.index.read()?;
                let state = self.index.log_state(&txn)?;
                state.map_or(target, |state| LogPosition { pack: state.pack, offset: state.end })
            };
            match self.log_file(reached.pack) {
                // A garbage collection has removed this log pack in the meantime. It was synced before the next pack
                // was started, so try again with that pack.
                Err(StoreError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && self.has_newer_log(reached)? => {}
                other => return Ok((reached, other?)),
            }
        }
    }

    /// Returns true if a log pack after that of `from` was started.
    fn has_newer_log(&self, from: LogPosition) -> Result<bool> {
        let txn = self.index.read()?;
        Ok(self.index.log_state(&txn)?.is_some_and(|state| state.pack > from.pack))
    }

    /// Syncs the log. Returns the end of the log up to which it is synced.
    fn sync_log_now(&self, target: LogPosition) -> Result<LogPosition> {
        let (reached, file) = self.current_log(target)?;
        let synced = failpoint::hit("log-sync")
            .and_then(|()| file.sync_data())
            .and_then(|()| failpoint::hit("after-sync"));
        self.log.poison_on_error(synced).context("sync", &self.packs.path(reached.pack))?;
        Ok(reached)
    }

    /// Discards the bytes of a failed commit, which begin at `start` in log pack `pack`. Otherwise, if no later commit
    /// overwrites them, a rebuild of the index would find a commit that was reported as failed.
    pub(crate) fn discard_log_tail(&self, pack: u32, start: u64) -> Result<()> {
        // The write lock was released with the failed transaction, so another process may have committed in the
        // meantime. Its bytes must stay.
        let txn = self.index.write()?;
        let state = self.index.log_state(&txn)?;
        if state.as_ref().is_none_or(|state| state.next_pack <= pack) {
            // The failed commit started this log pack, and the index does not have it, so no other process uses it.
            *self.log.file.lock() = None;
            self.packs.remove(pack)?;
            return self.packs.sync_directory();
        }
        if state.is_some_and(|state| state.pack == pack && state.end == start) {
            let file = self.log_file(pack)?;
            // This overwrites bytes of the failed commit, so it needs no free space.
            file.write_all_at(&[0; RECORD_HEADER_LEN], start).context("write", &self.packs.path(pack))?;
            self.log.poison_on_error(file.sync_data()).context("sync", &self.packs.path(pack))?;
        }
        Ok(())
    }

    /// Truncates the preallocated zeros after the end of the log. Only the last process that has the store open may
    /// call this.
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

    /// Syncs all commits so far, including buffered commits (commits that did not request a sync).
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
