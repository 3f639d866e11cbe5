//! Number of records in the index of a store (an LMDB database that can be rebuilt from the other files).

use serde::Serialize;

/// Number of records in the index of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IndexCounts {
    /// Chunks (pieces of file content) and nodes (files, directories and symlinks), without those that garbage
    /// collection is about to delete.
    pub objects: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// References: names of snapshots.
    pub references: u64,
    /// Episodes: steps of searches.
    pub episodes: u64,
}

#[cfg(test)]
mod tests {
    use crate::{NewSnapshot, Store};

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
        // The objects of these small commits are still in unsettled rows (`unsettled_rows.rs`). The rebuild below puts
        // them into their tables.
        let before = store.index_counts().unwrap();
        assert_eq!((before.snapshots, before.references, before.episodes), (3, 0, 0));
        drop((tree, store));
        assert_eq!(Store::rebuild_index(&path).unwrap().index_counts().unwrap(), before);
    }
}
