//! References: names for snapshots, by owner.

use serde_json::{Value, json};
use workspace_state::{Durability, Expect, Retention, Store};

use super::SnapshotServer;
use super::archive::Archive;
use crate::support::{Answer, Call, KEY, Server};

impl SnapshotServer {
    /// Creates a request that sets a reference.
    fn set(&self, name: &str, snapshot: &str) -> Call {
        self.set_as(&self.key, name, snapshot)
    }

    fn set_as(&self, key: &str, name: &str, snapshot: &str) -> Call {
        let body = json!({ "snapshot": snapshot }).to_string();
        self.call_as(key, "PUT", &format!("references/{name}")).json(&body)
    }

    /// Uploads `count` snapshots and returns their ids.
    fn several(&self, count: usize) -> Vec<String> {
        (0..count).map(|n| self.create_snapshot(&Archive::new().file("n", n.to_string()))).collect()
    }

    fn store(&self) -> Store {
        Store::open(self.server.path().join("store")).unwrap()
    }
}

/// Returns a server with a key of `alice`, which the requests use.
fn server_of_alice() -> SnapshotServer {
    let mut fixture = SnapshotServer::new();
    fixture.key = fixture.key_of("alice", "user");
    fixture
}

fn tag(id: &str) -> String {
    format!("\"{id}\"")
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

fn details(answer: &Answer) -> Value {
    answer.json()["error"]["details"].clone()
}

#[test]
fn a_reference_is_created_moved_listed_and_deleted() {
    let fixture = server_of_alice();
    let ids = fixture.several(2);
    let created = fixture.set("main", &ids[0]).send();
    assert_eq!((created.status, created.header("etag")), (201, Some(tag(&ids[0]).as_str())));
    assert_eq!(created.json(), json!({ "name": "main", "snapshot": ids[0] }));
    assert_eq!(fixture.set("runs/42", &ids[1]).send().status, 201);
    let moved = fixture.set("main", &ids[1]).send();
    assert_eq!((moved.status, moved.header("etag")), (200, Some(tag(&ids[1]).as_str())));

    let found = fixture.get("references/main");
    assert_eq!((found.status, found.header("etag")), (200, Some(tag(&ids[1]).as_str())));
    assert_eq!(found.json(), moved.json());
    // A slash of a name may be encoded.
    assert_eq!(fixture.get_json("references/runs%2F42")["name"], "runs/42");
    let known = fixture.call("GET", "references/main").header("if-none-match", &tag(&ids[1])).send();
    assert_eq!((known.status, known.body.as_str()), (304, ""));
    let changed = fixture.call("GET", "references/main").header("if-none-match", &tag(&ids[0])).send();
    assert_eq!(changed.status, 200);

    let list = fixture.get_json("references");
    assert_eq!((names(&list), &list["total"], list.get("next")), (vec!["main", "runs/42"], &2.into(), None));
    assert_eq!(fixture.get_json(&format!("snapshots/{}", ids[1]))["references"], json!(["main", "runs/42"]));
    assert_eq!(fixture.get_json("snapshots")["items"][1]["references"], json!([]));
    let filtered = fixture.get_json("snapshots?reference=main");
    assert_eq!((&filtered["total"], &filtered["items"][0]["id"]), (&1.into(), &ids[1].as_str().into()));

    assert_eq!(fixture.call("DELETE", "references/main").send().status, 204);
    for method in ["GET", "DELETE"] {
        assert_eq!(fixture.call(method, "references/main").send().error(), "REFERENCE_NOT_FOUND", "{method}");
    }
    assert_eq!(names(&fixture.get_json("references")), ["runs/42"]);
}

#[test]
fn changes_are_conditional_on_the_current_value() {
    let fixture = server_of_alice();
    let ids = fixture.several(2);
    let put = |to: usize, name: &str, value: &str| fixture.set("main", &ids[to]).header(name, value).send();
    assert_eq!(put(0, "if-match", "*").error(), "PRECONDITION_FAILED");
    assert_eq!(put(0, "if-match", &tag(&ids[0])).error(), "PRECONDITION_FAILED");
    assert_eq!(fixture.get("references/main").status, 404);
    assert_eq!(put(0, "if-none-match", "*").status, 201);
    let refused = put(1, "if-none-match", "*");
    assert_eq!((refused.status, refused.error().as_str()), (412, "PRECONDITION_FAILED"));
    assert_eq!(
        (&details(&refused)["current"], refused.header("etag")),
        (&ids[0].as_str().into(), Some(tag(&ids[0]).as_str()))
    );
    assert_eq!(put(1, "if-match", &tag(&ids[1])).error(), "PRECONDITION_FAILED");
    assert_eq!(put(1, "if-match", &tag(&ids[0])).status, 200);
    for malformed in [ids[1].as_str(), "", "\"a"] {
        assert_eq!(put(0, "if-match", malformed).error(), "INVALID_REQUEST", "{malformed}");
    }
    assert_eq!(fixture.get_json("references/main")["snapshot"], ids[1].as_str());

    let delete = |value: &str| fixture.call("DELETE", "references/main").header("if-match", value).send();
    assert_eq!(delete(&tag(&ids[0])).error(), "PRECONDITION_FAILED");
    assert_eq!(delete(&tag(&ids[1])).status, 204);
    // A reference that does not exist is not found, whatever the condition.
    assert_eq!(delete(&tag(&ids[1])).error(), "REFERENCE_NOT_FOUND");
}

#[test]
fn of_concurrent_conditional_changes_one_succeeds() {
    let fixture = server_of_alice();
    let ids = fixture.several(8);
    // Sets the reference to every snapshot but `current` at once. Returns the status and the snapshot of the winner.
    let race = |current: &str, name: &str, value: &str| {
        let others: Vec<&String> = ids.iter().filter(|id| *id != current).collect();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let mut calls = Vec::new();
            for id in &others {
                let call = fixture.set("main", id).header(name, value);
                calls.push(scope.spawn(move || call.send().status));
            }
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let winners: Vec<usize> = (0..others.len()).filter(|at| statuses[*at] != 412).collect();
        assert_eq!(winners.len(), 1, "{statuses:?}");
        let winner = others[winners[0]].clone();
        assert_eq!(fixture.get_json("references/main")["snapshot"], winner.as_str());
        (statuses[winners[0]], winner)
    };
    let (status, mut current) = race("", "if-none-match", "*");
    assert_eq!(status, 201);
    for _ in 0..3 {
        let (status, winner) = race(&current, "if-match", &tag(&current));
        assert_eq!(status, 200);
        current = winner;
    }
}

#[test]
fn owners_neither_see_nor_change_references_of_others() {
    let fixture = server_of_alice();
    let bob = fixture.key_of("bob", "user");
    let hers = fixture.several(1).remove(0);
    let his =
        fixture.call_as(&bob, "POST", "snapshots").body(&Archive::new().file("a", "his").bytes()).send();
    let his = his.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.set("main", &hers).send().status, 201);
    assert_eq!(fixture.set("secret/plan", &hers).send().status, 201);

    // The response about her reference is the same as about one that does not exist.
    for method in ["GET", "DELETE"] {
        let ask = |name: &str| {
            let call =
                fixture.call_as(&bob, method, &format!("references/{name}")).header("x-request-id", "same");
            let answer = call.send();
            (answer.status, answer.body.replace(name, "NAME"))
        };
        assert_eq!(ask("main"), ask("none"), "{method}");
        for name in ["owners/alice/main", "../alice/main", "..%2Falice%2Fmain", "owners%2Falice%2Fmain"] {
            assert_eq!(ask(name).0, 404, "{method} {name}");
        }
    }
    let refused = |snapshot: &str| {
        let answer = fixture.set_as(&bob, "x", snapshot).header("x-request-id", "same").send();
        (answer.status, answer.body.replace(snapshot, "ID"))
    };
    assert_eq!(refused(&hers), refused("0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718"));
    let list = || fixture.call_as(&bob, "GET", "references").send().json();
    assert_eq!((&list()["total"], names(&list())), (&0.into(), vec![]));
    // The same names are his own references.
    for name in ["main", "owners/alice/main"] {
        let created = fixture.set_as(&bob, name, &his).header("if-none-match", "*").send();
        assert_eq!(created.status, 201, "{name}");
    }
    assert_eq!(fixture.call_as(&bob, "GET", "snapshots?reference=secret/plan").send().json()["total"], 0);
    assert_eq!(fixture.get_json("references/main")["snapshot"], hers.as_str());
    assert_eq!(names(&list()), ["main", "owners/alice/main"]);

    // Admins use the names of the store.
    let admin = |path: &str| fixture.call_as(KEY, "GET", path).send().json();
    let all =
        ["owners/alice/main", "owners/alice/secret/plan", "owners/bob/main", "owners/bob/owners/alice/main"];
    assert_eq!(names(&admin("references")), all);
    assert_eq!(names(&admin("references?prefix=owners/bob/")), all[2..]);
    assert_eq!(admin(&format!("snapshots/{hers}"))["references"], json!(all[..2]));
    assert_eq!(fixture.set_as(KEY, "owners/alice/main", &his).send().status, 200);
    assert_eq!(fixture.get_json("references/main")["snapshot"], his.as_str());
    assert_eq!(fixture.get(&format!("snapshots/{his}")).error(), "SNAPSHOT_NOT_FOUND");
}

