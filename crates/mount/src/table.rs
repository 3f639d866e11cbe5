//! Table of the inodes that the kernel refers to.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::identity::Identity;
use crate::inode::{Body, Inode};

/// Inodes by number. An inode stays in the table until the kernel has forgotten all its lookups.
#[derive(Default)]
pub(crate) struct InodeTable {
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    by_ino: HashMap<u64, Slot>,
    /// Numbers of the inodes that do not have their preferred number, because it was taken.
    displaced: HashMap<Identity, u64>,
}

struct Slot {
    inode: Arc<Inode>,
    /// Number of lookups that the kernel has not forgotten yet.
    lookups: u64,
}

impl InodeTable {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock()
    }

    pub(crate) fn get(&self, ino: u64) -> Option<Arc<Inode>> {
        self.lock().by_ino.get(&ino).map(|slot| Arc::clone(&slot.inode))
    }

    /// Returns the root inode of a snapshot; `None` if the kernel has not looked it up, or only listed it.
    pub(crate) fn snapshot_root(&self, snapshot: Identity) -> Option<Arc<Inode>> {
        let slots = self.lock();
        let slot = slots.by_ino.get(&slots.ino_of(snapshot))?;
        matches!(slot.inode.body, Body::Directory(_)).then(|| Arc::clone(&slot.inode))
    }

    /// Counts a lookup of an inode and returns its number.
    pub(crate) fn add_lookup(&self, inode: &Arc<Inode>) -> u64 {
        let mut slots = self.lock();
        let ino = slots.ino_of(inode.identity);
        if ino != inode.identity.inode_number() {
            slots.displaced.insert(inode.identity, ino);
        }
        let new_slot = || Slot { inode: Arc::clone(inode), lookups: 0 };
        let slot = slots.by_ino.entry(ino).or_insert_with(new_slot);
        slot.lookups += 1;
        // The inode of a snapshot that was only listed so far is replaced by one that pins it.
        if matches!(slot.inode.body, Body::UnpinnedSnapshot) {
            slot.inode = Arc::clone(inode);
        }
        ino
    }

    /// Subtracts `count` lookups; returns true if the kernel no longer references the inode.
    pub(crate) fn forget(&self, ino: u64, count: u64) -> bool {
        let mut slots = self.lock();
        let Some(slot) = slots.by_ino.get_mut(&ino) else { return false };
        slot.lookups = slot.lookups.saturating_sub(count);
        if slot.lookups > 0 {
            return false;
        }
        let removed = slots.by_ino.remove(&ino);
        if let Some(slot) = &removed {
            slots.displaced.remove(&slot.inode.identity);
        }
        drop(slots);
        // Dropping the last inode of a snapshot unpins it, which must not happen under the lock.
        drop(removed);
        true
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().by_ino.len()
    }
}

impl Slots {
    /// Returns the inode number of an identity: the assigned one, or else the first free number from its
    /// preferred number on.
    fn ino_of(&self, identity: Identity) -> u64 {
        if let Some(ino) = self.displaced.get(&identity) {
            return *ino;
        }
        let mut ino = identity.inode_number();
        while self.by_ino.get(&ino).is_some_and(|slot| slot.inode.identity != identity) {
            ino = Identity::next_ino(ino);
        }
        ino
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workspace_state::SnapshotId;

    fn inode(name: &str) -> Arc<Inode> {
        Arc::new(Inode::root_symlink(name.as_bytes(), &SnapshotId::from_bytes([7; 16])))
    }

    #[test]
    fn an_inode_keeps_its_number_until_it_is_forgotten() {
        let table = InodeTable::default();
        let ino = table.add_lookup(&inode("a"));
        assert_eq!(table.add_lookup(&inode("a")), ino);
        assert_ne!(table.add_lookup(&inode("b")), ino);
        assert!(!table.forget(ino, 1));
        assert!(table.get(ino).is_some());
        assert!(table.forget(ino, 1));
        assert!(table.get(ino).is_none());
        assert_eq!(table.add_lookup(&inode("a")), ino, "the number is derived from the identity");
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn another_inode_with_the_same_number_gets_the_next_one() {
        let table = InodeTable::default();
        let (a, b) = (inode("a"), inode("b"));
        let taken = b.identity.inode_number();
        table.lock().by_ino.insert(taken, Slot { inode: a, lookups: 1 });
        let ino = table.add_lookup(&b);
        assert_eq!(ino, taken + 1);
        assert_eq!(table.add_lookup(&b), ino);
        // It keeps its number when the preferred one is free again, until it is forgotten.
        assert!(table.forget(taken, 1));
        assert_eq!(table.add_lookup(&b), ino);
        assert!(table.forget(ino, 3));
        assert_eq!(table.add_lookup(&b), taken);
        assert_eq!(table.len(), 1);
    }
}
