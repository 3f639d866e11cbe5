//! Cache of open descriptors: `O_PATH` descriptors of directories, and descriptors of files that are read or written.
//!
//! An open descriptor keeps the space of a removed file, and a program that is open for writing cannot be executed. So
//! descriptors of removed files and descriptors for writing are closed soon after their last use. All others are closed
//! later. Both happen in a *sweep*, which the server makes every five seconds.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::stat::stat_open;
use crate::table::FileId;

/// Number of sweeps after which an unused descriptor is closed.
const IDLE_SWEEPS: u32 = 12;

/// Number of sweeps after which a directory is closed even if it is used, so that it is opened by its name again. In
/// some file systems, an open directory that was removed looks like one that exists.
const DIRECTORY_SWEEPS: u32 = 6;

/// Number of descriptors in the caches of all exports together.
#[derive(Debug)]
pub(crate) struct OpenFileCount {
    count: AtomicUsize,
    max: usize,
}

impl OpenFileCount {
    pub(crate) fn new(max: usize) -> Self {
        Self { count: AtomicUsize::new(0), max }
    }

    /// Counts one more descriptor. Returns false, and counts nothing, at the maximum.
    fn try_add(&self) -> bool {
        let add = |count| (count < self.max).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn remove(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Mode in which a descriptor was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// `O_PATH` of a directory.
    Directory,
    Read,
    Write,
    ReadWrite,
}

/// Open directory or file.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) fd: OwnedFd,
    pub(crate) mode: OpenMode,
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Descriptor {
    pub(crate) fn can_read(&self) -> bool {
        matches!(self.mode, OpenMode::Read | OpenMode::ReadWrite)
    }

    pub(crate) fn can_write(&self) -> bool {
        matches!(self.mode, OpenMode::Write | OpenMode::ReadWrite)
    }
}

/// Cache of open descriptors of an export. When the maximum for all exports is reached, it evicts a descriptor of its
/// own by the second-chance (clock) algorithm.
#[derive(Debug)]
pub(super) struct Descriptors {
    cache: Mutex<Cache>,
    /// Number of descriptors of all exports.
    total: Arc<OpenFileCount>,
}

#[derive(Debug, Default)]
struct Cache {
    slots: HashMap<FileId, Slot>,
    /// Slots in the order in which they are considered for eviction, with their stamps. An entry whose slot was
    /// removed, or was replaced and so has another stamp, is skipped.
    clock: VecDeque<(FileId, u64)>,
    /// Stamp of the last inserted slot.
    stamp: u64,
    /// Number of sweeps so far.
    sweeps: u32,
}

#[derive(Debug)]
struct Slot {
    open: Arc<Descriptor>,
    /// Unique number of the slot in its cache.
    stamp: u64,
    /// True if the descriptor was used since it was last considered for eviction.
    is_used: bool,
    /// Number of sweeps when the descriptor was inserted.
    opened_at: u32,
    /// Number of sweeps when the descriptor was used last.
    used_at: u32,
}

impl Descriptors {
    pub(super) fn new(total: Arc<OpenFileCount>) -> Self {
        Self { cache: Mutex::default(), total }
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }

    /// Returns a descriptor, which counts as used then; `None` if the cache has none for this id.
    pub(super) fn get(&self, id: FileId) -> Option<Arc<Descriptor>> {
        let mut cache = self.lock();
        let sweeps = cache.sweeps;
        let slot = cache.slots.get_mut(&id)?;
        slot.is_used = true;
        slot.used_at = sweeps;
        Some(Arc::clone(&slot.open))
    }

    /// Adds a descriptor in place of an older one with this id. It is not added if the maximum is reached and this
    /// cache has nothing to evict.
    pub(super) fn insert(&self, id: FileId, open: &Arc<Descriptor>) {
        // Descriptors that are closed after the lock is released.
        let mut closed = Vec::new();
        let mut cache = self.lock();
        closed.extend(cache.slots.remove(&id).map(|slot| slot.open));
        self.total.remove(closed.len());
        while !self.total.try_add() {
            match cache.evict() {
                Some(evicted) => closed.push(evicted),
                None => return,
            }
            self.total.remove(1);
        }
        cache.stamp += 1;
        let (stamp, sweeps) = (cache.stamp, cache.sweeps);
        let slot = Slot { open: Arc::clone(open), stamp, is_used: false, opened_at: sweeps, used_at: sweeps };
        cache.slots.insert(id, slot);
        cache.clock.push_back((id, stamp));
        cache.trim_clock();
        drop(cache);
    }

    /// Closes a descriptor, if there is one.
    pub(super) fn remove(&self, id: FileId) {
        let removed = self.lock().slots.remove(&id);
        if removed.is_some() {
            self.total.remove(1);
        }
    }

    /// Closes a descriptor if it is open for writing.
    pub(super) fn remove_writable(&self, id: FileId) {
        let mut cache = self.lock();
        let is_writable = cache.slots.get(&id).is_some_and(|slot| slot.open.can_write());
        let removed = if is_writable { cache.slots.remove(&id) } else { None };
        drop(cache);
        if removed.is_some() {
            self.total.remove(1);
        }
    }

    /// Closes descriptors for writing and of removed files in the second sweep after their last use, and all others
    /// after [`IDLE_SWEEPS`].
    pub(super) fn sweep(&self) {
        let (expired, unused) = {
            let mut cache = self.lock();
            cache.sweeps += 1;
            let sweeps = cache.sweeps;
            let is_expired = |slot: &Slot| {
                sweeps - slot.used_at > if slot.open.can_write() { 1 } else { IDLE_SWEEPS }
                    || slot.open.mode == OpenMode::Directory && sweeps - slot.opened_at > DIRECTORY_SWEEPS
            };
            let unused =
                cache.slots.iter().filter(|(_, slot)| sweeps - slot.used_at > 1 && !is_expired(slot));
            let unused: Vec<_> = unused.map(|(id, slot)| (*id, Arc::clone(&slot.open))).collect();
            let expired = cache.slots.extract_if(|_, slot| is_expired(slot));
            (expired.map(|(_, slot)| slot.open).collect::<Vec<_>>(), unused)
        };
        self.total.remove(expired.len());
        for (id, open) in unused {
            if stat_open(&open).is_ok_and(|stat| stat.is_removed()) {
                self.remove(id);
            }
        }
    }

    /// Closes all descriptors.
    pub(super) fn clear(&self) {
        let slots = std::mem::take(&mut self.lock().slots);
        self.total.remove(slots.len());
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Cache {
    /// Removes the first slot in the clock that was not used since it was last considered. `None` if there are no
    /// slots.
    fn evict(&mut self) -> Option<Arc<Descriptor>> {
        while let Some((id, stamp)) = self.clock.pop_front() {
            let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.stamp == stamp) else { continue };
            if std::mem::take(&mut slot.is_used) {
                self.clock.push_back((id, stamp));
            } else {
                return self.slots.remove(&id).map(|slot| slot.open);
            }
        }
        None
    }

    /// Removes entries without a slot from the clock when they are the majority.
    fn trim_clock(&mut self) {
        if self.clock.len() > 64 + 2 * self.slots.len() {
            let slots = &self.slots;
            self.clock.retain(|(id, stamp)| slots.get(id).is_some_and(|slot| slot.stamp == *stamp));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Arc<Descriptor> {
        let fd = OwnedFd::from(tempfile::tempfile().unwrap());
        Arc::new(Descriptor { fd, mode: OpenMode::Read })
    }

    #[test]
    fn a_full_cache_evicts_the_first_unused_descriptor() {
        let total = Arc::new(OpenFileCount::new(3));
        let cache = Descriptors::new(Arc::clone(&total));
        for id in 1..=3 {
            cache.insert(FileId(id), &descriptor());
        }
        assert!(cache.get(FileId(1)).is_some());
        cache.insert(FileId(4), &descriptor());
        assert!(cache.get(FileId(1)).is_some() && cache.get(FileId(4)).is_some());
        assert!(cache.get(FileId(2)).is_none());
        assert_eq!(total.count.load(Ordering::Relaxed), 3);
        drop(cache);
        assert_eq!(total.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn descriptors_of_other_exports_are_not_closed() {
        let total = Arc::new(OpenFileCount::new(1));
        let (one, other) = (Descriptors::new(Arc::clone(&total)), Descriptors::new(total));
        one.insert(FileId(1), &descriptor());
        other.insert(FileId(1), &descriptor());
        assert!(one.get(FileId(1)).is_some());
        assert!(other.get(FileId(1)).is_none());
    }

    #[test]
    fn descriptors_for_writing_are_closed_first() {
        let cache = Descriptors::new(Arc::new(OpenFileCount::new(10)));
        let files = [OpenMode::Read, OpenMode::ReadWrite, OpenMode::Write].map(|mode| {
            let named = tempfile::NamedTempFile::new().unwrap();
            (OwnedFd::from(named.reopen().unwrap()), mode, named)
        });
        let has = |id| cache.lock().slots.contains_key(&FileId(id));
        let mut names = Vec::new();
        for (id, (fd, mode, named)) in (1..).zip(files) {
            cache.insert(FileId(id), &Arc::new(Descriptor { fd, mode }));
            names.push(named);
        }
        cache.remove_writable(FileId(1));
        cache.remove_writable(FileId(3));
        assert!(has(1) && has(2) && !has(3));
        cache.sweep();
        cache.sweep();
        assert!(has(1) && !has(2));
    }

    #[test]
    fn descriptors_of_removed_files_and_idle_ones_are_closed() {
        let cache = Descriptors::new(Arc::new(OpenFileCount::new(10)));
        let named = tempfile::NamedTempFile::new().unwrap();
        let fd = OwnedFd::from(named.reopen().unwrap());
        cache.insert(FileId(1), &Arc::new(Descriptor { fd, mode: OpenMode::Read }));
        // An anonymous file, which counts as removed.
        cache.insert(FileId(2), &descriptor());
        cache.sweep();
        assert!(cache.lock().slots.contains_key(&FileId(2)), "it was in use a moment ago");
        cache.sweep();
        assert!(!cache.lock().slots.contains_key(&FileId(2)));
        for _ in 0..IDLE_SWEEPS {
            cache.sweep();
        }
        assert!(cache.lock().slots.is_empty());
    }
}
