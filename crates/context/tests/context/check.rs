//! Tests of the check of an agent's changes against its access: refused changes are reverted. The head is the present
//! files of the project, which may have changed since the agent started from `base`.

use proptest::prelude::*;
use workspace_context::{
    Access, AgentPolicy, Change, Checked, RefusalReason, ViewCache, check_changes, view,
};
use workspace_state::{Attributes, NodeKind, Tree, VirtualTree};

use crate::fixture::{
    Item, Model, TestStore, agent_policies, agent_policy, apply, edits, file_paths, new_snapshot, read, trees,
};

/// Result of a check.
struct Outcome {
    /// Committed tree without the refused changes.
    tree: Tree,
    refused: Vec<(String, Change, RefusalReason)>,
    /// Old and new paths of the additions that got another name.
    renamed: Vec<(String, String)>,
}

fn text(path: &workspace_state::TreePath) -> String {
    String::from_utf8(path.0.clone()).unwrap()
}

fn check(fixture: &TestStore, base: &Tree, theirs: &Tree, head: &Tree, policy: &AgentPolicy) -> Outcome {
    let Checked { tree, refused, renamed } = check_changes(base, theirs, head, policy).unwrap();
    Outcome {
        tree: tree.map_or_else(|| theirs.clone(), |tree| fixture.commit(tree)),
        refused: refused.iter().map(|it| (text(&it.path), it.change, it.reason)).collect(),
        renamed: renamed.iter().map(|it| (text(&it.from), text(&it.to))).collect(),
    }
}

fn refused_paths(outcome: &Outcome) -> Vec<(&str, Change)> {
    outcome.refused.iter().map(|(path, change, _)| (path.as_str(), *change)).collect()
}

/// Kind of change, which is tried with each access level.
struct Case {
    name: &'static str,
    edit: fn(&mut VirtualTree),
    /// Changes that the edit consists of: each path, and the kind of its change.
    parts: &'static [(&'static str, Change)],
}

const CASES: &[Case] = &[
    Case { name: "add", edit: |tree| tree.write("new", "1").unwrap(), parts: &[("new", Change::Add)] },
    Case { name: "modify", edit: |tree| tree.write("f", "2").unwrap(), parts: &[("f", Change::Modify)] },
    Case { name: "chmod", edit: |tree| tree.chmod("f", 0o755).unwrap(), parts: &[("f", Change::Modify)] },
    Case {
        name: "chmod of a directory",
        edit: |tree| tree.chmod("d", 0o700).unwrap(),
        parts: &[("d", Change::Modify)],
    },
    Case {
        name: "extended attribute",
        edit: |tree| {
            let xattrs = [(b"user.a".to_vec(), b"b".to_vec())].into();
            tree.put_content("f", b"f".to_vec(), Attributes { mode: 0o644, xattrs, ..Attributes::default() })
                .unwrap();
        },
        parts: &[("f", Change::Modify)],
    },
    Case { name: "delete", edit: |tree| tree.remove("f").unwrap(), parts: &[("f", Change::Delete)] },
    Case {
        name: "delete a directory",
        edit: |tree| tree.remove("d").unwrap(),
        parts: &[
            ("d", Change::Delete),
            ("d/e", Change::Delete),
            ("d/e/y", Change::Delete),
            ("d/x", Change::Delete),
        ],
    },
    Case {
        name: "replace a file by a directory",
        edit: |tree| {
            tree.remove("f").unwrap();
            tree.write("f/inner", "1").unwrap();
        },
        parts: &[("f", Change::Replace), ("f/inner", Change::Add)],
    },
    Case {
        name: "replace a directory by a file",
        edit: |tree| {
            tree.remove("d").unwrap();
            tree.write("d", "1").unwrap();
        },
        parts: &[
            ("d", Change::Replace),
            ("d/e", Change::Delete),
            ("d/e/y", Change::Delete),
            ("d/x", Change::Delete),
        ],
    },
    Case {
        name: "replace a file by a symlink",
        edit: |tree| tree.symlink("f", "d/x").unwrap(),
        parts: &[("f", Change::Replace)],
    },
    Case {
        name: "symlink",
        edit: |tree| tree.symlink("l", "../../etc").unwrap(),
        parts: &[("l", Change::Add)],
    },
    Case {
        name: "symlink to another target",
        edit: |tree| tree.symlink("link", "elsewhere").unwrap(),
        parts: &[("link", Change::Modify)],
    },
    Case {
        name: "hard link",
        edit: |tree| {
            let attributes = || Attributes { mode: 0o644, link_label: Some(9), ..Attributes::default() };
            tree.put_content("f", b"f".to_vec(), attributes()).unwrap();
            tree.put_content("hard", b"f".to_vec(), attributes()).unwrap();
        },
        parts: &[("hard", Change::Add)],
    },
    Case {
        name: "name that differs in case",
        edit: |tree| tree.write("F", "1").unwrap(),
        parts: &[("F", Change::Add)],
    },
    Case {
        name: "name that differs in Unicode normalization",
        edit: |tree| tree.write("e\u{301}", "1").unwrap(),
        parts: &[("e\u{301}", Change::Add)],
    },
];

