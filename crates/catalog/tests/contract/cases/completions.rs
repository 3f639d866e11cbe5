use std::collections::{HashMap, HashSet};

use workspace_catalog::{
    COMPLETION_ATTEMPTS_MAX, CatalogError, CompletionFilter, CompletionInsertion, CompletionState,
    CreationOrder, EventKind, NewCompletion,
};

use super::event;
use super::projects::{completion, create, kinds, queue};
use crate::test_database::TestDatabase;

pub(crate) async fn completion_is_inserted_once(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    create(&catalog, "prj-2").await;
    let queued = [event(EventKind::CompletionQueued)];
    let new = completion("prj-1", "c1");
    let CompletionInsertion::New(first) = catalog.completions().insert(&new, &queued).await.unwrap() else {
        panic!()
    };
    assert_eq!((first.state, first.attempts, first.sequence), (CompletionState::Queued, 0, None));
    assert_eq!(first.completion, new);
    // A repeated request commits the workspace again.
    let again = NewCompletion { theirs_snapshot: "another".to_owned(), ..new.clone() };
    let repeated = catalog.completions().insert(&again, &queued).await.unwrap();
    assert_eq!(repeated, CompletionInsertion::Existing(first.clone()));
    assert_eq!(catalog.completions().find("prj-1", "c1").await.unwrap(), Some(first));
    assert_eq!(kinds(&catalog).await, ["project.created", "project.created", "completion.queued"]);

    let other = NewCompletion { agent: "agent-2".to_owned(), ..new.clone() };
    let error = catalog.completions().insert(&other, &queued).await.unwrap_err();
    assert!(matches!(error, CatalogError::IdempotencyConflict { .. }), "{error}");
    // Clients choose ids, so another project may have the same.
    let elsewhere = NewCompletion { project: "prj-2".to_owned(), ..other };
    let inserted = catalog.completions().insert(&elsewhere, &[]).await.unwrap();
    assert!(matches!(inserted, CompletionInsertion::New(_)), "{inserted:?}");
    let nowhere = NewCompletion { project: "prj-3".to_owned(), ..new };
    let error = catalog.completions().insert(&nowhere, &queued).await.unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "project", .. }), "{error}");
    assert_eq!(catalog.completions().find("prj-3", "c1").await.unwrap(), None);
}

pub(crate) async fn concurrent_insertions_make_one_completion(database: TestDatabase) {
    let (one, two) = (database.open().await, database.open().await);
    create(&one, "prj-1").await;
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let catalog = if n % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(async move {
                let queued = [event(EventKind::CompletionQueued)];
                catalog.completions().insert(&completion("prj-1", "c1"), &queued).await.unwrap()
            })
        })
        .collect();
    let mut new = 0;
    for task in tasks {
        new += usize::from(matches!(task.await.unwrap(), CompletionInsertion::New(_)));
    }
    assert_eq!(new, 1);
    assert_eq!(one.completions().queued("prj-1", 10).await.unwrap().len(), 1);
    assert_eq!(kinds(&one).await, ["project.created", "completion.queued"]);
}

/// Insertions at the same time share a transaction. One that fails must not fail the others.
pub(crate) async fn concurrent_insertions_get_their_own_results(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            let catalog = catalog.clone();
            // Of each ten, two are of one round, two are the same, and one is of a project that does not exist.
            let (group, n) = (n / 10, n % 10);
            let project = if n == 0 { "prj-9" } else { "prj-1" };
            let (id, round) = (format!("c{group}-{}", n.min(8)), format!("w{group}-{}", n.clamp(2, 8)));
            let new = NewCompletion { round_id: Some(round), ..completion(project, &id) };
            tokio::spawn(async move {
                let snapshot = format!("snap-{group}-{n}");
                catalog.snapshots().add_owner("alice", &snapshot, None, 1).await.unwrap();
                let queued = [event(EventKind::CompletionQueued)];
                (new.clone(), catalog.completions().insert(&new, &queued).await)
            })
        })
        .collect();
    let (mut new, mut existing, mut failed) = (0, 0, 0);
    for task in tasks {
        match task.await.unwrap() {
            (sent, Ok(CompletionInsertion::New(inserted))) => {
                assert_eq!(inserted.completion, sent);
                new += 1;
            }
            (sent, Ok(CompletionInsertion::Existing(found))) => {
                assert_eq!(found.completion, sent);
                existing += 1;
            }
            (sent, Err(CatalogError::NotFound { what: "project", .. })) => {
                assert_eq!(sent.project, "prj-9");
                failed += 1;
            }
            (_, Err(error)) => panic!("{error}"),
        }
    }
    assert_eq!((new, existing, failed), (48, 6, 6));
    let queued = catalog.completions().queued("prj-1", 100).await.unwrap();
    let times: HashSet<_> =
        queued.iter().map(|queued| (queued.completion.round_id.clone(), queued.created_at)).collect();
    assert_eq!((queued.len(), times.len()), (48, 48), "creation times of a round differ");
    let kinds = kinds(&catalog).await;
    let count = |kind: &str| kinds.iter().filter(|found| *found == kind).count();
    assert_eq!((count("completion.queued"), count("snapshot.created")), (48, 60));
}

