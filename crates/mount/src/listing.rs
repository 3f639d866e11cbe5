//! Listings of directories that the kernel is reading, so that each is computed once and not for every
//! buffer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::inode::Inode;

/// Most listings cached for readers in the middle of one.
const LISTINGS_MAX: usize = 32;
/// Most entries of all of them together, unless a single listing has more.
const ENTRIES_MAX: usize = 1 << 18;

/// Entries of a directory, in the order in which the kernel sees them.
pub(crate) struct Listing {
    pub(crate) entries: Vec<(Box<[u8]>, Arc<Inode>)>,
}

#[derive(Default)]
pub(crate) struct Listings {
    /// By inode number, oldest first.
    open: Mutex<VecDeque<(u64, Arc<Listing>)>>,
}

impl Listings {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Arc<Listing>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, directory: u64) -> Option<Arc<Listing>> {
        let open = self.lock();
        open.iter().find(|(number, _)| *number == directory).map(|(_, listing)| Arc::clone(listing))
    }

    pub(crate) fn keep(&self, directory: u64, listing: &Arc<Listing>) {
        let mut open = self.lock();
        let mut gone: Vec<_> = take(&mut open, directory).into_iter().collect();
        open.push_back((directory, Arc::clone(listing)));
        let mut entries: usize = open.iter().map(|(_, listing)| listing.entries.len()).sum();
        while open.len() > LISTINGS_MAX || (entries > ENTRIES_MAX && open.len() > 1) {
            let Some((_, oldest)) = open.pop_front() else { break };
            entries -= oldest.entries.len();
            gone.push(oldest);
        }
        // Inodes may be the last of their snapshot: unpin it only after the lock is released.
        drop(open);
    }

    /// Drops a listing that was read to its end, or whose directory is forgotten.
    pub(crate) fn done(&self, directory: u64) {
        let gone = take(&mut self.lock(), directory);
        drop(gone);
    }
}

fn take(open: &mut VecDeque<(u64, Arc<Listing>)>, directory: u64) -> Option<Arc<Listing>> {
    let at = open.iter().position(|(number, _)| *number == directory)?;
    open.remove(at).map(|(_, listing)| listing)
}
