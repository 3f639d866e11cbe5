//! Tests of snapshots with the root filesystem of a sandbox (here *root*) besides the workspace, and of the version of
//! the store's format. The first such snapshot raises the version from 1 to 2.

use std::fs;
use std::path::{Path, PathBuf};

use workspace_state::{
    Attributes, FORMAT, NewSnapshot, NoProgress, Snapshot, Store, StoreError, Tree, VirtualTree,
};

use crate::support::{
    assert_sound, assert_usable, collect, commit_file, copy_directory, message, new_store, noise, packs,
};

/// Content of the format file in version 1.
const FORMAT_1: &str = "elevo-workspace store 1\n";
/// Content of the format file in version 2, for stores with root filesystems.
const FORMAT_2: &str = "elevo-workspace store 2\n";

/// Returns the content of the format file.
fn format_file(store: &Path) -> String {
    fs::read_to_string(store.join("format")).unwrap()
}

/// Creates a tree with these files.
fn tree_of(store: &Store, files: &[(&str, Vec<u8>)]) -> VirtualTree {
    let mut tree = store.empty_tree().unwrap();
    for (path, content) in files {
        tree.write(path, content.clone()).unwrap();
    }
    tree
}

/// Commits a snapshot whose workspace and root have one file each.
fn commit_with_root(store: &Store, file: &str, root_file: (&str, Vec<u8>)) -> Snapshot {
    let root = tree_of(store, &[root_file]).into_root("debian:12").unwrap();
    let mut workspace = tree_of(store, &[(file, file.into())]);
    workspace.commit(NewSnapshot { root: Some(root), ..message(file) }).unwrap()
}

/// Reads a file in the root of a snapshot.
fn read_root(store: &Store, snapshot: &Snapshot, path: &str) -> Vec<u8> {
    let root = snapshot.root.as_ref().unwrap();
    let tree = Tree::open(store, root.tree, Some(root.times)).unwrap();
    VirtualTree::over(&tree).unwrap().read(path).unwrap()
}

/// Returns a copy of a store of format 1, which an older version wrote. It has no index.
fn store_of_format_1() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    copy_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-1"), &path);
    (home, path)
}

#[test]
fn a_root_is_committed_with_its_snapshot() {
    let (home, store) = new_store();
    let before = commit_file(&store, "plain", "plain");
    let snapshot = commit_with_root(&store, "a", ("etc/passwd", b"root".to_vec()));
    // Workspace and root of this snapshot have equal content, which is stored once.
    let same = commit_with_root(&store, "b", ("b", b"b".to_vec()));
    // The root of the last snapshot is a changed version of the root of an earlier one.
    let mut root = {
        let root = snapshot.root.as_ref().unwrap();
        VirtualTree::over(&Tree::open(&store, root.tree, Some(root.times)).unwrap()).unwrap()
    };
    root.write("usr/local/x", "x").unwrap();
    let new = NewSnapshot { root: Some(root.into_root("debian:12").unwrap()), ..message("c") };
    let changed = store.restore(&snapshot.id).unwrap().commit(new).unwrap();
    drop(store);
    let path = home.path().join("store");
    for is_rebuilt in [false, true] {
        let store = if is_rebuilt { Store::rebuild_index(&path) } else { Store::open(&path) }.unwrap();
        for expected in [&before, &snapshot, &same, &changed] {
            assert_eq!(store.snapshot(&expected.id).unwrap(), *expected);
        }
        assert_eq!(before.root, None);
        assert_eq!(read_root(&store, &snapshot, "etc/passwd"), b"root");
        assert_eq!(read_root(&store, &same, "b"), b"b");
        assert_eq!(read_root(&store, &changed, "etc/passwd"), b"root");
        assert_eq!(read_root(&store, &changed, "usr/local/x"), b"x");
        assert_eq!(store.restore(&changed.id).unwrap().read("a").unwrap(), b"a");
        assert_sound(&store);
    }
}

#[test]
fn a_large_workspace_and_a_large_root_are_committed_together() {
    let (home, store) = new_store();
    let [small, large] = [noise(1, 6 << 20), noise(2, 9 << 20)];
    let stream = |content: &[u8]| {
        let mut tree = store.empty_tree().unwrap();
        let attributes = Attributes { mode: 0o644, ..Attributes::default() };
        tree.put_file("file", &mut &content[..], attributes).unwrap();
        tree
    };
    let root = stream(&large).into_root("base").unwrap();
    let snapshot = stream(&small).commit(NewSnapshot { root: Some(root), ..message("large") }).unwrap();
    drop(store);
    let store = Store::open(home.path().join("store")).unwrap();
    assert!(store.restore(&snapshot.id).unwrap().read("file").unwrap() == small);
    assert!(read_root(&store, &snapshot, "file") == large);
    assert_sound(&store);
}

