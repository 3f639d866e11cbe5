//! Guards that protect objects in use from garbage collection.
//!
//! Garbage collection *condemns* unreachable objects (excludes them from reuse by new commits) before it deletes them.
//! The epoch is a number that increases whenever objects are condemned. Every operation that reads objects, or that may
//! commit references to existing ones, holds a [`Guard`] with the epoch in which it began: a shared lock on the byte of
//! the store's lock file whose offset is the epoch. Condemned objects are deleted only when no guard has an epoch older
//! than their condemnation. The locks of a process end with the process, and take no disk space. So every reader can
//! hold one, even on a full or read-only disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::byte_lock;
use crate::error::{IoContext, Result};

/// Exclusive end of the byte offsets in the lock file that are used for epoch locks.
pub(crate) const EPOCH_OFFSETS_END: u64 = 1 << 62;

/// Guards of this process for one store.
pub(crate) struct GcGuards {
    /// Path of the store's lock file.
    path: PathBuf,
    file: File,
    /// Number of guards of this process by epoch.
    held: Mutex<BTreeMap<u64, usize>>,
}

/// Keeps garbage collection from deleting the objects that existed when the guard was taken.
pub(crate) struct Guard {
    guards: Arc<GcGuards>,
    epoch: u64,
}

impl GcGuards {
    /// Opens the lock file of a store.
    pub(crate) fn new(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).context("open", &path)?;
        Ok(Self { path, file, held: Mutex::default() })
    }

    /// Takes a guard. `epoch` returns the current epoch. It is called again after the byte is locked: if the epoch has
    /// changed meanwhile, garbage collection may not have seen the lock, so a newer guard is taken.
    pub(crate) fn guard(self: &Arc<Self>, epoch: impl Fn() -> Result<u64>) -> Result<Guard> {
        loop {
            let now = epoch()?;
            let guard = self.acquire(now)?;
            if epoch()? == now {
                return Ok(guard);
            }
        }
    }

    fn acquire(self: &Arc<Self>, epoch: u64) -> Result<Guard> {
        let mut held = self.held.lock();
        if !held.contains_key(&epoch) {
            byte_lock::share(&self.file, epoch).context("lock", &self.path)?;
        }
        *held.entry(epoch).or_insert(0) += 1;
        Ok(Guard { guards: Arc::clone(self), epoch })
    }

    fn release(&self, epoch: u64) {
        let mut held = self.held.lock();
        let Some(count) = held.get_mut(&epoch) else { return };
        *count -= 1;
        if *count == 0 {
            held.remove(&epoch);
            // An epoch that stays locked only delays garbage collection.
            drop(byte_lock::release(&self.file, epoch));
        }
    }

    /// Returns the oldest epoch for which any process holds a guard; `None` if there is no guard. `path` is the store's
    /// lock file.
    pub(crate) fn oldest_epoch(path: &Path) -> Result<Option<u64>> {
        // The file is opened again, because a query does not report locks of its own file description.
        let file = File::open(path).context("open", path)?;
        byte_lock::lowest_locked(&file, 0, EPOCH_OFFSETS_END).context("query the locks of", path)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.guards.release(self.epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn the_oldest_guard_of_a_living_process_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        File::create(&path).unwrap();
        let guards = Arc::new(GcGuards::new(path.clone()).unwrap());
        assert_eq!(GcGuards::oldest_epoch(&path).unwrap(), None);
        let epoch = AtomicU64::new(7);
        let take = || guards.guard(|| Ok(epoch.load(Ordering::SeqCst))).unwrap();
        let (first, again) = (take(), take());
        epoch.store(9, Ordering::SeqCst);
        let second = take();
        epoch.store(4000, Ordering::SeqCst);
        let third = take();
        drop(first);
        assert_eq!(GcGuards::oldest_epoch(&path).unwrap(), Some(7));
        drop(again);
        assert_eq!(GcGuards::oldest_epoch(&path).unwrap(), Some(9));
        drop(second);
        assert_eq!(GcGuards::oldest_epoch(&path).unwrap(), Some(4000));
        drop(third);
        assert_eq!(GcGuards::oldest_epoch(&path).unwrap(), None);
    }

    #[test]
    fn a_closed_store_holds_no_guards() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        File::create(&path).unwrap();
        let guards = Arc::new(GcGuards::new(path.clone()).unwrap());
        let other = Arc::new(GcGuards::new(path.clone()).unwrap());
        let guard = guards.guard(|| Ok(3)).unwrap();
        // Closing another descriptor of the same file ends no lock.
        drop(other);
        assert_eq!(GcGuards::oldest_epoch(&path).unwrap(), Some(3));
        drop((guard, guards));
        assert_eq!(GcGuards::oldest_epoch(&path).unwrap(), None);
    }
}
