//! Tests of views: the part of a tree that an agent may read, as a tree of its own.

use proptest::prelude::*;
use workspace_context::{Access, AgentPolicy, View, ViewCache, view};
use workspace_state::{Attributes, GcOptions, NoProgress, Node, Timestamp, Tree, VirtualTree};

use crate::fixture::{
    Item, Model, TestStore, agent_policy, apply, edits, file_paths, new_snapshot, read, trees,
    visibility_policies,
};

/// Returns the view of a tree, without a commit.
fn shown(tree: &Tree, policy: &AgentPolicy) -> Tree {
    built(tree, policy).preview().unwrap()
}

/// Builds the view of a tree with an empty cache.
fn built(tree: &Tree, policy: &AgentPolicy) -> View {
    view(tree, policy, &ViewCache::new()).unwrap()
}

/// Returns the modification time of an entry.
fn modified(tree: &Tree, path: &str) -> Option<i64> {
    tree.entry(path).unwrap().unwrap().modified.map(|time| time.0)
}

#[test]
fn hidden_entries_are_not_in_the_view() {
    let fixture = TestStore::new();
    let tree = fixture.files(&["src/main.rs", "src/key.pem", "secret/a/b", "docs/x"]);
    let policy = agent_policy("RW", &[("secret/**", "none"), ("**/*.pem", "none")]);
    assert_eq!(file_paths(&shown(&tree, &policy)), ["docs/x", "src/main.rs"]);
    assert!(shown(&tree, &policy).entry("secret").unwrap().is_none());
}

#[test]
fn a_directory_with_only_hidden_entries_is_not_in_the_view() {
    let fixture = TestStore::new();
    let policy = agent_policy("RW", &[("**/.env", "none")]);
    let with = fixture.files(&["a/.env", "b/x"]);
    let without = fixture.files(&["b/x"]);
    assert_eq!(shown(&with, &policy).id(), without.id());
}

#[test]
fn an_empty_directory_is_shown_where_nothing_can_be_hidden() {
    let fixture = TestStore::new();
    let tree = fixture.build(|tree| {
        tree.mkdir("open/empty").unwrap();
        tree.mkdir("mixed/empty").unwrap();
    });
    let policy = agent_policy("RW", &[("mixed/**/.env", "none")]);
    let shown = read(&shown(&tree, &policy));
    assert_eq!(shown.keys().collect::<Vec<_>>(), ["open", "open/empty"]);
}

#[test]
fn a_hidden_directory_with_visible_entries_has_no_attributes() {
    let fixture = TestStore::new();
    let tree = fixture.build(|tree| {
        tree.write("d/public", "x").unwrap();
        let xattrs = [(b"user.note".to_vec(), b"secret".to_vec())].into();
        let attributes = Attributes { mode: 0o700, xattrs, modified: Some(Timestamp(5)), link_label: None };
        tree.put_directory("d", attributes).unwrap();
    });
    let shown = shown(&tree, &agent_policy("none", &[("d/public", "R")]));
    let Some(Node::Directory(directory)) = shown.entry("d").unwrap().map(|entry| entry.node) else {
        panic!("not a directory")
    };
    assert_eq!((directory.mode, directory.xattrs.len()), (0o755, 0));
    assert_eq!(modified(&shown, "d"), modified(&shown, "d/public"));
}

#[test]
fn directory_times_do_not_depend_on_hidden_entries() {
    let fixture = TestStore::new();
    let policy = agent_policy("RW", &[("d/hidden*", "none")]);
    let at = |time| Attributes { mode: 0o644, modified: Some(Timestamp(time)), ..Attributes::default() };
    let before = fixture.build(|tree| {
        tree.put_content("d/x", b"x".to_vec(), at(10)).unwrap();
        tree.put_content("d/y", b"y".to_vec(), at(30)).unwrap();
        tree.put_content("d/hidden1", b"z".to_vec(), at(50)).unwrap();
    });
    let after = fixture.edit(&before, |tree| tree.put_content("d/hidden2", b"z".to_vec(), at(99)).unwrap());
    for tree in [&before, &after] {
        assert_eq!(modified(&shown(tree, &policy), "d"), Some(30));
        assert_eq!(shown(tree, &policy).root().modified, Some(Timestamp(30)));
    }
}

#[test]
fn link_labels_are_not_in_a_filtered_view() {
    let fixture = TestStore::new();
    let tree = fixture.build(|tree| {
        for path in ["open/deep/linked", "open/other", "secret/linked"] {
            let attributes = Attributes { mode: 0o644, link_label: Some(7), ..Attributes::default() };
            tree.put_content(path, b"x".to_vec(), attributes).unwrap();
        }
        tree.write("open/plain/file", "y").unwrap();
    });
    let policy = agent_policy("RW", &[("secret/**", "none")]);
    let cache = ViewCache::new();
    for _ in 0..2 {
        let (_, shown) = view(&tree, &policy, &cache).unwrap().commit(new_snapshot(), &cache).unwrap();
        assert_eq!(file_paths(&shown), ["open/deep/linked", "open/other", "open/plain/file"]);
        let mut labels = Vec::new();
        shown
            .walk(&mut |_, entry| {
                labels.extend(entry.link_label);
                Ok(())
            })
            .unwrap();
        assert!(labels.is_empty());
        for path in ["open", "open/deep", "open/plain"] {
            assert_eq!(modified(&shown, path), modified(&tree, path), "{path}");
        }
    }
    let unfiltered = shown(&tree, &agent_policy("RW", &[]));
    assert_eq!(unfiltered.entry("secret/linked").unwrap().unwrap().link_label, Some(7));
}

