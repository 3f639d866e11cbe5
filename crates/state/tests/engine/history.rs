//! Tests of the history of snapshots (walks along parents, common ancestors), of references and of snapshot records.

use std::collections::BTreeMap;

use workspace_state::{
    Durability, Expect, NewSnapshot, Resolution, SnapshotId, Store, StoreError, Timestamp,
};

use crate::support::{collect, commit_file, message, new_store};

/// Commits a snapshot with these parents.
fn commit(store: &Store, parents: &[SnapshotId]) -> SnapshotId {
    let mut tree = store.empty_tree().unwrap();
    tree.write("file", format!("{parents:?}")).unwrap();
    tree.commit(NewSnapshot { parents: parents.to_vec(), ..message("step") }).unwrap().id
}

/// Returns the history of a snapshot.
fn walk(store: &Store, from: SnapshotId) -> Vec<SnapshotId> {
    store.history(&from).unwrap().map(|snapshot| snapshot.unwrap().id).collect()
}

#[test]
fn a_history_has_each_snapshot_once_and_the_newest_first() {
    let (_home, store) = new_store();
    let root = commit(&store, &[]);
    let left = commit(&store, &[root]);
    let right = commit(&store, &[root]);
    let left_again = commit(&store, &[left]);
    let merge = commit(&store, &[left_again, right]);
    commit(&store, &[root]);
    assert_eq!(walk(&store, merge), [merge, left_again, right, left, root]);
    assert_eq!(walk(&store, root), [root]);
}

#[test]
fn a_history_skips_removed_snapshots() {
    let (_home, store) = new_store();
    let root = commit(&store, &[]);
    let middle = commit(&store, &[root]);
    let tip = commit(&store, &[middle]);
    store.remove_snapshots(&[middle]).unwrap();
    collect(&store);
    assert_eq!(walk(&store, tip), [tip]);
    assert_eq!(store.snapshot(&tip).unwrap().parents, [middle]);
    assert!(matches!(store.snapshot(&middle), Err(StoreError::UnknownSnapshot(id)) if id == middle));
    assert_eq!(store.common_ancestor(&tip, &root).unwrap(), None);
}

#[test]
fn the_common_ancestor_is_the_newest_one() {
    let (_home, store) = new_store();
    let root = commit(&store, &[]);
    let base = commit(&store, &[root]);
    let left = commit(&store, &[base]);
    let right = commit(&store, &[base]);
    let elsewhere = commit(&store, &[]);
    let common = |a, b| store.common_ancestor(&a, &b).unwrap();
    assert_eq!(common(left, right), Some(base));
    assert_eq!(common(right, left), Some(base));
    assert_eq!(common(left, root), Some(root));
    assert_eq!(common(root, left), Some(root));
    assert_eq!(common(left, left), Some(left));
    assert_eq!(common(left, elsewhere), None);
    // Both sides have merged `left` and `right`, so both are nearest common ancestors. The newer one is returned.
    let left_merge = commit(&store, &[left, right]);
    let right_merge = commit(&store, &[right, left]);
    assert_eq!(common(left_merge, right_merge), Some(right));
    assert_eq!(common(left_merge, right), Some(right));
    // One side has many more snapshots than the other.
    let mut far = left_merge;
    for _ in 0..50 {
        far = commit(&store, &[far]);
    }
    assert_eq!(common(far, right_merge), Some(right));
    assert_eq!(common(root, far), Some(root));
}

#[test]
fn wrong_times_do_not_change_the_common_ancestor() {
    let (_home, store) = new_store();
    let commit_at = |parents: &[SnapshotId], time: i64| {
        let mut tree = store.empty_tree().unwrap();
        tree.write("file", format!("{parents:?} {time}")).unwrap();
        let new = NewSnapshot { parents: parents.to_vec(), time: Some(Timestamp(time)), ..message("step") };
        tree.commit(new).unwrap().id
    };
    // According to its time, the root is newer than some of its descendants.
    let root = commit_at(&[], 1_000);
    let base = commit_at(&[root], 5);
    let left = commit_at(&[base, root], 2_000);
    let right = commit_at(&[root, base], 2_001);
    assert_eq!(store.common_ancestor(&left, &right).unwrap(), Some(base));
    assert_eq!(store.common_ancestor(&right, &left).unwrap(), Some(base));
}

