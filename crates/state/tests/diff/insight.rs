//! Tests of insight diffs: risk notes, codes and line counts of typical changes.

use std::collections::BTreeMap;

use workspace_state::{
    ChangeCode, ContentCode, EntryInsight, InsightDiff, LINE_DIFF_MAX, RiskCode, RiskNote, SecretPattern,
    insight,
};

use crate::model::{Item, Model, ModelStore, insert};

/// Creates a model with these entries and their parent directories.
fn model<const N: usize>(items: [(&str, Item); N]) -> Model {
    let mut model = Model::new();
    for (path, item) in items {
        insert(&mut model, path.as_bytes(), item);
    }
    model
}

fn file(content: impl Into<Vec<u8>>) -> Item {
    Item::File { content: content.into(), mode: 0o644 }
}

fn with_mode(mode: u16) -> Item {
    Item::File { content: b"x\n".to_vec(), mode }
}

fn link(target: &str) -> Item {
    Item::Symlink(target.into())
}

fn lines(count: usize) -> String {
    (0..count).map(|number| format!("line {number}\n")).collect()
}

/// Computes the insight diff, and checks that it can be serialised and deserialised without a change.
fn insight_of(from: &Model, to: &Model) -> InsightDiff {
    let store = ModelStore::new();
    let result = insight(&store.tree(from), &store.tree(to)).unwrap();
    let text = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<InsightDiff>(&text).unwrap(), result);
    result
}

/// Returns the only entry of an insight diff.
fn only_entry(result: &InsightDiff) -> &EntryInsight {
    assert_eq!(result.entries.len(), 1, "{result:?}");
    &result.entries[0]
}

fn codes(entry: &EntryInsight) -> Vec<RiskCode> {
    entry.notes.iter().map(|note| note.code).collect()
}

#[test]
fn the_json_format_is_stable() {
    let store = ModelStore::new();
    let (from, to) = (
        model([("a", file("1\n2\n")), ("b", file("moved\n"))]),
        model([("a", file("1\n3\n4\n")), ("c\n", file("moved\n"))]),
    );
    let (from, to) = (store.tree(&from), store.tree(&to));
    let result = serde_json::to_value(insight(&from, &to).unwrap()).unwrap();
    let side = |size: u64| serde_json::json!({ "kind": "file", "mode": "0644", "size": size });
    let expected = serde_json::json!({
        "version": 2,
        "from": from.id().to_string(),
        "to": to.id().to_string(),
        "totals": {
            "added": 0, "removed": 0, "modified": 1, "type_changed": 0, "mode_changed": 0, "renamed": 1,
            "files_removed": 0, "lines_added": 2, "lines_removed": 1, "binary": 0, "too_large": 0,
            "size_change": 2, "notes": {}
        },
        "notes": [],
        "entries": [
            {
                "path": "a", "change": "modified", "old": side(4), "new": side(6), "content": "text",
                "lines_added": 2, "lines_removed": 1, "too_large": false, "size_change": 2, "notes": []
            },
            {
                "path": "\"c\\n\"", "change": "renamed", "renamed_from": "b", "old": side(6), "new": side(6),
                "content": "text", "lines_added": 0, "lines_removed": 0, "too_large": false,
                "size_change": 0, "notes": []
            }
        ]
    });
    assert_eq!(result, expected);
}

#[test]
fn modes_of_version_1_are_still_read() {
    let read = |mode: serde_json::Value| {
        let side = serde_json::json!({ "kind": "file", "mode": mode, "size": 1 });
        serde_json::from_value::<workspace_state::EntrySummary>(side).map(|side| side.mode)
    };
    assert_eq!(read(420.into()).unwrap(), 0o644);
    assert_eq!(read("0644".into()).unwrap(), 0o644);
    assert!(read("rw-r--r--".into()).is_err());
}

#[test]
fn every_risk_code_has_its_documented_name() {
    let page = include_str!("../../../../docs/insight.md");
    let codes = [
        (RiskCode::BecameExecutable, "became_executable"),
        (RiskCode::SetIdBit, "set_id_bit"),
        (RiskCode::SymlinkLeavesTree, "symlink_leaves_tree"),
        (RiskCode::DependencyManifest, "dependency_manifest"),
        (RiskCode::LockFile, "lock_file"),
        (RiskCode::CiConfig, "ci_config"),
        (RiskCode::BuildScript, "build_script"),
        (RiskCode::GitCode, "git_code"),
        (RiskCode::SecretLikeContent, "secret_like_content"),
        (RiskCode::LargeDeletion, "large_deletion"),
        (RiskCode::BinaryReplacedText, "binary_replaced_text"),
    ];
    for (code, name) in codes {
        assert_eq!(serde_json::to_value(code).unwrap(), name);
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not documented");
    }
}

