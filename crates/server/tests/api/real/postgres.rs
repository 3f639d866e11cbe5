//! The server with its catalog in PostgreSQL.

use serde_json::json;
use workspace_test_support::PostgresDatabase;

use super::test_server::{TestServer, wait_until};

#[test]
fn two_servers_on_one_database_do_not_interfere() {
    if !PostgresDatabase::is_available() {
        return;
    }
    let database = PostgresDatabase::new();
    let url = database.url();
    let mut one = TestServer::with(&[("DATABASE_URL", &url)]);
    let id = one.create();
    assert_eq!(one.output_of(&id, "echo mine > file; cat file"), "mine\n");
    let other = TestServer::with(&[("DATABASE_URL", &url)]);
    let others = other.create();
    // The second server did not take over the sandbox, and did not revoke the key of the first.
    assert_eq!(one.output_of(&id, "cat file"), "mine\n");
    assert_eq!(other.sandbox(&id)["state"], "running");
    let path = format!("/api/v1/sandboxes/{id}");
    for (method, path) in [
        ("DELETE", path.clone()),
        ("POST", format!("{path}/extend")),
        ("POST", format!("{path}/process/run")),
        ("GET", format!("{path}/stats")),
        ("GET", format!("{path}/metrics")),
    ] {
        let answer = match method {
            "POST" => other.post(&path, &json!({"command": "true", "seconds": 60})),
            _ => other.call(method, &path).send(),
        };
        let expected = if path.ends_with("extend") || path.ends_with("run") { 400 } else { 421 };
        assert!([expected, 421].contains(&answer.status), "{method} {path}: {}", answer.json());
    }
    let answer = other.call("DELETE", &path).send();
    assert_eq!((answer.status, &answer.json()["error"]["name"]), (421, &json!("SANDBOX_ELSEWHERE")));
    let told = other.get(&format!("/api/v1/events?sandbox={id}&type=sandbox.created")).json();
    assert_eq!(told["items"].as_array().unwrap().len(), 1, "events are on every server: {told}");
    assert_eq!(other.post("/api/v1/gc", &json!({})).status, 200);
    one.restart();
    wait_until("its guest is back", || one.sandbox(&id)["agentConnected"] == true);
    assert_eq!(one.output_of(&id, "cat file"), "mine\n");
    assert_eq!(other.output_of(&others, "echo yes"), "yes\n");
}

#[test]
fn sandboxes_are_kept_in_postgresql_across_a_kill() {
    if !PostgresDatabase::is_available() {
        return;
    }
    let database = PostgresDatabase::new();
    let mut server = TestServer::with(&[("DATABASE_URL", &database.url())]);
    let (id, other) = (server.create_with(json!({"name": "kept", "labels": {"a": "b"}})), server.create());
    assert_eq!(server.output_of(&id, "echo $((6*7)) | tee file"), "42\n");
    let command = server.start_running(&id, json!({"command": "sleep 1; echo late"}));
    server.restart();
    assert!(!server.path().join("catalog.db").exists());
    wait_until("its guest is back", || server.sandbox(&id)["agentConnected"] == true);
    assert_eq!(
        (&server.sandbox(&id)["name"], server.output_of(&id, "cat file").as_str()),
        (&json!("kept"), "42\n")
    );
    wait_until("its command ended", || server.command(&id, &command)["exitCode"] == 0);
    assert_eq!(server.get("/api/v1/sandboxes?labels=a=b&name_prefix=ke&state=running").json()["total"], 1);
    server.delete(&id);
    server.delete(&other);
    server.restart();
    assert_eq!(server.get("/api/v1/sandboxes").json()["total"], 0);
    wait_until("nothing is left", || {
        server.sandbox_directories().is_empty() && server.workspaces().is_empty()
    });
}
