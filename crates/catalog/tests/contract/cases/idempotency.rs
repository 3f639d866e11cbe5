use workspace_catalog::{Catalog, IdempotencyClaim, Result, SandboxInsertion};

use super::new_sandbox;
use crate::test_database::TestDatabase;

fn claim() -> IdempotencyClaim {
    IdempotencyClaim { key: "once".to_owned(), owner: "alice".to_owned(), request_hash: "a".repeat(64) }
}

/// Inserts a sandbox. Returns the id of the request's sandbox, and whether it was inserted now.
async fn insert_once(catalog: &Catalog, claim: &IdempotencyClaim, id: &str) -> Result<(String, bool)> {
    Ok(match catalog.sandboxes().insert_once(&new_sandbox(id), claim, &[]).await? {
        SandboxInsertion::New(sandbox) => (sandbox.id, true),
        SandboxInsertion::Existing { sandbox_id } => (sandbox_id, false),
    })
}

pub(crate) async fn repeated_request_returns_the_first_sandbox(database: TestDatabase) {
    let catalog = database.open().await;
    assert_eq!(insert_once(&catalog, &claim(), "sbx-1").await.unwrap(), ("sbx-1".to_owned(), true));
    for id in ["sbx-2", "sbx-1"] {
        assert_eq!(insert_once(&catalog, &claim(), id).await.unwrap(), ("sbx-1".to_owned(), false));
    }
    assert_eq!(catalog.sandboxes().get("sbx-2").await.unwrap(), None);
    assert_eq!(catalog.idempotency().find(&claim()).await.unwrap().as_deref(), Some("sbx-1"));
    let unheard = IdempotencyClaim { key: "never".to_owned(), ..claim() };
    assert_eq!(catalog.idempotency().find(&unheard).await.unwrap(), None);

    // Keys of other owners, and other keys, are independent.
    let bobs = IdempotencyClaim { owner: "bob".to_owned(), ..claim() };
    assert!(insert_once(&catalog, &bobs, "sbx-3").await.unwrap().1);
    let another = IdempotencyClaim { key: "twice".to_owned(), ..claim() };
    assert!(insert_once(&catalog, &another, "sbx-4").await.unwrap().1);
}

pub(crate) async fn concurrent_requests_create_one_sandbox(database: TestDatabase) {
    let catalog = database.open().await;
    let requests = (0..12).map(|n| {
        let catalog = catalog.clone();
        tokio::spawn(async move { insert_once(&catalog, &claim(), &format!("sbx-{n}")).await.unwrap() })
    });
    let mut answers = Vec::new();
    for task in requests.collect::<Vec<_>>() {
        answers.push(task.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|(_, new)| *new).count(), 1);
    assert!(answers.iter().all(|(id, _)| *id == answers[0].0), "{answers:?}");
    assert_eq!(catalog.sandboxes().all("here").await.unwrap().len(), 1);
}

pub(crate) async fn key_reuse_for_another_request_is_rejected(database: TestDatabase) {
    let catalog = database.open().await;
    insert_once(&catalog, &claim(), "sbx-1").await.unwrap();
    let other = IdempotencyClaim { request_hash: "b".repeat(64), ..claim() };
    let error = insert_once(&catalog, &other, "sbx-2").await.unwrap_err();
    assert_eq!(error.to_string(), "idempotency key `once` was used for another request");
    // The rejected request left no rows and no open transaction.
    assert_eq!(catalog.sandboxes().get("sbx-2").await.unwrap(), None);
    assert_eq!(catalog.idempotency().find(&claim()).await.unwrap().as_deref(), Some("sbx-1"));
    let unheard = IdempotencyClaim { key: "never".to_owned(), ..claim() };
    assert_eq!(catalog.idempotency().find(&unheard).await.unwrap(), None);
    assert_eq!(insert_once(&catalog, &claim(), "sbx-3").await.unwrap(), ("sbx-1".to_owned(), false));
}

pub(crate) async fn released_claim_can_be_repeated(database: TestDatabase) {
    let catalog = database.open().await;
    insert_once(&catalog, &claim(), "sbx-1").await.unwrap();
    catalog.idempotency().release("sbx-1").await.unwrap();
    assert!(insert_once(&catalog, &claim(), "sbx-2").await.unwrap().1);
    // A claim whose sandbox could not be inserted is rolled back.
    let twice = IdempotencyClaim { key: "twice".to_owned(), ..claim() };
    insert_once(&catalog, &twice, "sbx-2").await.unwrap_err();
    assert!(insert_once(&catalog, &twice, "sbx-3").await.unwrap().1);
}

pub(crate) async fn old_claims_are_deleted(database: TestDatabase) {
    let catalog = database.open().await;
    insert_once(&catalog, &claim(), "sbx-1").await.unwrap();
    assert_eq!(catalog.idempotency().delete_before(1_000).await.unwrap(), 0);
    assert_eq!(catalog.idempotency().delete_before(i64::MAX).await.unwrap(), 1);
    assert!(insert_once(&catalog, &claim(), "sbx-2").await.unwrap().1);
}