#[test]
fn a_snapshot_is_found_by_reference_by_id_and_by_a_prefix_of_its_id() {
    let (_home, store) = new_store();
    let ids: Vec<SnapshotId> =
        (0..30).map(|number| commit_file(&store, "f", number.to_string()).id).collect();
    store.set_reference("main", Expect::Absent, ids[3], Durability::Buffered).unwrap();
    let resolve = |text: &str| store.resolve(text).unwrap();
    assert_eq!(resolve("main"), Resolution::One(ids[3]));
    for id in &ids {
        assert_eq!(resolve(&id.to_string()), Resolution::One(*id));
        assert_eq!(resolve(&id.to_string().to_uppercase()), Resolution::One(*id));
        assert_eq!(resolve(&id.to_string().replace('-', "")), Resolution::One(*id));
        let prefix = &id.to_string()[..35];
        assert_eq!(resolve(prefix), Resolution::One(*id), "{prefix}");
    }
    let Resolution::Ambiguous(candidates) = resolve(&ids[0].to_string()[..6]) else {
        panic!("not ambiguous")
    };
    assert!(candidates.len() > 1 && candidates.iter().all(|id| ids.contains(id)));
    for unknown in ["", "0", "nothing", "ffffffff", "\0", "../x", &"a".repeat(1000), "é", "-", "----"] {
        assert_eq!(resolve(unknown), Resolution::None, "{unknown:?}");
    }
    assert_eq!(resolve(&SnapshotId::generate().to_string()), Resolution::None);
}

#[test]
fn a_reference_whose_name_is_an_id_takes_precedence_over_the_id() {
    let (_home, store) = new_store();
    let (a, b) = (commit_file(&store, "f", "a").id, commit_file(&store, "f", "b").id);
    store.set_reference(&a.to_string(), Expect::Absent, b, Durability::Buffered).unwrap();
    assert_eq!(store.resolve(&a.to_string()).unwrap(), Resolution::One(b));
}

#[test]
fn snapshot_records_are_kept_when_a_store_is_reopened_and_rebuilt() {
    let (_home, store) = new_store();
    let labels = BTreeMap::from([
        (String::new(), String::new()),
        ("kind".to_owned(), "release".to_owned()),
        ("ünï".to_owned(), "\u{1f980}\n".to_owned()),
    ]);
    let mut tree = store.empty_tree().unwrap();
    tree.write("f", "x").unwrap();
    let snapshot = tree
        .commit(NewSnapshot {
            author: "Ada <ada@example.org>".to_owned(),
            message: "a\n\nb".to_owned(),
            labels,
            parents: vec![SnapshotId::generate()],
            references: vec![("a/b.c-d_e".to_owned(), Expect::Absent), ("z".to_owned(), Expect::Absent)],
            ..NewSnapshot::default()
        })
        .unwrap();
    drop(tree);
    let path = store.path().to_owned();
    let references = [("a/b.c-d_e".to_owned(), snapshot.id), ("z".to_owned(), snapshot.id)];
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.snapshots().unwrap(), std::slice::from_ref(&snapshot));
    assert_eq!(store.references().unwrap(), references);
    drop(store);
    let store = Store::rebuild_index(&path).unwrap();
    assert_eq!(store.snapshots().unwrap(), std::slice::from_ref(&snapshot));
    assert_eq!(store.references().unwrap(), references);
    assert_eq!(store.snapshots_with_tree(&snapshot.tree).unwrap(), [snapshot.id]);
}

#[test]
fn references_are_set_only_if_their_target_is_the_expected_one() {
    let (_home, store) = new_store();
    let (a, b) = (commit_file(&store, "f", "a").id, commit_file(&store, "f", "b").id);
    let set = |expect, to| store.set_reference("r", expect, to, Durability::Buffered);
    let moved = |result: Result<(), StoreError>| matches!(result, Err(StoreError::ReferenceMoved { .. }));
    assert!(moved(set(Expect::At(a), b)));
    set(Expect::Absent, a).unwrap();
    assert!(moved(set(Expect::Absent, b)));
    assert!(moved(set(Expect::At(b), b)));
    set(Expect::At(a), b).unwrap();
    assert!(moved(store.remove_reference("r", Expect::At(a))));
    store.remove_reference("r", Expect::At(b)).unwrap();
    assert_eq!(store.reference("r").unwrap(), None);
    let unknown = SnapshotId::generate();
    assert!(matches!(set(Expect::Absent, unknown), Err(StoreError::UnknownSnapshot(id)) if id == unknown));
    for bad in ["", "/", "a//b", "a/", "..", "a/../b", "a b", "ü", "a\0", &"x".repeat(256)] {
        let result = store.set_reference(bad, Expect::Absent, a, Durability::Buffered);
        assert!(matches!(result, Err(StoreError::BadReferenceName(_))), "{bad:?}: {result:?}");
        assert_eq!(store.reference(bad).unwrap(), None);
    }
}