#[test]
fn a_view_that_shows_nothing_is_an_empty_directory() {
    let fixture = TestStore::new();
    let tree = fixture.files(&["a/b"]);
    let shown = shown(&tree, &agent_policy("none", &[]));
    assert!(read(&shown).is_empty());
    assert_eq!(shown.root().node.mode(), 0o755);
}

#[test]
fn a_view_with_a_cache_equals_one_without_after_every_change() {
    let fixture = TestStore::new();
    let cache = ViewCache::new();
    let policy = agent_policy("RW", &[("**/*.key", "none"), ("d3/**", "none"), ("d4/*/x", "none")]);
    let mut tree = fixture.build(|tree| {
        for n in 0..300 {
            tree.write(format!("d{}/e{}/f{n}", n % 7, n % 3), "x").unwrap();
            tree.write(format!("d{}/{n}.key", n % 7), "x").unwrap();
        }
    });
    for n in 0..10 {
        let view = view(&tree, &policy, &cache).unwrap();
        assert_eq!(view.tree_id().unwrap(), built(&tree, &policy).tree_id().unwrap());
        let (_, committed) = view.commit(new_snapshot(), &cache).unwrap();
        assert_eq!(read(&committed), read(&shown(&tree, &policy)));
        tree = fixture.edit(&tree, |tree| {
            tree.write(format!("d{}/e1/f{n}", n % 5), format!("{n}")).unwrap();
            tree.write(format!("d{}/e1/g{n}.key", n % 5), "new").unwrap();
        });
    }
}

#[test]
fn a_cached_view_that_garbage_collection_removed_is_built_again() {
    let fixture = TestStore::new();
    let cache = ViewCache::new();
    let policy = agent_policy("RW", &[("d/hidden", "none")]);
    let tree = fixture.files(&["d/hidden", "d/e/x", "f"]);
    let (snapshot, _) = view(&tree, &policy, &cache).unwrap().commit(new_snapshot(), &cache).unwrap();
    fixture.store.remove_snapshots(&[snapshot.id]).unwrap();
    for _ in 0..3 {
        fixture.store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    }
    let changed = fixture.edit(&tree, |tree| tree.write("f", "new").unwrap());
    for tree in [&tree, &changed] {
        let (_, again) = view(tree, &policy, &cache).unwrap().commit(new_snapshot(), &cache).unwrap();
        assert_eq!(file_paths(&again), ["d/e/x", "f"]);
    }
}

#[test]
fn a_tree_of_the_maximum_depth_has_a_view() {
    let fixture = TestStore::new();
    let path = vec!["d"; 1023].join("/");
    let tree = fixture.files(&[&format!("{path}/x"), &format!("{path}/y"), "z"]);
    assert_eq!(
        file_paths(&shown(&tree, &agent_policy("RW", &[("**/y", "none")]))),
        [format!("{path}/x"), "z".to_owned()]
    );
}

/// Returns what a view must show, from the rules and the paths alone.
fn expected(model: &Model, policy: &AgentPolicy) -> Model {
    let is_readable = |path: &str| policy.access(path.as_bytes()).can_read();
    // True if everything that could be in a directory is readable.
    let is_shown_whole = |path: &str| {
        let below = policy.at(path.as_bytes()).access_of_all_below();
        is_readable(path) && below.is_some_and(Access::can_read)
    };
    let mut shown = Model::new();
    for (path, item) in model.iter().rev() {
        let is_shown = match item {
            Item::Directory(_) => {
                is_shown_whole(path) || shown.keys().any(|below| below.starts_with(&format!("{path}/")))
            }
            _ => is_readable(path),
        };
        if is_shown {
            let item = match item {
                Item::Directory(_) if !is_readable(path) => Item::Directory(0o755),
                item => item.clone(),
            };
            shown.insert(path.clone(), item);
        }
    }
    shown
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn views_show_what_the_rules_allow(tree in trees(), later in edits(), policy in visibility_policies()) {
        let fixture = TestStore::shared();
        let cache = ViewCache::new();
        let mut tree = fixture.build(|built| apply(built, &tree));
        for version in 0..2 {
            let (_, shown) =
                view(&tree, &policy, &cache).unwrap().commit(new_snapshot(), &cache).unwrap();
            prop_assert_eq!(read(&shown), expected(&read(&tree), &policy), "version {}", version);
            prop_assert_eq!(built(&shown, &policy).tree_id().unwrap(), shown.id(), "a view is its own view");
            let mut changed = VirtualTree::over(&tree).unwrap();
            apply(&mut changed, &later);
            tree = fixture.commit(changed);
        }
    }
}
