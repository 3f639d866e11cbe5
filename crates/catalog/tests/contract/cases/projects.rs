use serde_json::{Value, json};
use workspace_catalog::{
    Advance, AdvanceResult, AdvanceStep, Catalog, CatalogError, CompletionOutcome, CompletionState,
    CreationOrder, EventKind, FileChange, FileKind, NewCompletion, NewFileVersion, NewProject,
    OperationFilter, OperationKind, Operator, PolicyResult, Project, ProjectChange, ProjectFilter,
};

use super::event;
use crate::test_database::TestDatabase;

/// Undoes the migrations that added projects and keys that are bound to them.
pub(crate) async fn remove_projects(database: &TestDatabase) {
    // The migration can run again over the table of keys that it made.
    database.tamper("DROP INDEX IF EXISTS sandboxes_of_project").await;
    database.tamper("ALTER TABLE snapshots DROP COLUMN workspace").await;
    for table in [
        "agent_workspaces",
        "leases",
        "reviews",
        "completions",
        "policies",
        "file_versions",
        "project_operations",
        "project_deletions",
        "projects",
        "unmeasured_bytes",
    ] {
        database.tamper(&format!("DROP TABLE {table}")).await;
    }
}

pub(super) async fn create(catalog: &Catalog, id: &str) -> Project {
    let new = NewProject {
        id: id.to_owned(),
        owner: "alice".to_owned(),
        name: format!("name of {id}"),
        settings: json!({ "mode": "lazy" }),
    };
    catalog.projects().create(&new, None, &[event(EventKind::ProjectCreated)]).await.unwrap()
}

pub(super) fn version(file_id: &str, path: &str, change: FileChange) -> NewFileVersion {
    NewFileVersion {
        file_id: file_id.to_owned(),
        path: path.as_bytes().to_vec(),
        change,
        previous_path: None,
        kind: FileKind::File,
        size: 10,
        mode: 0o644,
        content: Some("hash".to_owned()),
        mime: Some("text/plain".to_owned()),
        strategy: None,
        author: "agent-1".to_owned(),
    }
}

pub(super) fn step(snapshot: &str, versions: Vec<NewFileVersion>) -> AdvanceStep {
    AdvanceStep {
        snapshot: snapshot.to_owned(),
        operation: OperationKind::Write,
        author: "agent-1".to_owned(),
        operator: Operator::Agent,
        completion: None,
        message: Some(format!("message of {snapshot}")),
        details: json!({ "files": {} }),
        versions,
    }
}

pub(super) fn merge(snapshot: &str, completion: &str, versions: Vec<NewFileVersion>) -> AdvanceStep {
    let completion = Some(completion.to_owned());
    AdvanceStep { operation: OperationKind::Merge, completion, ..step(snapshot, versions) }
}

pub(super) fn outcome(id: &str, state: CompletionState) -> CompletionOutcome {
    let (id, result) = (id.to_owned(), Some(json!({ "landed": [id] })));
    CompletionOutcome { id, from: CompletionState::Queued, state, result }
}

pub(super) fn advance(project: &str, expected_sequence: i64, steps: Vec<AdvanceStep>) -> Advance {
    Advance { project: project.to_owned(), expected_sequence, steps, ..Advance::default() }
}

pub(super) async fn advanced(catalog: &Catalog, change: &Advance) -> i64 {
    match catalog.projects().advance(change).await.unwrap() {
        AdvanceResult::Advanced { sequence } => sequence,
        other => panic!("{other:?}"),
    }
}

pub(super) fn completion(project: &str, id: &str) -> NewCompletion {
    NewCompletion {
        id: id.to_owned(),
        project: project.to_owned(),
        owner: "alice".to_owned(),
        workspace_owner: None,
        agent: "agent-1".to_owned(),
        sandbox: Some("sbx-1".to_owned()),
        round_id: None,
        base_snapshot: "base".to_owned(),
        base_sequence: 0,
        theirs_snapshot: "theirs".to_owned(),
        policy_version: 0,
    }
}

pub(super) async fn queue(catalog: &Catalog, project: &str, id: &str) {
    catalog.completions().insert(&completion(project, id), &[]).await.unwrap();
}

pub(super) async fn kinds(catalog: &Catalog) -> Vec<String> {
    let events = catalog.events().after(0, 10_000).await.unwrap();
    events.into_iter().map(|event| event.kind).collect()
}

