use serde_json::json;
use workspace_catalog::{
    Advance, AdvanceResult, Catalog, CatalogError, CompletionState, EventFilter, EventKind, FileChange,
    OperationFilter, PolicyResult, ReviewDecision, ReviewState, ReviewedCompletion,
};

use super::projects::{advance, advanced, create, kinds, merge, outcome, queue, step, version};
use super::{event, reviews::review};
use crate::test_database::TestDatabase;

fn landing(sequence: i64, id: &str) -> Advance {
    let versions = vec![version(&format!("file-{id}"), &format!("dir/{id}"), FileChange::Added)];
    Advance {
        completions: vec![outcome(id, CompletionState::Landed)],
        events: vec![("alice".to_owned(), event(EventKind::CompletionLanded))],
        ..advance("prj-1", sequence, vec![merge(&format!("s-{id}"), id, versions)])
    }
}

pub(super) async fn state(catalog: &Catalog, id: &str) -> (CompletionState, Option<i64>) {
    let found = catalog.completions().find("prj-1", id).await.unwrap().unwrap();
    (found.state, found.sequence)
}

pub(crate) async fn advance_records_every_step(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    for id in ["c1", "c2", "c3"] {
        queue(&catalog, "prj-1", id).await;
    }
    let mut change = advance(
        "prj-1",
        0,
        vec![
            merge("s1", "c1", vec![version("f1", "a", FileChange::Added)]),
            merge("s2", "c2", vec![version("f1", "a", FileChange::Modified)]),
        ],
    );
    change.completions = vec![
        outcome("c1", CompletionState::Landed),
        outcome("c2", CompletionState::InReview),
        outcome("c3", CompletionState::Refused),
    ];
    change.reviews = vec![review("rev-1")];
    change.events = vec![
        ("alice".to_owned(), event(EventKind::ProjectAdvanced)),
        ("bob".to_owned(), event(EventKind::ReviewOpened)),
        ("alice".to_owned(), event(EventKind::CompletionLanded)),
    ];
    assert_eq!(advanced(&catalog, &change).await, 2);

    let project = catalog.projects().get("prj-1").await.unwrap().unwrap();
    assert_eq!((project.sequence, project.head.as_deref()), (2, Some("s2")));
    let first = catalog.operations().find("prj-1", 1).await.unwrap().unwrap();
    assert_eq!((first.previous, first.completion.as_deref()), (None, Some("c1")));
    let second = catalog.operations().find("prj-1", 2).await.unwrap().unwrap();
    assert_eq!((second.previous.as_deref(), second.snapshot.as_str()), (Some("s1"), "s2"));
    assert_eq!(state(&catalog, "c1").await, (CompletionState::Landed, Some(1)));
    assert_eq!(state(&catalog, "c2").await, (CompletionState::InReview, Some(2)));
    assert_eq!(state(&catalog, "c3").await, (CompletionState::Refused, None));
    let landed = catalog.completions().find("prj-1", "c1").await.unwrap().unwrap();
    assert_eq!(landed.result, Some(json!({ "landed": ["c1"] })));
    assert!(catalog.reviews().find("prj-1", "rev-1").await.unwrap().is_some());
    let of_alice = EventFilter { owner: Some("alice".to_owned()), ..EventFilter::default() };
    let hers = catalog.events().read(&of_alice, 1, 10).await.unwrap().events;
    let kinds: Vec<_> = hers.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["project.advanced", "completion.landed"]);

    // The last review of a completion that landed in part.
    let resolve = Advance {
        reviewed: vec![ReviewedCompletion {
            id: "c2".to_owned(),
            owner: "alice".to_owned(),
            landed: event(EventKind::CompletionLanded),
        }],
        decisions: vec![ReviewDecision {
            id: "rev-1".to_owned(),
            state: ReviewState::Resolved,
            resolved_by: "carol".to_owned(),
            resolution: json!({ "take": "theirs" }),
        }],
        ..advance("prj-1", 2, vec![step("s3", vec![])])
    };
    assert_eq!(advanced(&catalog, &resolve).await, 3);
    assert_eq!(state(&catalog, "c2").await, (CompletionState::Landed, Some(2)));
    let resolved = catalog.completions().find("prj-1", "c2").await.unwrap().unwrap();
    assert_eq!(resolved.result, Some(json!({ "landed": ["c2"] })));
    // The decision was made; it is not made twice.
    let again = Advance { expected_sequence: 3, ..resolve };
    assert_eq!(catalog.projects().advance(&again).await.unwrap(), AdvanceResult::StateChanged);
    assert_eq!(catalog.projects().get("prj-1").await.unwrap().unwrap().sequence, 3);
}

