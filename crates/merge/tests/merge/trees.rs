//! Merges of whole trees. A `Model` is a small tree as a map from paths to files and symlinks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use workspace_merge::{
    Author, Choice, ChoiceResult, ConflictClass, CrdtType, FileSettings, HistorySource, OnConflict, PathRule,
    PathRules, RenameOptions, Side, TreeMerge, TreeOptions, merge_trees, tree_choices,
};
use workspace_state::{Attributes, Extent, NewSnapshot, Node, Tree};

use crate::git::Rng;
use crate::model::{ChangeKinds, Git, Leaf, Model, TestStore, base, model, read, read_merge, side};

/// Returns class and path of all conflicts.
fn classes(merge: &TreeMerge) -> Vec<(ConflictClass, &str)> {
    let name = |path| std::str::from_utf8(path).unwrap();
    merge.conflicts.iter().map(|conflict| (conflict.class, name(&conflict.path.0))).collect()
}

/// Merges trees, and fails on a conflict.
fn merged(base: &Tree, ours: &Tree, theirs: &Tree) -> Model {
    let merge = merge_trees(base, ours, theirs, &TreeOptions::default()).unwrap();
    assert!(merge.conflicts.is_empty());
    read_merge(&merge)
}

#[test]
fn merge_with_an_unchanged_side_gives_the_other_side() {
    let fixture = TestStore::new();
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let base = base(&mut rng);
        let side = side(&base, &mut rng, ChangeKinds::Directories);
        let (base, side) = (fixture.tree(&base), fixture.tree(&side));
        for (ours, theirs) in [(&side, &side), (&base, &side), (&side, &base)] {
            let merge = merge_trees(&base, ours, theirs, &TreeOptions::default()).unwrap();
            assert!(merge.conflicts.is_empty());
            assert_eq!(merge.tree.tree_id().unwrap(), side.id(), "seed {seed}");
        }
        assert_eq!(merged(&base, &base, &side), read(&side));
    }
}

#[test]
fn modify_delete_keeps_the_changed_version() {
    let fixture = TestStore::new();
    let base = model(&[("a", "1\n"), ("b", "2\n")]);
    let (ours, theirs) = (model(&[("b", "3\n")]), model(&[("a", "4\n")]));
    let merge = fixture.merge(&base, &ours, &theirs);
    assert_eq!(read_merge(&merge), model(&[("a", "4\n"), ("b", "3\n")]));
    assert_eq!(classes(&merge), [(ConflictClass::ModifyDelete, "a"), (ConflictClass::ModifyDelete, "b")]);
}

#[test]
fn conflicting_file_keeps_ours() {
    let fixture = TestStore::new();
    let base = model(&[("a", "1\n")]);
    let (ours, theirs) = (model(&[("a", "2\n"), ("n", "5\n")]), model(&[("a", "3\n"), ("n", "6\n")]));
    let merge = fixture.merge(&base, &ours, &theirs);
    assert_eq!(read_merge(&merge), ours);
    assert_eq!(classes(&merge), [(ConflictClass::Content, "a"), (ConflictClass::AddAdd, "n")]);
    assert_eq!(merge.conflicts[0].file.as_ref().unwrap().locations.len(), 1);
}

#[test]
fn file_and_directory_of_one_name_are_both_kept() {
    let fixture = TestStore::new();
    let base = model(&[("x", "1\n")]);
    let file = model(&[("x", "1\n"), ("a", "file\n")]);
    let directory = model(&[("x", "1\n"), ("a/b", "in a directory\n")]);
    let merge = fixture.merge(&base, &file, &directory);
    let expected = model(&[("x", "1\n"), ("a", "file\n"), ("a~theirs/b", "in a directory\n")]);
    assert_eq!(read_merge(&merge), expected);
    assert_eq!(classes(&merge), [(ConflictClass::FileDirectory, "a")]);
    let merge = fixture.merge(&base, &directory, &file);
    let expected = model(&[("x", "1\n"), ("a~theirs", "file\n"), ("a/b", "in a directory\n")]);
    assert_eq!(read_merge(&merge), expected);
}

#[test]
fn a_file_that_follows_a_directory_rename_to_the_path_of_a_directory_is_kept() {
    let fixture = TestStore::new();
    let base = model(&[("a/c/x", "content x\n"), ("a/y", "content y\n"), ("a/z", "content z\n")]);
    let ours = model(&[
        ("a/c", "a file\n"),
        ("a/y", "content y\n"),
        ("a/z", "content z\n"),
        ("b", "another file\n"),
    ]);
    let theirs = model(&[("b/c/x", "content x\n"), ("b/y", "content y\n"), ("b/z", "content z\n")]);
    for (ours, theirs) in [(&ours, &theirs), (&theirs, &ours)] {
        let merge = fixture.merge(&base, ours, theirs);
        let found = read_merge(&merge);
        for text in ["another file\n", "a file\n", "content x\n", "content y\n", "content z\n"] {
            let count = found.values().filter(|leaf| **leaf == Leaf::file(text)).count();
            assert_eq!(count, 1, "{text}: {found:?}");
        }
        assert!(!merge.conflicts.is_empty());
    }
}

