//! Cache of the listings that the kernel is reading, so that each is computed once and not for every buffer.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::inode::Inode;

/// Maximum number of cached listings.
const LISTINGS_MAX: usize = 32;
/// Maximum number of entries of all cached listings together, unless a single listing has more.
const ENTRIES_MAX: usize = 1 << 18;

/// Entries of a directory, in the order in which the kernel sees them.
pub(crate) struct Listing {
    pub(crate) entries: Vec<(Box<[u8]>, Arc<Inode>)>,
}

/// Cached listings of directories.
#[derive(Default)]
pub(crate) struct Listings {
    /// By inode number, oldest first.
    cached: Mutex<VecDeque<(u64, Arc<Listing>)>>,
}

impl Listings {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Arc<Listing>)>> {
        self.cached.lock()
    }

    pub(crate) fn get(&self, directory: u64) -> Option<Arc<Listing>> {
        let cached = self.lock();
        cached.iter().find(|(ino, _)| *ino == directory).map(|(_, listing)| Arc::clone(listing))
    }

    pub(crate) fn insert(&self, directory: u64, listing: &Arc<Listing>) {
        let mut cached = self.lock();
        let mut removed: Vec<_> = take(&mut cached, directory).into_iter().collect();
        cached.push_back((directory, Arc::clone(listing)));
        let mut entries: usize = cached.iter().map(|(_, listing)| listing.entries.len()).sum();
        while cached.len() > LISTINGS_MAX || (entries > ENTRIES_MAX && cached.len() > 1) {
            let Some((_, oldest)) = cached.pop_front() else { break };
            entries -= oldest.entries.len();
            removed.push(oldest);
        }
        // `removed` is dropped after the lock is released: dropping the last inode of a snapshot removes its pin
        // in the store, which writes to disk.
        drop(cached);
    }

    /// Drops a listing that was read to its end, or whose directory is forgotten.
    pub(crate) fn remove(&self, directory: u64) {
        let removed = take(&mut self.lock(), directory);
        drop(removed);
    }
}

fn take(cached: &mut VecDeque<(u64, Arc<Listing>)>, directory: u64) -> Option<Arc<Listing>> {
    let index = cached.iter().position(|(ino, _)| *ino == directory)?;
    cached.remove(index).map(|(_, listing)| listing)
}
