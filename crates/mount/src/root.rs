//! The directory at the root of the mount: snapshots by id, and names that lead to them.
//!
//! It is the only directory that changes. A snapshot that has been found stays found, because it is pinned;
//! what is not there may come, and a reference may move, so the kernel asks for these every time.

use std::sync::Arc;

use workspace_state::{Resolved, Result, SnapshotId, Store};

use crate::inode::Inode;
use crate::listing::Listing;
use crate::usage::InUse;

pub(crate) struct Root {
    store: Store,
    /// Who the pins say holds them.
    owner: String,
}

/// What a name at the root is.
pub(crate) enum Found {
    Snapshot(Inode),
    Alias(Inode),
}

impl Root {
    pub(crate) fn new(store: Store, owner: String) -> Self {
        Self { store, owner }
    }

    /// The snapshot that a name stands for, whether or not it exists.
    pub(crate) fn snapshot_id(name: &[u8]) -> Option<SnapshotId> {
        std::str::from_utf8(name).ok().and_then(canonical_id)
    }

    pub(crate) fn find(&self, name: &[u8]) -> Result<Option<Found>> {
        if let Some(id) = Self::snapshot_id(name) {
            return Ok(InUse::open(&self.store, &id, &self.owner)?.map(Found::Snapshot));
        }
        let Ok(text) = std::str::from_utf8(name) else { return Ok(None) };
        match self.store.resolve(text)? {
            Resolved::One(id) => Ok(Some(Found::Alias(Inode::alias(name, &id)))),
            Resolved::None | Resolved::Ambiguous(_) => Ok(None),
        }
    }

    /// References first: new snapshots then come at the end and do not move what a reader has yet to see.
    pub(crate) fn list(&self) -> Result<Listing> {
        let references = self.store.references()?;
        let aliases = references
            .iter()
            .filter(|(name, _)| !name.contains('/') && canonical_id(name).is_none())
            .map(|(name, id)| (name.as_bytes().into(), Arc::new(Inode::alias(name.as_bytes(), id))));
        let snapshots = self.store.snapshots()?;
        let snapshots = snapshots
            .iter()
            .map(|snapshot| (snapshot.id.to_string().into_bytes().into(), Arc::new(Inode::listed(snapshot))));
        Ok(Listing { entries: aliases.chain(snapshots).collect() })
    }
}

/// A directory has one name: other ways to write an id are no names of it.
fn canonical_id(text: &str) -> Option<SnapshotId> {
    text.parse().ok().filter(|id: &SnapshotId| id.to_string() == text)
}