#[test]
fn file_and_symlink_of_one_name_are_both_kept() {
    let fixture = TestStore::new();
    let base = model(&[("a", "1\n"), ("a~theirs", "taken\n")]);
    let ours = model(&[("a", "2\n"), ("a~theirs", "taken\n")]);
    let mut theirs = base.clone();
    theirs.insert("a".to_owned(), Leaf::Link("b".to_owned()));
    let merge = fixture.merge(&base, &ours, &theirs);
    let mut expected = ours.clone();
    expected.insert("a~theirs1".to_owned(), Leaf::Link("b".to_owned()));
    assert_eq!(read_merge(&merge), expected);
    assert_eq!(classes(&merge), [(ConflictClass::DistinctTypes, "a")]);
}

#[test]
fn compatible_changes_merge_in_any_order() {
    let fixture = TestStore::new();
    let base: Model = (0..40).map(|n| (format!("d{}/f{n}", n % 4), Leaf::file(format!("{n}\n")))).collect();
    // Each side changes a different fifth of the files.
    let sides: Vec<Model> = (0..5)
        .map(|number| {
            let mut model = base.clone();
            for n in (0..40).filter(|n| n % 5 == number) {
                let path = format!("d{}/f{n}", n % 4);
                match n % 3 {
                    0 => drop(model.remove(&path)),
                    1 => drop(model.insert(path, Leaf::file(format!("by {number}\n")))),
                    _ => drop(model.insert(format!("new{number}/{n}"), Leaf::file("new\n"))),
                }
            }
            model
        })
        .collect();
    // Ids of the merged trees for different orders of the sides.
    let mut results = std::collections::BTreeSet::new();
    for start in 0..5 {
        for step in 1..5 {
            let order = (0..5).map(|n| &sides[(start + n * step) % 5]);
            let mut head = fixture.tree(&base);
            for side in order {
                let (base, theirs) = (fixture.tree(&base), fixture.tree(side));
                let mut merge = merge_trees(&base, &head, &theirs, &TreeOptions::default()).unwrap();
                assert!(merge.conflicts.is_empty());
                let snapshot = merge.tree.commit(Default::default()).unwrap();
                head = Tree::of_snapshot(&fixture.store, &snapshot).unwrap();
            }
            results.insert(head.id().to_string());
        }
    }
    assert_eq!(results.len(), 1);
}

#[test]
fn name_collisions_are_reported() {
    let fixture = TestStore::new();
    let base = model(&[("Here/x", "1\n"), ("here/x", "1\n")]);
    let with_files = |files: &[(&str, &str)]| base.clone().into_iter().chain(model(files)).collect::<Model>();
    let ours = with_files(&[("README", "1\n"), ("\u{e9}/a", "1\n"), ("Same", "1\n"), ("Here/y", "1\n")]);
    let theirs = with_files(&[("readme", "2\n"), ("e\u{301}/b", "2\n"), ("Same", "1\n"), ("here/y", "2\n")]);
    let merge = fixture.merge(&base, &ours, &theirs);
    assert_eq!(classes(&merge), [(ConflictClass::Collision, "README"), (ConflictClass::Collision, "\u{e9}")]);
    assert_eq!(read_merge(&merge), ours.into_iter().chain(theirs).collect::<Model>());
}

#[test]
fn name_collision_is_reported_although_both_sides_added_one_of_the_names() {
    let fixture = TestStore::new();
    let base = model(&[("x", "1\n")]);
    let with_files = |files: &[(&str, &str)]| base.clone().into_iter().chain(model(files)).collect::<Model>();
    let (ours, theirs) = (with_files(&[("A", "1\n"), ("a", "2\n")]), with_files(&[("a", "2\n")]));
    assert_eq!(classes(&fixture.merge(&base, &ours, &theirs)), [(ConflictClass::Collision, "A")]);
}

#[test]
fn renames_are_followed_and_different_names_are_both_kept() {
    let fixture = TestStore::new();
    let text = |edit: &str| format!("one\ntwo\nthree\nfour\nfive\nsix\nseven\n{edit}\n");
    let base = model(&[("a", &text("eight")), ("b", &text("acht"))]);
    let ours = model(&[("moved/a", &text("eight")), ("b1", &text("acht"))]);
    let theirs = model(&[("a", &text("EIGHT")), ("b2", &text("acht"))]);
    let merge = fixture.merge(&base, &ours, &theirs);
    let expected = model(&[("moved/a", &text("EIGHT")), ("b1", &text("acht")), ("b2", &text("acht"))]);
    assert_eq!(read_merge(&merge), expected);
    assert_eq!(classes(&merge), [(ConflictClass::RenameRename, "b1")]);
}

