//! Isolation of owners.

use serde_json::json;

use super::SnapshotServer;
use super::archive::Archive;
use crate::support::Server;

#[test]
fn a_snapshot_of_another_owner_is_not_found() {
    let mut fixture = SnapshotServer::new();
    let (alice, bob) = (fixture.key_of("alice", "user"), fixture.key_of("bob", "user"));
    let ours = fixture.create_snapshot(&Archive::new().file("ours", "the admin's"));
    fixture.key = alice.clone();
    let hers = fixture.create_snapshot(&Archive::new().file("a", "hers"));
    let step = fixture.post("episodes", &json!({"snapshot": hers, "action": "begin", "reward": 0.5})).json();
    let step = step["id"].as_str().unwrap();
    assert_eq!(fixture.get_json(&format!("snapshots/{hers}"))["author"], "alice");

    let unknown = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718";
    let own = {
        let answer =
            fixture.call_as(&bob, "POST", "snapshots").body(&Archive::new().file("a", "his").bytes()).send();
        answer.json()["id"].as_str().unwrap().to_owned()
    };
    // All responses are the same as for a snapshot that does not exist.
    for (method, path) in [
        ("GET", "snapshots/ID".to_owned()),
        ("DELETE", "snapshots/ID".to_owned()),
        ("GET", "snapshots/ID/tree".to_owned()),
        ("GET", "snapshots/ID/tree/a".to_owned()),
        ("GET", "snapshots/ID/archive".to_owned()),
        ("GET", "snapshots/ID/archive?path=a".to_owned()),
        ("GET", "snapshots/ID/files/a".to_owned()),
        ("HEAD", "snapshots/ID/files/a".to_owned()),
        ("GET", format!("snapshots/ID/diff/{own}")),
        ("GET", format!("snapshots/{own}/diff/ID?insight=true")),
    ] {
        let ask = |id: &str| {
            let answer =
                fixture.call_as(&bob, method, &path.replace("ID", id)).header("x-request-id", "same").send();
            (answer.status, answer.body.replace(id, "ID"))
        };
        assert_eq!(ask(&hers), ask(unknown), "{method} {path}");
        assert_eq!(ask(&hers).0, 404, "{method} {path}");
    }
    let ask = |id: &str| {
        let body = json!({"snapshot": id, "action": "steal", "reward": 1}).to_string();
        let answer =
            fixture.call_as(&bob, "POST", "episodes").header("x-request-id", "same").json(&body).send();
        (answer.status, answer.body.replace(id, "ID"))
    };
    assert_eq!((ask(&hers), ask(&hers).0), (ask(unknown), 404));
    for end in ["", "/path", "/children", "/best"] {
        let answer = fixture.call_as(&bob, "GET", &format!("episodes/{step}{end}")).send();
        assert_eq!(answer.error(), "EPISODE_NOT_FOUND", "{end}");
    }
    let body = json!({"snapshot": own, "parent": step, "action": "follow", "reward": 1}).to_string();
    assert_eq!(fixture.call_as(&bob, "POST", "episodes").json(&body).send().error(), "EPISODE_NOT_FOUND");
    let list = fixture.call_as(&bob, "GET", "snapshots").send().json();
    assert_eq!((&list["total"], &list["items"][0]["id"]), (&1.into(), &own.as_str().into()));

    // Admins see it, and the owner still has it.
    assert_eq!(fixture.get_json(&format!("snapshots/{hers}/tree"))["total"], 1);
    fixture.key = crate::support::KEY.to_owned();
    assert_eq!(fixture.get_json("snapshots")["total"], 3);
    assert_eq!(fixture.get_json(&format!("snapshots/{ours}/diff/{hers}"))["total"], 2);
    assert_eq!(fixture.get_json(&format!("episodes/{step}"))["reward"], 0.5);
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{hers}")).send().status, 204);
    assert_eq!(
        fixture.call_as(&alice, "GET", &format!("snapshots/{hers}")).send().error(),
        "SNAPSHOT_NOT_FOUND"
    );
    assert_eq!(fixture.call_as(&alice, "GET", "snapshots").send().json()["total"], 0);
}

