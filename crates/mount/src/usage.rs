//! Snapshots in use: pinned while the kernel knows anything inside them.

use std::sync::Arc;

use workspace_state::{ProcessPin, Result, Snapshot, SnapshotId, Store, Timestamp, Tree};

use crate::identity::Identity;
use crate::inode::Inode;

/// A snapshot that a garbage collection may not take. Every inode of its tree holds one of these; the pin
/// ends with the last of them, or with the process.
///
/// The pin alone is held, not a [`Tree`]: a tree would keep collections from deleting anything at all for as
/// long as the mount lives, a pin keeps only what it names.
pub(crate) struct InUse {
    pub(crate) identity: Identity,
    /// Stands in for times that the snapshot does not know.
    pub(crate) time: Timestamp,
    _pin: ProcessPin,
}

impl InUse {
    /// Pins a snapshot and gives the directory at its root; nothing when there is no such snapshot.
    pub(crate) fn open(store: &Store, id: &SnapshotId, owner: &str) -> Result<Option<Inode>> {
        let Some(snapshot) = store.find_snapshot(id)? else { return Ok(None) };
        let pin = store.pin_for_process(&snapshot, owner)?;
        // It may have been removed and collected before the pin was made. If it is still there now, every
        // collection sees the snapshot or the pin.
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