#[test]
fn additions_follow_a_renamed_directory() {
    let fixture = TestStore::new();
    let base = model(&[("old/a", "1\n"), ("old/b", "2\n")]);
    let ours = model(&[("new/a", "1\n"), ("new/b", "2\n")]);
    let theirs = model(&[("old/a", "1\n"), ("old/b", "2\n"), ("old/c/d", "3\n"), ("old/e", "4\n")]);
    let expected = model(&[("new/a", "1\n"), ("new/b", "2\n"), ("new/c/d", "3\n"), ("new/e", "4\n")]);
    for (ours, theirs) in [(&ours, &theirs), (&theirs, &ours)] {
        let merge = fixture.merge(&base, ours, theirs);
        assert_eq!(read_merge(&merge), expected);
        let location = ConflictClass::FileLocation;
        assert_eq!(classes(&merge), [(location, "new/c/d"), (location, "new/e")]);
        assert!(!merge.tree.exists("old").unwrap());
    }
}

#[test]
fn attributes_are_merged_separately() {
    let fixture = TestStore::new();
    let tree = |mode: u16, xattrs: &[(&str, &str)], content: &str| {
        let pairs = xattrs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let attributes = Attributes { mode, xattrs: pairs.collect(), ..Attributes::default() };
        let mut tree = fixture.store.empty_tree().unwrap();
        tree.put_content("f", content.into(), attributes).unwrap();
        let snapshot = tree.commit(Default::default()).unwrap();
        Tree::of_snapshot(&fixture.store, &snapshot).unwrap()
    };
    let base = tree(0o644, &[("user.a", "1"), ("user.b", "1")], "1\n");
    let ours = tree(0o664, &[("user.a", "2"), ("user.b", "1")], "1\n");
    let theirs = tree(0o755, &[("user.a", "1"), ("user.c", "3")], "2\n");
    let merge = merge_trees(&base, &ours, &theirs, &TreeOptions::default()).unwrap();
    assert!(merge.conflicts.is_empty());
    let stat = merge.tree.stat("f").unwrap();
    let value = |name: &str| stat.xattrs.get(name.as_bytes()).map(|value| value[..].to_vec());
    assert_eq!(stat.mode, 0o775);
    assert_eq!(
        [value("user.a"), value("user.b"), value("user.c")],
        [Some(b"2".to_vec()), None, Some(b"3".to_vec())]
    );
    assert_eq!(merge.tree.read("f").unwrap(), b"2\n");
    let other = tree(0o2640, &[("user.a", "1"), ("user.b", "1")], "1\n");
    for (ours, theirs) in [(&other, &theirs), (&theirs, &other)] {
        let merge = merge_trees(&base, ours, theirs, &TreeOptions::default()).unwrap();
        assert_eq!((classes(&merge), merge.tree.stat("f").unwrap().mode), (vec![], 0o2751));
    }
    let empty = fixture.tree(&model(&[]));
    let merge = merge_trees(&empty, &base, &theirs, &TreeOptions::default()).unwrap();
    assert!(classes(&merge).contains(&(ConflictClass::Mode, "f")), "{:?}", classes(&merge));
    let other = tree(0o644, &[("user.a", "5")], "1\n");
    let merge = merge_trees(&base, &ours, &other, &TreeOptions::default()).unwrap();
    assert_eq!(classes(&merge), [(ConflictClass::Attributes, "f")]);
}

#[test]
fn rules_decide_and_critical_files_need_review() {
    let fixture = TestStore::new();
    // Without a strategy, the type of the file selects it.
    let rule = |path: &str, strategy: Option<&str>, on_conflict| PathRule {
        path: path.to_owned(),
        settings: FileSettings {
            strategy: strategy.map(str::to_owned),
            on_conflict,
            ..FileSettings::default()
        },
    };
    let rules = [
        rule("gone", None, OnConflict::Theirs),
        rule("content", None, OnConflict::Theirs),
        rule("critical", Some("critical"), OnConflict::Review),
    ];
    let options = TreeOptions { rules: PathRules::new(rules).unwrap(), ..TreeOptions::default() };
    let base = model(&[("gone", "1\n"), ("content", "1\n"), ("critical", "1\n")]);
    let ours = model(&[("gone", "2\n"), ("content", "2\n"), ("critical", "1\n")]);
    let theirs = model(&[("content", "3\n"), ("critical", "3\n")]);
    let [base, ours, theirs] = [base, ours, theirs].map(|model| fixture.tree(&model));
    let merge = merge_trees(&base, &ours, &theirs, &options).unwrap();
    assert_eq!(read_merge(&merge), model(&[("content", "3\n"), ("critical", "1\n")]));
    let unresolved: Vec<_> = merge.conflicts.iter().filter(|conflict| conflict.decided.is_none()).collect();
    assert_eq!(unresolved.len(), 1);
    assert_eq!(unresolved[0].class, ConflictClass::ReviewRequired);
    assert!(!merge.is_resolved());
}

