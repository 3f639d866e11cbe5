use serde_json::json;
use workspace_catalog::{
    Advance, AdvanceResult, Catalog, CatalogError, CompletionState, CreationOrder, EventKind, NewReview,
    Review, ReviewDecision, ReviewFilter, ReviewState, ReviewedCompletion,
};

use super::advances::state;
use super::event;
use super::projects::{advance, advanced, create, kinds, outcome, queue, step};
use crate::test_database::TestDatabase;

pub(super) fn review(id: &str) -> NewReview {
    NewReview {
        id: id.to_owned(),
        completion: Some("c1".to_owned()),
        path: b"src/\xff.rs".to_vec(),
        class: "conflict".to_owned(),
        data: json!({ "regions": [1, 2] }),
        author: "agent-1".to_owned(),
        assigned: None,
        expires_at: None,
    }
}

fn decision(id: &str) -> ReviewDecision {
    ReviewDecision {
        id: id.to_owned(),
        state: ReviewState::Resolved,
        resolved_by: "carol".to_owned(),
        resolution: json!({ "take": "ours" }),
    }
}

/// Decides a review without a change of the head, which has sequence 0. Returns false if it is decided already.
async fn decide(catalog: &Catalog, decision: ReviewDecision, kind: EventKind) -> bool {
    let decision = Advance {
        decisions: vec![decision],
        events: vec![("alice".to_owned(), event(kind))],
        ..advance("prj-1", 0, vec![])
    };
    match catalog.projects().advance(&decision).await.unwrap() {
        AdvanceResult::Advanced { .. } => true,
        AdvanceResult::StateChanged => false,
        moved @ AdvanceResult::Moved { .. } => panic!("{moved:?}"),
    }
}

fn ids(reviews: &[Review]) -> Vec<&str> {
    reviews.iter().map(|review| review.opened.id.as_str()).collect()
}

pub(crate) async fn review_is_decided_once(database: TestDatabase) {
    let (catalog, other) = (database.open().await, database.open().await);
    create(&catalog, "prj-1").await;
    let opened = [event(EventKind::ReviewOpened)];
    catalog.reviews().insert("prj-1", "alice", &[review("rev-1")], &opened).await.unwrap();
    let found = catalog.reviews().find("prj-1", "rev-1").await.unwrap().unwrap();
    assert_eq!((found.state, &found.opened), (ReviewState::Open, &review("rev-1")));
    assert_eq!(catalog.reviews().find("prj-2", "rev-1").await.unwrap(), None);

    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let catalog = if n % 2 == 0 { catalog.clone() } else { other.clone() };
            tokio::spawn(async move { decide(&catalog, decision("rev-1"), EventKind::ReviewResolved).await })
        })
        .collect();
    let mut decided = 0;
    for task in tasks {
        decided += usize::from(task.await.unwrap());
    }
    assert_eq!(decided, 1);
    let found = catalog.reviews().find("prj-1", "rev-1").await.unwrap().unwrap();
    assert_eq!((found.state, found.resolved_by.as_deref()), (ReviewState::Resolved, Some("carol")));
    assert_eq!(found.resolution, Some(json!({ "take": "ours" })));
    assert_eq!(kinds(&catalog).await, ["project.created", "review.opened", "review.resolved"]);

    let error = catalog.reviews().insert("prj-1", "alice", &[review("rev-1")], &[]).await.unwrap_err();
    assert!(matches!(error, CatalogError::Exists { what: "review", .. }), "{error}");
    let error = catalog.reviews().insert("prj-2", "alice", &[review("rev-2")], &[]).await.unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "project", .. }), "{error}");
}

pub(crate) async fn overdue_reviews_are_escalated_or_expire(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let due = |id: &str, expires_at| NewReview { expires_at, ..review(id) };
    let new =
        [due("rev-1", Some(2_000)), due("rev-2", Some(1_000)), due("rev-3", None), due("rev-4", Some(3_000))];
    catalog.reviews().insert("prj-1", "alice", &new, &[]).await.unwrap();
    let reviews = catalog.reviews();
    assert_eq!(ids(&reviews.overdue(2_000, None, 10).await.unwrap()), ["rev-2", "rev-1"]);
    assert_eq!(ids(&reviews.overdue(2_000, None, 1).await.unwrap()), ["rev-2"]);
    assert!(reviews.escalate("prj-1", "alice", "rev-2", "boss", Some(1_500), &[]).await.unwrap());
    assert!(!reviews.escalate("prj-1", "alice", "rev-2", "boss", None, &[]).await.unwrap());
    let escalated = reviews.find("prj-1", "rev-2").await.unwrap().unwrap();
    assert_eq!(
        (escalated.state, escalated.opened.assigned.as_deref()),
        (ReviewState::Escalated, Some("boss"))
    );
    assert_eq!(ids(&reviews.overdue(1_500, None, 10).await.unwrap()), ["rev-2"]);
    let expired = ReviewDecision { state: ReviewState::Expired, ..decision("rev-2") };
    assert!(decide(&catalog, expired, EventKind::ReviewExpired).await);
    assert!(!decide(&catalog, decision("rev-2"), EventKind::ReviewResolved).await);
    let left = reviews.overdue(9_000, None, 10).await.unwrap();
    assert_eq!(ids(&left), ["rev-1", "rev-4"]);
    assert_eq!(ids(&reviews.overdue(9_000, Some(&left[0]), 10).await.unwrap()), ["rev-4"]);
}

