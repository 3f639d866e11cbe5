//! episode.

use crate::support::TestDir;

#[test]
fn a_search() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "start"]);
    place.write("project/src/main.rs", "fn main() {}\n");
    place.ok(&["snapshot", "project", "--ref", "better"]);
    let add = |words: &[&str]| place.id(&[&["episode", "add"], words].concat());
    let root = add(&["start", "--action", "start", "--reward", "0"]);
    let left = add(&["better", "--parent", &root, "--action", "simplify", "--reward", "0.7", "--insight"]);
    let right =
        add(&["start", "--parent", &root, "--action", "give up", "--reward", "-1.5", "--visits", "3"]);
    let leaf = add(&["start", "--parent", &left, "--action", "go on\nand on", "--reward", "0.25"]);
    insta::assert_snapshot!(place.transcript(&[
        &["episode", "tree"],
        &["episode", "tree", &left],
        &["episode", "best"],
        &["episode", "best", &right],
        &["episode", "path", &leaf],
    ]));
    let insight = &place.json(&["episode", "tree", &left])[0]["insight"];
    assert_eq!(insight["totals"]["modified"], 1);
}

#[test]
fn an_export_has_everything_parents_first() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let root = place.id(&[
        "episode",
        "add",
        "main",
        "--action",
        "start",
        "--reward",
        "0",
        "--data",
        "{\"tokens\": [1, 2]}",
    ]);
    let next = place.id(&["episode", "add", "main", "--parent", &root, "--action", "go", "--reward", "1"]);
    // JSON lines with or without `--json`.
    let lines = place.ok(&["episode", "export"]);
    assert_eq!(lines, place.ok(&["--json", "episode", "export"]));
    let records: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0]["id"], root.as_str());
    assert_eq!(records[0]["data"], serde_json::json!({"tokens": [1, 2]}));
    assert_eq!(records[0]["parent"], serde_json::Value::Null);
    assert_eq!(records[1]["id"], next.as_str());
    assert_eq!(records[1]["parent"], root.as_str());
    assert_eq!(records[1]["visits"], 1);
}

#[test]
fn ids_of_episodes_may_be_shortened_too() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let first = place.id(&["episode", "add", "main", "--action", "a", "--reward", "0"]);
    assert!(place.ok(&["episode", "path", &first[..6]]).starts_with(&first));
    let second = place.id(&["episode", "add", "main", "--action", "b", "--reward", "0"]);
    let common = first.chars().zip(second.chars()).take_while(|(a, b)| a == b).count();
    let ran = place.run(&["episode", "path", &first[..common]]);
    assert!(
        ran.stderr.contains("is ambiguous: it is a prefix of more than one episode id"),
        "{}",
        ran.stderr
    );
}

#[test]
fn invalid_episodes_are_explained() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let add = &["episode", "add", "main", "--action", "a"][..];
    insta::assert_snapshot!(place.transcript(&[
        &["episode", "best"],
        &["episode", "path", "deadbeef"],
        &["episode", "path", "x"],
        &[add, &["--reward", "nan"]].concat(),
        &[add, &["--reward", "much"]].concat(),
        &[add, &["--reward", "1", "--data", "{"]].concat(),
        &[add, &["--reward", "1", "--insight"]].concat(),
    ]));
}

#[test]
fn an_episode_is_updated_where_something_is_given() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let data = "{\"tokens\": 1}";
    let id = place.id(&["episode", "add", "main", "--action", "a", "--reward", "0.5", "--data", data]);
    let before = place.record(&["episode", "path", &id]);
    let updated = place.record(&["episode", "update", &id, "--reward", "-0.25", "--visits", "7"]);
    let mut wanted = before.clone();
    wanted["reward"] = serde_json::json!(-0.25);
    wanted["visits"] = serde_json::json!(7);
    assert_eq!(updated, wanted);
    assert_eq!(place.record(&["episode", "path", &id]), wanted);
    let updated = place.record(&["episode", "update", &id, "--action", "b", "--data", "null"]);
    assert_eq!((&updated["action"], &updated["data"]), (&"b".into(), &serde_json::Value::Null));
    insta::assert_snapshot!(place.transcript(&[
        &["episode", "update", &id, "--reward", "1"],
        &["episode", "update", &id],
        &["episode", "update", &id, "--reward", "nan"],
        &["episode", "update", "deadbeef", "--reward", "1"],
    ]));
}

#[test]
fn a_removed_episode_takes_those_after_it_along() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let add = |parent: &[&str]| {
        place.id(&[&["episode", "add", "main", "--action", "go", "--reward", "1"], parent].concat())
    };
    let root = add(&[]);
    let (left, right) = (add(&["--parent", &root]), add(&["--parent", &root]));
    let leaf = add(&["--parent", &left]);
    // Nothing is removed unless all of them are there.
    assert_eq!(place.run(&["episode", "rm", &left, "0199a1b2-63f1-7c01-9f2c-2f1c2ea4a7d0"]).status, 1);
    assert_eq!(place.json(&["episode", "tree"]).len(), 4);
    let removed = place.record(&["episode", "rm", &leaf, &left]);
    assert_eq!(removed, serde_json::json!({"episodes": [left, leaf]}));
    let ids: Vec<_> = place.json(&["episode", "tree"]).iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, [root.as_str(), &right]);
    assert_eq!(place.ok(&["episode", "rm", &root]), "");
    assert_eq!(place.ok(&["episode", "tree"]), "");
    place.ok(&["log"]);
}
