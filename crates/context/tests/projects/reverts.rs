//! Tests of reverting refused changes in the files of a workspace.

use std::collections::BTreeMap;

use serde_json::json;
use workspace_context::projects::{RevertInput, RevertedFiles};
use workspace_state::{NewSnapshot, SnapshotId, Tree};

use crate::database::DatabaseKind;
use crate::fixture::{Fixture, Workspace, files_of};
use crate::server::new_client_snapshot;

/// Returns a project in which the agent may add files to `box`, change everything in `open`, and only read the rest.
async fn fixture(database: DatabaseKind) -> Fixture {
    let files =
        [("a.txt", "a\n"), ("b.txt", "b\n"), ("d/one", "1\n"), ("d/two", "2\n"), ("open/o.txt", "o\n")];
    let mut fixture = Fixture::new(database, &files).await;
    set_rules(&mut fixture, json!([])).await;
    fixture
}

/// Sets the policy of [`fixture`] with more rules.
async fn set_rules(fixture: &mut Fixture, more: serde_json::Value) {
    let mut rules = vec![
        json!({"path": "**", "access": "R"}),
        json!({"path": "open/**", "access": "RW"}),
        json!({"path": "box/**", "access": "RA"}),
    ];
    rules.extend(more.as_array().unwrap().clone());
    fixture.set_policy(json!({ "rules": rules })).await;
}

async fn complete(fixture: &mut Fixture, workspace: &mut Workspace) {
    fixture.complete(workspace).await;
    fixture.land().await;
}

/// Reverts the refused changes in the present files of a workspace; `None` if nothing is to be reverted.
async fn revert(fixture: &Fixture, workspace: &mut Workspace) -> Option<RevertedFiles> {
    let (project, base) = (&fixture.project.id, workspace.base);
    let refused = fixture.projects.refused_changes(project, &workspace.id, base).await.unwrap()?;
    let theirs = workspace.files.commit(new_client_snapshot()).unwrap().id;
    let input = RevertInput {
        workspace: workspace.id.clone(),
        base,
        theirs,
        new: NewSnapshot { pending: true, ..NewSnapshot::default() },
    };
    fixture.projects.revert(&refused, input).await.unwrap()
}

fn files(fixture: &Fixture, id: SnapshotId) -> BTreeMap<String, String> {
    let snapshot = fixture.store.find_snapshot(&id).unwrap().unwrap();
    files_of(&Tree::of_snapshot(&fixture.store, &snapshot).unwrap())
}

/// Puts the workspace into the round that begins with a revert.
fn begin_round(fixture: &Fixture, workspace: &mut Workspace, made: &RevertedFiles) {
    workspace.id = format!("{}/{}", workspace.id, made.snapshot.id);
    workspace.base = made.base;
    workspace.files = fixture.store.restore(&made.snapshot.id).unwrap();
}

pub(crate) async fn exactly_the_refused_paths_are_reverted_and_no_later_change_is_lost(
    database: DatabaseKind,
) {
    let mut fixture = fixture(database).await;
    let mut work = fixture.workspace("guest", "w").await;
    work.files.write("a.txt", "refused\n").unwrap();
    work.files.write("b.txt", "refused\n").unwrap();
    work.files.write("new.txt", "refused\n").unwrap();
    work.files.write("open/o.txt", "allowed\n").unwrap();
    work.files.write("box/x.txt", "allowed\n").unwrap();
    work.files.remove("d").unwrap();
    complete(&mut fixture, &mut work).await;
    // Since then, the agent has changed one of the paths again, and others.
    work.files.write("b.txt", "again\n").unwrap();
    work.files.write("open/o.txt", "later\n").unwrap();
    work.files.write("box/y.txt", "later\n").unwrap();
    let made = revert(&fixture, &mut work).await.unwrap();
    assert_eq!(made.reverted, ["a.txt", "d", "d/one", "d/two", "new.txt"]);
    assert_eq!(made.kept, ["b.txt"]);
    let expected = [
        ("a.txt", "a\n"),
        ("b.txt", "again\n"),
        ("box/x.txt", "allowed\n"),
        ("box/y.txt", "later\n"),
        ("d/one", "1\n"),
        ("d/two", "2\n"),
        ("open/o.txt", "later\n"),
    ];
    let expected: BTreeMap<String, String> =
        expected.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    assert_eq!(files(&fixture, made.snapshot.id), expected);
    // The next completion has exactly the changes since the last one. The path that was kept is refused again, and then
    // reverted to what the agent began with.
    begin_round(&fixture, &mut work, &made);
    let completion = fixture.complete(&mut work).await;
    fixture.land().await;
    let report = fixture.report(&completion).await;
    assert_eq!(report.refused.iter().map(|refused| refused.path.as_str()).collect::<Vec<_>>(), ["b.txt"]);
    let head = fixture.files().await;
    assert_eq!((&*head["open/o.txt"], &*head["box/y.txt"], &*head["b.txt"]), ("later\n", "later\n", "b\n"));
    let made = revert(&fixture, &mut work).await.unwrap();
    assert_eq!((made.reverted.as_slice(), made.kept.is_empty()), (["b.txt".to_owned()].as_slice(), true));
    assert_eq!(files(&fixture, made.snapshot.id), fixture.files().await);
    begin_round(&fixture, &mut work, &made);
    assert!(revert(&fixture, &mut work).await.is_none());
}

