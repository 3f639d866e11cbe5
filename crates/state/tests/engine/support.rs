//! Helpers for all tests of the engine.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use workspace_state::{
    Durability, GcOptions, GcReport, NewSnapshot, NoProgress, Snapshot, Store, VirtualTree,
};
pub(crate) use workspace_test_support::{Random, is_full_run};

/// Creates a store in a temporary directory, which is deleted when the returned [`TempDir`] is dropped.
pub(crate) fn new_store() -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(directory.path().join("store")).unwrap();
    (directory, store)
}

/// Returns the options of a synced commit with this message.
pub(crate) fn message(text: &str) -> NewSnapshot {
    NewSnapshot::with_message(text)
}

/// Returns the options of a buffered commit (one that is not synced) with this message.
pub(crate) fn buffered(text: &str) -> NewSnapshot {
    NewSnapshot { durability: Durability::Buffered, ..message(text) }
}

/// Returns incompressible content that depends only on the seed and the length.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut content);
    content
}

/// Asserts that a verification of the store finds no damage.
#[track_caller]
pub(crate) fn assert_sound(store: &Store) {
    let report = store.verify(&NoProgress).unwrap();
    assert!(report.damage.is_empty(), "{:#?}", report.damage);
}

/// Runs a garbage collection.
pub(crate) fn collect(store: &Store) -> GcReport {
    store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap()
}

/// Asserts that a commit succeeds and can be read, as on any consistent store. Removes its snapshot again.
#[track_caller]
pub(crate) fn assert_usable(store: &Store) {
    let content = noise(Random::new().next(), 2000);
    let mut tree = store.empty_tree().unwrap();
    tree.write("usable/file", content.clone()).unwrap();
    let snapshot = tree.commit(message("usable")).unwrap();
    assert_eq!(store.restore(&snapshot.id).unwrap().read("usable/file").unwrap(), content);
    store.remove_snapshots(&[snapshot.id]).unwrap();
}

/// Commits a snapshot of one file.
pub(crate) fn commit_file(store: &Store, path: &str, content: impl Into<Vec<u8>>) -> Snapshot {
    let mut tree = store.empty_tree().unwrap();
    tree.write(path, content).unwrap();
    tree.commit(message(path)).unwrap()
}

/// Commits a snapshot of exactly these files.
pub(crate) fn commit_files(store: &Store, files: &[(&str, &str)]) -> Snapshot {
    let mut tree = store.empty_tree().unwrap();
    for (path, content) in files {
        tree.write(path, *content).unwrap();
    }
    tree.commit(message("files")).unwrap()
}

/// Returns path and content of all files of a tree, sorted by path.
pub(crate) fn all_files(tree: &VirtualTree) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut files = Vec::new();
    let mut queue = vec![Vec::new()];
    while let Some(directory) = queue.pop() {
        for entry in tree.list(&directory).unwrap() {
            let path =
                if directory.is_empty() { entry.name } else { [&directory[..], b"/", &entry.name].concat() };
            match entry.kind {
                workspace_state::NodeKind::Directory => queue.push(path),
                workspace_state::NodeKind::File => {
                    let content = tree.read(&path).unwrap();
                    files.push((path, content));
                }
                workspace_state::NodeKind::Symlink => {}
            }
        }
    }
    files.sort();
    files
}

/// Returns the packs of a store, in order.
pub(crate) fn packs(store: &Path) -> Vec<PathBuf> {
    let mut packs: Vec<PathBuf> = fs::read_dir(store.join("packs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pack"))
        .collect();
    packs.sort();
    packs
}

/// Returns the total size of the packs in bytes.
pub(crate) fn pack_bytes(store: &Path) -> u64 {
    packs(store).iter().map(|pack| fs::metadata(pack).unwrap().len()).sum()
}

/// Copies a store that is not open.
pub(crate) fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Record in a pack (an append-only file of the store), in the format of `record.rs`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackRecord {
    /// [`CHUNK`], [`NODE`], [`COMMIT`] or [`CHECKPOINT`].
    pub(crate) kind: u8,
    /// Offset of the header in the pack.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Kinds of a [`PackRecord`].
pub(crate) const CHUNK: u8 = 1;
pub(crate) const NODE: u8 = 2;
pub(crate) const COMMIT: u8 = 3;
pub(crate) const CHECKPOINT: u8 = 4;

/// Reads the records of an undamaged pack.
pub(crate) fn pack_records(pack: &[u8]) -> Vec<PackRecord> {
    let mut records = Vec::new();
    let mut start = 16;
    while start + 48 <= pack.len() && pack[start] != 0 {
        let stored = u32::from_le_bytes(pack[start + 4..start + 8].try_into().unwrap()) as usize;
        let end = start + 48 + stored;
        records.push(PackRecord { kind: pack[start], start, end });
        start = end;
    }
    records
}
