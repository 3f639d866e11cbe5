//! Creation, listing and revocation of keys, and the first key.

use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use workspace_catalog::Catalog;
use workspace_server::first_key::{self, FirstKeyError, KeyOrigin};
use workspace_server::{Settings, key_hash};

use crate::support::{KEY, Server, settings_source};

#[test]
fn a_key_works_until_it_is_revoked() {
    let server = Server::new();
    let order = r#"{"name":"ci","owner":"alice","role":"user","limits":{"maxSandboxes":3}}"#;
    let made = server.call("POST", "/api/v1/keys").key(KEY).json(order).send();
    assert_eq!(made.status, 201);
    let (id, key) = (made.json()["id"].as_str().unwrap().to_owned(), made.json()["key"].clone());
    let key = key.as_str().unwrap();
    assert_eq!(server.call("GET", "/test/path/1").key(key).send().status, 200);

    let list = server.call("GET", "/api/v1/keys").key(KEY).send();
    assert!(!list.body.contains(key));
    let listed = list.json()["items"].as_array().unwrap().iter().find(|it| it["id"] == id.as_str()).cloned();
    let listed = listed.unwrap();
    assert_eq!((&listed["owner"], &listed["limits"]["maxSandboxes"]), (&"alice".into(), &3.into()));

    assert_eq!(server.call("DELETE", &format!("/api/v1/keys/{id}")).key(KEY).send().status, 204);
    assert_eq!(server.call("GET", "/test/path/1").key(key).send().error(), "UNAUTHORIZED");
    assert_eq!(server.call("DELETE", &format!("/api/v1/keys/{id}")).key(KEY).send().error(), "KEY_NOT_FOUND");
    let events: Vec<_> = server.audit().iter().map(|entry| entry["event"].clone()).collect();
    assert!(events.contains(&"key.created".into()) && events.contains(&"key.revoked".into()), "{events:?}");
}

#[test]
fn invalid_keys_are_not_created() {
    let server = Server::new();
    for order in [
        r#"{"name":"","owner":"a","role":"user"}"#,
        r#"{"name":"a","owner":"a\n","role":"user"}"#,
        r#"{"name":"a","owner":"a\u0000","role":"user"}"#,
        r#"{"name":"a","owner":"a","role":"king"}"#,
        r#"{"name":"a","owner":"a","role":"user","more":1}"#,
        r#"{"name":"a","owner":"a","role":"user","limits":{"runPerMinute":0}}"#,
        r#"{"name":"a","owner":"a","role":"user","limits":{"other":1}}"#,
    ] {
        let answer = server.call("POST", "/api/v1/keys").key(KEY).json(order).send();
        assert_eq!(answer.error(), "INVALID_REQUEST", "{order}");
    }
}

#[test]
fn the_last_admin_key_cannot_be_revoked() {
    let server = Server::new();
    let first = server.call("GET", "/api/v1/keys").key(KEY).send().json()["items"][0]["id"].clone();
    let path = format!("/api/v1/keys/{}", first.as_str().unwrap());
    assert_eq!(server.call("DELETE", &path).key(KEY).send().error(), "LAST_ADMIN_KEY");
    let other = server.key("admin");
    assert_eq!(server.call("DELETE", &path).key(&other).send().status, 204);
}

fn is_accepted(data: &TempDir, key: &str) -> bool {
    let settings = Settings::from_source(&settings_source(data, None, &[])).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let catalog = Catalog::open(settings.database_url.0.reveal()).await.unwrap();
        let found = catalog.api_keys().find_by_hash(&key_hash::hash(key)).await.unwrap();
        catalog.close().await;
        found.is_some()
    })
}

/// Returns the origin of the first key of a server with these settings on that data.
fn ensure_first_key(data: &TempDir, key: Option<&str>) -> Result<KeyOrigin, FirstKeyError> {
    let settings = Settings::from_source(&settings_source(data, key, &[])).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let catalog = Catalog::open(settings.database_url.0.reveal()).await.unwrap();
        let origin = first_key::ensure(&settings, "here", &catalog).await;
        catalog.close().await;
        origin
    })
}

#[test]
fn the_first_key_is_created_once_with_private_permissions() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("api-key");
    assert_eq!(ensure_first_key(&data, None).unwrap(), KeyOrigin::Created(path.clone()));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("wsk-") && text.trim().len() == 68, "{text}");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(ensure_first_key(&data, None).unwrap(), KeyOrigin::Kept(path.clone()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    let names = std::fs::read_dir(data.path()).unwrap().map(|it| it.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().ends_with(".new")));
}

#[test]
fn a_key_file_that_others_can_read_is_refused_with_a_hint() {
    let data = tempfile::tempdir().unwrap();
    ensure_first_key(&data, None).unwrap();
    let path = data.path().join("api-key");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let error = ensure_first_key(&data, None).unwrap_err().to_string();
    assert!(error.contains("mode 644") && error.contains("chmod 600"), "{error}");
}

#[test]
fn a_new_first_key_revokes_the_previous_one() {
    let data = tempfile::tempdir().unwrap();
    let keys = ["first-key-number-one", "first-key-number-two"];
    for key in keys {
        assert_eq!(ensure_first_key(&data, Some(key)).unwrap(), KeyOrigin::Setting);
    }
    assert_eq!(keys.map(|key| is_accepted(&data, key)), [false, true]);
    let error = ensure_first_key(&data, Some(keys[0])).unwrap_err();
    assert!(error.to_string().contains("set another API_KEY"), "{error}");
    assert_eq!(keys.map(|key| is_accepted(&data, key)), [false, true]);
}
