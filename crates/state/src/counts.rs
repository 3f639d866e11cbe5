//! Number of records in a store's index.

use std::collections::HashSet;

use heed::RoTxn;
use serde::Serialize;

use crate::error::Result;
use crate::index::Index;
use crate::references_of::ObjectId;
use crate::store::Store;

/// Number of records in the index of a store.
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
    /// Counts the records in the index, whether or not the packs still have them.
    pub fn index_counts(&self) -> Result<IndexCounts> {
        let txn = self.inner.index.read()?;
        IndexCounts::of(&self.inner.index, &txn)
    }
}

impl IndexCounts {
    pub(crate) fn of(index: &Index, txn: &RoTxn<'_>) -> Result<Self> {
        let mut snapshots = 0;
        index.for_each_snapshot(txn, |_| snapshots += 1)?;
        let mut unsettled: HashSet<ObjectId> = HashSet::new();
        index.for_each_unsettled(txn, |object, _| {
            unsettled.insert(object);
        })?;
        let mut objects = index.chunks.len(txn)? + index.nodes.len(txn)?;
        for (kind, id) in unsettled {
            // A second copy may have been written before the first one settled.
            objects += u64::from(index.objects(kind).get(txn, &id)?.is_none());
        }
        Ok(Self {
            objects,
            snapshots,
            references: index.references.len(txn)?,
            episodes: index.episodes.len(txn)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::NewSnapshot;

    #[test]
    fn unsettled_objects_are_counted_once() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let store = Store::open_or_create(&path).unwrap();
        let mut tree = store.empty_tree().unwrap();
        for content in ["one", "two", "one"] {
            tree.write("file", content).unwrap();
            tree.commit(NewSnapshot::default()).unwrap();
        }
        let before = store.index_counts().unwrap();
        assert_eq!((before.snapshots, before.references, before.episodes), (3, 0, 0));
        drop((tree, store));
        assert_eq!(Store::rebuild_index(&path).unwrap().index_counts().unwrap(), before);
    }
}
