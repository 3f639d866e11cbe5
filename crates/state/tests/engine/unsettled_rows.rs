//! Tests of unsettled rows: rows of the index with the objects and the snapshot of one small commit each. They are
//! *settled* (moved to the tables) later, and are visible to all processes before and after that.
//!
//! A *role* is a function that a child process runs (`child.rs`).

use workspace_state::testing::make_log_state_unreadable;
use workspace_state::{Resolution, Snapshot, SnapshotId, Store, Tree};

use crate::child::{ChildProcess, say, text, wait_for_parent};
use crate::support::{
    assert_sound, assert_usable, buffered, collect, commit_file, new_store, noise, pack_bytes,
};

/// Number of small commits after which rows were settled at least once.
const COMMIT_COUNT: u64 = 1_500;

/// Commits a small change of snapshot `from`, or of an empty tree.
fn commit_small(store: &Store, from: Option<SnapshotId>, seed: u64) -> Snapshot {
    let mut tree = from.map_or_else(|| store.empty_tree(), |id| store.restore(&id)).unwrap();
    tree.write(format!("{}/file", seed % 7), noise(seed, 100)).unwrap();
    tree.commit(buffered("small")).unwrap()
}

#[test]
fn objects_of_small_commits_are_readable_before_and_after_settling() {
    let (_home, store) = new_store();
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for seed in 0..COMMIT_COUNT {
        snapshots.push(commit_small(&store, snapshots.last().map(|last| last.id), seed));
    }
    for (seed, snapshot) in snapshots.iter().enumerate().step_by(97) {
        let seed = seed as u64;
        let content = store.restore(&snapshot.id).unwrap().read(format!("{}/file", seed % 7)).unwrap();
        assert_eq!(content, noise(seed, 100));
    }
    assert_sound(&store);
    let path = store.path().to_owned();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_sound(&store);
    drop(store);
    assert_sound(&Store::rebuild_index(path).unwrap());
}

/// Role: makes small commits. Reports some of them, waits for commits of the parent, and reads these.
pub(crate) fn read_and_commit(arguments: &[&str]) {
    let [store, first] = arguments else { panic!("store, snapshot") };
    let store = Store::open(store).unwrap();
    let mut last: SnapshotId = first.parse().unwrap();
    for seed in 0..COMMIT_COUNT {
        last = commit_small(&store, Some(last), 10_000 + seed).id;
        if seed % 300 == 0 {
            say(&last.to_string());
            wait_for_parent();
            // The snapshots include commits of the parent, which are in unsettled rows.
            for found in store.snapshots().unwrap() {
                store.restore(&found.id).unwrap().list("").unwrap();
            }
        }
    }
}

#[test]
fn two_processes_read_the_small_commits_of_each_other() {
    let (_home, store) = new_store();
    let first = commit_small(&store, None, 0);
    let mut child = ChildProcess::start("read-and-commit", &[text(store.path()), &first.id.to_string()]);
    let mut seed = 1;
    while let Some(line) = child.next_line() {
        let theirs: SnapshotId = line.parse().unwrap();
        let tree = store.restore(&theirs).unwrap();
        assert!(!tree.list("").unwrap().is_empty());
        for _ in 0..200 {
            commit_small(&store, Some(theirs), seed);
            seed += 1;
        }
        child.resume();
    }
    child.finish().assert_success();
    collect(&store);
    assert_sound(&store);
}