pub(crate) async fn newest_merged_snapshot_of_each_round_is_found(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    create(&catalog, "prj-2").await;
    for (project, id, round) in
        [("prj-1", "c1", "w1"), ("prj-1", "c2", "w1"), ("prj-1", "c3", "w2"), ("prj-2", "c4", "w1")]
    {
        let (round_id, theirs_snapshot) = (Some(round.to_owned()), format!("snapshot of {id}"));
        let new = NewCompletion { round_id, theirs_snapshot, ..completion(project, id) };
        catalog.completions().insert(&new, &[]).await.unwrap();
    }
    let rounds = ["w1", "w2", "w3"].map(str::to_owned);
    let found = async || catalog.completions().newest_snapshots("prj-1", &rounds).await.unwrap();
    assert_eq!(found().await, HashMap::new(), "nothing is merged");
    database.tamper("UPDATE completions SET state = 'landed' WHERE id IN ('c1', 'c3', 'c4')").await;
    let expected = |of_w1: &str| {
        let pairs = [("w1", of_w1), ("w2", "snapshot of c3")];
        pairs.map(|(round, snapshot)| (round.to_owned(), snapshot.to_owned())).into()
    };
    assert_eq!(found().await, expected("snapshot of c1"));
    database.tamper("UPDATE completions SET state = 'refused' WHERE id = 'c2'").await;
    assert_eq!(found().await, expected("snapshot of c2"));
}

pub(crate) async fn queued_completions_are_listed_oldest_first(database: TestDatabase) {
    let catalog = database.open().await;
    for project in ["prj-1", "prj-2", "prj-3"] {
        create(&catalog, project).await;
    }
    for id in ["c3", "c1", "c2"] {
        queue(&catalog, "prj-1", id).await;
    }
    queue(&catalog, "prj-3", "c4").await;
    database.tamper("UPDATE completions SET created_at = 1000 WHERE id = 'c2'").await;
    database.tamper("UPDATE completions SET created_at = 2000 WHERE id IN ('c1', 'c3')").await;
    let queued = async |limit| {
        let found = catalog.completions().queued("prj-1", limit).await.unwrap();
        found.into_iter().map(|completion| completion.completion.id).collect::<Vec<_>>()
    };
    assert_eq!(queued(10).await, ["c2", "c1", "c3"]);
    assert_eq!(queued(1).await, ["c2"]);
    let projects =
        async |cursor, limit| catalog.completions().projects_with_queued(cursor, limit).await.unwrap();
    assert_eq!(projects(None, 10).await, ["prj-1", "prj-3"]);
    assert_eq!(projects(None, 1).await, ["prj-1"]);
    assert_eq!(projects(Some("prj-1"), 10).await, ["prj-3"]);
}

pub(crate) async fn completions_of_a_workspace_keep_their_order_when_the_clock_goes_back(
    database: TestDatabase,
) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let insert = async |id, round: &str| {
        let round_id = Some(round.to_owned());
        let new = NewCompletion { round_id, ..completion("prj-1", id) };
        catalog.completions().insert(&new, &[]).await.unwrap();
    };
    insert("c3", "w1").await;
    database.tamper("UPDATE completions SET created_at = 9000000000000").await;
    for (id, round) in [("c2", "w1"), ("c1", "w1"), ("c4", "w2")] {
        insert(id, round).await;
    }
    let queued = catalog.completions().queued("prj-1", 10).await.unwrap();
    let ids: Vec<&str> = queued.iter().map(|queued| queued.completion.id.as_str()).collect();
    assert_eq!(ids, ["c4", "c3", "c2", "c1"]);
    database.tamper("UPDATE completions SET state = 'landed'").await;
    let last = catalog.completions().newest_merged_or_refused("prj-1", "w1").await.unwrap().unwrap();
    assert_eq!(last.completion.id, "c1");
}