pub(crate) async fn several_completions_are_reverted_to_the_entry_from_before_the_first(
    database: DatabaseKind,
) {
    let mut fixture = fixture(database).await;
    let mut work = fixture.workspace("guest", "w").await;
    for text in ["one\n", "two\n", "three\n"] {
        work.files.write("a.txt", text).unwrap();
        work.files.write("b.txt", text).unwrap();
        complete(&mut fixture, &mut work).await;
    }
    // The agent takes one change back itself, which is refused as well, and needs no revert.
    work.files.write("b.txt", "b\n").unwrap();
    complete(&mut fixture, &mut work).await;
    let made = revert(&fixture, &mut work).await.unwrap();
    assert_eq!((made.reverted.as_slice(), made.kept.is_empty()), (["a.txt".to_owned()].as_slice(), true));
    assert_eq!(files(&fixture, made.snapshot.id), fixture.files().await);
    assert_eq!(files(&fixture, made.base), fixture.files().await);
}

pub(crate) async fn a_path_that_a_later_policy_allows_is_not_reverted(database: DatabaseKind) {
    let mut fixture = fixture(database).await;
    let mut work = fixture.workspace("guest", "w").await;
    work.files.write("a.txt", "refused\n").unwrap();
    work.files.write("b.txt", "refused\n").unwrap();
    complete(&mut fixture, &mut work).await;
    set_rules(&mut fixture, json!([{"path": "a.txt", "access": "RW"}])).await;
    work.files.write("a.txt", "a\nallowed\n").unwrap();
    complete(&mut fixture, &mut work).await;
    let made = revert(&fixture, &mut work).await.unwrap();
    assert_eq!(made.reverted, ["b.txt"]);
    assert_eq!(files(&fixture, made.snapshot.id)["a.txt"], "a\nallowed\n");
}

pub(crate) async fn renames_and_changes_of_type_are_reverted_whole(database: DatabaseKind) {
    let mut fixture = fixture(database).await;
    let mut work = fixture.workspace("guest", "w").await;
    work.files.rename("a.txt", "open/moved.txt").unwrap();
    work.files.rename("open/o.txt", "taken.txt").unwrap();
    work.files.remove("b.txt").unwrap();
    work.files.mkdir("b.txt").unwrap();
    work.files.write("b.txt/inner", "inner\n").unwrap();
    work.files.remove("d").unwrap();
    work.files.write("d", "a file\n").unwrap();
    complete(&mut fixture, &mut work).await;
    let made = revert(&fixture, &mut work).await.unwrap();
    assert_eq!(made.kept, [""; 0]);
    // The addition under the new name was allowed, and is in the head.
    assert_eq!(files(&fixture, made.snapshot.id), fixture.files().await);
    assert_eq!(files(&fixture, made.base), fixture.files().await);
}

pub(crate) async fn entries_in_places_that_were_changed_again_are_left_alone(database: DatabaseKind) {
    let mut fixture = fixture(database).await;
    let mut work = fixture.workspace("guest", "w").await;
    work.files.remove("d/one").unwrap();
    work.files.mkdir("more").unwrap();
    work.files.write("more/x", "x\n").unwrap();
    work.files.write("a.txt", "refused\n").unwrap();
    complete(&mut fixture, &mut work).await;
    // A file in the place of a directory with a deleted entry, and another entry in an added directory.
    work.files.remove("d").unwrap();
    work.files.write("d", "file\n").unwrap();
    work.files.write("more/y", "y\n").unwrap();
    let made = revert(&fixture, &mut work).await.unwrap();
    assert_eq!(made.reverted, ["a.txt", "more/x"]);
    assert_eq!(made.kept, ["d/one", "more"]);
    let left = files(&fixture, made.snapshot.id);
    assert_eq!((&*left["d"], &*left["more/y"], left.get("more/x")), ("file\n", "y\n", None));
    // Nothing is reverted, and no snapshot is made, if all were changed again.
    let mut work = fixture.workspace("guest", "v").await;
    work.files.write("a.txt", "refused\n").unwrap();
    complete(&mut fixture, &mut work).await;
    work.files.write("a.txt", "again\n").unwrap();
    let count = fixture.store.snapshots().unwrap().len();
    assert!(revert(&fixture, &mut work).await.is_none());
    assert_eq!(fixture.store.snapshots().unwrap().len(), count + 1, "only that of the workspace");
}
