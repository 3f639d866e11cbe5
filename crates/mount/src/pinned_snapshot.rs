//! Snapshots in use: each is pinned while the kernel refers to one of its inodes.

use std::sync::Arc;

use workspace_state::{ProcessPin, Result, Snapshot, SnapshotId, Store, Timestamp, Tree};

use crate::identity::Identity;
use crate::inode::Inode;

/// A pinned snapshot, shared by all its inodes. It is unpinned when the last inode is dropped or the process
/// ends.
///
/// A pin, not an open [`Tree`], protects the content: an open tree stops garbage collection from deleting any object
/// of the store, while a pin protects only the objects of its snapshot.
pub(crate) struct PinnedSnapshot {
    /// Hash of the snapshot's id, from which the inode numbers of its files are derived.
    pub(crate) identity: Identity,
    /// Modification time of entries whose time is unknown.
    pub(crate) time: Timestamp,
    _pin: ProcessPin,
}

impl PinnedSnapshot {
    /// Pins a snapshot and returns the inode of its root; `None` if there is no such snapshot. `pin_holder` is a text
    /// for listings of pins that says who holds the pin.
    pub(crate) fn open(store: &Store, id: &SnapshotId, pin_holder: &str) -> Result<Option<Inode>> {
        let Some(snapshot) = store.find_snapshot(id)? else { return Ok(None) };
        let pin = store.pin_for_process(&snapshot, pin_holder)?;
        // The snapshot may have been removed and its objects deleted before it was pinned. If it still exists
        // now, every later garbage collection sees the snapshot or the pin.
        if store.find_snapshot(id)?.is_none() {
            return Ok(None);
        }
        Self::root(store, &snapshot, pin).map(Some)
    }

    fn root(store: &Store, snapshot: &Snapshot, pin: ProcessPin) -> Result<Inode> {
        let root = Tree::of_snapshot(store, snapshot)?.root();
        let identity = Identity::of_snapshot(&snapshot.id);
        let snapshot = Arc::new(Self { identity, time: snapshot.time, _pin: pin });
        Ok(Inode::of_entry(identity, &snapshot, root))
    }
}