#[test]
fn a_referenced_snapshot_cannot_be_deleted_or_collected() {
    let fixture = server_of_alice();
    let ids = fixture.several(2);
    let delete = |id: &str| fixture.call("DELETE", &format!("snapshots/{id}")).send();
    assert_eq!(fixture.set("main", &ids[0]).send().status, 201);
    let refused = delete(&ids[0]);
    assert_eq!((refused.status, refused.error().as_str()), (409, "SNAPSHOT_IN_USE"));
    assert_eq!(details(&refused)["reference"], "main");
    // Admins get the name in the store.
    let admin = fixture.call_as(KEY, "DELETE", &format!("snapshots/{}", ids[0])).send();
    assert_eq!(details(&admin)["reference"], "owners/alice/main");
    let rules = Retention { keep_last: Some(0), ..Retention::default() };
    let store = fixture.store();
    let kept: Vec<String> =
        store.retention_plan(&rules).unwrap().keep.iter().map(|snapshot| snapshot.id.to_string()).collect();
    assert_eq!(kept, [ids[0].as_str()]);
    assert!(store.remove_snapshots(&[ids[0].parse().unwrap()]).is_err());
    assert_eq!(fixture.call_as(KEY, "POST", "gc").json("{}").send().status, 200);
    assert_eq!(fixture.get(&format!("snapshots/{}/files/n", ids[0])).body, "0");

    assert_eq!(fixture.set("main", &ids[1]).send().status, 200);
    assert_eq!(delete(&ids[0]).status, 204);
    assert_eq!(delete(&ids[1]).error(), "SNAPSHOT_IN_USE");

    // References of the command line protect it, too, but owners do not get their names.
    store.set_reference("release", Expect::Absent, ids[1].parse().unwrap(), Durability::Synced).unwrap();
    assert_eq!(fixture.call("DELETE", "references/main").send().status, 204);
    let refused = delete(&ids[1]);
    assert_eq!(refused.error(), "SNAPSHOT_IN_USE");
    assert!(!refused.body.contains("release"), "{}", refused.body);
    assert_eq!(fixture.get_json(&format!("snapshots/{}", ids[1]))["references"], json!([]));
    assert_eq!(fixture.get("references/release").error(), "REFERENCE_NOT_FOUND");
    store.remove_reference("release", Expect::Anything).unwrap();
    assert_eq!(delete(&ids[1]).status, 204);
    assert_eq!(fixture.set("main", &ids[1]).send().error(), "SNAPSHOT_NOT_FOUND");
}