pub(crate) async fn advance_from_another_head_changes_nothing(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    queue(&catalog, "prj-1", "c1").await;
    advanced(&catalog, &advance("prj-1", 0, vec![step("s1", vec![])])).await;
    let moved = AdvanceResult::Moved { sequence: 1, head: Some("s1".to_owned()), policy_version: 0 };
    for sequence in [0, 2] {
        assert_eq!(catalog.projects().advance(&landing(sequence, "c1")).await.unwrap(), moved);
    }
    assert_eq!(state(&catalog, "c1").await, (CompletionState::Queued, None));
    assert_eq!(catalog.operations().find("prj-1", 2).await.unwrap(), None);
    assert_eq!(kinds(&catalog).await, ["project.created"]);

    let error = catalog.projects().advance(&advance("prj-2", 0, vec![])).await.unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "project", .. }), "{error}");
}

pub(crate) async fn advance_under_another_policy_changes_nothing(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    queue(&catalog, "prj-1", "c1").await;
    let set = catalog.policies().set("prj-1", 0, &json!([]), "alice", &[]).await.unwrap();
    assert!(matches!(set, PolicyResult::Set(_)));
    let mut change = Advance { expected_policy: Some(0), ..landing(0, "c1") };
    let moved = AdvanceResult::Moved { sequence: 0, head: None, policy_version: 1 };
    assert_eq!(catalog.projects().advance(&change).await.unwrap(), moved);
    change.expected_policy = Some(1);
    assert_eq!(advanced(&catalog, &change).await, 1);
}

pub(crate) async fn completion_lands_once(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    for id in ["c1", "c2"] {
        queue(&catalog, "prj-1", id).await;
    }
    assert_eq!(advanced(&catalog, &landing(0, "c1")).await, 1);
    let project = catalog.projects().get("prj-1").await.unwrap();
    let before = kinds(&catalog).await;
    let mut again = landing(1, "c2");
    again.steps.push(merge("s-again", "c1", vec![]));
    again.completions.push(outcome("c1", CompletionState::Landed));
    assert_eq!(catalog.projects().advance(&again).await.unwrap(), AdvanceResult::StateChanged);
    assert_eq!(catalog.projects().get("prj-1").await.unwrap(), project);
    assert_eq!(state(&catalog, "c2").await, (CompletionState::Queued, None));
    assert_eq!(catalog.file_versions().of_path("prj-1", b"dir/c2", None, 10).await.unwrap(), []);
    assert_eq!(kinds(&catalog).await, before);

    // Without steps, the head stays.
    let refused =
        Advance { completions: vec![outcome("c2", CompletionState::Refused)], ..advance("prj-1", 1, vec![]) };
    assert_eq!(advanced(&catalog, &refused).await, 1);
    assert_eq!(catalog.projects().advance(&refused).await.unwrap(), AdvanceResult::StateChanged);
    let head = catalog.projects().get("prj-1").await.unwrap().unwrap().head;
    assert_eq!(head.as_deref(), Some("s-c1"));
}

pub(crate) async fn contradictory_advances_are_rejected(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    queue(&catalog, "prj-1", "c1").await;
    let staging = catalog.file_versions().begin_staging("prj-1", 0, "one").await.unwrap();
    let mut twice = landing(0, "c1");
    twice.completions.push(outcome("c1", CompletionState::Refused));
    for change in [
        twice,
        Advance { completions: vec![], ..landing(0, "c1") },
        Advance { staging: staging.clone(), ..advance("prj-1", 0, vec![]) },
        Advance { staging, ..advance("prj-1", 1, vec![step("s1", vec![])]) },
    ] {
        let error = catalog.projects().advance(&change).await.unwrap_err();
        assert!(matches!(error, CatalogError::InvalidAdvance { .. }), "{error}");
    }
    let same = vec![version("f1", "a", FileChange::Added), version("f1", "b", FileChange::Renamed)];
    let error = catalog.projects().advance(&advance("prj-1", 0, vec![step("s1", same)])).await.unwrap_err();
    assert!(matches!(error, CatalogError::Exists { .. }), "{error}");
    assert_eq!(catalog.projects().get("prj-1").await.unwrap().unwrap().sequence, 0);
}

