//! Moving workspaces without changes to the present head.

use serde_json::{Value, json};

use super::{Fixture, run};

fn sync(fixture: &Fixture) -> Value {
    let synced = fixture.post("projects/website/sync", &json!({}));
    assert_eq!(synced.status, 200, "{}", synced.body);
    synced.json()
}

fn counts(synced: u64, skipped: u64) -> Value {
    json!({"synced": synced, "skipped": skipped, "total": synced + skipped})
}

#[test]
fn workspaces_without_changes_move_to_the_head_in_place() {
    let fixture = Fixture::new(&[("a", "a\n"), ("b", "b\n"), ("gone", "gone\n")]);
    assert_eq!(sync(&fixture), counts(0, 0));
    let (idle, busy) = (fixture.workspace("idle"), fixture.workspace("busy"));
    assert_eq!(sync(&fixture), counts(0, 2), "both have the files of the head");
    run(&busy, "echo mine > mine");
    fixture.import("website", &[("a", "A\n"), ("b", "b\n"), ("new", "new\n")]);
    assert_eq!(sync(&fixture), counts(1, 1));
    assert_eq!(run(&idle, "cat a b new; ls"), "A\nb\nnew\na\nb\nnew\n");
    assert_eq!(run(&busy, "cat a mine gone"), "a\nmine\ngone\n");
    let shown = fixture.get("projects/website/workspaces/idle").json();
    let head = fixture.get("projects/website").json()["head"].clone();
    assert_eq!((&shown["sequence"], &shown["baseSnapshot"]), (&json!(2), &head), "{shown}");
    assert_eq!(fixture.get("projects/website/workspaces/busy").json()["sequence"], 1);
    assert_eq!((&fixture.changes("idle")["total"], sync(&fixture)), (&json!(0), counts(0, 2)));

    // Changes after the move are compared with the files of the new head.
    run(&idle, "echo more >> a; rm new");
    assert_eq!(fixture.changes("idle")["deleted"], json!(["new"]));
    assert_eq!(fixture.complete("idle")["state"], "landed");
    assert_eq!(fixture.complete("busy")["state"], "landed");
    assert_eq!((fixture.file("a"), fixture.file("mine")), ("A\nmore\n".to_owned(), "mine\n".to_owned()));
    assert_eq!(fixture.get("projects/website/files/new").status, 404);
    assert_eq!(fixture.get("projects/website/files/gone").status, 404);
}

#[test]
fn a_completion_before_a_sync_is_no_base_of_one_after_it() {
    let fixture = Fixture::new(&[("a", "one\n")]);
    let path = fixture.workspace("writer");
    run(&path, "echo two > a");
    assert_eq!(fixture.complete("writer")["sequence"], 2);
    fixture.import("website", &[("a", "three\n"), ("b", "b\n")]);
    assert_eq!(sync(&fixture), counts(1, 0));
    assert_eq!(run(&path, "cat a b"), "three\nb\n");
    // This completion does not undo the change of `a` by the import: the base is the head of the sync, not the first
    // completion.
    run(&path, "echo c > c");
    let landed = fixture.complete("writer");
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(4)), "{landed}");
    assert_eq!((fixture.file("a"), fixture.file("c")), ("three\n".to_owned(), "c\n".to_owned()));
    // The files are those of the first completion again. In this round, they are a change.
    run(&path, "echo two > a; rm b c");
    assert_eq!(fixture.complete("writer")["sequence"], 5);
    assert_eq!(fixture.file("a"), "two\n");
}
