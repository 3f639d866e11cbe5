//! Tests of the diff of random trees: applied to the model of the old tree, it must give the model of the new one.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use workspace_state::{Difference, DifferenceKind, Entry, Node, Tree, diff};

use crate::model::{self, Item, Model, ModelStore, base_name};

/// Converts an entry of a difference to a model item.
fn item(tree: &Tree, entry: &Entry) -> Item {
    match &entry.node {
        Node::File(file) => Item::File { content: tree.read(file).unwrap(), mode: file.mode },
        Node::Symlink(link) => Item::Symlink(link.target.clone()),
        Node::Directory(directory) => Item::Directory { mode: directory.mode },
    }
}

/// Returns true if `path` is `top` or below it.
fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Applies differences to the model `from` and returns the result. Asserts that each difference is correct and
/// necessary.
fn apply(from: &Model, to: &Model, trees: (&Tree, &Tree), differences: &[Difference]) -> Model {
    let mut result = from.clone();
    let mut inserted = BTreeMap::new();
    for difference in differences {
        let old = difference.old.as_ref().map(|entry| item(trees.0, entry));
        let new = difference.new.as_ref().map(|entry| item(trees.1, entry));
        let path = &difference.path;
        match &difference.kind {
            DifferenceKind::Added => {
                assert!(old.is_none() && !from.contains_key(path));
            }
            DifferenceKind::Removed => {
                assert!(new.is_none() && !to.contains_key(path));
                result.remove(path).unwrap();
            }
            DifferenceKind::Renamed { from: source } => {
                assert!(!from.contains_key(path) && !to.contains_key(source));
                assert_eq!(old.as_ref(), from.get(source));
                for (old_path, item) in from.iter().filter(|(path, _)| is_at_or_below(path, source)) {
                    let target = [path, &old_path[source.len()..]].concat();
                    assert!(inserted.insert(target, item.clone()).is_none());
                    result.remove(old_path).unwrap();
                }
                if let (Some(Item::File { content, .. }), Some(Item::File { mode, .. })) = (&old, &new) {
                    assert!(!content.is_empty());
                    inserted.insert(path.clone(), Item::File { content: content.clone(), mode: *mode });
                }
            }
            DifferenceKind::Modified | DifferenceKind::TypeChanged | DifferenceKind::ModeChanged => {
                assert_eq!(old.as_ref(), from.get(path));
                assert_eq!(difference.kind, old.as_ref().unwrap().change_to(new.as_ref().unwrap()));
                result.remove(path).unwrap();
            }
        }
        if let Some(new) = new {
            assert_eq!(Some(&new), to.get(path), "{difference:?}");
            if !matches!(difference.kind, DifferenceKind::Renamed { .. }) {
                inserted.insert(path.clone(), new);
            }
        }
    }
    for (path, item) in inserted {
        assert!(result.insert(path, item).is_none());
    }
    result
}

/// Asserts that no file content is both removed and added.
fn assert_no_rename_was_missed(trees: (&Tree, &Tree), differences: &[Difference]) {
    let contents = |kind: DifferenceKind| -> HashSet<Vec<u8>> {
        let entries = differences.iter().filter(|difference| difference.kind == kind);
        let contents = entries.filter_map(|difference| {
            let old = difference.old.as_ref().map(|entry| item(trees.0, entry));
            match old.or(difference.new.as_ref().map(|entry| item(trees.1, entry))) {
                Some(Item::File { content, .. }) if !content.is_empty() => Some(content),
                _ => None,
            }
        });
        contents.collect()
    };
    let (removed, added) = (contents(DifferenceKind::Removed), contents(DifferenceKind::Added));
    assert!(removed.is_disjoint(&added));
}

/// Compares two trees, asserts that the differences are correct, and returns them.
fn check(store: &ModelStore, from: &Model, to: &Model) -> Vec<Difference> {
    let trees = (&store.tree(from), &store.tree(to));
    let differences = diff(trees.0, trees.1).unwrap();
    assert!(differences.is_sorted_by(|a, b| a.path < b.path), "sorted, each path once");
    assert_eq!(&apply(from, to, trees, &differences), to);
    assert_no_rename_was_missed(trees, &differences);
    assert_eq!(differences.is_empty(), from == to);
    assert_eq!(diff(trees.0, trees.1).unwrap(), differences, "the same every time");
    differences
}

#[test]
fn differences_turn_one_random_tree_into_the_other() {
    let store = ModelStore::new();
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((from, to) in model::related_pair(24))| {
        check(&store, &from, &to);
        check(&store, &to, &from);
    });
}