/// Returns options that require a review of every change in the directory `d`, with a conflict rule.
fn options_with_review(on_conflict: OnConflict) -> TreeOptions {
    let settings =
        FileSettings { strategy: Some("critical".to_owned()), on_conflict, ..FileSettings::default() };
    let rules = PathRules::new([PathRule { path: "d/**".to_owned(), settings }]).unwrap();
    TreeOptions { rules, ..TreeOptions::default() }
}

#[test]
fn critical_file_survives_removal_of_its_directory() {
    let fixture = TestStore::new();
    let base = model(&[("d/f", "1\n"), ("d/e/f", "2\n"), ("z", "2\n")]);
    let ours = model(&[("d/f", "1\n"), ("d/e/f", "2\n"), ("z", "3\n")]);
    let file_instead = model(&[("d", "a file\n"), ("z", "2\n")]);
    for (theirs, theirs_path) in [(model(&[("z", "2\n")]), None), (file_instead, Some("d~theirs"))] {
        let [base, before, theirs] = [&base, &ours, &theirs].map(|model| fixture.tree(model));
        let merge = merge_trees(&base, &before, &theirs, &options_with_review(OnConflict::Review)).unwrap();
        let mut expected = ours.clone();
        expected.extend(theirs_path.map(|name| (name.to_owned(), Leaf::file("a file\n"))));
        assert_eq!(read_merge(&merge), expected);
        assert!(!merge.is_resolved());
        let merge = merge_trees(&base, &before, &theirs, &options_with_review(OnConflict::Ours)).unwrap();
        assert_eq!(read_merge(&merge), expected);
    }
}

#[test]
fn critical_file_rename_needs_review() {
    let fixture = TestStore::new();
    let text = "a\nb\nc\nd\n";
    let base = model(&[("d/f", text), ("x/y", "1\n2\n3\n"), ("z", "z\n")]);
    let with_z = |files: &[(&str, &str)]| model(&[files, &[("z", "z\n")]].concat());
    let renamed = [
        with_z(&[("x/f", text), ("x/y", "1\n2\n3\n")]),
        with_z(&[("e/f", text), ("x/y", "1\n2\n3\n")]),
        with_z(&[("d/f2", text), ("x/y", "1\n2\n3\n")]),
        with_z(&[("d/f", text), ("d/y", "1\n2\n3\n")]),
    ];
    let mut ours = base.clone();
    ours.insert("z".to_owned(), Leaf::file("other\n"));
    let [before, head] = [&base, &ours].map(|model| fixture.tree(model));
    for theirs in &renamed {
        let merge =
            merge_trees(&before, &head, &fixture.tree(theirs), &options_with_review(OnConflict::Review))
                .unwrap();
        assert_eq!(merge.tree.tree_id().unwrap(), head.id(), "neither name is changed");
        let reported = classes(&merge);
        assert!(
            reported.len() == 2 && reported.iter().all(|(class, _)| *class == ConflictClass::ReviewRequired),
            "{reported:?}"
        );
        // If a conflict rule decides, the decision applies to the old and to the new name.
        let merge =
            merge_trees(&before, &head, &fixture.tree(theirs), &options_with_review(OnConflict::Theirs))
                .unwrap();
        let mut expected = theirs.clone();
        expected.insert("z".to_owned(), Leaf::file("other\n"));
        assert_eq!(read_merge(&merge), expected);
    }
    // A rename with an edit needs a review too.
    let long: String = (0..40).map(|line| format!("{line}\n")).collect();
    let longer = format!("{long}more\n");
    for (old, new) in [("d/x", "n"), ("n", "d/x")] {
        let [before, theirs] =
            [(old, &long), (new, &longer)].map(|(name, text)| fixture.tree(&with_z(&[(name, text)])));
        let merge = merge_trees(&before, &before, &theirs, &options_with_review(OnConflict::Review)).unwrap();
        assert_eq!(merge.tree.tree_id().unwrap(), before.id(), "{old} to {new}");
        assert_eq!(classes(&merge).len(), 2);
    }
    // Files that our side added to a directory stay in place if a rename of the directory needs a review.
    for (old, new) in [("d", "e"), ("e", "d")] {
        let [x, y, n] = ["x", "y", "n"].map(|name| format!("{old}/{name}"));
        let base = with_z(&[(&x, text), (&y, "y\n")]);
        let theirs = with_z(&[(&format!("{new}/x"), text), (&format!("{new}/y"), "y\n")]);
        let ours = fixture.tree(&with_z(&[(&x, text), (&y, "y\n"), (&n, "n\n")]));
        let options = options_with_review(OnConflict::Review);
        let merge = merge_trees(&fixture.tree(&base), &ours, &fixture.tree(&theirs), &options).unwrap();
        assert_eq!(merge.tree.tree_id().unwrap(), ours.id(), "{old} to {new}");
    }
    // A rename also needs a review if another file or a directory has the old name in their tree.
    for theirs in [with_z(&[("d/x", text), ("x/n", "n\n")]), with_z(&[("d/x", text), ("x", "another\n")])] {
        let before = fixture.tree(&with_z(&[("x", text)]));
        let merge =
            merge_trees(&before, &before, &fixture.tree(&theirs), &options_with_review(OnConflict::Review))
                .unwrap();
        assert_eq!(read_merge(&merge)["x"], Leaf::file(text));
    }
    // Their side moved the file into a directory with the name of the file.
    let head = fixture.tree(&with_z(&[("d/x", text)]));
    let theirs = fixture.tree(&with_z(&[("d/x/l", text)]));
    let merge = merge_trees(&head, &head, &theirs, &options_with_review(OnConflict::Review)).unwrap();
    assert_eq!(merge.tree.tree_id().unwrap(), head.id());
    // Our side renamed the file: changes by their side still need a review.
    let mut theirs = base.clone();
    theirs.insert("d/f".to_owned(), Leaf::file("a\nb\nc\nevil\n"));
    let merge = merge_trees(
        &before,
        &fixture.tree(&renamed[1]),
        &fixture.tree(&theirs),
        &options_with_review(OnConflict::Review),
    );
    let merge = merge.unwrap();
    assert_eq!(read_merge(&merge), renamed[1]);
    assert_eq!(classes(&merge), [(ConflictClass::ReviewRequired, "e/f")]);
}