pub(crate) async fn project_is_found_by_id_and_by_name(database: TestDatabase) {
    let catalog = database.open().await;
    let project = create(&catalog, "prj-1").await;
    assert_eq!((project.sequence, &project.head, project.policy_version), (0, &None, 0));
    assert_eq!(catalog.projects().get("prj-1").await.unwrap(), Some(project.clone()));
    assert_eq!(catalog.projects().find("alice", "name of prj-1").await.unwrap(), Some(project.clone()));
    assert_eq!(catalog.projects().find("bob", "name of prj-1").await.unwrap(), None);
    assert_eq!(kinds(&catalog).await, ["project.created"]);

    let again =
        NewProject { id: "prj-2".to_owned(), owner: project.owner, name: project.name, settings: json!({}) };
    let error = catalog.projects().create(&again, None, &[]).await.unwrap_err();
    assert_eq!(error.to_string(), "project `name of prj-1` already exists");
    let of_bob = NewProject { owner: "bob".to_owned(), ..again };
    catalog.projects().create(&of_bob, None, &[]).await.unwrap();
    let unknown = (0..1_000).map(|number| format!("prj-x{number}"));
    let ids: Vec<String> = ["prj-2", "prj-1"].into_iter().map(str::to_owned).chain(unknown).collect();
    let found = catalog.projects().with_ids(&ids).await.unwrap();
    assert_eq!(found.len(), 2);
    for (id, project) in found {
        assert_eq!(catalog.projects().get(&id).await.unwrap(), Some(project));
    }
    assert!(catalog.projects().with_ids(&[]).await.unwrap().is_empty());
}