fn base(fixture: &TestStore) -> Tree {
    fixture.build(|tree| {
        for path in ["f", "d/x", "d/e/y", "\u{e9}"] {
            tree.write(path, path).unwrap();
        }
        tree.symlink("link", "f").unwrap();
    })
}

fn is_allowed(access: Access, change: Change) -> bool {
    match change {
        Change::Add => access.can_add(),
        Change::Modify => access.can_change(),
        Change::Delete | Change::Replace => access.can_delete(),
    }
}

#[test]
fn every_access_level_allows_its_changes() {
    let fixture = TestStore::new();
    let base = base(&fixture);
    for access in Access::ALL {
        // The level `none` hides the whole base. Changes of its entries are possible only if the policy was changed
        // after the agent got its workspace.
        let policy = agent_policy(access.name(), &[]);
        for case in CASES {
            let theirs = fixture.edit(&base, case.edit);
            let outcome = check(&fixture, &base, &theirs, &base, &policy);
            let allowed = case.parts.iter().all(|(_, change)| is_allowed(access, *change));
            let context = format!("{} with {access}", case.name);
            if allowed {
                assert_eq!(outcome.tree.id(), theirs.id(), "{context}");
                assert!(outcome.refused.is_empty(), "{context}: {:?}", outcome.refused);
                continue;
            }
            assert_eq!(outcome.tree.id(), base.id(), "{context}");
            let is_passage = |path: &str, change: Change| {
                access == Access::None && change == Change::Delete && ["d", "d/e"].contains(&path)
            };
            let expected: Vec<_> =
                case.parts.iter().copied().filter(|(path, change)| !is_passage(path, *change)).collect();
            assert_eq!(refused_paths(&outcome), expected, "{context}");
        }
    }
}

#[test]
fn a_rename_needs_the_right_to_delete_and_to_add() {
    let fixture = TestStore::new();
    let base = base(&fixture);
    let file = fixture.edit(&base, |tree| tree.rename("f", "g").unwrap());
    let directory = fixture.edit(&base, |tree| tree.rename("d", "n").unwrap());
    for access in Access::ALL {
        let policy = agent_policy(access.name(), &[]);
        let outcome = check(&fixture, &base, &file, &base, &policy);
        let expected: &[_] = match access {
            Access::None | Access::Read => &[("f", Change::Delete), ("g", Change::Add)],
            Access::ReadAdd | Access::NoDelete => &[("f", Change::Delete)],
            Access::Full => &[],
        };
        assert_eq!(refused_paths(&outcome), expected, "{access}");
        // The new name is a copy if only the deletion is refused.
        assert_eq!(file_paths(&outcome.tree).contains(&"g".to_owned()), access.can_add());
        assert_eq!(file_paths(&outcome.tree).contains(&"f".to_owned()), !access.can_delete());

        let outcome = check(&fixture, &base, &directory, &base, &policy);
        let has = |path: &str| outcome.tree.entry(path).unwrap().is_some();
        assert_eq!((has("n/e/y"), has("n/x")), (access.can_add(), access.can_add()), "{access}");
        assert_eq!((has("d/e/y"), has("d/x")), (!access.can_delete(), !access.can_delete()), "{access}");
    }
}

#[test]
fn a_file_renamed_to_a_forbidden_path_keeps_its_old_path() {
    let fixture = TestStore::new();
    let base = fixture.files(&["src/a", "docs/b"]);
    let policy = agent_policy("RW", &[("docs/**", "R")]);
    let theirs = fixture.edit(&base, |tree| tree.rename("src/a", "docs/a").unwrap());
    let outcome = check(&fixture, &base, &theirs, &base, &policy);
    assert_eq!(outcome.tree.id(), base.id());
    assert_eq!(
        outcome.refused,
        [
            ("docs/a".to_owned(), Change::Add, RefusalReason::Access),
            ("src/a".to_owned(), Change::Delete, RefusalReason::NewNameRefused),
        ]
    );
}

