//! Tests of the history of projects: versions of files, rollbacks, and protection of snapshots from removal. The
//! sequence of a change is its number in the history. `Fixture::complete` queues finished work of an agent (a
//! completion), and `Fixture::land` merges all queued completions.

use workspace_catalog::{FileChange, FileVersion};
use workspace_context::projects::{ProjectError, ProjectSettings};
use workspace_state::{Retention, StoreError};

use crate::database::DatabaseKind;
use crate::fixture::{Fixture, NO_LIMIT, NOT_FROM_GIT, PRESENT, WHOLE_PROJECT, person};

async fn versions(fixture: &Fixture, path: &str) -> Vec<FileVersion> {
    let (id, newest, limit) = (&fixture.project.id, None, 100);
    fixture.catalog.file_versions().of_path(id, path.as_bytes(), newest, limit).await.unwrap()
}

pub(crate) async fn a_renamed_file_keeps_its_id_and_versions(database: DatabaseKind) {
    let mut fixture =
        Fixture::new(database, &[("docs/a.md", "a text of some length\n"), ("b.md", "b\n")]).await;
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.rename("docs", "pages").unwrap();
    fixture.complete(&mut workspace).await;
    fixture.land().await;
    workspace.files.write("pages/a.md", "another text\n").unwrap();
    fixture.complete(&mut workspace).await;
    fixture.land().await;
    let found = versions(&fixture, "pages/a.md").await;
    let changes: Vec<_> = found.iter().map(|version| version.version.change).collect();
    assert_eq!(changes, [FileChange::Modified, FileChange::Renamed, FileChange::Added]);
    assert_eq!(found[1].version.previous_path.as_deref(), Some(&b"docs/a.md"[..]));
    assert!(found.iter().all(|version| version.version.file_id == found[0].version.file_id));
    assert_eq!(found[0].version.author, "agent");
    assert_eq!(found[0].version.mime.as_deref(), Some("text/markdown"));
}

pub(crate) async fn a_rollback_is_a_new_version_with_old_content(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n"), ("b.txt", "one\n")]).await;
    fixture.replace_files(&[("a.txt", "two\n"), ("b.txt", "two\n"), ("c.txt", "two\n")]).await;
    let path = Some(b"a.txt".to_vec());
    let done =
        fixture.projects.rollback(&fixture.project, 1, path, &person(), "undo").await.unwrap().unwrap();
    assert_eq!(done.sequence, 3);
    fixture.refresh().await;
    let files = fixture.files().await;
    assert_eq!((files["a.txt"].as_str(), files["b.txt"].as_str()), ("one\n", "two\n"));
    fixture.projects.rollback(&fixture.project, 1, WHOLE_PROJECT, &person(), "all").await.unwrap().unwrap();
    fixture.refresh().await;
    assert_eq!(fixture.files().await.len(), 2);
    assert_eq!(fixture.project.sequence, 4);
    assert!(
        fixture.projects.rollback(&fixture.project, 1, WHOLE_PROJECT, &person(), "").await.unwrap().is_none()
    );
    let path = Some(b"b.txt".to_vec());
    fixture.projects.rollback(&fixture.project, 0, path, &person(), "").await.unwrap().unwrap();
    fixture.refresh().await;
    assert_eq!(fixture.files().await.keys().collect::<Vec<_>>(), ["a.txt"]);
    let missing = fixture.projects.rollback(&fixture.project, 9, WHOLE_PROJECT, &person(), "").await;
    assert!(matches!(missing, Err(ProjectError::NoSuchSequence { sequence: 9, head: 5, .. })));
}

pub(crate) async fn a_rollback_of_an_empty_project_changes_nothing(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[]).await;
    for path in [None, Some(b"src".to_vec())] {
        let done = fixture.projects.rollback(&fixture.project, 0, path, &person(), "").await.unwrap();
        assert!(done.is_none(), "{done:?}");
    }
    let missing = fixture.projects.rollback(&fixture.project, 1, WHOLE_PROJECT, &person(), "").await;
    assert!(matches!(missing, Err(ProjectError::NoSuchSequence { .. })));
    fixture.refresh().await;
    assert_eq!(fixture.project.sequence, 0);
}

pub(crate) async fn an_import_with_another_expected_sequence_fails(database: DatabaseKind) {
    let fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
    let content = fixture.snapshot(&[("b.txt", "b\n")]);
    let moved =
        fixture.projects.import(&fixture.project, content.id, &person(), "", Some(0), NOT_FROM_GIT).await;
    assert!(matches!(moved, Err(ProjectError::Moved { expected: 0, found: 1, .. })));
}

pub(crate) async fn a_large_import_has_a_version_of_every_file(database: DatabaseKind) {
    let names: Vec<String> = (0..5_000).map(|number| format!("{}/{number}.txt", number % 50)).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "content\n")).collect();
    let fixture = Fixture::new(database, &files).await;
    assert_eq!(fixture.project.sequence, 1);
    for name in ["0/0.txt", "49/4999.txt"] {
        assert_eq!(versions(&fixture, name).await.len(), 1, "{name}");
    }
}

pub(crate) async fn snapshots_of_the_history_cannot_be_removed(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
    let first = fixture.projects.head(&fixture.project, PRESENT).await.unwrap().unwrap();
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.write("a.txt", "two\n").unwrap();
    let completion = fixture.complete(&mut workspace).await;
    let theirs = completion.completion.theirs_snapshot.parse().unwrap();
    // The completion protects the snapshot also before it is merged.
    let refused = fixture.store.remove_snapshots(&[theirs]);
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    fixture.land().await;
    for id in [first.id, theirs] {
        let refused = fixture.store.remove_snapshots(&[id]);
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    let rules = Retention { keep_last: Some(0), ..Retention::default() };
    let plan = fixture.store.retention_plan(&rules).unwrap();
    let removed: Vec<_> = plan.remove.iter().map(|snapshot| snapshot.id).collect();
    assert!(!removed.contains(&first.id) && !removed.contains(&theirs), "{removed:?}");
}

pub(crate) async fn a_deleted_project_leaves_no_references(database: DatabaseKind) {
    let mut fixture = Fixture::new(database, &[("a.txt", "one\n")]).await;
    let mut workspace = fixture.workspace("agent", "w1").await;
    workspace.files.write("a.txt", "two\n").unwrap();
    fixture.complete(&mut workspace).await;
    let busy = fixture.projects.delete(&fixture.project).await;
    assert!(matches!(busy, Err(ProjectError::InUse { .. })), "{busy:?}");
    fixture.land().await;
    fixture.projects.delete(&fixture.project).await.unwrap();
    assert_eq!(fixture.store.references_with_prefix("projects/").unwrap(), []);
    let gone = fixture.projects.find("alice", "website").await;
    assert!(matches!(gone, Err(ProjectError::NotFound { .. })));
}

pub(crate) async fn project_names_are_unique_per_owner_and_validated(database: DatabaseKind) {
    let fixture = Fixture::new(database, &[]).await;
    assert!(matches!(
        fixture.projects.create("alice", "website", ProjectSettings::default(), NO_LIMIT).await,
        Err(ProjectError::NameTaken { .. })
    ));
    fixture.projects.create("bob", "website", ProjectSettings::default(), NO_LIMIT).await.unwrap();
    for name in ["", ".hidden", "-a", "a b", "a/b", &"x".repeat(129)] {
        let refused = fixture.projects.create("alice", name, ProjectSettings::default(), NO_LIMIT).await;
        assert!(matches!(refused, Err(ProjectError::InvalidName { .. })), "{name}");
    }
}