#[test]
fn a_garbage_collection_keeps_only_the_roots_of_existing_snapshots() {
    let (home, store) = new_store();
    let kept = commit_with_root(&store, "a", ("kept", noise(1, 100_000)));
    let removed = commit_with_root(&store, "b", ("removed", noise(2, 100_000)));
    store.remove_snapshots(&[removed.id]).unwrap();
    let report = collect(&store);
    assert!(report.dead_bytes >= 100_000, "{report:?}");
    let counted = report.snapshots.iter().find(|(id, _)| *id == kept.id).unwrap().1;
    assert!(counted >= 100_000, "the root counts for its snapshot: {counted}");
    assert!(read_root(&store, &kept, "kept") == noise(1, 100_000));
    assert_sound(&store);
    // The collection wrote all snapshot records to a checkpoint at the start of a new log, from which they are read
    // here.
    drop(store);
    let store = Store::rebuild_index(home.path().join("store")).unwrap();
    assert_eq!(store.snapshot(&kept.id).unwrap(), kept);
    assert_sound(&store);
}

#[test]
fn verification_reports_the_path_of_damage_in_a_root() {
    let (home, store) = new_store();
    let path = home.path().join("store");
    let content = noise(7, 50_000);
    let snapshot = commit_with_root(&store, "a", ("etc/secret", content.clone()));
    drop(store);
    let pack = packs(&path).into_iter().next().unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    let offset = bytes.windows(64).position(|window| window == &content[100..164]).unwrap();
    bytes[offset] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let report = Store::open(&path).unwrap().verify(&NoProgress).unwrap();
    let damaged: Vec<_> = report.damage.iter().map(|damage| (damage.snapshot, damage.path.clone())).collect();
    assert_eq!(damaged, [(Some(snapshot.id), Some(b"/etc/secret".to_vec()))]);
}

#[test]
fn the_first_root_raises_the_format_of_the_store() {
    let (home, store) = new_store();
    let path = home.path().join("store");
    commit_file(&store, "plain", "plain");
    assert_eq!(format_file(&path), FORMAT_1);
    commit_with_root(&store, "a", ("b", b"c".to_vec()));
    assert_eq!(format_file(&path), FORMAT_2);
    assert!(fs::read_to_string(path.join("format.copy")).unwrap().starts_with(FORMAT_2.trim_end()));
    // The removal of all roots does not lower the version again.
    let ids: Vec<_> = store.snapshots().unwrap().iter().map(|snapshot| snapshot.id).collect();
    store.remove_snapshots(&ids).unwrap();
    collect(&store);
    drop(store);
    assert_usable(&Store::open(&path).unwrap());
    assert_eq!(format_file(&path), FORMAT_2);
}

#[test]
fn a_store_of_format_1_opens_and_keeps_its_format_until_a_root_is_committed() {
    let (_home, path) = store_of_format_1();
    let store = Store::open(&path).unwrap();
    let messages: Vec<String> =
        store.snapshots().unwrap().into_iter().map(|snapshot| snapshot.message).collect();
    assert_eq!(messages, ["first", "second"]);
    let second = store.snapshots().unwrap().pop().unwrap();
    assert_eq!(second.root, None);
    assert_eq!(store.restore(&second.id).unwrap().read("etc/name").unwrap(), b"two\n");
    assert_sound(&store);
    assert_usable(&store);
    assert_eq!(format_file(&path), FORMAT_1);
    let snapshot = commit_with_root(&store, "a", ("b", b"c".to_vec()));
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(format_file(&path), FORMAT_2);
    assert_eq!(store.snapshot(&snapshot.id).unwrap(), snapshot);
    assert_sound(&store);
}

#[test]
fn an_interrupted_raise_of_the_format_is_completed_by_the_next_open() {
    let (home, store) = new_store();
    let path = home.path().join("store");
    let snapshot = commit_with_root(&store, "a", ("b", b"c".to_vec()));
    drop(store);
    // The process ended after it wrote the copy `format.copy` and before it wrote `format`.
    fs::write(path.join("format"), FORMAT_1).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.snapshot(&snapshot.id).unwrap(), snapshot);
    assert_sound(&store);
    assert_eq!(format_file(&path), FORMAT_2, "completed when it was opened");
}

#[test]
fn a_rebuild_that_finds_a_root_restores_the_format() {
    let (home, store) = new_store();
    let path = home.path().join("store");
    commit_with_root(&store, "a", ("b", b"c".to_vec()));
    drop(store);
    fs::remove_file(path.join("format.copy")).unwrap();
    fs::write(path.join("format"), "unreadable").unwrap();
    drop(Store::rebuild_index(&path).unwrap());
    assert_eq!(format_file(&path), FORMAT_2);
}

#[test]
fn a_store_of_a_later_format_is_refused() {
    let (_home, path) = store_of_format_1();
    fs::remove_file(path.join("format.copy")).unwrap();
    fs::write(path.join("format"), format!("elevo-workspace store {}\n", FORMAT + 1)).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::UnsupportedFormat { .. }), "{error}");
}