#[test]
fn differences_of_long_directories_are_found() {
    let store = ModelStore::new();
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
    let numbers = prop::collection::btree_map(0u16..2000, 0u8..3, 0..1500);
    let edits = prop::collection::vec((0u16..2000, prop::option::of(0u8..3)), 0..40);
    let long_directory = |entries: &BTreeMap<u16, u8>| -> Model {
        let file = |(number, content): (&u16, &u8)| {
            let content = format!("{number} {content}").into_bytes();
            (format!("d/{number}").into_bytes(), Item::File { content, mode: 0o644 })
        };
        entries.iter().map(file).chain([(b"d".to_vec(), Item::Directory { mode: 0o755 })]).collect()
    };
    proptest!(config, |(from in numbers, edits in edits)| {
        let mut to = from.clone();
        for (number, content) in edits {
            match content {
                Some(content) => to.insert(number, content),
                None => to.remove(&number),
            };
        }
        check(&store, &long_directory(&from), &long_directory(&to));
    });
}

/// Creates a model with these entries and their parent directories.
fn model<const N: usize>(items: [(&[u8], Item); N]) -> Model {
    let mut model = Model::new();
    for (path, item) in items {
        model::insert(&mut model, path, item);
    }
    model
}

fn file(content: &str) -> Item {
    Item::File { content: content.into(), mode: 0o644 }
}

fn link(target: &str) -> Item {
    Item::Symlink(target.into())
}

/// Returns a line per difference: its kind and path.
fn summary(differences: &[Difference]) -> Vec<String> {
    let line = |difference: &Difference| {
        let path = workspace_state::quote_path(&difference.path);
        match &difference.kind {
            DifferenceKind::Renamed { from } => format!("{} => {path}", workspace_state::quote_path(from)),
            kind => format!("{kind:?} {path}"),
        }
    };
    differences.iter().map(line).collect()
}

/// Asserts that two trees have these differences, in the form of [`summary`].
#[track_caller]
fn assert_diff(from: &Model, to: &Model, expected: &[&str]) {
    assert_eq!(summary(&check(&ModelStore::new(), from, to)), expected);
}

#[test]
fn a_swap_of_two_names_is_two_modifications() {
    let from = model([(b"a", file("1")), (b"b", file("2"))]);
    let to = model([(b"a", file("2")), (b"b", file("1"))]);
    assert_diff(&from, &to, &["Modified a", "Modified b"]);
}

#[test]
fn a_chain_of_renames_pairs_only_added_and_removed_names() {
    let from = model([(b"a", file("1")), (b"b", file("2")), (b"c", file("3"))]);
    let to = model([(b"b", file("1")), (b"c", file("2")), (b"d", file("3"))]);
    assert_diff(&from, &to, &["Removed a", "Modified b", "Modified c", "Added d"]);
    let to = model([(b"b", file("2")), (b"c", file("3")), (b"d", file("1"))]);
    assert_diff(&from, &to, &["a => d"]);
}

#[test]
fn one_kind_of_entry_replaces_another() {
    let directory = |item: Item| model([(b"x/deep/f", item), (b"x/g", file("2"))]);
    let (as_file, as_link) = (model([(b"x", file("0"))]), model([(b"x", link("0"))]));
    assert_diff(&as_file, &as_link, &["TypeChanged x"]);
    assert_diff(
        &as_file,
        &directory(file("1")),
        &["TypeChanged x", "Added x/deep", "Added x/deep/f", "Added x/g"],
    );
    assert_diff(
        &directory(link("1")),
        &as_link,
        &["TypeChanged x", "Removed x/deep", "Removed x/deep/f", "Removed x/g"],
    );
}

#[test]
fn empty_files_empty_directories_and_symlinks_are_not_renamed() {
    let from = model([(b"a", file("")), (b"b", link("t")), (b"c", Item::Directory { mode: 0o755 })]);
    let to = model([(b"x", file("")), (b"y", link("t")), (b"z", Item::Directory { mode: 0o755 })]);
    let expected = ["Removed a", "Removed b", "Removed c", "Added x", "Added y", "Added z"];
    assert_diff(&from, &to, &expected);
}

#[test]
fn a_file_renamed_and_made_executable_is_a_rename() {
    let from = model([(b"a", file("1"))]);
    let to = model([(b"b", Item::File { content: b"1".to_vec(), mode: 0o755 })]);
    assert_diff(&from, &to, &["a => b"]);
}

#[test]
fn renames_prefer_the_same_base_name_and_then_the_order_of_paths() {
    let from = model([(b"1/a", file("x")), (b"2/b", file("x")), (b"3/c", file("x"))]);
    let to = model([(b"4/b", file("x")), (b"4/k", file("x"))]);
    let expected =
        ["Removed 1", "Removed 2", "Removed 3", "Removed 3/c", "Added 4", "2/b => 4/b", "1/a => 4/k"];
    assert_diff(&from, &to, &expected);
}

