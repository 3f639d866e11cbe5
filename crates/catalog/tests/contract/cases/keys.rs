use serde_json::json;
use workspace_catalog::{CatalogError, KeyBinding, NewApiKey, Revocation, Role};

use crate::test_database::TestDatabase;

fn key(id: &str, digit: &str) -> NewApiKey {
    NewApiKey {
        id: id.to_owned(),
        name: format!("the key {id}"),
        owner: "alice".to_owned(),
        role: Role::User,
        hash: digit.repeat(64),
        limits: json!({ "sandboxes": 10 }),
        binding: None,
    }
}

pub(crate) async fn key_is_found_by_hash_until_revoked(database: TestDatabase) {
    let catalog = database.open().await;
    let new = key("key-1", "a");
    catalog.api_keys().insert(&new).await.unwrap();
    let found = catalog.api_keys().find_by_hash(&new.hash).await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.name.as_str(), found.role), ("key-1", "the key key-1", Role::User));
    assert_eq!((&found.limits, found.revoked_at), (&new.limits, None));
    assert_eq!(catalog.api_keys().find_by_hash(&"b".repeat(64)).await.unwrap(), None);

    assert_eq!(catalog.api_keys().revoke("key-1").await.unwrap(), Revocation::Revoked);
    assert_eq!(catalog.api_keys().find_by_hash(&new.hash).await.unwrap(), None);
    let revoked = catalog.api_keys().list(None).await.unwrap();
    assert!(revoked[0].revoked_at.unwrap() >= found.created_at);

    // A second time has no effect, not even on the time.
    assert_eq!(catalog.api_keys().revoke("key-1").await.unwrap(), Revocation::NotFound);
    assert_eq!(catalog.api_keys().revoke("key-2").await.unwrap(), Revocation::NotFound);
    assert_eq!(catalog.api_keys().list(None).await.unwrap(), revoked);
}

pub(crate) async fn concurrent_revocations_leave_an_admin_key(database: TestDatabase) {
    let (first, second) = (database.open().await, database.open().await);
    let mut last_id: Option<String> = None;
    for round in 0..8 {
        let ids = [format!("admin-{round}-a"), format!("admin-{round}-b")];
        for (id, digit) in ids.iter().zip(["a", "b"]) {
            let hash = format!("{round}{}", digit.repeat(63));
            first.api_keys().insert(&NewApiKey { role: Role::Admin, hash, ..key(id, digit) }).await.unwrap();
        }
        if let Some(id) = last_id {
            assert_eq!(first.api_keys().revoke(&id).await.unwrap(), Revocation::Revoked);
        }
        let (first, second) = (first.api_keys(), second.api_keys());
        let (one, other) = tokio::join!(first.revoke(&ids[0]), second.revoke(&ids[1]));
        let [one_id, other_id] = ids;
        last_id = Some(match (one.unwrap(), other.unwrap()) {
            (Revocation::LastAdmin, Revocation::Revoked) => one_id,
            (Revocation::Revoked, Revocation::LastAdmin) => other_id,
            outcomes => panic!("{outcomes:?}"),
        });
    }
}

pub(crate) async fn key_is_found_by_id_until_revoked(database: TestDatabase) {
    let catalog = database.open().await;
    catalog.api_keys().insert(&key("key-1", "a")).await.unwrap();
    catalog.api_keys().insert(&key("key-2", "b")).await.unwrap();
    let found = catalog.api_keys().find_by_id("key-1").await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.hash), ("key-1", "a".repeat(64)));
    assert_eq!(catalog.api_keys().find_by_id("key-3").await.unwrap(), None);
    catalog.api_keys().revoke("key-1").await.unwrap();
    assert_eq!(catalog.api_keys().find_by_id("key-1").await.unwrap(), None);
    assert!(catalog.api_keys().find_by_id("key-2").await.unwrap().is_some());
}

pub(crate) async fn key_keeps_its_binding(database: TestDatabase) {
    let catalog = database.open().await;
    let binding = KeyBinding { projects: vec!["prj-1".to_owned()], agents: vec!["ada".to_owned()] };
    let new = NewApiKey { role: Role::Agent, binding: Some(binding.clone()), ..key("key-1", "a") };
    catalog.api_keys().insert(&new).await.unwrap();
    catalog.api_keys().insert(&key("key-2", "b")).await.unwrap();
    let found = catalog.api_keys().find_by_id("key-1").await.unwrap().unwrap();
    assert_eq!((found.role, found.binding), (Role::Agent, Some(binding)));
    assert_eq!(catalog.api_keys().find_by_id("key-2").await.unwrap().unwrap().binding, None);
}

pub(crate) async fn keys_are_listed_by_owner(database: TestDatabase) {
    let catalog = database.open().await;
    for (id, digit, owner, role) in [
        ("key-1", "1", "alice", Role::Admin),
        ("key-2", "2", "alice", Role::ReadOnly),
        ("key-3", "3", "bob", Role::User),
    ] {
        let new = NewApiKey { owner: owner.to_owned(), role, ..key(id, digit) };
        catalog.api_keys().insert(&new).await.unwrap();
    }
    for (owner, expected) in [
        (None, vec![("key-1", Role::Admin), ("key-2", Role::ReadOnly), ("key-3", Role::User)]),
        (Some("alice"), vec![("key-1", Role::Admin), ("key-2", Role::ReadOnly)]),
        (Some("carol"), vec![]),
    ] {
        let keys = catalog.api_keys().list(owner).await.unwrap();
        let found: Vec<_> = keys.iter().map(|it| (it.id.as_str(), it.role)).collect();
        assert_eq!(found, expected, "{owner:?}");
    }
}

pub(crate) async fn hashes_are_unique_and_validated(database: TestDatabase) {
    let catalog = database.open().await;
    catalog.api_keys().insert(&key("key-1", "a")).await.unwrap();
    for taken in [key("key-2", "a"), key("key-1", "b")] {
        let error = catalog.api_keys().insert(&taken).await.unwrap_err();
        assert!(matches!(error, CatalogError::Exists { what: "API key", .. }), "{error}");
    }
    for digit in ["A", "g", "", "é"] {
        let error = catalog.api_keys().insert(&key("key-3", digit)).await.unwrap_err();
        assert!(matches!(error, CatalogError::InvalidHash), "{digit:?}: {error}");
    }
    assert_eq!(catalog.api_keys().list(None).await.unwrap().len(), 1);
}
