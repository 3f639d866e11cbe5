//! Snapshots in use: pinned while the kernel references an inode in them.

use std::sync::Arc;

use workspace_state::{ProcessPin, Result, Snapshot, SnapshotId, Store, Timestamp, Tree};

use crate::identity::Identity;
use crate::inode::Inode;

/// A pinned snapshot. Every inode of its tree holds one of these; the pin ends with the last of them, or with
/// the process.
///
/// Only the pin is held, not a [`Tree`]: a tree would keep garbage collections from deleting anything as long
/// as the mount lives, a pin protects only its own objects.
pub(crate) struct PinnedSnapshot {
    pub(crate) identity: Identity,
    /// Replaces times that are unknown in the snapshot.
    pub(crate) time: Timestamp,
    _pin: ProcessPin,
}

impl PinnedSnapshot {
    /// Pins a snapshot and returns the inode of its root; `None` if there is no such snapshot.
    pub(crate) fn open(store: &Store, id: &SnapshotId, owner: &str) -> Result<Option<Inode>> {
        let Some(snapshot) = store.find_snapshot(id)? else { return Ok(None) };
        let pin = store.pin_for_process(&snapshot, owner)?;
        // It may have been removed and collected before the pin was made. If it still exists now, every
        // garbage collection sees the snapshot or the pin.
        if store.find_snapshot(id)?.is_none() {
            return Ok(None);
        }
        Self::root(store, &snapshot, pin).map(Some)
    }

    fn root(store: &Store, snapshot: &Snapshot, pin: ProcessPin) -> Result<Inode> {
        let root = Tree::of_snapshot(store, snapshot)?.root();
        let identity = Identity::of_snapshot(&snapshot.id);
        let in_use = Arc::new(Self { identity, time: snapshot.time, _pin: pin });
        Ok(Inode::of_entry(identity, &in_use, root))
    }
}
