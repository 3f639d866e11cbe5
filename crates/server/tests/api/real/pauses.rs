//! Pausing and resuming sandboxes over HTTP.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::test_server::{TestServer, runs_slow_tests, wait_until};
use crate::support::{Answer, Call};

fn pause(server: &TestServer, id: &str, keep: &str) -> Answer {
    server.post(&format!("/api/v1/sandboxes/{id}/pause"), &json!({ "keep": keep }))
}

/// Resumes a sandbox without a body.
fn resume(server: &TestServer, id: &str) -> Answer {
    server.call("POST", &format!("/api/v1/sandboxes/{id}/resume")).send()
}

#[track_caller]
fn assert_state(answer: &Answer, state: &str) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["state"], state);
    answer.json()
}

/// Ids of the sandboxes in a state.
fn listed(server: &TestServer, state: &str) -> Vec<String> {
    let list = server.get(&format!("/api/v1/sandboxes?state={state}")).json();
    list["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_sandbox_is_paused_and_resumed() {
    let server = TestServer::new();
    let id = server.create();
    server.output_of(&id, "echo kept > file");
    for keep in ["memory", "disk"] {
        let paused = assert_state(&pause(&server, &id, keep), "paused");
        assert_eq!((&paused["keep"], &paused["onTimeout"]), (&json!(keep), &json!("delete")));
        assert_eq!((listed(&server, "paused"), listed(&server, "running")), (vec![id.clone()], vec![]));
        assert_eq!(listed(&server, "stopped"), [""; 0]);
        let run = server.post(&format!("/api/v1/sandboxes/{id}/process/run"), &json!({"command": "true"}));
        assert_eq!((run.status, run.error().as_str()), (409, "SANDBOX_NOT_RUNNING"));
        assert_eq!(run.json()["error"]["details"]["state"], "paused");
        assert!(run.body.contains("is paused; resume it"), "{}", run.body);
        let file = server.get(&format!("/api/v1/sandboxes/{id}/files/workspace/file"));
        assert_eq!(file.error(), "SANDBOX_NOT_RUNNING");
        let counts = server.get("/api/v1/stats").json()["sandboxes"].clone();
        assert_eq!(
            (&counts["total"], &counts["paused"], &counts["running"]),
            (&json!(1), &json!(1), &json!(0))
        );
        let resumed = assert_state(&resume(&server, &id), "running");
        assert!(resumed["keep"].is_null() && resumed["agentConnected"] == true, "{resumed}");
        assert_eq!(server.output_of(&id, "cat file"), "kept\n");
    }
    assert_state(&resume(&server, &id), "running");
    let events = server.get(&format!("/api/v1/events?sandbox={id}&type=sandbox.paused")).json();
    assert_eq!(events["items"].as_array().unwrap().len(), 2);
    assert_eq!(events["items"][1]["data"]["state"], "paused");
    for wrong in [json!({}), json!({"keep": "nothing"}), json!({"keep": "disk", "more": 1})] {
        let refused = server.post(&format!("/api/v1/sandboxes/{id}/pause"), &wrong);
        assert_eq!(refused.error(), "INVALID_REQUEST", "{wrong}");
    }
    pause(&server, &id, "disk");
    for (seconds, code) in [(0, "INVALID_REQUEST"), (100_000_000, "LIFETIME_EXCEEDED")] {
        let body = json!({ "timeoutSeconds": seconds });
        assert_eq!(server.post(&format!("/api/v1/sandboxes/{id}/resume"), &body).error(), code);
    }
    let body = json!({"timeoutSeconds": 60});
    let short = assert_state(&server.post(&format!("/api/v1/sandboxes/{id}/resume"), &body), "running");
    assert!(short["expiresAt"].as_str() < server.sandbox(&server.create())["expiresAt"].as_str());
}

#[test]
fn the_snapshot_of_a_pause_is_visible_and_protected() {
    let server = TestServer::new();
    let alice = server.key("alice", "user");
    let as_alice = |method: &str, path: &str| server.call_as(&alice, method, &format!("/api/v1/{path}"));
    let created = as_alice("POST", "sandboxes").json(r#"{"template":"base"}"#).send().json();
    let id = created["id"].as_str().unwrap();
    server.output_of(id, "echo kept > file");
    let paused = as_alice("POST", &format!("sandboxes/{id}/pause")).json(r#"{"keep":"disk"}"#).send();
    assert_state(&paused, "paused");
    let list = as_alice("GET", "snapshots").send().json();
    let snapshot = list["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(list["items"][0]["labels"], json!({ "pause": id }));
    let file = as_alice("GET", &format!("snapshots/{snapshot}/files/file")).send();
    assert_eq!(file.body, "kept\n");
    let refuse_deletion = || {
        let admins = server.call("DELETE", &format!("/api/v1/snapshots/{snapshot}")).send();
        for refused in [as_alice("DELETE", &format!("snapshots/{snapshot}")).send(), admins] {
            assert_eq!(refused.error(), "SNAPSHOT_IN_USE");
            assert_eq!(refused.json()["error"]["details"]["sandboxId"], id, "{}", refused.body);
        }
    };
    refuse_deletion();
    assert_state(&as_alice("POST", &format!("sandboxes/{id}/resume")).send(), "running");
    refuse_deletion();
    assert_eq!(as_alice("DELETE", &format!("sandboxes/{id}")).send().status, 204);
    wait_until("it is removed with its sandbox", || {
        as_alice("GET", "snapshots").send().json()["items"] == json!([])
    });
}

#[test]
fn sandboxes_are_paused_when_they_expire() {
    let server = TestServer::with(&[("EXPIRY_INTERVAL", "1")]);
    let id = server.create_with(json!({"timeoutSeconds": 1, "onTimeout": "pause"}));
    assert_eq!(server.sandbox(&id)["onTimeout"], "pause");
    wait_until("it is paused", || server.sandbox(&id)["state"] == "paused");
    assert_state(&resume(&server, &id), "running");
    let wrong = server.post("/api/v1/sandboxes", &json!({"template": "base", "onTimeout": "sleep"}));
    assert_eq!(wrong.error(), "INVALID_REQUEST");
}

#[test]
fn the_number_of_paused_sandboxes_is_limited() {
    let server = TestServer::with(&[("MAX_PAUSED_PER_OWNER", "1"), ("MAX_SANDBOXES_PER_OWNER", "1")]);
    let alice = server.key("alice", "user");
    let as_alice =
        |path: &str, body: &str| server.call_as(&alice, "POST", &format!("/api/v1/{path}")).json(body).send();
    let ids = [(); 2].map(|()| {
        let created = as_alice("sandboxes", r#"{"template":"base"}"#);
        let id = created.json()["id"].as_str().unwrap_or_else(|| panic!("{}", created.body)).to_owned();
        (as_alice(&format!("sandboxes/{id}/pause"), r#"{"keep":"disk"}"#), id)
    });
    assert_state(&ids[0].0, "paused");
    assert_eq!(ids[1].0.error(), "SANDBOX_LIMIT_EXCEEDED");
    assert_eq!(ids[1].0.json()["error"]["details"]["setting"], "MAX_PAUSED_PER_OWNER");
    let refused = as_alice(&format!("sandboxes/{}/resume", ids[0].1), "{}");
    assert_eq!(refused.error(), "SANDBOX_LIMIT_EXCEEDED");
    assert_eq!(refused.json()["error"]["details"]["setting"], "MAX_SANDBOXES_PER_OWNER");
    // Admins are exempt.
    assert_state(&pause(&server, &ids[1].1, "disk"), "paused");
}

#[test]
fn paused_sandboxes_survive_kills_of_the_server_and_of_the_machine() {
    let mut server = TestServer::new();
    let (memory, disk) = (server.create(), server.create());
    for id in [&memory, &disk] {
        server.output_of(id, "echo kept > file");
    }
    let command =
        server.start_running(&memory, json!({"command": "while [ ! -e end ]; do sleep 0.01; done"}));
    assert_state(&pause(&server, &memory, "memory"), "paused");
    assert_state(&pause(&server, &disk, "disk"), "paused");
    server.restart();
    assert_eq!(listed(&server, "paused").len(), 2);
    assert_state(&resume(&server, &memory), "running");
    assert_state(&resume(&server, &disk), "running");
    server.output_of(&memory, "touch end");
    wait_until("it continues", || server.command(&memory, &command)["exitCode"] == 0);
    assert_eq!(server.output_of(&disk, "cat file"), "kept\n");
    assert_state(&pause(&server, &memory, "memory"), "paused");
    assert_state(&pause(&server, &disk, "disk"), "paused");
    server.kill_all();
    server.start();
    assert_eq!(
        (&server.sandbox(&memory)["state"], &server.sandbox(&disk)["state"]),
        (&json!("stopped"), &json!("paused"))
    );
    assert_state(&resume(&server, &disk), "running");
    assert_eq!(server.output_of(&disk, "cat file"), "kept\n");
}

#[test]
fn a_kill_during_pauses_and_resumes_loses_nothing() {
    let mut server = TestServer::new();
    let id = server.create();
    server.output_of(&id, "echo kept > file");
    let rounds = if runs_slow_tests() { 200 } else { 16 };
    for round in 0..rounds {
        let address = server.address();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for keep in ["disk", "memory"] {
                    for (path, body) in [("pause", json!({ "keep": keep })), ("resume", json!({}))] {
                        let path = format!("/api/v1/sandboxes/{id}/{path}");
                        let call = Call::new(address, "POST", &path).key(crate::support::KEY);
                        let Some(answer) = call.json(&body.to_string()).try_send() else { return };
                        assert_eq!(answer.status, 200, "round {round}: {}", answer.body);
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(round * 13 % 200));
            server.signal(Signal::KILL);
        });
        server.wait();
        server.start();
        wait_until("it is settled", || {
            ["paused", "running"].contains(&server.sandbox(&id)["state"].as_str().unwrap())
        });
        assert_state(&resume(&server, &id), "running");
        assert_eq!(server.output_of(&id, "cat file"), "kept\n", "round {round}");
    }
    server.delete(&id);
    wait_until("nothing is left", || {
        server.sandbox_directories().is_empty() && server.workspaces().is_empty()
    });
    assert_eq!(server.get("/api/v1/snapshots").json()["items"], json!([]));
    assert_eq!(server.get("/api/v1/references").json()["items"], json!([]));
}