pub(crate) async fn projects_of_an_owner_are_limited(database: TestDatabase) {
    let catalog = database.open().await;
    let creations: Vec<_> = (0..8)
        .map(|number| {
            let (catalog, owner) = (catalog.clone(), if number == 7 { "bob" } else { "alice" }.to_owned());
            let name = format!("name {number}");
            let new = NewProject { id: format!("prj-{number}"), owner, name, settings: json!({}) };
            tokio::spawn(async move { catalog.projects().create(&new, Some(3), &[]).await })
        })
        .collect();
    let mut refused = 0;
    for creation in creations {
        match creation.await.unwrap() {
            Ok(_) => {}
            Err(CatalogError::LimitReached { limit: 3, .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, 4);
    assert_eq!(catalog.projects().count(Some("alice")).await.unwrap(), 3);
    assert_eq!(catalog.projects().count(Some("bob")).await.unwrap(), 1);
}

pub(crate) async fn projects_are_listed_in_pages(database: TestDatabase) {
    let catalog = database.open().await;
    for id in ["prj-1", "prj-2", "prj-3"] {
        create(&catalog, id).await;
    }
    let page = async |filter: ProjectFilter| {
        let (projects, total) = catalog.projects().list(&filter).await.unwrap();
        (projects.into_iter().map(|project| project.id).collect::<Vec<_>>(), total)
    };
    let all = ProjectFilter { limit: 2, ..ProjectFilter::default() };
    assert_eq!(page(all.clone()).await, (vec!["prj-1".to_owned(), "prj-2".to_owned()], 3));
    let next = ProjectFilter { cursor: Some("prj-2".to_owned()), ..all.clone() };
    assert_eq!(page(next).await, (vec!["prj-3".to_owned()], 3));
    let newest = ProjectFilter {
        order: CreationOrder::Newest,
        owner: Some("alice".to_owned()),
        cursor: Some("prj-3".to_owned()),
        ..all.clone()
    };
    assert_eq!(page(newest).await, (vec!["prj-2".to_owned(), "prj-1".to_owned()], 3));
    let of_bob = ProjectFilter { owner: Some("bob".to_owned()), ..all };
    assert_eq!(page(of_bob).await, (vec![], 0));
    assert_eq!(catalog.projects().count(Some("alice")).await.unwrap(), 3);
    assert_eq!(catalog.projects().count(None).await.unwrap(), 3);
}

pub(crate) async fn update_keeps_unset_fields(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    create(&catalog, "prj-2").await;
    let updated = event(EventKind::ProjectUpdated);
    let update = async |id: &str, name: Option<&str>, settings: Option<Value>| {
        let change = ProjectChange { name: name.map(str::to_owned), settings };
        catalog.projects().update(id, &change, std::slice::from_ref(&updated)).await
    };
    let renamed = update("prj-1", Some("new"), None).await.unwrap().unwrap();
    assert_eq!((renamed.name.as_str(), &renamed.settings), ("new", &json!({ "mode": "lazy" })));
    let changed = update("prj-1", None, Some(json!({ "mode": "event" }))).await.unwrap().unwrap();
    assert_eq!((changed.name.as_str(), &changed.settings), ("new", &json!({ "mode": "event" })));
    assert_eq!(catalog.projects().get("prj-1").await.unwrap(), Some(changed));
    let more = update("prj-1", None, Some(json!({ "git": "kept" }))).await.unwrap().unwrap();
    assert_eq!(more.settings, json!({ "mode": "event", "git": "kept" }));
    assert_eq!(catalog.projects().get("prj-1").await.unwrap(), Some(more));
    assert_eq!(update("prj-3", None, None).await.unwrap(), None);
    let error = update("prj-2", Some("new"), None).await.unwrap_err();
    assert!(matches!(error, CatalogError::Exists { what: "project", .. }), "{error}");
    assert_eq!(
        kinds(&catalog).await,
        ["project.created", "project.created", "project.updated", "project.updated", "project.updated"]
    );
}

pub(crate) async fn project_with_queued_completions_is_not_deleted(database: TestDatabase) {
    let catalog = database.open().await;
    for id in ["prj-1", "prj-2"] {
        create(&catalog, id).await;
        queue(&catalog, id, "c1").await;
        let set = catalog.policies().set(id, 0, &json!([]), "alice", &[]).await.unwrap();
        assert!(matches!(set, PolicyResult::Set(_)));
        // More than one batch of a deletion.
        let rows = (0..2_500).map(|n| version(&format!("f{n}"), &format!("dir/{n}"), FileChange::Added));
        let mut change = advance(id, 0, vec![step("s1", rows.collect())]);
        change.reviews = vec![super::reviews::review(&format!("rev-{id}"))];
        assert_eq!(advanced(&catalog, &change).await, 1);
    }
    let deleted = [event(EventKind::ProjectDeleted)];
    let error = catalog.projects().delete("prj-1", &deleted).await.unwrap_err();
    assert!(matches!(error, CatalogError::ProjectBusy { .. }), "{error}");
    assert!(catalog.projects().get("prj-1").await.unwrap().is_some());

    let mut landed = advance("prj-1", 1, vec![merge("s2", "c1", vec![])]);
    landed.completions = vec![outcome("c1", CompletionState::Landed)];
    assert_eq!(advanced(&catalog, &landed).await, 2);
    assert!(catalog.projects().delete("prj-1", &deleted).await.unwrap());
    assert!(!catalog.projects().delete("prj-1", &deleted).await.unwrap());
    assert_eq!(catalog.projects().unfinished_deletions().await.unwrap(), ["prj-1"]);
    catalog.projects().finish_deletion("prj-1").await.unwrap();
    assert_eq!(catalog.projects().unfinished_deletions().await.unwrap(), [""; 0]);
    assert_eq!(kinds(&catalog).await.iter().filter(|kind| *kind == "project.deleted").count(), 1);

    // All rows of the project are gone, and none of the other one.
    assert_eq!(catalog.projects().get("prj-1").await.unwrap(), None);
    for (id, left) in [("prj-1", 0), ("prj-2", 1)] {
        let filter = OperationFilter { limit: 10, ..OperationFilter::default() };
        assert_eq!(catalog.operations().list(id, &filter).await.unwrap().len(), left);
        assert_eq!(catalog.policies().list(id, None, 10).await.unwrap().len(), left);
        assert_eq!(catalog.completions().queued(id, 10).await.unwrap().len(), left);
        let review = catalog.reviews().find(id, &format!("rev-{id}")).await.unwrap();
        assert_eq!(review.is_some(), left == 1);
        let versions = catalog.file_versions().of_sequence(id, 1, None, 10_000).await.unwrap();
        assert_eq!(versions.len(), left * 2_500);
    }
    let error = catalog.projects().advance(&advance("prj-1", 2, vec![])).await.unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "project", .. }), "{error}");
    let error = catalog.completions().insert(&completion("prj-1", "c2"), &[]).await.unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "project", .. }), "{error}");
}

pub(crate) async fn interrupted_deletion_is_finished(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let change = advance("prj-1", 0, vec![step("s1", vec![version("f1", "a", FileChange::Added)])]);
    advanced(&catalog, &change).await;
    database.tamper("DELETE FROM projects").await;
    database.tamper("INSERT INTO project_deletions (project) VALUES ('prj-1')").await;
    assert_eq!(catalog.file_versions().of_file("prj-1", "f1", None, 10).await.unwrap(), []);
    assert!(catalog.operations().find("prj-1", 1).await.unwrap().is_some());
    assert_eq!(catalog.projects().unfinished_deletions().await.unwrap(), ["prj-1"]);
    catalog.projects().finish_deletion("prj-1").await.unwrap();
    assert_eq!(catalog.projects().unfinished_deletions().await.unwrap(), [""; 0]);
    assert_eq!(catalog.operations().find("prj-1", 1).await.unwrap(), None);
}

