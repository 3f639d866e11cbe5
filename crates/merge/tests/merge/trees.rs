//! What the merge of trees promises.

use workspace_merge::{ConflictClass, TreeMerge, TreeOptions, merge_trees};
use workspace_state::Tree;

use crate::git::Rng;
use crate::model::{Doing, Model, Place, Thing, base, model, read, read_merge, side};

fn classes(merge: &TreeMerge) -> Vec<(ConflictClass, &str)> {
    let name = |path| std::str::from_utf8(path).unwrap();
    merge.conflicts.iter().map(|conflict| (conflict.class, name(&conflict.path.0))).collect()
}

fn merged(place: &Place, base: &Tree, ours: &Tree, theirs: &Tree) -> Model {
    let _ = place;
    let merge = merge_trees(base, ours, theirs, &TreeOptions::default()).unwrap();
    assert!(merge.conflicts.is_empty());
    read_merge(&merge)
}

#[test]
fn one_side_is_the_result_where_the_other_did_nothing() {
    let place = Place::new();
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let base = base(&mut rng);
        let side = side(&base, &mut rng, Doing::Directories);
        let (base, side) = (place.tree(&base), place.tree(&side));
        for (ours, theirs) in [(&side, &side), (&base, &side), (&side, &base)] {
            let merge = merge_trees(&base, ours, theirs, &TreeOptions::default()).unwrap();
            assert!(merge.conflicts.is_empty());
            assert_eq!(merge.tree.tree_id().unwrap(), side.id(), "seed {seed}");
        }
        assert_eq!(merged(&place, &base, &base, &side), read(&side));
    }
}

#[test]
fn what_is_removed_here_and_changed_there_stays_as_it_was_changed() {
    let place = Place::new();
    let base = model(&[("a", "1\n"), ("b", "2\n")]);
    let (ours, theirs) = (model(&[("b", "3\n")]), model(&[("a", "4\n")]));
    let merge = place.merge(&base, &ours, &theirs);
    assert_eq!(read_merge(&merge), model(&[("a", "4\n"), ("b", "3\n")]));
    assert_eq!(classes(&merge), [(ConflictClass::ModifyDelete, "a"), (ConflictClass::ModifyDelete, "b")]);
}

#[test]
fn a_file_in_conflict_stays_as_ours_has_it() {
    let place = Place::new();
    let base = model(&[("a", "1\n")]);
    let (ours, theirs) = (model(&[("a", "2\n"), ("n", "5\n")]), model(&[("a", "3\n"), ("n", "6\n")]));
    let merge = place.merge(&base, &ours, &theirs);
    assert_eq!(read_merge(&merge), ours);
    assert_eq!(classes(&merge), [(ConflictClass::Content, "a"), (ConflictClass::AddAdd, "n")]);
    assert_eq!(merge.conflicts[0].file.as_ref().unwrap().places.len(), 1);
}

#[test]
fn a_directory_and_a_file_of_one_name_are_put_beside_each_other() {
    let place = Place::new();
    let base = model(&[("x", "1\n")]);
    let file = model(&[("x", "1\n"), ("a", "file\n")]);
    let directory = model(&[("x", "1\n"), ("a/b", "in a directory\n")]);
    let merge = place.merge(&base, &file, &directory);
    let expected = model(&[("x", "1\n"), ("a", "file\n"), ("a~theirs/b", "in a directory\n")]);
    assert_eq!(read_merge(&merge), expected);
    assert_eq!(classes(&merge), [(ConflictClass::FileDirectory, "a")]);
    let merge = place.merge(&base, &directory, &file);
    let expected = model(&[("x", "1\n"), ("a~theirs", "file\n"), ("a/b", "in a directory\n")]);
    assert_eq!(read_merge(&merge), expected);
}

#[test]
fn a_file_and_a_symlink_of_one_name_are_put_beside_each_other() {
    let place = Place::new();
    let base = model(&[("a", "1\n"), ("a~theirs", "taken\n")]);
    let ours = model(&[("a", "2\n"), ("a~theirs", "taken\n")]);
    let mut theirs = base.clone();
    theirs.insert("a".to_owned(), Thing::Link("b".to_owned()));
    let merge = place.merge(&base, &ours, &theirs);
    let mut expected = ours.clone();
    expected.insert("a~theirs1".to_owned(), Thing::Link("b".to_owned()));
    assert_eq!(read_merge(&merge), expected);
    assert_eq!(classes(&merge), [(ConflictClass::DistinctTypes, "a")]);
}

#[test]
fn changes_that_exclude_each_other_nowhere_give_one_tree_in_any_order() {
    let place = Place::new();
    let base: Model = (0..40).map(|n| (format!("d{}/f{n}", n % 4), Thing::file(format!("{n}\n")))).collect();
    let agents: Vec<Model> = (0..5)
        .map(|agent| {
            let mut model = base.clone();
            for n in (0..40).filter(|n| n % 5 == agent) {
                let path = format!("d{}/f{n}", n % 4);
                match n % 3 {
                    0 => drop(model.remove(&path)),
                    1 => drop(model.insert(path, Thing::file(format!("by {agent}\n")))),
                    _ => drop(model.insert(format!("new{agent}/{n}"), Thing::file("new\n"))),
                }
            }
            model
        })
        .collect();
    let mut results = std::collections::BTreeSet::new();
    for start in 0..5 {
        for step in 1..5 {
            let order = (0..5).map(|n| &agents[(start + n * step) % 5]);
            let mut head = place.tree(&base);
            for agent in order {
                let (base, theirs) = (place.tree(&base), place.tree(agent));
                let mut merge = merge_trees(&base, &head, &theirs, &TreeOptions::default()).unwrap();
                assert!(merge.conflicts.is_empty());
                let snapshot = merge.tree.commit(Default::default()).unwrap();
                head = Tree::of_snapshot(&place.store, &snapshot).unwrap();
            }
            results.insert(head.id().to_string());
        }
    }
    assert_eq!(results.len(), 1);
}