#[test]
fn a_file_renamed_over_a_protected_file_keeps_its_old_path() {
    let fixture = TestStore::new();
    let base = fixture.files(&["src/a", "docs/b"]);
    let policy = agent_policy("RW", &[("docs/**", "R")]);
    let theirs = fixture.edit(&base, |tree| {
        tree.remove("docs/b").unwrap();
        tree.rename("src/a", "docs/b").unwrap();
    });
    let outcome = check(&fixture, &base, &theirs, &base, &policy);
    assert_eq!(outcome.tree.id(), base.id());
    assert_eq!(
        outcome.refused,
        [
            ("docs/b".to_owned(), Change::Modify, RefusalReason::Access),
            ("src/a".to_owned(), Change::Delete, RefusalReason::NewNameRefused),
        ]
    );
}

/// Returns 20 lines of text. The line with the number `changed` differs from those without a change.
fn lines(name: &str, changed: Option<usize>) -> String {
    let line = |number| match changed {
        Some(changed) if changed == number => "changed\n".to_owned(),
        _ => format!("line {number} of {name}\n"),
    };
    (0..20).map(line).collect()
}

#[test]
fn a_file_edited_and_renamed_to_a_forbidden_path_keeps_its_old_path_and_content() {
    let fixture = TestStore::new();
    let base = fixture.build(|tree| {
        for path in ["src/a", "src/b", "src/c", "docs/kept"] {
            tree.write(path, lines(path, None)).unwrap();
        }
    });
    let policy = agent_policy("RW", &[("docs/**", "R")]);
    let theirs = fixture.edit(&base, |tree| {
        for path in ["src/a", "src/b", "src/c"] {
            tree.remove(path).unwrap();
        }
        tree.write("docs/a", lines("src/a", Some(3))).unwrap();
        // Over a protected file.
        tree.write("docs/kept", lines("src/b", Some(5))).unwrap();
        tree.write("docs/new", lines("new", None)).unwrap();
    });
    let outcome = check(&fixture, &base, &theirs, &base, &policy);
    // `src/c` is deleted, because no refused addition is similar to it.
    assert_eq!(file_paths(&outcome.tree), ["docs/kept", "src/a", "src/b"]);
    let text = |path: &str| read(&outcome.tree)[path].clone();
    assert_eq!(text("src/a"), Item::File(lines("src/a", None), 0o644));
    assert_eq!(text("docs/kept"), Item::File(lines("docs/kept", None), 0o644));
    assert_eq!(
        outcome.refused,
        [
            ("docs/a".to_owned(), Change::Add, RefusalReason::Access),
            ("docs/kept".to_owned(), Change::Modify, RefusalReason::Access),
            ("docs/new".to_owned(), Change::Add, RefusalReason::Access),
            ("src/a".to_owned(), Change::Delete, RefusalReason::NewNameRefused),
            ("src/b".to_owned(), Change::Delete, RefusalReason::NewNameRefused),
        ]
    );
}

#[test]
fn a_deletion_is_allowed_if_no_refused_addition_is_the_renamed_file() {
    let fixture = TestStore::new();
    let base = fixture.build(|tree| {
        tree.write("src/a", lines("a", None)).unwrap();
        tree.write("docs/kept", lines("a", Some(1))).unwrap();
    });
    let policy = agent_policy("RW", &[("docs/**", "R")]);
    let theirs = fixture.edit(&base, |tree| {
        tree.remove("src/a").unwrap();
        tree.write("docs/kept", lines("a", Some(2))).unwrap();
    });
    let outcome = check(&fixture, &base, &theirs, &base, &policy);
    assert_eq!((file_paths(&outcome.tree), outcome.refused.len()), (vec!["docs/kept".to_owned()], 1));
    let theirs = fixture.edit(&base, |tree| {
        tree.remove("src/a").unwrap();
        tree.write("src/a.md", lines("a", Some(2))).unwrap();
        tree.write("docs/copy", lines("a", Some(2)) + &lines("more", None)[..90]).unwrap();
    });
    let outcome = check(&fixture, &base, &theirs, &base, &policy);
    assert_eq!(file_paths(&outcome.tree), ["docs/kept", "src/a.md"]);
    assert_eq!(refused_paths(&outcome), [("docs/copy", Change::Add)]);
}

#[test]
fn a_rename_of_a_directory_is_checked_for_every_file_in_it() {
    let fixture = TestStore::new();
    let base = fixture.files(&["d/free", "d/keep", "d/e/free"]);
    let policy = agent_policy("RW", &[("d/keep", "RW-"), ("n/e/**", "R")]);
    let theirs = fixture.edit(&base, |tree| tree.rename("d", "n").unwrap());
    let outcome = check(&fixture, &base, &theirs, &base, &policy);
    assert_eq!(file_paths(&outcome.tree), ["d/e/free", "d/keep", "n/free", "n/keep"]);
    let paths: Vec<_> = refused_paths(&outcome);
    assert_eq!(
        paths,
        [
            ("d/e/free", Change::Delete),
            ("d/keep", Change::Delete),
            ("n/e", Change::Add),
            ("n/e/free", Change::Add)
        ]
    );
}