#[test]
fn a_reference_of_another_owner_does_not_keep_an_owner_from_deleting() {
    let server = Server::new();
    let keys = ["alice", "bob"].map(|owner| {
        let body = json!({"name": "a test", "owner": owner, "role": "user"}).to_string();
        let made = server.call("POST", "/api/v1/keys").key(KEY).json(&body).send();
        made.json()["key"].as_str().unwrap().to_owned()
    });
    let archive = Archive::new().file("a", "b").bytes();
    let made = server.call("POST", "/api/v1/snapshots").key(&keys[0]).body(&archive).send().json();
    let id: workspace_state::SnapshotId = made["id"].as_str().unwrap().parse().unwrap();
    server.runtime.block_on(server.app.snapshots().record_owner("bob", &id, None, 0)).unwrap();
    let ask = |method: &str, who: usize, path: &str| {
        server.call(method, &format!("/api/v1/{path}")).key(&keys[who])
    };
    let body = json!({ "snapshot": id.to_string() }).to_string();
    assert_eq!(ask("PUT", 1, "references/main").json(&body).send().status, 201);
    let path = format!("snapshots/{id}");
    assert_eq!(ask("GET", 0, &path).send().json()["references"], json!([]));
    assert_eq!(ask("DELETE", 0, &path).send().status, 204);
    assert_eq!(ask("GET", 0, &path).send().status, 404);
    assert_eq!(ask("GET", 1, &path).send().json()["references"], json!(["main"]));
    assert_eq!(ask("DELETE", 1, &path).send().error(), "SNAPSHOT_IN_USE");
}

