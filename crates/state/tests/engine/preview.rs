//! Tests of previews (trees that are read without a commit), and of trees that are written without a checkout state.

use std::os::fd::AsFd as _;

use workspace_state::{
    AddOutcome, CheckoutOptions, DirectoryReader, FileToAdd, NewSnapshot, NoProgress, SnapshotOptions, Store,
    Tree, checkout, diff, materialize, preview_directory, snapshot_directory, unified_diff,
};

use crate::support::packs;

/// Reader with the default methods.
struct PlainReader;

impl DirectoryReader for PlainReader {}

#[test]
fn an_uncommitted_tree_can_be_read_and_compared() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(home.path().join("store")).unwrap();
    let mut tree = store.empty_tree().unwrap();
    tree.write("a/one", "one\n").unwrap();
    tree.write("two", "two\n").unwrap();
    let base = tree.commit(NewSnapshot::default()).unwrap();
    let before = Tree::of_snapshot(&store, &base).unwrap();
    tree.write("a/one", "eins\n").unwrap();
    tree.remove("two").unwrap();
    tree.put_file("large", &mut &vec![7_u8; 9 << 20][..], Default::default()).unwrap();
    let counts_before = store.index_counts().unwrap();
    let after = tree.preview().unwrap();
    let differences = diff(&before, &after).unwrap();
    let paths: Vec<_> =
        differences.iter().map(|difference| String::from_utf8_lossy(&difference.path)).collect();
    assert_eq!(paths, ["a/one", "large", "two"]);
    let patch = unified_diff(&before, &after, &differences[0], 3).unwrap().to_bytes();
    assert!(String::from_utf8(patch).unwrap().contains("+eins"));
    let entry = after.entry("large").unwrap().unwrap();
    let workspace_state::Node::File(file) = entry.node else { panic!() };
    assert_eq!(after.read(&file).unwrap(), vec![7; 9 << 20]);
    assert_eq!(after.id(), tree.tree_id().unwrap());
    assert_eq!(store.index_counts().unwrap(), counts_before, "nothing became part of the store");
}

#[test]
fn packs_of_a_dropped_preview_are_deleted() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(home.path().join("store")).unwrap();
    store.empty_tree().unwrap().commit(NewSnapshot::default()).unwrap();
    let files = packs(store.path());
    let mut tree = store.empty_tree().unwrap();
    let noise: Vec<u8> =
        (0..24_u32 << 18).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    tree.put_file("large", &mut &noise[..], Default::default()).unwrap();
    assert!(packs(store.path()).len() > files.len());
    drop(tree);
    assert_eq!(packs(store.path()), files);
}

#[test]
fn the_preview_of_a_directory_has_the_tree_of_its_snapshot() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(home.path().join("store")).unwrap();
    let directory = home.path().join("directory");
    std::fs::create_dir_all(directory.join("d/e")).unwrap();
    std::fs::write(directory.join("d/e/file"), "content").unwrap();
    let options = SnapshotOptions { quiescent: true, ..SnapshotOptions::default() };
    let preview = preview_directory(&store, &directory, &options, &NoProgress).unwrap();
    assert!(store.snapshots().unwrap().is_empty());
    let report = snapshot_directory(&store, &directory, options, &NoProgress).unwrap();
    assert_eq!(preview.tree.id(), report.snapshot.tree);
}

#[test]
fn only_regular_files_of_a_directory_are_added_to_a_tree() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(home.path().join("store")).unwrap();
    let directory = home.path().join("directory");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("plain"), "content").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", directory.join("link")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(directory.join("fifo")).status().unwrap().success());
    let open = std::fs::File::open(&directory).unwrap();
    let file =
        |name: &str| FileToAdd { name: name.into(), path: format!("at/{name}").into(), link_label: None };
    let files = ["plain", "link", "fifo", "none"].map(file);
    let mut tree = store.empty_tree().unwrap();
    let added = tree.add_files(open.as_fd(), &files, &PlainReader).unwrap();
    assert!(matches!(added[0], AddOutcome::File { .. }));
    assert_eq!(added[1..], [AddOutcome::Vanished, AddOutcome::Vanished, AddOutcome::Vanished]);
    let snapshot = tree.commit(NewSnapshot::default()).unwrap();
    assert_eq!(store.restore(&snapshot.id).unwrap().read("at/plain").unwrap(), b"content");
}

#[test]
fn a_tree_is_materialised_into_an_empty_directory_without_recorded_state() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(home.path().join("store")).unwrap();
    let mut tree = store.empty_tree().unwrap();
    tree.write("d/file", "content").unwrap();
    let snapshot = tree.commit(NewSnapshot::default()).unwrap();
    let tree = Tree::of_snapshot(&store, &snapshot).unwrap();
    let directory = home.path().join("directory");
    std::fs::create_dir(&directory).unwrap();
    let options = CheckoutOptions::default();
    assert_eq!(materialize(&tree, &directory, &options, &NoProgress).unwrap().bytes, 7);
    assert_eq!(std::fs::read(directory.join("d/file")).unwrap(), b"content");
    assert_eq!(std::fs::read_dir(store.path().join("directories")).unwrap().count(), 0);
    let refused = materialize(&tree, &directory, &options, &NoProgress).unwrap_err();
    assert!(refused.to_string().contains("is not empty"), "{refused}");
    let refused = checkout(&store, &snapshot, &directory, &options, &NoProgress).unwrap_err();
    assert!(refused.to_string().contains("not a checkout"), "{refused}");
}