pub(crate) async fn policy_is_set_by_compare_and_set(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let changed = [event(EventKind::PolicyChanged)];
    let set = async |expected: i64, document: Value| {
        catalog.policies().set("prj-1", expected, &document, "alice", &changed).await.unwrap()
    };
    assert_eq!(catalog.policies().current("prj-1").await.unwrap(), None);
    let PolicyResult::Set(first) = set(0, json!([1])).await else { panic!() };
    assert_eq!((first.version, &first.document, first.author.as_str()), (1, &json!([1]), "alice"));
    assert_eq!(set(0, json!([2])).await, PolicyResult::Changed { version: 1 });
    let PolicyResult::Set(second) = set(1, json!([2])).await else { panic!() };
    assert_eq!(catalog.projects().get("prj-1").await.unwrap().unwrap().policy_version, 2);
    assert_eq!(catalog.policies().get("prj-1", 1).await.unwrap(), Some(first.clone()));
    assert_eq!(catalog.policies().current("prj-1").await.unwrap(), Some(second.clone()));
    assert_eq!(catalog.policies().list("prj-1", None, 10).await.unwrap(), [second, first.clone()]);
    assert_eq!(catalog.policies().list("prj-1", Some(2), 10).await.unwrap(), [first]);
    for expected in 2..102 {
        catalog.policies().set("prj-1", expected, &json!([]), "alice", &[]).await.unwrap();
    }
    let kept = catalog.policies().list("prj-1", None, 1_000).await.unwrap();
    assert_eq!((kept.len(), kept[0].version, kept[99].version), (100, 102, 3));
    assert_eq!(kinds(&catalog).await, ["project.created", "policy.changed", "policy.changed"]);
    let error = catalog.policies().set("prj-2", 0, &json!([]), "alice", &[]).await.unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "project", .. }), "{error}");
}

pub(crate) async fn operations_are_filtered_and_paged(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let moved = NewFileVersion {
        previous_path: Some(b"src/a%".to_vec()),
        ..version("f1", "lib/a", FileChange::Renamed)
    };
    let by_bob = AdvanceStep { author: "bob".to_owned(), operator: Operator::Person, ..step("s3", vec![]) };
    let steps = vec![
        step("s1", vec![version("f1", "src/a%", FileChange::Added)]),
        AdvanceStep {
            operation: OperationKind::Import,
            ..step("s2", vec![version("f2", "src", FileChange::Added)])
        },
        by_bob,
        step("s4", vec![moved]),
        step("s5", vec![version("f3", "srcs/SRC", FileChange::Added)]),
    ];
    advanced(&catalog, &advance("prj-1", 0, steps)).await;
    let list = async |filter: OperationFilter| {
        let found = catalog.operations().list("prj-1", &filter).await.unwrap();
        found.iter().map(|operation| operation.snapshot.clone()).collect::<Vec<_>>().join(" ")
    };
    let all = OperationFilter { limit: 10, ..OperationFilter::default() };
    let path = |path: &str| OperationFilter { path: Some(path.as_bytes().to_vec()), ..all.clone() };
    assert_eq!(list(all.clone()).await, "s1 s2 s3 s4 s5");
    assert_eq!(list(path("")).await, "s1 s2 s3 s4 s5");
    assert_eq!(list(path("src")).await, "s1 s2 s4");
    assert_eq!(list(path("src/a%")).await, "s1 s4");
    assert_eq!(list(path("src/a")).await, "");
    assert_eq!(list(path("lib")).await, "s4");
    assert_eq!(list(OperationFilter { author: Some("bob".to_owned()), ..all.clone() }).await, "s3");
    let count = async |filter: &OperationFilter| catalog.operations().count("prj-1", filter).await.unwrap();
    let page = OperationFilter { order: CreationOrder::Newest, before: Some(3), limit: 1, ..all.clone() };
    assert_eq!((list(page.clone()).await.as_str(), count(&page).await), ("s2", 5), "on all pages");
    assert_eq!(count(&OperationFilter { author: Some("bob".to_owned()), ..page }).await, 1);
    let imports = OperationFilter { operation: Some(OperationKind::Import), ..all.clone() };
    assert_eq!(list(imports).await, "s2");
    let newest = OperationFilter { order: CreationOrder::Newest, limit: 2, before: Some(5), ..all.clone() };
    assert_eq!(list(newest).await, "s4 s3");
    assert_eq!(list(OperationFilter { after: Some(1), before: Some(4), ..all }).await, "s2 s3");

    let third = catalog.operations().find("prj-1", 3).await.unwrap().unwrap();
    assert_eq!((third.previous.as_deref(), third.operator), (Some("s2"), Operator::Person));
    assert_eq!(third.message.as_deref(), Some("message of s3"));
    assert_eq!(third.details, json!({ "files": {} }));
    assert_eq!(catalog.operations().find("prj-1", 6).await.unwrap(), None);
    assert_eq!(catalog.operations().find("prj-2", 1).await.unwrap(), None);
}
