//! Models of trees as plain maps: random models, and conversion of models to trees in a store.

use std::collections::BTreeMap;

use proptest::prelude::*;
use workspace_state::{DifferenceKind, NewSnapshot, Store, Tree};

/// Entry of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    File { content: Vec<u8>, mode: u16 },
    Symlink(Vec<u8>),
    Directory { mode: u16 },
}

/// Model of a tree: all entries by path, including directories.
pub(crate) type Model = BTreeMap<Vec<u8>, Item>;

impl Item {
    /// Returns the kind of difference that a diff must report for a change from this entry to `new`.
    pub(crate) fn change_to(&self, new: &Self) -> DifferenceKind {
        match (self, new) {
            (Self::File { content: old, mode: old_mode }, Self::File { content: new, mode: new_mode }) => {
                assert!(old != new || old_mode != new_mode, "an equal file was reported");
                if old == new { DifferenceKind::ModeChanged } else { DifferenceKind::Modified }
            }
            (Self::Symlink(old), Self::Symlink(new)) => {
                assert_ne!(old, new, "an equal symlink was reported");
                DifferenceKind::Modified
            }
            (Self::Directory { mode: old }, Self::Directory { mode: new }) => {
                assert_ne!(old, new, "an equal directory was reported");
                DifferenceKind::ModeChanged
            }
            _ => DifferenceKind::TypeChanged,
        }
    }
}

/// Returns the last component of a path.
pub(crate) fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Iterates over the parent paths, the outermost first.
fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..path.len()).filter(|index| path[*index] == b'/').map(|index| &path[..index])
}

/// Puts `item` at `path`. Replaces any entry there, and any parent that is not a directory.
pub(crate) fn insert(model: &mut Model, path: &[u8], item: Item) {
    for parent in parents(path) {
        if !matches!(model.get(parent), Some(Item::Directory { .. })) {
            model.insert(parent.to_vec(), Item::Directory { mode: 0o755 });
        }
    }
    remove(model, path);
    model.insert(path.to_vec(), item);
}

/// Removes an entry and everything below it.
pub(crate) fn remove(model: &mut Model, path: &[u8]) {
    let below = [path, b"/"].concat();
    model.retain(|key, _| key != path && !key.starts_with(&below));
}

/// Renames an entry with everything below it, and replaces any entry at `to`. Does nothing if that is impossible.
fn rename(model: &mut Model, from: &[u8], to: &[u8]) {
    let below = [from, b"/"].concat();
    if !model.contains_key(from) || to == from || to.starts_with(&below) {
        return;
    }
    let moved: Vec<_> = model
        .iter()
        .filter(|(path, _)| *path == from || path.starts_with(&below))
        .map(|(path, item)| ([to, &path[from.len()..]].concat(), item.clone()))
        .collect();
    remove(model, from);
    remove(model, to);
    for (path, item) in moved {
        insert(model, &path, item);
    }
}

/// Store for the trees of models.
pub(crate) struct ModelStore {
    _directory: tempfile::TempDir,
    store: Store,
}

impl ModelStore {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        Self { _directory: directory, store }
    }

    /// Commits the tree of a model and opens it.
    pub(crate) fn tree(&self, model: &Model) -> Tree {
        let mut tree = self.store.empty_tree().unwrap();
        for (path, item) in model {
            match item {
                Item::File { content, mode } => {
                    tree.write(path, content.clone()).unwrap();
                    tree.chmod(path, *mode).unwrap();
                }
                Item::Symlink(target) => tree.symlink(path, target.clone()).unwrap(),
                Item::Directory { mode } => {
                    tree.mkdir(path).unwrap();
                    tree.chmod(path, *mode).unwrap();
                }
            }
        }
        let new = NewSnapshot { durability: workspace_state::Durability::Buffered, ..NewSnapshot::default() };
        let snapshot = tree.commit(new).unwrap();
        Tree::of_snapshot(&self.store, &snapshot).unwrap()
    }
}

/// Generates one of a few names, so that paths of two trees are often equal. Some names have characters that sort
/// before and after `/`, some are not UTF-8.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let names: [&[u8]; 12] = [
        b"a",
        b"b",
        b"c",
        b"a.b",
        b"a-",
        b"with space",
        b"\n",
        b"caf\xe9",
        b"\"q\\",
        b" b",
        "文".as_bytes(),
        b"z\t",
    ];
    prop::sample::select(names.map(<[u8]>::to_vec).to_vec())
}

/// Generates a path of up to three names.
fn path() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join(&b'/'))
}

/// Generates a short text.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::collection::vec(
        prop::sample::select(vec!["one", "two", "", "three\r", "\\ x", "-", "+"]),
        0..12,
    );
    (lines, any::<bool>()).prop_map(|(lines, ends_with_newline)| {
        let mut text = lines.join("\n").into_bytes();
        if ends_with_newline {
            text.push(b'\n');
        }
        text
    })
}

/// Generates an entry.
fn item() -> impl Strategy<Value = Item> {
    let mode = || prop::sample::select(vec![0o644, 0o755, 0o600]);
    prop_oneof![
        4 => (content(), mode()).prop_map(|(content, mode)| Item::File { content, mode }),
        // No target leads to a symlink loop: git cannot apply a patch that replaces such a symlink with a directory.
        1 => prop::sample::select(vec!["nowhere", "../b", "/etc", "x\ny"])
            .prop_map(|target| Item::Symlink(target.into())),
        1 => prop::sample::select(vec![0o755, 0o700]).prop_map(|mode| Item::Directory { mode }),
    ]
}

/// Random change of a model.
#[derive(Debug, Clone)]
enum Edit {
    Insert(Vec<u8>, Item),
    Remove(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
    Chmod(Vec<u8>, u16),
}

/// Generates an edit.
fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        3 => (path(), item()).prop_map(|(path, item)| Edit::Insert(path, item)),
        2 => path().prop_map(Edit::Remove),
        4 => (path(), path()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => (path(), prop::sample::select(vec![0o700, 0o755])).prop_map(|(path, mode)| Edit::Chmod(path, mode)),
    ]
}

/// Applies an edit. Does nothing if that is impossible.
fn apply(model: &mut Model, edit: Edit) {
    match edit {
        Edit::Insert(path, item) => insert(model, &path, item),
        Edit::Remove(path) => remove(model, &path),
        Edit::Rename(from, to) => rename(model, &from, &to),
        Edit::Chmod(path, new) => {
            if let Some(Item::File { mode, .. } | Item::Directory { mode }) = model.get_mut(&path) {
                *mode = new;
            }
        }
    }
}

/// Generates a random model with fewer than `size` insertions, and the same model after fewer than `size` edits.
pub(crate) fn related_pair(size: usize) -> impl Strategy<Value = (Model, Model)> {
    let start = prop::collection::vec((path(), item()), 0..size);
    let edits = prop::collection::vec(edit(), 0..size);
    (start, edits).prop_map(|(start, edits)| {
        let mut from = Model::new();
        for (path, item) in start {
            insert(&mut from, &path, item);
        }
        let mut to = from.clone();
        edits.into_iter().for_each(|edit| apply(&mut to, edit));
        (from, to)
    })
}