/// Two commits of equal directories store two copies of the same objects. Here, the first copy is settled and the
/// second is in an unsettled row. The second must not be used after the first, and the objects below it, were deleted.
#[test]
fn a_second_copy_does_not_replace_a_deleted_object() {
    let (_home, store) = new_store();
    let commit = || {
        let mut tree = store.empty_tree().unwrap();
        tree.write("a/b/c", noise(1, 30_000)).unwrap();
        tree.commit(buffered("copy")).unwrap()
    };
    let first = commit();
    let garbage = commit_file(&store, "garbage", "garbage");
    store.remove_snapshots(&[garbage.id]).unwrap();
    assert!(collect(&store).dead_objects > 0, "a collection that finds something settles");
    let second = commit();
    let directory = Tree::of_snapshot(&store, &first).unwrap().entry("a").unwrap().unwrap();
    store.remove_snapshots(&[first.id, second.id]).unwrap();
    collect(&store);
    collect(&store);
    let refused = store.empty_tree().unwrap().graft("copy", &directory, "");
    assert!(refused.is_err(), "what the directory held is gone");
    let again = commit();
    collect(&store);
    assert_eq!(store.restore(&again.id).unwrap().read("a/b/c").unwrap(), noise(1, 30_000));
    assert_sound(&store);
}

#[test]
fn an_index_of_another_version_is_rebuilt() {
    let (_home, store) = new_store();
    let snapshot = commit_small(&store, None, 1);
    let path = store.path().to_owned();
    drop(store);
    make_log_state_unreadable(&path).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.restore(&snapshot.id).unwrap().read("1/file").unwrap(), noise(1, 100));
    assert_usable(&store);
    assert_sound(&store);
}

/// While a store is open, the log may have preallocated zeros at its end, which make syncs faster. They are truncated
/// when the store is closed.
#[test]
fn a_closed_store_has_no_preallocated_zeros() {
    let (_home, store) = new_store();
    for seed in 0..10 {
        commit_file(&store, "file", noise(seed, 100));
    }
    let path = store.path().to_owned();
    assert!(pack_bytes(&path) > 1 << 20, "zeros were written ahead");
    drop(store);
    assert!(pack_bytes(&path) < 1 << 16);
    let store = Store::open(&path).unwrap();
    assert_usable(&store);
    assert_sound(&store);
}

/// Asserts that all lookups find exactly these snapshots.
fn assert_found(store: &Store, expected: &[Snapshot]) {
    assert_eq!(store.snapshots().unwrap(), expected);
    for snapshot in expected {
        assert_eq!(store.find_snapshot(&snapshot.id).unwrap().as_ref(), Some(snapshot));
        assert!(store.snapshots_with_tree(&snapshot.tree).unwrap().contains(&snapshot.id));
        let start = &snapshot.id.to_string()[..35];
        assert!(!matches!(store.resolve(start).unwrap(), Resolution::None));
    }
}

#[test]
fn snapshots_of_small_commits_are_found_before_and_after_settling() {
    let (_home, store) = new_store();
    let mut expected: Vec<Snapshot> = Vec::new();
    for seed in 0..3 {
        // The record with the long message is too large for an unsettled row.
        for text in ["short".to_owned(), "long ".repeat(3000)] {
            let mut tree = store.empty_tree().unwrap();
            tree.write("file", noise(seed, 10)).unwrap();
            expected.push(tree.commit(buffered(&text)).unwrap());
        }
    }
    assert_found(&store, &expected);
    assert_eq!(store.snapshots_with_tree(&expected[0].tree).unwrap().len(), 2);
    // The removal of a snapshot settles all rows.
    store.remove_snapshots(&[expected.remove(2).id]).unwrap();
    assert_found(&store, &expected);
    // The unsettled row of a commit without new objects has only the snapshot.
    expected.push(store.restore(&expected[0].id).unwrap().commit(buffered("the same")).unwrap());
    expected.push(commit_file(&store, "file", "later"));
    assert_found(&store, &expected);
    let removed = expected.pop().unwrap();
    store.remove_snapshots(&[removed.id]).unwrap();
    assert_eq!(store.find_snapshot(&removed.id).unwrap(), None);
    assert_found(&store, &expected);
    collect(&store);
    assert_found(&store, &expected);
    let path = store.path().to_owned();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_found(&store, &expected);
    assert_sound(&store);
    drop(store);
    assert_found(&Store::rebuild_index(path).unwrap(), &expected);
}