#[test]
fn an_entry_in_the_place_of_a_restored_one_is_refused() {
    let fixture = TestStore::new();
    let base = fixture.files(&["d/keep", "d/free", "f"]);
    let policy = agent_policy("RW", &[("d/keep", "RW-"), ("f", "RW-")]);
    let theirs = fixture.edit(&base, |tree| {
        tree.remove("d").unwrap();
        tree.write("d", "file").unwrap();
        tree.remove("f").unwrap();
        tree.write("f/x/y", "below").unwrap();
    });
    let outcome = check(&fixture, &base, &theirs, &base, &policy);
    assert_eq!(file_paths(&outcome.tree), ["d/keep", "f"]);
    let reasons: Vec<_> = outcome.refused.iter().map(|(path, _, reason)| (path.as_str(), *reason)).collect();
    assert_eq!(
        reasons,
        [
            ("d", RefusalReason::InTheWay),
            ("d/keep", RefusalReason::Access),
            ("f", RefusalReason::Access),
            ("f/x", RefusalReason::InTheWay),
            ("f/x/y", RefusalReason::InTheWay),
        ]
    );
}

#[test]
fn parents_of_allowed_additions_are_created_without_attributes() {
    let fixture = TestStore::new();
    let base = fixture.files(&["x"]);
    let policy = agent_policy("R", &[("out/**/*.txt", "RW")]);
    let theirs = fixture.edit(&base, |tree| {
        tree.write("out/deep/a.txt", "1").unwrap();
        tree.write("out/deep/b.bin", "2").unwrap();
        tree.chmod("out/deep", 0o700).unwrap();
    });
    let outcome = check(&fixture, &base, &theirs, &base, &policy);
    assert_eq!(file_paths(&outcome.tree), ["out/deep/a.txt", "x"]);
    assert_eq!(read(&outcome.tree)["out/deep"], Item::Directory(0o755));
    assert_eq!(refused_paths(&outcome), [("out/deep/b.bin", Change::Add)]);
}

#[test]
fn an_addition_whose_name_exists_by_now_is_kept_under_another_name() {
    let fixture = TestStore::new();
    let base = fixture.files(&["in/old.md"]);
    let policy = agent_policy("R", &[("in/**", "RA")]);
    let theirs = fixture.edit(&base, |tree| {
        tree.write("in/new.md", "theirs").unwrap();
        tree.write("in/same.md", "same").unwrap();
        tree.write("in/d/x", "directory").unwrap();
        tree.write("in/e/x", "both").unwrap();
    });
    let head = fixture.edit(&base, |tree| {
        tree.write("in/new.md", "ours").unwrap();
        tree.write("in/new~2.md", "taken").unwrap();
        tree.write("in/same.md", "same").unwrap();
        tree.write("in/d", "a file").unwrap();
        tree.write("in/e/y", "both").unwrap();
    });
    let outcome = check(&fixture, &base, &theirs, &head, &policy);
    assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
    let expected = [("in/d", "in/d~2"), ("in/new.md", "in/new~3.md")];
    assert_eq!(outcome.renamed, expected.map(|(from, to)| (from.to_owned(), to.to_owned())));
    assert_eq!(file_paths(&outcome.tree), ["in/d~2/x", "in/e/x", "in/new~3.md", "in/old.md", "in/same.md"]);
}

#[test]
fn an_addition_is_refused_if_no_other_name_is_allowed() {
    let fixture = TestStore::new();
    let base = fixture.files(&["in/old"]);
    let policy = agent_policy("R", &[("in/report", "RA")]);
    let theirs = fixture.edit(&base, |tree| tree.write("in/report", "theirs").unwrap());
    let head = fixture.edit(&base, |tree| tree.write("in/report", "ours").unwrap());
    let outcome = check(&fixture, &base, &theirs, &head, &policy);
    assert_eq!(outcome.refused, [("in/report".to_owned(), Change::Add, RefusalReason::NameTaken)]);
    assert_eq!(outcome.tree.id(), base.id());
}