pub(crate) async fn completions_are_filtered_and_paged(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    for (id, agent) in [("c1", "agent-1"), ("c2", "agent-2"), ("c3", "agent-1"), ("c4", "agent-1")] {
        let new = NewCompletion { agent: agent.to_owned(), ..completion("prj-1", id) };
        catalog.completions().insert(&new, &[]).await.unwrap();
    }
    database.tamper("UPDATE completions SET created_at = 1000").await;
    database.tamper("UPDATE completions SET created_at = 2000, state = 'failed' WHERE id = 'c4'").await;
    let list = async |filter: CompletionFilter| {
        let found = catalog.completions().list("prj-1", &filter).await.unwrap();
        found.into_iter().map(|completion| completion.completion.id).collect::<Vec<_>>().join(" ")
    };
    let all = CompletionFilter { limit: 10, ..CompletionFilter::default() };
    assert_eq!(list(all.clone()).await, "c1 c2 c3 c4");
    let newest = CompletionFilter { order: CreationOrder::Newest, limit: 2, ..all.clone() };
    assert_eq!(list(newest.clone()).await, "c4 c3");
    let next = CompletionFilter { cursor: Some((1_000, "c3".to_owned())), ..newest };
    assert_eq!(list(next).await, "c2 c1");
    let of_agent = CompletionFilter { agent: Some("agent-1".to_owned()), ..all.clone() };
    assert_eq!(list(of_agent.clone()).await, "c1 c3 c4");
    let queued = CompletionFilter { state: Some(CompletionState::Queued), ..of_agent };
    assert_eq!(list(queued).await, "c1 c3");
    let rest = CompletionFilter { cursor: Some((1_000, "c2".to_owned())), limit: 1, ..all };
    assert_eq!(list(rest.clone()).await, "c3");
    let count = async |filter: &CompletionFilter| catalog.completions().count("prj-1", filter).await.unwrap();
    assert_eq!(count(&rest).await, 4, "on all pages");
    assert_eq!(count(&CompletionFilter { agent: Some("agent-1".to_owned()), ..rest }).await, 3);
    assert_eq!(catalog.completions().count("prj-2", &CompletionFilter::default()).await.unwrap(), 0);
}

pub(crate) async fn completion_fails_after_its_last_attempt(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    queue(&catalog, "prj-1", "c1").await;
    let failed = [event(EventKind::CompletionFailed)];
    let attempt = async |reason: &str| {
        catalog.completions().record_attempt("prj-1", "c1", reason, &failed).await.unwrap()
    };
    for attempts in 1..COMPLETION_ATTEMPTS_MAX {
        let found = attempt("the disk is full").await.unwrap();
        assert_eq!((found.state, found.attempts), (CompletionState::Queued, attempts));
    }
    assert_eq!(kinds(&catalog).await, ["project.created"]);
    let last = attempt("it is damaged").await.unwrap();
    assert_eq!((last.state, last.attempts), (CompletionState::Failed, COMPLETION_ATTEMPTS_MAX));
    assert_eq!(last.error.as_deref(), Some("it is damaged"));
    assert_eq!(attempt("again").await, None);
    assert_eq!(catalog.completions().queued("prj-1", 10).await.unwrap(), []);
    assert_eq!(kinds(&catalog).await, ["project.created", "completion.failed"]);

    assert!(catalog.completions().requeue("prj-1", "c1", &[]).await.unwrap());
    assert!(!catalog.completions().requeue("prj-1", "c1", &[]).await.unwrap());
    let queued = catalog.completions().queued("prj-1", 10).await.unwrap();
    assert_eq!((queued.len(), queued[0].attempts), (1, 0));
    assert_eq!(catalog.completions().record_attempt("prj-1", "c2", "x", &[]).await.unwrap(), None);
}