#[test]
fn new_modes_and_new_symlink_targets_are_noted() {
    use RiskCode::{BecameExecutable, SetIdBit, SymlinkLeavesTree};
    let cases: [(Option<Item>, Item, &[RiskCode]); 10] = [
        (Some(with_mode(0o644)), with_mode(0o755), &[BecameExecutable]),
        (Some(with_mode(0o755)), with_mode(0o700), &[]),
        (Some(with_mode(0o755)), with_mode(0o644), &[]),
        (None, with_mode(0o755), &[BecameExecutable]),
        (Some(with_mode(0o755)), with_mode(0o4755), &[SetIdBit]),
        (Some(with_mode(0o4755)), with_mode(0o6755), &[SetIdBit]),
        (Some(with_mode(0o6755)), with_mode(0o4755), &[]),
        (Some(link("a")), with_mode(0o755), &[BecameExecutable]),
        (Some(with_mode(0o755)), link("../../a"), &[SymlinkLeavesTree]),
        (None, link("../a"), &[]),
    ];
    for (old, new, expected) in cases {
        let mut from = model([("d", Item::Directory { mode: 0o755 })]);
        old.into_iter().for_each(|old| insert(&mut from, b"d/x", old));
        let result = insight_of(&from, &model([("d/x", new)]));
        assert_eq!(codes(only_entry(&result)), expected, "{result:?}");
    }
}

#[test]
fn a_dependency_manifest_is_noted_when_it_is_added_removed_or_renamed() {
    let manifest = || file("x = 1\n");
    let added = insight_of(&Model::new(), &model([("Cargo.toml", manifest())]));
    let removed = insight_of(&model([("Cargo.toml", manifest())]), &Model::new());
    let renamed = insight_of(&model([("Cargo.toml", manifest())]), &model([("notes", manifest())]));
    for result in [added, removed, renamed] {
        assert_eq!(codes(only_entry(&result)), [RiskCode::DependencyManifest]);
        assert_eq!(result.totals.notes, BTreeMap::from([(RiskCode::DependencyManifest, 1)]));
    }
}

/// Returns the notes of an entry, sorted, with the paths below the entry that they are about.
fn notes_with_paths(entry: &EntryInsight) -> Vec<(RiskCode, String)> {
    let path = |note: &RiskNote| String::from_utf8(note.path.clone().unwrap().0).unwrap();
    let mut notes: Vec<_> = entry.notes.iter().map(|note| (note.code, path(note))).collect();
    notes.sort();
    notes
}

#[test]
fn a_renamed_directory_has_notes_about_entries_whose_risks_change() {
    let from = model([
        ("a/b/run.yml", file("x\n")),
        ("a/b/up", link("../x")),
        ("a/b/Makefile", file("y\n")),
        ("a/keep", file("z\n")),
    ]);
    let to = model([
        (".ci/run.yml", file("x\n")),
        (".ci/up", link("../x")),
        (".ci/Makefile", file("y\n")),
        ("a/keep", file("z\n")),
    ]);
    let result = insight_of(&from, &to);
    let entry = only_entry(&result);
    assert_eq!(entry.change, ChangeCode::Renamed);
    assert_eq!(
        notes_with_paths(entry),
        [
            (RiskCode::CiConfig, ".ci/Makefile".to_owned()),
            (RiskCode::CiConfig, ".ci/run.yml".to_owned()),
            (RiskCode::CiConfig, ".ci/up".to_owned()),
        ]
    );
    let moved_up = insight_of(&model([("a/b/up", link("../../x"))]), &model([("b/up", link("../../x"))]));
    let renamed = moved_up.entries.iter().find(|entry| entry.change == ChangeCode::Renamed).unwrap();
    assert_eq!(codes(renamed), [RiskCode::SymlinkLeavesTree]);
}

#[test]
fn a_moved_symlink_that_leaves_the_tree_has_a_note_about_its_path_too() {
    let files = |directory: &str| {
        let [ci, run] = ["ci.yml", "run.yml"].map(|name| format!("{directory}/{name}"));
        model([
            (ci.as_str(), link("../../../x")),
            (run.as_str(), file("x\n")),
            ("deep/a/b/keep", file("y\n")),
            (".github/keep", file("z\n")),
        ])
    };
    let result = insight_of(&files("deep/a/b/w"), &files(".github/workflows"));
    let entry = only_entry(&result);
    assert_eq!(entry.change, ChangeCode::Renamed);
    assert_eq!(
        notes_with_paths(entry),
        [
            (RiskCode::SymlinkLeavesTree, ".github/workflows/ci.yml".to_owned()),
            (RiskCode::CiConfig, ".github/workflows/ci.yml".to_owned()),
            (RiskCode::CiConfig, ".github/workflows/run.yml".to_owned()),
        ]
    );
}