/// Two catalogs on one database, as two servers have, land the same completions, each as often as it can.
pub(crate) async fn concurrent_advances_land_every_completion_once(database: TestDatabase) {
    const COMPLETIONS: usize = 30;
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    for n in 0..COMPLETIONS {
        queue(&catalog, "prj-1", &format!("c{n:02}")).await;
    }
    let land_all = |catalog: Catalog| async move {
        let mut count = 0;
        loop {
            let project = catalog.projects().get("prj-1").await.unwrap().unwrap();
            let queued = catalog.completions().queued("prj-1", 1).await.unwrap();
            let Some(next) = queued.first() else { return count };
            match catalog.projects().advance(&landing(project.sequence, &next.completion.id)).await.unwrap() {
                AdvanceResult::Advanced { .. } => count += 1,
                AdvanceResult::Moved { .. } | AdvanceResult::StateChanged => {}
            }
        }
    };
    let other = database.open().await;
    let tasks: Vec<_> =
        [&catalog, &other, &catalog, &other].map(|catalog| tokio::spawn(land_all(catalog.clone()))).into();
    let mut landed = 0;
    for task in tasks {
        landed += task.await.unwrap();
    }
    assert_eq!(landed, COMPLETIONS);

    let filter = OperationFilter { limit: 1_000, ..OperationFilter::default() };
    let operations = catalog.operations().list("prj-1", &filter).await.unwrap();
    assert!(operations.iter().map(|operation| operation.sequence).eq(1..=COMPLETIONS as i64));
    let mut completions: Vec<_> =
        operations.iter().filter_map(|operation| operation.completion.clone()).collect();
    completions.sort();
    completions.dedup();
    assert_eq!(completions.len(), COMPLETIONS);
    for (one, next) in operations.iter().zip(&operations[1..]) {
        assert_eq!(next.previous.as_deref(), Some(one.snapshot.as_str()));
    }
    let head = catalog.projects().get("prj-1").await.unwrap().unwrap();
    assert_eq!(head.head.as_ref(), operations.last().map(|operation| &operation.snapshot));
    let events = kinds(&catalog).await;
    assert_eq!(events.iter().filter(|kind| *kind == "completion.landed").count(), COMPLETIONS);
}

/// More rows of every table than one statement has.
pub(crate) async fn one_advance_lands_many_completions(database: TestDatabase) {
    const COMPLETIONS: i64 = 250;
    const WRITES: i64 = 1_000;
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let ids: Vec<String> = (0..COMPLETIONS).map(|n| format!("c{n:04}")).collect();
    let mut change = advance("prj-1", 0, vec![]);
    for id in &ids {
        queue(&catalog, "prj-1", id).await;
        let one = landing(0, id);
        change.steps.extend(one.steps);
        change.completions.extend(one.completions);
        change.events.extend(one.events);
    }
    for n in 0..WRITES {
        change.steps.push(step("s", vec![version("f", "a", FileChange::Modified)]));
        change.reviews.push(review(&format!("rev-{n}")));
        change.events.push(("alice".to_owned(), event(EventKind::ReviewOpened)));
    }
    assert_eq!(advanced(&catalog, &change).await, COMPLETIONS + WRITES);
    for (id, sequence) in ids.iter().zip(1..) {
        assert_eq!(state(&catalog, id).await, (CompletionState::Landed, Some(sequence)));
        let versions = catalog.file_versions().of_sequence("prj-1", sequence, None, 10).await.unwrap();
        assert_eq!(versions.len(), 1);
        assert_eq!(versions[0].version.path, format!("dir/{id}").into_bytes());
    }
    assert_eq!(catalog.completions().queued("prj-1", 10).await.unwrap(), []);
    let versions = catalog.file_versions().of_file("prj-1", "f", None, 10_000).await.unwrap();
    assert_eq!(versions.len() as i64, WRITES);
    let events = catalog.events().after(0, 10_000).await.unwrap();
    assert!(events.iter().map(|event| event.number).eq(1..=1 + COMPLETIONS + WRITES));
}