#[test]
fn renamed_directory_gets_attributes_of_the_other_side() {
    let fixture = TestStore::new();
    let tree = |directory: &str, mode: u16, mark: Option<&str>, files: &[(&str, &str)]| {
        let mut tree = fixture.store.empty_tree().unwrap();
        let xattrs = mark.map(|mark| (b"user.mark".to_vec(), mark.as_bytes().to_vec()));
        let attributes = Attributes { mode, xattrs: xattrs.into_iter().collect(), ..Attributes::default() };
        tree.put_directory(directory, attributes.clone()).unwrap();
        tree.put_directory(format!("{directory}/empty"), attributes).unwrap();
        for (name, content) in files {
            tree.write(format!("{directory}/{name}"), *content).unwrap();
        }
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        Tree::of_snapshot(&fixture.store, &snapshot).unwrap()
    };
    let files = [("f", "1\n2\n3\n4\n"), ("g", "5\n6\n7\n8\n")];
    let edited = [("f", "1\n2\n3\n4\n"), ("g", "5\n6\n7\n9\n")];
    let base = tree("d", 0o755, None, &files);
    let changed = tree("d", 0o700, Some("x"), &files);
    for renamed in [tree("e", 0o755, None, &files), tree("e", 0o755, None, &edited)] {
        for (ours, theirs) in [(&renamed, &changed), (&changed, &renamed)] {
            let merge = merge_trees(&base, ours, theirs, &TreeOptions::default()).unwrap();
            assert_eq!(classes(&merge), []);
            assert!(!merge.tree.exists("d").unwrap());
            for directory in ["e", "e/empty"] {
                let stat = merge.tree.stat(directory).unwrap();
                assert_eq!((stat.mode, stat.xattrs.len()), (0o700, 1), "{directory}");
            }
        }
    }
    let other = tree("e", 0o1755, Some("y"), &files);
    let merge = merge_trees(&base, &other, &changed, &TreeOptions::default()).unwrap();
    assert_eq!(classes(&merge), [(ConflictClass::Attributes, "e"), (ConflictClass::Attributes, "e/empty")]);
    for directory in ["e", "e/empty"] {
        assert_eq!(merge.tree.stat(directory).unwrap().mode, 0o1700, "{directory}");
    }
}