#[test]
fn an_empty_directory_is_refused_where_entries_may_be_hidden() {
    let fixture = TestStore::new();
    let base = fixture.files(&["x"]);
    let policy = agent_policy("RW", &[("mixed/**/.env", "none")]);
    let theirs = fixture.edit(&base, |tree| {
        tree.mkdir("mixed/empty").unwrap();
        tree.mkdir("open/empty").unwrap();
    });
    let outcome = check(&fixture, &base, &theirs, &base, &policy);
    assert_eq!(read(&outcome.tree).keys().collect::<Vec<_>>(), ["open", "open/empty", "x"]);
    let reasons: Vec<_> = outcome.refused.iter().map(|(path, _, reason)| (path.as_str(), *reason)).collect();
    assert_eq!(
        reasons,
        [("mixed", RefusalReason::EmptyDirectory), ("mixed/empty", RefusalReason::EmptyDirectory)]
    );
}

#[test]
fn a_file_changed_through_a_hard_link_is_checked_at_every_name() {
    let fixture = TestStore::new();
    let linked = |label, content: &str, tree: &mut VirtualTree| {
        for path in ["open", "locked"] {
            let attributes = Attributes { mode: 0o644, link_label: Some(label), ..Attributes::default() };
            tree.put_content(path, content.as_bytes().to_vec(), attributes).unwrap();
        }
    };
    let base = fixture.build(|tree| linked(1, "old", tree));
    let theirs = fixture.edit(&base, |tree| linked(2, "new", tree));
    let outcome = check(&fixture, &base, &theirs, &base, &agent_policy("RW", &[("locked", "R")]));
    assert_eq!(refused_paths(&outcome), [("locked", Change::Modify)]);
    let model = read(&outcome.tree);
    assert_eq!(model["open"], Item::File("new".to_owned(), 0o644));
    assert_eq!(model["locked"], Item::File("old".to_owned(), 0o644));
    assert_eq!(outcome.tree.entry("locked").unwrap().unwrap().link_label, None);
}

#[test]
fn refusals_name_the_change_and_the_reason() {
    let fixture = TestStore::new();
    let base = fixture.files(&["a"]);
    let theirs = fixture.edit(&base, |tree| tree.remove("a").unwrap());
    let checked = check_changes(&base, &theirs, &base, &agent_policy("RW-", &[])).unwrap();
    assert_eq!(
        checked.refused[0].to_string(),
        "the deletion of `a` was taken back: your access there is `RW-`"
    );
    let json = serde_json::to_value(&checked.refused[0]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"path": "a", "change": "delete", "access": "RW-", "reason": "access"})
    );
}

fn kind(item: &Item) -> NodeKind {
    match item {
        Item::File(..) => NodeKind::File,
        Item::Link(_) => NodeKind::Symlink,
        Item::Directory(_) => NodeKind::Directory,
    }
}

/// Returns the path of the first difference between `base` and a checked tree that the access does not allow.
fn first_forbidden(base: &Model, checked: &Model, policy: &AgentPolicy) -> Option<String> {
    let is_parent = |path: &str| checked.keys().any(|below| below.starts_with(&format!("{path}/")));
    let paths = base.keys().chain(checked.keys());
    paths
        .filter(|path| base.get(*path) != checked.get(*path))
        .find(|path| {
            let access = policy.access(path.as_bytes());
            let allowed = match (base.get(*path), checked.get(*path)) {
                (None, Some(Item::Directory(0o755))) if is_parent(path) => true,
                (None, _) => access.can_add(),
                (Some(Item::Directory(_)), None) if access == Access::None => true,
                (Some(_), None) => access.can_delete(),
                (Some(old), Some(new)) if kind(old) == kind(new) => access.can_change(),
                (Some(_), Some(_)) => access.can_delete(),
            };
            !allowed
        })
        .cloned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn checked_trees_have_only_allowed_changes(
        head in trees(),
        theirs in edits(),
        ours in edits(),
        policy in agent_policies(),
    ) {
        let fixture = TestStore::shared();
        let cache = ViewCache::new();
        let view_of = |tree: &Tree| view(tree, &policy, &cache).unwrap().commit(new_snapshot(), &cache).unwrap().1;
        let head = fixture.build(|tree| apply(tree, &head));
        let base = view_of(&head);
        let head_view = view_of(&fixture.edit(&head, |tree| apply(tree, &ours)));
        let theirs = fixture.edit(&base, |tree| apply(tree, &theirs));
        let outcome = check(&fixture, &base, &theirs, &head_view, &policy);
        prop_assert_eq!(first_forbidden(&read(&base), &read(&outcome.tree), &policy), None);
        let again = check(&fixture, &base, &outcome.tree, &base, &policy);
        prop_assert_eq!(again.tree.id(), outcome.tree.id(), "a checked tree is checked again: {:?}", again.refused);
    }
}
