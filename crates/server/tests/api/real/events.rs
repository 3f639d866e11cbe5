//! Events of real sandboxes.

use serde_json::{Value, json};

use super::test_server::TestServer;
use crate::snapshots::archive::Archive;

fn events(server: &TestServer, key: &str, query: &str) -> Vec<Value> {
    let answer = server.call_as(key, "GET", &format!("/api/v1/events{query}")).send();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["items"].as_array().unwrap().clone()
}

#[test]
fn the_life_cycle_of_a_sandbox_is_reported_in_events() {
    let server = TestServer::new();
    let (alice, bob) = (server.key("alice", "user"), server.key("bob", "read_only"));
    let post = |path: &str, body: Value| {
        let answer = server.call_as(&alice, "POST", path).json(&body.to_string()).send();
        assert!(answer.status < 300, "{}", answer.body);
        answer.json()
    };
    let sandbox = post("/api/v1/sandboxes", json!({"template": "base", "name": "work"}));
    let id = sandbox["id"].as_str().unwrap();
    let path = format!("/api/v1/sandboxes/{id}");
    let snapshot = post(&format!("{path}/commit"), json!({}))["snapshot"]["id"].clone();
    post(&format!("{path}/restore"), json!({"snapshot": snapshot}));
    assert_eq!(server.call_as(&alice, "DELETE", &path).send().status, 204);
    let mut told = events(&server, &alice, &format!("?sandbox={id}"));
    assert!(told.iter().all(|event| event["sandboxId"] == id && event["owner"] == "alice"), "{told:?}");
    // The guest agent may connect before or after other events.
    told.retain(|event| !event["type"].as_str().unwrap().starts_with("agent."));
    let types: Vec<_> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = [
        "sandbox.starting",
        "sandbox.running",
        "sandbox.created",
        "snapshot.created",
        "sandbox.restored",
        "sandbox.deleted",
    ];
    assert_eq!(types, expected);
    let created = &told[2]["data"];
    assert_eq!((&created["name"], &created["template"]), (&json!("work"), &json!("base")));
    assert_eq!(created["expiresAt"], sandbox["expiresAt"]);
    assert!(told[3..5].iter().all(|event| event["data"]["snapshotId"] == snapshot), "{told:?}");
    assert!(events(&server, &bob, "").is_empty());
}

#[test]
fn an_upload_has_an_event_without_a_sandbox() {
    let server = TestServer::new();
    let alice = server.key("alice", "user");
    let archive = Archive::new().file("file", "content").bytes();
    let uploaded = server.call_as(&alice, "POST", "/api/v1/snapshots").body(&archive).send().json();
    let told = events(&server, &alice, "");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["type"], &told[0]["data"]["snapshotId"]),
        (&json!("snapshot.created"), &uploaded["id"])
    );
    assert!(told[0].get("sandboxId").is_none() && told[0]["data"]["bytes"].as_u64().unwrap() > 0, "{told:?}");
}