pub(crate) async fn a_completion_lands_with_its_last_review(database: TestDatabase) {
    let (catalog, other) = (database.open().await, database.open().await);
    create(&catalog, "prj-1").await;
    queue(&catalog, "prj-1", "c1").await;
    let landing = Advance {
        completions: vec![outcome("c1", CompletionState::InReview)],
        reviews: (0..8).map(|n| review(&format!("rev-{n}"))).collect(),
        ..advance("prj-1", 0, vec![])
    };
    advanced(&catalog, &landing).await;
    let decide = |n: i32| {
        let catalog = if n % 2 == 0 { catalog.clone() } else { other.clone() };
        let landed = event(EventKind::CompletionLanded);
        let reviewed = ReviewedCompletion { id: "c1".to_owned(), owner: "alice".to_owned(), landed };
        let decision = Advance {
            decisions: vec![decision(&format!("rev-{n}"))],
            reviewed: vec![reviewed],
            ..advance("prj-1", 0, vec![])
        };
        tokio::spawn(async move { advanced(&catalog, &decision).await })
    };
    decide(0).await.unwrap();
    assert_eq!(state(&catalog, "c1").await, (CompletionState::InReview, None));
    for task in (1..7).map(decide).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(state(&catalog, "c1").await, (CompletionState::InReview, None));
    // The last one changes the head, and is the first change of the completion that lands.
    let landed = event(EventKind::CompletionLanded);
    let mut change = step("s1", vec![]);
    change.operation = workspace_catalog::OperationKind::Resolve;
    change.completion = Some("c1".to_owned());
    let last = Advance {
        decisions: vec![decision("rev-7")],
        reviewed: vec![ReviewedCompletion { id: "c1".to_owned(), owner: "alice".to_owned(), landed }],
        ..advance("prj-1", 0, vec![change])
    };
    assert_eq!(advanced(&catalog, &last).await, 1);
    assert_eq!(state(&catalog, "c1").await, (CompletionState::Landed, Some(1)));
    assert_eq!(kinds(&catalog).await, ["project.created", "completion.landed"]);
}

pub(crate) async fn reviews_are_filtered_and_paged(database: TestDatabase) {
    let catalog = database.open().await;
    create(&catalog, "prj-1").await;
    let new = [
        review("rev-1"),
        NewReview { completion: None, ..review("rev-2") },
        NewReview { path: b"other".to_vec(), ..review("rev-3") },
        NewReview { assigned: Some("carol".to_owned()), ..review("rev-4") },
    ];
    catalog.reviews().insert("prj-1", "alice", &new, &[]).await.unwrap();
    assert!(decide(&catalog, decision("rev-1"), EventKind::ReviewResolved).await);
    let list = async |filter: ReviewFilter| {
        let found = catalog.reviews().list("prj-1", &filter).await.unwrap();
        ids(&found).join(" ")
    };
    let all = ReviewFilter { limit: 10, ..ReviewFilter::default() };
    assert_eq!(list(all.clone()).await, "rev-1 rev-2 rev-3 rev-4");
    assert_eq!(
        list(ReviewFilter { state: Some(ReviewState::Open), ..all.clone() }).await,
        "rev-2 rev-3 rev-4"
    );
    assert_eq!(
        list(ReviewFilter { completion: Some("c1".to_owned()), ..all.clone() }).await,
        "rev-1 rev-3 rev-4"
    );
    assert_eq!(
        list(ReviewFilter { path: Some(b"src/\xff.rs".to_vec()), ..all.clone() }).await,
        "rev-1 rev-2 rev-4"
    );
    assert_eq!(list(ReviewFilter { assigned: Some("carol".to_owned()), ..all.clone() }).await, "rev-4");
    let newest =
        ReviewFilter { order: CreationOrder::Newest, cursor: Some("rev-4".to_owned()), limit: 2, ..all };
    assert_eq!(list(newest.clone()).await, "rev-3 rev-2");
    assert_eq!(catalog.reviews().count("prj-1", &newest).await.unwrap(), 4, "on all pages");
    let open = ReviewFilter { state: Some(ReviewState::Open), ..newest };
    assert_eq!(catalog.reviews().count("prj-1", &open).await.unwrap(), 3);
}
