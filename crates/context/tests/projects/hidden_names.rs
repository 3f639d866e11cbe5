//! Tests of additions at paths that hidden entries have: they are refused, and changes that depend on them are
//! reverted.
//!
//! Helpers of `Fixture`: `workspace` gives an agent a copy of the files that it may see, `complete` queues its
//! finished work (a completion), and `land` merges all queued completions.

use serde_json::json;

use crate::database::DatabaseKind;
use crate::fixture::{Fixture, Workspace};

const RULES: [(&str, &str); 2] = [("**/*.pem", "none"), ("**/.env", "none")];

/// Creates a project with hidden files, and a workspace of an agent.
async fn fixture(database: DatabaseKind, files: &[(&str, &str)]) -> (Fixture, Workspace) {
    let mut fixture = Fixture::new(database, files).await;
    let rules = RULES.map(|(path, access)| json!({"path": path, "access": access}));
    fixture.set_policy(json!({"rules": rules})).await;
    let workspace = fixture.workspace("agent", "w1").await;
    (fixture, workspace)
}

/// Merges a workspace into the project. Returns the paths of the new head, and the refused changes as `path: change`.
async fn land(fixture: &mut Fixture, mut workspace: Workspace) -> (Vec<String>, Vec<String>) {
    let completion = fixture.complete(&mut workspace).await;
    fixture.land().await;
    let report = fixture.report(&completion).await;
    let refused = report.refused.iter().map(|refused| format!("{}: {}", refused.path, refused.change));
    (fixture.files().await.into_keys().collect(), refused.collect())
}

pub(crate) async fn a_file_renamed_to_a_hidden_directory_keeps_its_old_name(database: DatabaseKind) {
    let (mut fixture, mut workspace) =
        fixture(database, &[("notes.txt", "notes\n"), ("certs/a.pem", "key\n")]).await;
    workspace.files.rename("notes.txt", "certs").unwrap();
    workspace.files.write("new.txt", "new\n").unwrap();
    let (files, refused) = land(&mut fixture, workspace).await;
    assert_eq!(files, ["certs/a.pem", "new.txt", "notes.txt"]);
    assert_eq!(refused, ["certs: addition", "notes.txt: deletion"]);
    assert_eq!(fixture.files().await["notes.txt"], "notes\n");
}

pub(crate) async fn a_directory_with_a_hidden_entry_is_not_replaced_by_a_file(database: DatabaseKind) {
    let files = [("d/x", "x\n"), ("d/e/y", "y\n"), ("d/moved", "moved\n"), ("d/.env", "hidden\n")];
    let (mut fixture, mut workspace) = fixture(database, &files).await;
    workspace.files.rename("d/moved", "moved").unwrap();
    workspace.files.remove("d").unwrap();
    workspace.files.write("d", "a file\n").unwrap();
    let (files, refused) = land(&mut fixture, workspace).await;
    assert_eq!(files, ["d/.env", "d/e/y", "d/x", "moved"]);
    assert_eq!(refused, ["d: replacement", "d/e: deletion", "d/e/y: deletion", "d/x: deletion"]);
}

pub(crate) async fn files_renamed_below_a_hidden_file_keep_their_old_names(database: DatabaseKind) {
    let (mut fixture, mut workspace) =
        fixture(database, &[("a.txt", "a\n"), ("docs/b.txt", "b\n"), ("p.pem", "key\n")]).await;
    workspace.files.mkdir("p.pem").unwrap();
    workspace.files.rename("docs", "p.pem/docs").unwrap();
    workspace.files.rename("a.txt", "p.pem/a.txt").unwrap();
    let (files, _) = land(&mut fixture, workspace).await;
    assert_eq!(files, ["a.txt", "docs/b.txt", "p.pem"]);
    assert_eq!(fixture.files().await["p.pem"], "key\n");
}