#[test]
fn secrets_are_noted_by_line_and_never_quoted() {
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let old = "first\npassword = \"kX9vQ2mZ7pL4wR8t\"\n";
    let new = format!("first\npassword = \"kX9vQ2mZ7pL4wR8t\"\n# {secret}\nlast\n");
    let result = insight_of(&model([("f", file(old))]), &model([("f", file(new))]));
    let notes = &only_entry(&result).notes;
    assert_eq!(notes.len(), 1, "only added lines count: {notes:?}");
    assert_eq!((notes[0].code, notes[0].line), (RiskCode::SecretLikeContent, Some(3)));
    assert_eq!(notes[0].pattern, Some(SecretPattern::GithubToken));
    assert!(!serde_json::to_string(&result).unwrap().contains("a1B2"));
    let many_secrets = format!("{secret}\n").repeat(1000);
    let result = insight_of(&Model::new(), &model([("f", file(many_secrets))]));
    assert_eq!(only_entry(&result).notes.len(), 100);
}

#[test]
fn large_deletions_are_noted() {
    let change = |old: usize, new: usize| {
        let from = model([("f", file(lines(old)))]);
        let to = if new == 0 { Model::new() } else { model([("f", file(lines(new)))]) };
        codes(only_entry(&insight_of(&from, &to)))
    };
    assert_eq!(change(400, 199), [RiskCode::LargeDeletion]);
    assert_eq!(change(400, 200), []);
    assert_eq!(change(201, 0), [RiskCode::LargeDeletion]);
    assert_eq!(change(200, 0), []);
    assert_eq!(change(1000, 600), []);
    let rewritten = lines(500).replace("line", "other");
    let result = insight_of(&model([("f", file(lines(500)))]), &model([("f", file(rewritten))]));
    assert_eq!(codes(only_entry(&result)), [], "rewritten, not deleted");
}

#[test]
fn the_removal_of_many_files_is_noted_once() {
    let files = |count: usize| -> Model {
        let mut model = Model::new();
        (0..count).for_each(|n| insert(&mut model, format!("d/{n}").as_bytes(), file(format!("{n}\n"))));
        model
    };
    let result = insight_of(&files(101), &Model::new());
    assert_eq!(result.notes.iter().map(|note| note.code).collect::<Vec<_>>(), [RiskCode::LargeDeletion]);
    assert_eq!(result.totals.notes[&RiskCode::LargeDeletion], 1);
    assert_eq!(
        (result.totals.removed, result.totals.files_removed, result.totals.lines_removed),
        (102, 101, 101)
    );
    assert!(insight_of(&files(100), &Model::new()).notes.is_empty());
}

#[test]
fn binary_content_has_no_lines() {
    let result = insight_of(&model([("f", file("text\n"))]), &model([("f", file("\0\n"))]));
    let entry = only_entry(&result);
    assert_eq!((entry.content, entry.lines_added), (Some(ContentCode::Binary), None));
    assert_eq!((codes(entry), entry.size_change), (vec![RiskCode::BinaryReplacedText], -3));
    assert_eq!(result.totals.binary, 1);
    let result = insight_of(&model([("f", file(""))]), &model([("f", file("\0"))]));
    assert_eq!(codes(only_entry(&result)), [], "there was no text");
    let result = insight_of(&model([("f", file("\0"))]), &model([("f", file("text"))]));
    assert_eq!(
        (codes(only_entry(&result)), only_entry(&result).content),
        (vec![], Some(ContentCode::Binary))
    );
}

#[test]
fn too_large_files_are_reported_and_not_compared() {
    let size = usize::try_from(LINE_DIFF_MAX).unwrap();
    let text = |len: usize| file(b"a\n".repeat(len / 2 + 1)[..len].to_vec());
    let result = insight_of(&model([("f", text(10))]), &model([("f", text(size + 1))]));
    let entry = only_entry(&result);
    assert!(entry.too_large && entry.lines_added.is_none() && entry.lines_removed.is_none());
    assert_eq!((entry.content, result.totals.too_large), (Some(ContentCode::Text), 1));
    let result = insight_of(&model([("f", text(10))]), &model([("f", text(size))]));
    assert_eq!(only_entry(&result).lines_added, Some(LINE_DIFF_MAX / 2 - 5));
}

#[test]
fn symlinks_and_directories_have_no_lines() {
    let result = insight_of(&model([("l", link("a"))]), &model([("l", link("b"))]));
    assert_eq!((only_entry(&result).content, only_entry(&result).lines_added), (None, None));
    let result = insight_of(&model([("l", file("1\n2\n"))]), &model([("l", link("b"))]));
    let entry = only_entry(&result);
    assert_eq!(
        (entry.change, entry.lines_removed, entry.size_change),
        (ChangeCode::TypeChanged, Some(2), -4)
    );
    let result = insight_of(&Model::new(), &model([("d", Item::Directory { mode: 0o755 })]));
    assert_eq!((only_entry(&result).content, only_entry(&result).lines_added), (None, None));
}
