//! How much a store's index holds.

use std::collections::HashSet;

use serde::Serialize;

use crate::error::Result;
use crate::references_of::ObjectId;
use crate::store::Store;

/// What the index of a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IndexCounts {
    /// Chunks and nodes that commits may rely on.
    pub objects: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// References.
    pub references: u64,
    /// Episodes.
    pub episodes: u64,
}

impl Store {
    /// Counts what the index holds, whether or not the packs still have it.
    pub fn index_counts(&self) -> Result<IndexCounts> {
        let index = &self.inner.index;
        let txn = index.read()?;
        let mut recent: HashSet<ObjectId> = HashSet::new();
        index.for_each_recent(&txn, |object, _| {
            recent.insert(object);
        })?;
        let mut objects = index.chunks.len(&txn)? + index.nodes.len(&txn)?;
        for (kind, id) in recent {
            // A copy may have come before its first one settled.
            objects += u64::from(index.objects(kind).get(&txn, &id)?.is_none());
        }
        Ok(IndexCounts {
            objects,
            snapshots: index.snapshots.len(&txn)?,
            references: index.references.len(&txn)?,
            episodes: index.episodes.len(&txn)?,
        })
    }
}
