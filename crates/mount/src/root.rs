//! Root directory of the mount: snapshots by id, and names that point to them.
//!
//! It is the only directory that changes. A snapshot that was looked up stays valid, because it is pinned;
//! missing names may appear and references may move, so the kernel must not cache these.

use std::sync::Arc;

use workspace_state::{Resolution, Result, SnapshotId, Store};

use crate::inode::Inode;
use crate::listing::Listing;
use crate::pinned_snapshot::PinnedSnapshot;

pub(crate) struct Root {
    store: Store,
    /// Owner recorded in pins.
    owner: String,
}

/// Entry of the root directory.
pub(crate) enum RootEntry {
    Snapshot(Inode),
    Alias(Inode),
}

impl Root {
    pub(crate) fn new(store: Store, owner: String) -> Self {
        Self { store, owner }
    }

    /// Parses a name as a snapshot id, whether or not the snapshot exists.
    pub(crate) fn snapshot_id(name: &[u8]) -> Option<SnapshotId> {
        std::str::from_utf8(name).ok().and_then(canonical_id)
    }

    pub(crate) fn find(&self, name: &[u8]) -> Result<Option<RootEntry>> {
        if let Some(id) = Self::snapshot_id(name) {
            return Ok(PinnedSnapshot::open(&self.store, &id, &self.owner)?.map(RootEntry::Snapshot));
        }
        let Ok(text) = std::str::from_utf8(name) else { return Ok(None) };
        match self.store.resolve(text)? {
            Resolution::One(id) => Ok(Some(RootEntry::Alias(Inode::alias(name, &id)))),
            Resolution::None | Resolution::Ambiguous(_) => Ok(None),
        }
    }

    /// Lists the root. References come first: new snapshots are then appended and do not shift the entries
    /// that a reader has yet to see.
    pub(crate) fn list(&self) -> Result<Listing> {
        let references = self.store.references()?;
        let aliases = references
            .iter()
            .filter(|(name, _)| !name.contains('/') && canonical_id(name).is_none())
            .map(|(name, id)| (name.as_bytes().into(), Arc::new(Inode::alias(name.as_bytes(), id))));
        let snapshots = self.store.snapshots()?;
        let snapshots = snapshots.iter().map(|snapshot| {
            (snapshot.id.to_string().into_bytes().into(), Arc::new(Inode::of_unused_snapshot(snapshot)))
        });
        Ok(Listing { entries: aliases.chain(snapshots).collect() })
    }
}

/// Parses an id in its canonical form: other spellings are not names of the directory.
fn canonical_id(text: &str) -> Option<SnapshotId> {
    text.parse().ok().filter(|id: &SnapshotId| id.to_string() == text)
}
