//! Number of records in a store's index.

use serde::Serialize;

/// Number of records in the index of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IndexCounts {
    /// Chunks and nodes, without condemned ones, which garbage collections are about to delete.
    pub objects: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// References.
    pub references: u64,
    /// Episodes.
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
        let before = store.index_counts().unwrap();
        assert_eq!((before.snapshots, before.references, before.episodes), (3, 0, 0));
        drop((tree, store));
        assert_eq!(Store::rebuild_index(&path).unwrap().index_counts().unwrap(), before);
    }
}