#[test]
fn equal_symlinks_of_renamed_directories_are_not_confused() {
    let fixture = TestStore::new();
    let files = |first: &str, second: &str, link: &str, content: &str| -> Model {
        let mut files = model(&[(&format!("{first}/f"), "first\n"), (&format!("{second}/f"), content)]);
        files.insert(format!("{first}/link"), Leaf::Link(link.to_owned()));
        files.insert(format!("{second}/link"), Leaf::Link("target".to_owned()));
        files
    };
    let base = files("a", "b", "target", "second\n");
    let renamed = files("y", "x", "target", "second\n");
    let changed = files("a", "b", "elsewhere", "changed\n");
    for (ours, theirs) in [(&renamed, &changed), (&changed, &renamed)] {
        let merge = fixture.merge(&base, ours, theirs);
        assert_eq!(classes(&merge), []);
        assert_eq!(read_merge(&merge), files("y", "x", "elsewhere", "changed\n"));
    }
}

#[test]
fn author_of_a_file_overrides_author_of_the_tree() {
    let fixture = TestStore::new();
    let settings = FileSettings { on_conflict: OnConflict::Lww, ..FileSettings::default() };
    let rules = PathRules::new([PathRule { path: "**".to_owned(), settings }]).unwrap();
    let [base, ours, theirs] = ["1\n", "2\n", "3\n"].map(|content| fixture.tree(&model(&[("f", content)])));
    let by = |time| Author { time, priority: 0 };
    let mut options = TreeOptions { rules, ours: by(9), theirs: by(5), ..TreeOptions::default() };
    let merge = merge_trees(&base, &ours, &theirs, &options).unwrap();
    assert_eq!(read_merge(&merge), model(&[("f", "2\n")]));
    options.authors.insert(b"f".to_vec(), by(1));
    let merge = merge_trees(&base, &ours, &theirs, &options).unwrap();
    assert_eq!(read_merge(&merge), model(&[("f", "3\n")]));
}

/// Regression test: the authors of a path that is not UTF-8 were not found, because they were looked up by the path
/// with replacement characters.
#[test]
fn authors_are_found_by_paths_that_are_not_utf8() {
    let fixture = TestStore::new();
    let settings = FileSettings { on_conflict: OnConflict::Lww, ..FileSettings::default() };
    let rules = PathRules::new([PathRule { path: "**".to_owned(), settings }]).unwrap();
    let path = b"f\xff";
    let [base, ours, theirs] = ["1\n", "2\n", "3\n"].map(|content| {
        let mut tree = fixture.store.empty_tree().unwrap();
        tree.write(path, content).unwrap();
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        Tree::of_snapshot(&fixture.store, &snapshot).unwrap()
    });
    let by = |time| Author { time, priority: 0 };
    let authors = [(path.to_vec(), by(1))].into();
    let options = TreeOptions { rules, ours: by(9), theirs: by(5), authors, ..TreeOptions::default() };
    let merge = merge_trees(&base, &ours, &theirs, &options).unwrap();
    assert_eq!(merge.tree.read(path).unwrap(), b"3\n");
}

#[test]
fn conflicts_serialise() {
    let fixture = TestStore::new();
    let base = model(&[("a", "1\n")]);
    let merge = fixture.merge(&base, &model(&[("a", "2\n")]), &model(&[("a", "3\n")]));
    let json = serde_json::to_value(&merge.conflicts).unwrap();
    assert_eq!(json[0]["class"], "content");
    assert_eq!(json[0]["theirs"]["path"], "a");
    assert_eq!(json[0]["file"]["places"][0]["kind"], "lines");
}

#[test]
fn rename_detection_respects_its_limits() {
    let fixture = TestStore::new();
    let text = |edit: &str| format!("one\ntwo\nthree\nfour\nfive\n{edit}\n");
    let [base, ours, theirs] = [[("a", text("six"))], [("b", text("SIX"))], [("a", text("six") + "seven\n")]]
        .map(|files| {
            let files = files.each_ref().map(|(path, content)| (*path, &content[..]));
            fixture.tree(&model(&files))
        });
    let merge = |renames| {
        let options = TreeOptions { renames, ..TreeOptions::default() };
        merge_trees(&base, &ours, &theirs, &options).unwrap()
    };
    let default_limits = RenameOptions::default();
    assert_eq!(classes(&merge(default_limits)), [(ConflictClass::Content, "b")]);
    // Limits with which the rename is not found.
    for limits in [
        RenameOptions { pairs: 0, ..default_limits },
        RenameOptions { bytes: 10, ..default_limits },
        RenameOptions { similarity: 101, ..default_limits },
    ] {
        let merge = merge(limits);
        assert_eq!(classes(&merge), [(ConflictClass::ModifyDelete, "a")]);
        assert_eq!(read_merge(&merge).len(), 2, "the tree has both contents");
    }
}