#[test]
fn a_snapshot_is_either_deleted_or_referenced() {
    let fixture = server_of_alice();
    for (round, id) in fixture.several(20).iter().enumerate() {
        let name = format!("r{round}");
        let (set, delete) = (fixture.set(&name, id), fixture.call("DELETE", &format!("snapshots/{id}")));
        let (set, deleted) = std::thread::scope(|scope| {
            let set = scope.spawn(move || set.send().status);
            let deleted = scope.spawn(move || delete.send().status);
            (set.join().unwrap(), deleted.join().unwrap())
        });
        assert!([(201, 409), (404, 204)].contains(&(set, deleted)), "{set} {deleted}");
        let expected = if set == 201 { 200 } else { 404 };
        assert_eq!(fixture.get(&format!("snapshots/{id}")).status, expected);
        assert_eq!(fixture.get(&format!("references/{name}")).status, expected);
    }
}

#[test]
fn the_number_of_references_of_an_owner_is_limited() {
    let mut fixture = SnapshotServer::with(&[("MAX_REFERENCES_PER_OWNER", "3")]);
    fixture.key = fixture.key_of("alice", "user");
    let ids = fixture.several(2);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|n| {
                let call = fixture.set(&format!("r{n}"), &ids[0]);
                scope.spawn(move || call.send().status)
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 3, "{statuses:?}");
    let list = fixture.get_json("references");
    let existing = names(&list)[0];
    let refused = fixture.set("more", &ids[0]).send();
    assert_eq!((refused.status, refused.error().as_str()), (429, "REFERENCE_LIMIT_EXCEEDED"));
    assert_eq!(details(&refused), json!({ "limit": 3, "setting": "MAX_REFERENCES_PER_OWNER" }));
    assert_eq!(refused.header("retry-after"), None);
    // A move is no new reference; other owners and admins have their own.
    assert_eq!(fixture.set(existing, &ids[1]).send().status, 200);
    assert_eq!(fixture.set_as(KEY, "of-the-admin", &ids[0]).send().status, 201);
    assert_eq!(fixture.call("DELETE", &format!("references/{existing}")).send().status, 204);
    assert_eq!(fixture.set("more", &ids[0]).send().status, 201);
}

#[test]
fn references_are_paged_by_name() {
    let fixture = server_of_alice();
    let id = fixture.several(1).remove(0);
    let all = ["a", "a-b", "a/b", "a/c", "b"];
    for name in all {
        assert_eq!(fixture.set(name, &id).send().status, 201);
    }
    let list = |query: &str| fixture.get_json(&format!("references?{query}"));
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = list(&format!("limit=2{cursor}"));
        assert_eq!((&page["total"], &page["limit"]), (&5.into(), &2.into()));
        seen.extend(names(&page).into_iter().map(str::to_owned));
        let Some(next) = page.get("next") else { break };
        cursor = format!("&cursor={}", next.as_str().unwrap());
    }
    assert_eq!(seen, all);
    assert_eq!(names(&list("limit=2&page=2")), all[2..4]);
    assert_eq!(names(&list("page=2")), [""; 0]);
    // A cursor works after its reference was deleted.
    assert_eq!(fixture.call("DELETE", "references/a-b").send().status, 204);
    assert_eq!(names(&list("limit=2&cursor=a-b")), all[2..4]);
    for (prefix, expected) in
        [("a/", &all[2..4]), ("b", &all[4..]), ("owners", &all[..0]), ("%00", &all[..0])]
    {
        let page = list(&format!("prefix={prefix}"));
        assert_eq!((names(&page).as_slice(), &page["total"]), (expected, &expected.len().into()), "{prefix}");
    }
    assert_eq!(list(&format!("prefix={}", "a".repeat(3_000)))["total"], 0);
    for query in ["page=0", "limit=0", "limit=1001", "cursor=", "cursor=../x", "page=1&cursor=a", "sort=name"]
    {
        assert_eq!(fixture.get(&format!("references?{query}")).error(), "INVALID_REQUEST", "{query}");
    }
}

