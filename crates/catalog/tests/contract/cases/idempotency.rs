use workspace_catalog::{Claim, NewClaim};

use crate::place::Place;

fn claim(sandbox_id: &str) -> NewClaim {
    NewClaim {
        key: "once".to_owned(),
        owner: "alice".to_owned(),
        request_hash: "a".repeat(64),
        sandbox_id: sandbox_id.to_owned(),
    }
}

pub(crate) async fn the_first_claim_wins_and_the_next_get_its_sandbox(place: Place) {
    let catalog = place.open().await;
    assert_eq!(catalog.idempotency().claim(&claim("sbx-1")).await.unwrap(), Claim::First);
    let repeated = Claim::Repeated { sandbox_id: "sbx-1".to_owned() };
    for sandbox in ["sbx-2", "sbx-1"] {
        assert_eq!(catalog.idempotency().claim(&claim(sandbox)).await.unwrap(), repeated);
    }

    // Another's keys are none of alice's business, nor is another key.
    let bobs = NewClaim { owner: "bob".to_owned(), ..claim("sbx-3") };
    assert_eq!(catalog.idempotency().claim(&bobs).await.unwrap(), Claim::First);
    let another = NewClaim { key: "twice".to_owned(), ..claim("sbx-4") };
    assert_eq!(catalog.idempotency().claim(&another).await.unwrap(), Claim::First);
}

pub(crate) async fn of_many_claims_at_once_one_is_the_first(place: Place) {
    let catalog = place.open().await;
    let claims = (0..12).map(|n| {
        let catalog = catalog.clone();
        let sandbox = format!("sbx-{n}");
        tokio::spawn(async move { (catalog.idempotency().claim(&claim(&sandbox)).await.unwrap(), sandbox) })
    });
    let mut first = Vec::new();
    let mut repeated = Vec::new();
    for task in claims.collect::<Vec<_>>() {
        match task.await.unwrap() {
            (Claim::First, sandbox) => first.push(sandbox),
            (Claim::Repeated { sandbox_id }, _) => repeated.push(sandbox_id),
        }
    }
    assert_eq!(first.len(), 1);
    assert_eq!(repeated, vec![first[0].clone(); 11]);
}

pub(crate) async fn another_request_under_the_same_key_is_refused(place: Place) {
    let catalog = place.open().await;
    catalog.idempotency().claim(&claim("sbx-1")).await.unwrap();
    let other = NewClaim { request_hash: "b".repeat(64), ..claim("sbx-2") };
    let error = catalog.idempotency().claim(&other).await.unwrap_err();
    assert_eq!(error.to_string(), "idempotency key `once` was used for another request");
    // What was refused left nothing behind, and nothing open.
    let repeated = Claim::Repeated { sandbox_id: "sbx-1".to_owned() };
    assert_eq!(catalog.idempotency().claim(&claim("sbx-3")).await.unwrap(), repeated);
}