#[test]
fn renamed_files_that_are_too_large_to_be_read_are_found_by_their_chunks() {
    let fixture = TestStore::new();
    let mut state = 1_u64;
    let noise: Vec<u8> = (0..2_000_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let edited = |offset: usize| {
        let mut content = noise.clone();
        content[offset] ^= 1;
        content
    };
    let tree = |path: &str, content: Vec<u8>| {
        let files = Model::from([(path.to_owned(), Leaf::file(content))]);
        fixture.tree(&files)
    };
    let (base, ours, theirs) =
        (tree("a", noise.clone()), tree("b", edited(100)), tree("a", edited(1_900_000)));
    let renames = RenameOptions { bytes: 10, ..RenameOptions::default() };
    let merge =
        merge_trees(&base, &ours, &theirs, &TreeOptions { renames, ..TreeOptions::default() }).unwrap();
    assert_eq!(classes(&merge), [(ConflictClass::Content, "b")]);
}

#[test]
fn many_indistinguishable_files_merge_in_bounded_time() {
    let fixture = TestStore::new();
    let many = |prefix: &str, edit: &str| -> Model {
        let files = (0..3000).map(|n| (format!("{prefix}{n}"), Leaf::file(format!("{prefix}{n}{edit}\n"))));
        files.collect()
    };
    let start = Instant::now();
    let merge = fixture.merge(&many("a", ""), &many("b", ""), &many("a", "x"));
    assert_eq!(merge.conflicts.len(), 3000);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn conflicts_list_their_resolutions() {
    use OnConflict::{Lww, Ours, Priority, Theirs};
    let fixture = TestStore::new();
    let base = fixture.tree(&model(&[("a", "1\n2\n3\n4\n"), ("gone", "x\n"), ("log.txt", "1\n")]));
    let ours = fixture.tree(&model(&[("a", "one\n2\n3\nfour\n"), ("log.txt", "1\n2\n")]));
    let theirs = fixture.tree(&model(&[("a", "uno\n2\n3\n4\n"), ("gone", "y\n"), ("log.txt", "1\n3\n")]));
    let options = TreeOptions { ours: Author { time: 5, priority: 0 }, ..TreeOptions::default() };
    let merge = merge_trees(&base, &ours, &theirs, &options).unwrap();
    let choices: Vec<Vec<Choice>> = merge
        .conflicts
        .iter()
        .map(|conflict| tree_choices(conflict, &base, &ours, &theirs, &options).unwrap())
        .collect();
    let content = |text: &str| ChoiceResult::Content(text.as_bytes().to_vec());
    let choice =
        |rules: &[OnConflict], result| Choice { on_conflict: rules.to_vec(), strategies: Vec::new(), result };
    assert_eq!(
        choices[0],
        [
            choice(&[Ours, Lww, Priority], content("one\n2\n3\nfour\n")),
            choice(&[Theirs], content("uno\n2\n3\nfour\n")),
        ]
    );
    assert_eq!(
        choices[1],
        [
            choice(&[Ours, Lww, Priority], ChoiceResult::Version(Side::Ours)),
            choice(&[Theirs], ChoiceResult::Version(Side::Theirs)),
        ]
    );
    let as_log = Choice { strategies: vec!["log"], ..choice(&[], content("1\n2\n3\n")) };
    assert_eq!(choices[2].last(), Some(&as_log));
}

#[test]
fn files_over_the_size_limit_are_decided_by_rule() {
    let fixture = TestStore::new();
    let base = model(&[("a", "1\n2\n3\n4\n5\n")]);
    let (ours, theirs) = (model(&[("a", "one\n2\n3\n4\n5\n")]), model(&[("a", "1\n2\n3\n4\nfive\n")]));
    let small_limit = TreeOptions { content_max: 4, ..TreeOptions::default() };
    let merge = fixture.merge_by(&small_limit, &base, &ours, &theirs);
    assert_eq!((classes(&merge), read_merge(&merge)), (vec![(ConflictClass::Content, "a")], ours.clone()));
    let settings = FileSettings { on_conflict: OnConflict::Theirs, ..FileSettings::default() };
    let rules = PathRules::new([PathRule { path: "*".to_owned(), settings }]).unwrap();
    let merge = fixture.merge_by(&TreeOptions { rules, ..small_limit }, &base, &ours, &theirs);
    assert!(merge.is_resolved());
    assert_eq!(read_merge(&merge), theirs);
}

/// Stored histories (the states of a CRDT), each with the content of its version.
type StoredHistories = Arc<Mutex<Vec<(Vec<Extent>, Vec<u8>)>>>;

/// Merges sides with one base in the given order, each into the result of the previous merge, and stores histories.
fn merge_in_order(fixture: &TestStore, base: &str, sides: &[&String]) -> Model {
    let name = "board.crdt.json";
    let schema = BTreeMap::from([("votes".to_owned(), CrdtType::Counter)]);
    let settings = FileSettings { strategy: Some("crdt".to_owned()), schema, ..FileSettings::default() };
    let rules = PathRules::new([PathRule { path: name.to_owned(), settings }]).unwrap();
    let (base, stored) = (fixture.tree(&model(&[(name, base)])), StoredHistories::default());
    let mut head = base.clone();
    for side in sides {
        let known = Arc::clone(&stored);
        let histories = HistorySource::new(move |version| {
            let Node::File(file) = &version.entry.node else { return None };
            let known = known.lock();
            known.iter().find(|(extents, _)| *extents == file.extents).map(|(_, history)| history.clone())
        });
        let options = TreeOptions { rules: rules.clone(), histories, ..TreeOptions::default() };
        let mut merge = merge_trees(&base, &head, &fixture.tree(&model(&[(name, side)])), &options).unwrap();
        assert!(merge.conflicts.is_empty(), "{:?}", merge.conflicts);
        let history = merge.merged[0].history.take().expect("each version has a history");
        let snapshot = merge.tree.commit(NewSnapshot::default()).unwrap();
        head = Tree::of_snapshot(&fixture.store, &snapshot).unwrap();
        let Some(Node::File(file)) = head.entry(name).unwrap().map(|entry| entry.node) else {
            panic!("gone")
        };
        stored.lock().push((file.extents, history));
    }
    read(&head)
}

#[test]
fn stored_histories_make_crdts_order_independent() {
    let fixture = TestStore::new();
    let base = r#"{"tasks": ["one"], "votes": 5}"#;
    let sides: Vec<String> = [("zero", 6), ("two", 8), ("three", 4)]
        .map(|(task, votes)| format!(r#"{{"tasks": ["one", "{task}"], "votes": {votes}}}"#))
        .to_vec();
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let results: Vec<Model> = orders
        .iter()
        .map(|order| merge_in_order(&fixture, base, &order.map(|index| &sides[index])))
        .collect();
    let Leaf::File { content, .. } = &results[0]["board.crdt.json"] else { panic!("no file") };
    let text = String::from_utf8(content.clone()).unwrap();
    assert!(text.contains("\"votes\": 8"), "{text}");
    assert!(["zero", "two", "three"].iter().all(|task| text.contains(task)), "{text}");
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
}

#[test]
fn equal_log_entries_and_increments_add_up() {
    let fixture = TestStore::new();
    let tree = |log: &str, votes: u32| {
        let board = format!("{{\"votes\": {votes}}}");
        model(&[
            ("logs/run.log", log),
            ("logs/deep/more.jsonl", log),
            ("board.crdt.json", &board),
            ("a.txt", log),
        ])
    };
    let schema = BTreeMap::from([("votes".to_owned(), CrdtType::Counter)]);
    let rule = PathRule {
        path: "*.crdt.json".to_owned(),
        settings: FileSettings { schema, ..FileSettings::default() },
    };
    let options = TreeOptions { rules: PathRules::new([rule]).unwrap(), ..TreeOptions::default() };
    let (base, side) = (tree("1\n", 5), tree("1\n2\n", 6));
    let merge = fixture.merge_by(&options, &base, &side, &side);
    assert!(merge.conflicts.is_empty(), "{:?}", merge.conflicts);
    let result = read_merge(&merge);
    for name in ["logs/run.log", "logs/deep/more.jsonl"] {
        assert_eq!(result[name], Leaf::file("1\n2\n2\n"));
    }
    assert_eq!(result["a.txt"], Leaf::file("1\n2\n"), "equal lines are added once if the file is not a log");
    assert_eq!(result["board.crdt.json"], Leaf::file("{\n  \"votes\": 7\n}\n"));
    // The base has none of the files: both sides added them.
    let result = read_merge(&fixture.merge_by(&options, &model(&[("b", "b")]), &side, &side));
    assert_eq!(result["logs/run.log"], Leaf::file("1\n2\n1\n2\n"));
}

#[test]
fn files_added_to_a_split_directory_stay_in_place() {
    let fixture = TestStore::new();
    let base = model(&[("d/1", "one\n"), ("d/2", "two\n")]);
    // Our side moved the files of `d` to two directories, so the new path of `d` is ambiguous, for git too.
    let ours = model(&[("left/1", "one\n"), ("right/2", "two\n")]);
    let theirs = model(&[("d/1", "one\n"), ("d/2", "two\n"), ("d/new", "new\n")]);
    let merge = fixture.merge(&base, &ours, &theirs);
    assert_eq!(classes(&merge), [(ConflictClass::DirectoryRename, "d/new")]);
    assert_eq!(read_merge(&merge), model(&[("d/new", "new\n"), ("left/1", "one\n"), ("right/2", "two\n")]));
    let mut git = Git::new(&[("split".to_owned(), [&base, &ours, &theirs])]);
    let by_git = git.merge("split-ours", "split-theirs").unwrap();
    assert!(!by_git.is_clean && by_git.messages.contains("directory rename split"), "{}", by_git.messages);
}
