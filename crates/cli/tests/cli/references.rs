//! ref, branch, tag.

use crate::support::TestDir;

#[test]
fn references_are_made_moved_and_removed() {
    let place = TestDir::with_project();
    let first = place.id(&["snapshot", "project", "--ref", "main"]);
    place.write("project/notes.txt", "more\n");
    let second = place.id(&["snapshot", "project", "--ref", "main"]);
    insta::assert_snapshot!(place.transcript(&[
        &["ref", "set", "other", "main~1"],
        &["ref", "set", "other", "main"],
        &["ref", "set", "other", "main~1", "--expect", &first],
        &["ref", "set", "other", "main~1", "--expect", &second],
        &["ref", "set", "other", "main", "--new"],
        &["ref", "set", "runs/42", "main", "--new"],
        &["ref", "set", "gone", "main", "--expect", "main"],
        &["ref", "set", "bad name", "main"],
        &["ref", "set", "other", "nothing"],
        &["ref", "set", "other", "main", "--new", "--expect", "main"],
        &["ref", "ls"],
        &["ref", "rm", "other", "nothing"],
        &["ref", "rm", "other", "runs/42", "other"],
        &["refs"],
    ]));
}

#[test]
fn branches_and_tags_are_made_listed_and_removed() {
    let place = TestDir::with_project();
    place.id(&["snapshot", "project", "--ref", "main"]);
    place.write("project/notes.txt", "more\n");
    place.id(&["snapshot", "project", "--ref", "main"]);
    insta::assert_snapshot!(place.transcript(&[
        &["branch", "experiment", "main~1"],
        &["branch", "experiment", "main"],
        &["branch", "experiment", "main", "--force"],
        &["branch", "lonely"],
        &["tag", "v1", "main~1"],
        &["tag", "v1", "main"],
        &["show", "tags/v1~1"],
        &["branch"],
        &["tag"],
        &["branch", "--delete", "nothing"],
        &["branch", "--delete", "experiment"],
        &["tag", "-d", "v1"],
        &["tag", &"x".repeat(252), "main"],
        &["refs"],
    ]));
}

#[test]
fn a_moved_reference_is_told_in_json() {
    let place = TestDir::with_project();
    let first = place.id(&["snapshot", "project", "--ref", "main"]);
    let second = place.id(&["snapshot", "project"]);
    let moved = place.record(&["ref", "set", "main", &second]);
    assert_eq!(moved, serde_json::json!({"name": "main", "snapshot": second, "previous": first}));
    let made = place.record(&["tag", "v1", "main"]);
    assert_eq!(made, serde_json::json!({"name": "tags/v1", "snapshot": second, "previous": null}));
    let removed = place.record(&["ref", "rm", "tags/v1"]);
    assert_eq!(removed, serde_json::json!({"name": "tags/v1", "snapshot": second}));
    assert_eq!(place.json(&["branch"]).len(), 1);
    assert_eq!(place.json(&["tag"]).len(), 0);
}

#[test]
fn the_target_of_a_reference_is_printed() {
    let place = TestDir::with_project();
    let id = place.id(&["snapshot", "project", "--ref", "main"]);
    assert_eq!(place.id(&["ref", "get", "main"]), id);
    assert_eq!(place.record(&["ref", "get", "main"]), serde_json::json!({"name": "main", "snapshot": id}));
    let ran = place.run(&["ref", "get", "none"]);
    assert!(ran.status == 1 && ran.stderr.contains("hint: `workspace refs`"), "{}", ran.stderr);
}
