//! Behaviour of the server on a full disk, and after it.

use serde_json::json;

use super::disk::Disk;
use super::stream::Stream;
use super::test_server::{TestServer, wait_until};

#[test]
fn nothing_is_lost_on_a_full_disk_and_work_resumes_after_it() {
    let Some(disk) = Disk::mount("24m") else { return };
    let server = TestServer::with(&[("DATA_DIR", disk.path().to_str().unwrap())]);
    let id = server.create();
    // It runs before the disk is full, and ends on the full disk.
    let late = server.start_running(&id, json!({"command": "echo before; sleep 1; exit 7"}));
    // It waits for its input, which is sent on the full disk.
    let command = server.start_background(&id, json!({"command": "read go; echo lost", "stdin": true}));
    let mut lost = Stream::output(&server, &id, &command, None).begun();
    disk.fill();
    // Requests that need disk space are refused with a reason.
    let mut refused = false;
    for _ in 0..40 {
        let answer = server.post("/api/v1/sandboxes", &json!({"template": "base"}));
        if answer.status >= 400 {
            let error = &answer.json()["error"];
            let name = error["name"].as_str().unwrap();
            assert!(["SANDBOX_CREATION_FAILED", "STORAGE_FULL"].contains(&name), "{error}");
            refused = true;
            break;
        }
    }
    assert!(refused, "the disk was full");
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get(&format!("/api/v1/sandboxes/{id}")).status, 200);
    let input = format!("/api/v1/sandboxes/{id}/process/{command}/stdin");
    // The server removes refused sandboxes and collects garbage in the background, which frees space.
    let kinds: Vec<_> = disk.while_full(|| {
        assert_eq!(server.post(&input, &json!({"data": "\n"})).status, 204);
        lost.rest().into_iter().map(|event| event.kind).collect()
    });
    assert_eq!(kinds, ["gap", "exit"], "what could not be kept is told of");
    disk.empty();
    // The end of the command, which could not be recorded on the full disk, is recorded now.
    wait_until("the end is known", || server.command(&id, &late)["state"] == "exited");
    assert_eq!(server.command(&id, &late)["exitCode"], 7);
    assert_eq!(server.output_of(&id, "echo after"), "after\n");
    let next = server.create();
    assert_eq!(server.output_of(&next, "echo next"), "next\n");
    server.delete(&id);
    server.delete(&next);
}

#[test]
fn workspace_operations_on_a_full_disk_fail_cleanly() {
    let Some(disk) = Disk::mount("48m") else { return };
    let server = TestServer::with(&[("DATA_DIR", disk.path().to_str().unwrap())]);
    let (alice, plain) = (server.key("alice", "user"), json!({"template": "base"}));
    let as_alice = |method: &str, path: &str, body: &serde_json::Value| {
        server.call_as(&alice, method, path).json(&body.to_string()).send()
    };
    let id_of = |value: &serde_json::Value| value["id"].as_str().unwrap().to_owned();
    let empty = id_of(&as_alice("POST", "/api/v1/sandboxes", &plain).json());
    let committed = as_alice("POST", &format!("/api/v1/sandboxes/{empty}/commit"), &json!({})).json();
    let order = json!({"template": "base", "snapshot": committed["snapshot"]["id"]});
    let (running, ended) = (
        id_of(&as_alice("POST", "/api/v1/sandboxes", &order).json()),
        id_of(&as_alice("POST", "/api/v1/sandboxes", &order).json()),
    );
    let process = disk.path().join("sandboxes").join(&ended).join("process");
    workspace_host::Process::read(&process).unwrap().unwrap().kill();
    wait_until("it is known to have ended", || server.sandbox(&ended)["state"] == "error");
    disk.fill();
    let refused = |answer: &crate::support::Answer| {
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["name"]), (507, &json!("STORAGE_FULL")), "{error}");
    };
    // A freeze cannot be recorded, so the commit fails.
    for order in ["commit", "fork"] {
        refused(&as_alice("POST", &format!("/api/v1/sandboxes/{running}/{order}"), &json!({})));
    }
    // A small commit of a stopped sandbox may succeed.
    for _ in 0..20 {
        let answer = as_alice("POST", &format!("/api/v1/sandboxes/{ended}/commit"), &json!({}));
        if answer.status != 201 {
            refused(&answer);
        }
    }
    // All snapshots have an owner.
    let listed = |key: &str| {
        let answer = server.call_as(key, "GET", "/api/v1/snapshots?limit=100").send();
        answer.json()["items"].as_array().unwrap().iter().map(id_of).collect::<Vec<_>>()
    };
    assert_eq!(listed(&alice), listed(crate::support::KEY));
    disk.empty();
    let again = as_alice("POST", &format!("/api/v1/sandboxes/{running}/commit"), &json!({}));
    assert_eq!(again.status, 201, "{}", again.body);
    for id in [&empty, &running, &ended] {
        server.delete(id);
    }
}

#[test]
fn a_sandbox_that_fills_the_disk_can_be_deleted() {
    let Some(disk) = Disk::mount("24m") else { return };
    let server = TestServer::with(&[("DATA_DIR", disk.path().to_str().unwrap())]);
    let (greedy, other) = (server.create(), server.create());
    server.post(
        &format!("/api/v1/sandboxes/{greedy}/process/run"),
        &json!({"command": "cat /dev/zero > all", "timeout": 20_000}),
    );
    // Fill what garbage collection freed, so that a new sandbox cannot be recorded.
    let mut made = Vec::new();
    let refused = loop {
        let answer = server.post("/api/v1/sandboxes", &json!({"template": "base"}));
        if answer.status != 201 || made.len() == 100 {
            break answer;
        }
        made.push(answer.json()["id"].as_str().unwrap().to_owned());
    };
    assert_eq!(refused.status, 507, "{}", refused.json());
    server.delete(&greedy);
    made.iter().for_each(|id| server.delete(id));
    assert_eq!(server.output_of(&other, "echo fine"), "fine\n");
    // The record of the refused sandbox is removed once the disk has space.
    wait_until("only one is left", || server.get("/api/v1/sandboxes").json()["total"] == 1);
    server.delete(&other);
}
