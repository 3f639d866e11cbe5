//! Root directory of the mount: snapshots by id, and symlinks to them for references and prefixes of ids.
//!
//! The root is the only directory that changes. The kernel may cache a lookup of a snapshot, because the lookup pins
//! the snapshot. It must not cache missing names, which may appear, and references, which may move.

use std::sync::Arc;

use workspace_state::{Resolution, Result, SnapshotId, Store};

use crate::inode::Inode;
use crate::listing::Listing;
use crate::pinned_snapshot::PinnedSnapshot;

/// Root directory of the mount.
pub(crate) struct Root {
    store: Store,
    /// Text that says who holds the pins of this mount.
    pin_holder: String,
}

/// Entry of the root directory.
pub(crate) enum RootEntry {
    Snapshot(Inode),
    Symlink(Inode),
}

impl Root {
    pub(crate) fn new(store: Store, pin_holder: String) -> Self {
        Self { store, pin_holder }
    }

    /// Parses a name as a snapshot id, whether or not the snapshot exists.
    pub(crate) fn snapshot_id(name: &[u8]) -> Option<SnapshotId> {
        std::str::from_utf8(name).ok().and_then(canonical_id)
    }

    /// Looks up a name; `None` if it does not exist. Pins the snapshot if the name is its id.
    pub(crate) fn find(&self, name: &[u8]) -> Result<Option<RootEntry>> {
        if let Some(id) = Self::snapshot_id(name) {
            return Ok(PinnedSnapshot::open(&self.store, &id, &self.pin_holder)?.map(RootEntry::Snapshot));
        }
        let Ok(text) = std::str::from_utf8(name) else { return Ok(None) };
        match self.store.resolve(text)? {
            Resolution::One(id) => Ok(Some(RootEntry::Symlink(Inode::root_symlink(name, &id)))),
            Resolution::None | Resolution::Ambiguous(_) => Ok(None),
        }
    }

    /// Lists the root. References come first, so that a new snapshot is appended and does not shift the
    /// offsets of a listing in progress.
    pub(crate) fn list(&self) -> Result<Listing> {
        let references = self.store.references()?;
        let symlinks = references
            .iter()
            .filter(|(name, _)| !name.contains('/') && canonical_id(name).is_none())
            .map(|(name, id)| (name.as_bytes().into(), Arc::new(Inode::root_symlink(name.as_bytes(), id))));
        let snapshots = self.store.snapshots()?;
        let snapshots = snapshots.iter().map(|snapshot| {
            (snapshot.id.to_string().into_bytes().into(), Arc::new(Inode::of_unpinned_snapshot(snapshot)))
        });
        Ok(Listing { entries: symlinks.chain(snapshots).collect() })
    }
}

/// Parses an id in its canonical form; `None` for other texts. Other spellings of an id, for example in upper case,
/// are symlinks in the root, as prefixes of ids are.
fn canonical_id(text: &str) -> Option<SnapshotId> {
    text.parse().ok().filter(|id: &SnapshotId| id.to_string() == text)
}
