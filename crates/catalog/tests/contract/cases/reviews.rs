use serde_json::json;
use workspace_catalog::{
    CatalogError, CreationOrder, EventKind, NewReview, Review, ReviewDecision, ReviewFilter, ReviewState,
};

use super::event;
use super::projects::{create, kinds};
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

fn ids(reviews: &[Review]) -> Vec<&str> {
    reviews.iter().map(|review| review.review.id.as_str()).collect()
}

pub(crate) async fn review_is_decided_once(database: TestDatabase) {
    let (catalog, other) = (database.open().await, database.open().await);
    create(&catalog, "prj-1").await;
    let opened = [event(EventKind::ReviewOpened)];
    catalog.reviews().insert("prj-1", "alice", &[review("rev-1")], &opened).await.unwrap();
    let found = catalog.reviews().find("prj-1", "rev-1").await.unwrap().unwrap();
    assert_eq!((found.state, &found.review), (ReviewState::Open, &review("rev-1")));
    assert_eq!(catalog.reviews().find("prj-2", "rev-1").await.unwrap(), None);

    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let catalog = if n % 2 == 0 { catalog.clone() } else { other.clone() };
            tokio::spawn(async move {
                let resolved = [event(EventKind::ReviewResolved)];
                catalog.reviews().decide("prj-1", "alice", &decision("rev-1"), &resolved).await.unwrap()
            })
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
    assert!(!catalog.reviews().decide("prj-2", "alice", &decision("rev-1"), &[]).await.unwrap());

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
    assert_eq!(ids(&reviews.overdue(2_000, 10).await.unwrap()), ["rev-2", "rev-1"]);
    assert_eq!(ids(&reviews.overdue(2_000, 1).await.unwrap()), ["rev-2"]);
    assert!(reviews.escalate("prj-1", "alice", "rev-2", "boss", Some(1_500), &[]).await.unwrap());
    assert!(!reviews.escalate("prj-1", "alice", "rev-2", "boss", None, &[]).await.unwrap());
    let escalated = reviews.find("prj-1", "rev-2").await.unwrap().unwrap();
    assert_eq!(
        (escalated.state, escalated.review.assigned.as_deref()),
        (ReviewState::Escalated, Some("boss"))
    );
    assert_eq!(ids(&reviews.overdue(1_500, 10).await.unwrap()), ["rev-2"]);
    let expired = ReviewDecision { state: ReviewState::Expired, ..decision("rev-2") };
    assert!(reviews.decide("prj-1", "alice", &expired, &[]).await.unwrap());
    assert!(!reviews.decide("prj-1", "alice", &decision("rev-2"), &[]).await.unwrap());
    assert_eq!(ids(&reviews.overdue(9_000, 10).await.unwrap()), ["rev-1", "rev-4"]);
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
    catalog.reviews().decide("prj-1", "alice", &decision("rev-1"), &[]).await.unwrap();
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
    assert_eq!(list(newest).await, "rev-3 rev-2");
}