#[test]
fn directories_are_renamed_as_a_whole_wherever_they_move() {
    let from = model([(b"a/s/f", file("1")), (b"a/s/g", link("f")), (b"a/h", file("2"))]);
    let whole = model([(b"b/s/f", file("1")), (b"b/s/g", link("f")), (b"b/h", file("2"))]);
    assert_diff(&from, &whole, &["a => b"]);
    let edited = model([(b"b/s/f", file("1")), (b"b/s/g", link("f")), (b"b/h", file("3"))]);
    assert_diff(&from, &edited, &["Removed a", "Removed a/h", "Added b", "Added b/h", "a/s => b/s"]);
    let up = model([(b"s/f", file("1")), (b"s/g", link("f"))]);
    assert_diff(&from, &up, &["Removed a", "Removed a/h", "a/s => s"]);
    let down = model([(b"x/y/a/s/f", file("1")), (b"x/y/a/s/g", link("f")), (b"x/y/a/h", file("2"))]);
    assert_diff(&from, &down, &["Added x", "Added x/y", "a => x/y/a"]);
    assert_diff(&down, &from, &["x/y/a => a", "Removed x", "Removed x/y"]);
}

#[test]
fn copies_of_a_directory_are_paired_one_to_one() {
    let from = model([(b"a/f", file("1")), (b"b/f", file("1"))]);
    let to = model([(b"x/a/f", file("1"))]);
    assert_diff(&from, &to, &["Removed b", "Removed b/f", "Added x", "a => x/a"]);
    let to = model([(b"x/f", file("1")), (b"y/f", file("1")), (b"z/f", file("1"))]);
    assert_diff(&from, &to, &["a => x", "b => y", "Added z", "Added z/f"]);
}

#[test]
fn directories_with_the_same_base_name_are_paired_first() {
    let keep = || (&b"d/keep"[..], file("0"));
    let from = model([keep(), (b"d/m/f", file("1")), (b"d/z/f", file("1")), (b"e/keep", file("2"))]);
    let to = model([keep(), (b"e/a/f", file("1")), (b"e/m/f", file("1")), (b"e/keep", file("2"))]);
    assert_diff(&from, &to, &["d/z => e/a", "d/m => e/m"]);
}

#[test]
fn a_partly_renamed_directory_is_not_renamed_as_a_whole() {
    let to = model([(b"new/x/s/f", file("1")), (b"new/x/g", file("2")), (b"new/h", file("3"))]);
    // `s` is a removed topmost directory. It is found inside `new/x` before `old/x` is compared with `new/x`, so
    // `new/x` cannot be paired as a whole any more.
    let from = model([(b"old/x/s/f", file("1")), (b"old/x/g", file("2")), (b"s/f", file("1"))]);
    let expected =
        ["Added new", "Added new/h", "Added new/x", "old/x/g => new/x/g", "s => new/x/s", "Removed old"];
    let found = summary(&check(&ModelStore::new(), &from, &to));
    assert_eq!(found[..6], expected);
    // Here, `s` and `x` are found while the entries below removed directories are listed.
    let from = model([(b"old/1/f", file("1")), (b"old/2/s/f", file("1")), (b"old/2/g", file("2"))]);
    let found = summary(&check(&ModelStore::new(), &from, &to));
    assert!(found.contains(&"old/1 => new/x/s".to_owned()), "{found:?}");
}

#[test]
fn names_need_not_be_utf_8() {
    let from = model([(b"caf\xe9/\n", file("1")), (b"a.b", file("2")), (b"a/b", file("3"))]);
    let to = model([(b"caf\xe9/\r", file("1")), (b"a.b", file("4")), (b"a/b", file("5"))]);
    assert_diff(&from, &to, &["Modified a.b", "Modified a/b", "\"caf\\351/\\n\" => \"caf\\351/\\r\""]);
}

#[test]
fn entries_of_differences_have_their_names() {
    let store = ModelStore::new();
    let from = model([(b"d/a", file("1")), (b"e/x", file("2"))]);
    let to = model([(b"d/b", file("1")), (b"e", file("2"))]);
    for difference in check(&store, &from, &to) {
        let from = match &difference.kind {
            DifferenceKind::Renamed { from } => from,
            _ => &difference.path,
        };
        assert!(difference.old.is_none_or(|old| old.name == base_name(from)));
        assert!(difference.new.is_none_or(|new| new.name == base_name(&difference.path)));
    }
}