#[test]
fn hostile_names_and_bodies_are_refused() {
    let fixture = server_of_alice();
    let id = fixture.several(1).remove(0);
    let long = "n".repeat(129);
    for name in
        ["..", "a/..", "../bob/x", "a//b", "a/", "a%20b", "a~1", "%C3%A9", "a%00b", "%FF", "a%3Fb", &long]
    {
        assert_eq!(fixture.set(name, &id).send().error(), "INVALID_REQUEST", "{name}");
        assert_ne!(fixture.get(&format!("references/{name}")).status, 200, "{name}");
    }
    assert_eq!(fixture.call("PUT", "references/").json("{}").send().error(), "NOT_FOUND");
    assert_eq!(fixture.set(&long[1..], &id).send().status, 201);
    for body in ["{}", "[]", r#"{"snapshot":1}"#, r#"{"snapshot":"x","force":true}"#, ""] {
        let answer = fixture.call("PUT", "references/main").json(body).send();
        assert_eq!(answer.error(), "INVALID_REQUEST", "{body}");
    }
    for unknown in ["", "main", &id[..12], "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718"] {
        assert_eq!(fixture.set("main", unknown).send().error(), "SNAPSHOT_NOT_FOUND", "{unknown}");
    }
    let store_names: Vec<String> = fixture.store().references().unwrap().into_iter().map(|it| it.0).collect();
    assert_eq!(store_names, [format!("owners/alice/{}", &long[1..])]);
}

#[test]
fn owners_with_any_name_have_their_own_references() {
    let mut fixture = SnapshotServer::new();
    let admin = fixture.key.clone();
    let long = "團隊".repeat(50);
    let owners = ["a", "A", "a/b", "a.2fb", "../a", "owners/a", "a b", &long];
    for (at, owner) in owners.iter().enumerate() {
        fixture.key = fixture.server.key(owner, "user");
        let id = fixture.several(1).remove(0);
        for name in ["main", "b/main"] {
            let created = fixture.set(name, &id).header("if-none-match", "*").send();
            assert_eq!(created.status, 201, "{owner} {name}: {}", created.body);
        }
        assert_eq!(names(&fixture.get_json("references")), ["b/main", "main"], "{owner}");
        let all = fixture.call_as(&admin, "GET", "references").send().json();
        assert_eq!(all["total"], 2 * (at + 1), "{owner}");
    }
}

#[test]
fn references_survive_a_restart_and_are_those_of_the_command_line() {
    let mut fixture = server_of_alice();
    let ids = fixture.several(2);
    assert_eq!(fixture.set("main", &ids[0]).send().status, 201);
    fixture.server.restart();
    assert_eq!(fixture.get_json("references/main")["snapshot"], ids[0].as_str());
    let store = fixture.store();
    let (first, second) = (ids[0].parse().unwrap(), ids[1].parse().unwrap());
    assert_eq!(store.reference("owners/alice/main").unwrap(), Some(first));
    // Another process moves it: the old tag is no longer valid.
    store.set_reference("owners/alice/main", Expect::At(first), second, Durability::Synced).unwrap();
    let moved = fixture.set("main", &ids[0]).header("if-match", &tag(&ids[0])).send();
    assert_eq!(
        (moved.error().as_str(), &details(&moved)["current"]),
        ("PRECONDITION_FAILED", &ids[1].as_str().into())
    );
}
