use workspace_catalog::{Catalog, Inserted, NewClaim, Result};

use super::plain;
use crate::place::Place;

fn claim() -> NewClaim {
    NewClaim { key: "once".to_owned(), owner: "alice".to_owned(), request_hash: "a".repeat(64) }
}

/// The sandbox that a request made, and whether it did so now.
async fn ask(catalog: &Catalog, claim: &NewClaim, id: &str) -> Result<(String, bool)> {
    Ok(match catalog.sandboxes().insert_once(&plain(id), claim, &[]).await? {
        Inserted::New(sandbox) => (sandbox.id, true),
        Inserted::Repeated { sandbox_id } => (sandbox_id, false),
    })
}

pub(crate) async fn the_first_request_wins_and_the_next_get_its_sandbox(place: Place) {
    let catalog = place.open().await;
    assert_eq!(ask(&catalog, &claim(), "sbx-1").await.unwrap(), ("sbx-1".to_owned(), true));
    for id in ["sbx-2", "sbx-1"] {
        assert_eq!(ask(&catalog, &claim(), id).await.unwrap(), ("sbx-1".to_owned(), false));
    }
    assert_eq!(catalog.sandboxes().get("sbx-2").await.unwrap(), None);
    assert_eq!(catalog.idempotency().find(&claim()).await.unwrap().as_deref(), Some("sbx-1"));
    let unheard = NewClaim { key: "never".to_owned(), ..claim() };
    assert_eq!(catalog.idempotency().find(&unheard).await.unwrap(), None);

    // Another's keys are none of alice's business, nor is another key.
    let bobs = NewClaim { owner: "bob".to_owned(), ..claim() };
    assert!(ask(&catalog, &bobs, "sbx-3").await.unwrap().1);
    let another = NewClaim { key: "twice".to_owned(), ..claim() };
    assert!(ask(&catalog, &another, "sbx-4").await.unwrap().1);
}

pub(crate) async fn of_many_requests_at_once_one_is_the_first(place: Place) {
    let catalog = place.open().await;
    let requests = (0..12).map(|n| {
        let catalog = catalog.clone();
        tokio::spawn(async move { ask(&catalog, &claim(), &format!("sbx-{n}")).await.unwrap() })
    });
    let mut answers = Vec::new();
    for task in requests.collect::<Vec<_>>() {
        answers.push(task.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|(_, new)| *new).count(), 1);
    assert!(answers.iter().all(|(id, _)| *id == answers[0].0), "{answers:?}");
    assert_eq!(catalog.sandboxes().all("here").await.unwrap().len(), 1);
}

pub(crate) async fn another_request_under_the_same_key_is_refused(place: Place) {
    let catalog = place.open().await;
    ask(&catalog, &claim(), "sbx-1").await.unwrap();
    let other = NewClaim { request_hash: "b".repeat(64), ..claim() };
    let error = ask(&catalog, &other, "sbx-2").await.unwrap_err();
    assert_eq!(error.to_string(), "idempotency key `once` was used for another request");
    // What was refused left nothing behind, and nothing open.
    assert_eq!(catalog.sandboxes().get("sbx-2").await.unwrap(), None);
    assert_eq!(catalog.idempotency().find(&claim()).await.unwrap().as_deref(), Some("sbx-1"));
    let unheard = NewClaim { key: "never".to_owned(), ..claim() };
    assert_eq!(catalog.idempotency().find(&unheard).await.unwrap(), None);
    assert_eq!(ask(&catalog, &claim(), "sbx-3").await.unwrap(), ("sbx-1".to_owned(), false));
}

pub(crate) async fn a_request_that_came_to_nothing_may_come_again(place: Place) {
    let catalog = place.open().await;
    ask(&catalog, &claim(), "sbx-1").await.unwrap();
    catalog.idempotency().release("sbx-1").await.unwrap();
    assert!(ask(&catalog, &claim(), "sbx-2").await.unwrap().1);
    // A claim whose sandbox is not written leaves nothing either.
    let twice = NewClaim { key: "twice".to_owned(), ..claim() };
    ask(&catalog, &twice, "sbx-2").await.unwrap_err();
    assert!(ask(&catalog, &twice, "sbx-3").await.unwrap().1);
}

pub(crate) async fn old_requests_are_forgotten(place: Place) {
    let catalog = place.open().await;
    ask(&catalog, &claim(), "sbx-1").await.unwrap();
    assert_eq!(catalog.idempotency().forget_before(1_000).await.unwrap(), 0);
    assert_eq!(catalog.idempotency().forget_before(i64::MAX).await.unwrap(), 1);
    assert!(ask(&catalog, &claim(), "sbx-2").await.unwrap().1);
}