#[test]
fn read_only_keys_cannot_create_or_delete_snapshots() {
    let mut fixture = SnapshotServer::new();
    let user = fixture.key_of("alice", "user");
    let looks = fixture.key_of("alice", "read_only");
    fixture.key = user;
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    assert_eq!(fixture.call_as(&looks, "GET", &format!("snapshots/{id}/files/a")).send().body, "b");
    let step = fixture.post("episodes", &json!({"snapshot": id, "action": "begin", "reward": 1})).json();
    for (method, path) in [
        ("POST", "snapshots".to_owned()),
        ("DELETE", format!("snapshots/{id}")),
        ("PUT", "references/main".to_owned()),
        ("DELETE", "references/main".to_owned()),
        ("POST", "episodes".to_owned()),
        ("DELETE", format!("episodes/{}", step["id"].as_str().unwrap())),
    ] {
        assert_eq!(fixture.call_as(&looks, method, &path).send().error(), "FORBIDDEN", "{method} {path}");
    }
    assert_eq!(fixture.call_as("nobody's-key-at-all", "GET", "snapshots").send().error(), "UNAUTHORIZED");
}

#[test]
fn operations_on_snapshots_are_audited() {
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let target = json!({ "snapshot": id }).to_string();
    assert_eq!(fixture.call("PUT", "references/main").json(&target).send().status, 201);
    assert_eq!(fixture.call("DELETE", "references/main").send().status, 204);
    let step = fixture.post("episodes", &json!({"snapshot": id, "action": "begin", "reward": 1})).json();
    let gone = format!("episodes/{}", step["id"].as_str().unwrap());
    assert_eq!(fixture.call("DELETE", &gone).send().status, 204);
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{id}")).send().status, 204);
    let log = || std::fs::read_to_string(fixture.server.path().join("audit.log")).unwrap();
    crate::real::test_server::wait_until("it is written", || log().contains("snapshot.deleted"));
    let entries: Vec<serde_json::Value> =
        log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (event, detail, value) in [
        ("snapshot.created", "snapshot", id.as_str()),
        ("reference.set", "reference", "main"),
        ("reference.deleted", "reference", "main"),
        ("episode.created", "episode", step["id"].as_str().unwrap()),
        ("episode.deleted", "episode", step["id"].as_str().unwrap()),
        ("snapshot.deleted", "snapshot", &id),
    ] {
        let entry = entries.iter().find(|entry| entry["event"] == event);
        let entry = entry.unwrap_or_else(|| panic!("no {event} in {entries:?}"));
        assert_eq!(entry[detail], value, "{entry}");
    }
}

#[test]
fn a_shared_snapshot_is_removed_with_its_last_owner() {
    let server = Server::new();
    let keys = ["alice", "bob"].map(|owner| {
        let body = json!({"name": "a test", "owner": owner, "role": "user"}).to_string();
        let made = server.call("POST", "/api/v1/keys").key(crate::support::KEY).json(&body).send();
        made.json()["key"].as_str().unwrap().to_owned()
    });
    let archive = Archive::new().file("a", "b").bytes();
    let made = server.call("POST", "/api/v1/snapshots").key(&keys[0]).body(&archive).send().json();
    let id: workspace_state::SnapshotId = made["id"].as_str().unwrap().parse().unwrap();
    server.runtime.block_on(server.app.snapshots().record_owner("bob", &id, Some("sbx-1"), 0)).unwrap();
    let ask = |method: &str, who: usize| {
        server.call(method, &format!("/api/v1/snapshots/{id}")).key(&keys[who]).send().status
    };
    assert_eq!((ask("GET", 0), ask("GET", 1)), (200, 200));
    assert_eq!((ask("DELETE", 0), ask("GET", 0), ask("DELETE", 0)), (204, 404, 404));
    assert_eq!(ask("GET", 1), 200);
    assert_eq!((ask("DELETE", 1), ask("GET", 1)), (204, 404));
    assert_eq!(server.app.store.find_snapshot(&id).unwrap(), None);
}
