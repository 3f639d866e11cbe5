//! Former heads of a project over HTTP: snapshots, differences, events, renames.

use serde_json::{Value, json};

use super::test_server::TestServer;
use crate::snapshots::archive::Archive;
use crate::support::{Answer, Call};

struct Fixture {
    server: TestServer,
    alice: String,
}

impl Fixture {
    /// Starts a server with a project `site` of alice, of which each content of the file `a` is a sequence.
    fn new(contents: &[&str]) -> Self {
        let server = TestServer::new();
        let alice = server.key("alice", "user");
        let fixture = Self { server, alice };
        let made = fixture.call("POST", "projects").json(r#"{"name":"site"}"#).send();
        assert_eq!(made.status, 201, "{}", made.body);
        for content in contents {
            let archive = Archive::new().file("a", content).file("same", "s\n").bytes();
            let imported = fixture.call("POST", "projects/site/import").body(&archive).send();
            assert_eq!(imported.status, 200, "{}", imported.body);
        }
        fixture
    }

    fn call(&self, method: &str, path: &str) -> Call {
        self.server.call_as(&self.alice, method, &format!("/api/v1/{path}"))
    }

    fn get(&self, path: &str) -> Answer {
        self.call("GET", &format!("projects/{path}")).send()
    }

    /// Returns the ids of the heads, oldest first.
    fn heads(&self) -> Vec<String> {
        let listed = self.get("site/snapshots").json();
        let id = |head: &Value| head["snapshot"].as_str().unwrap().to_owned();
        listed["items"].as_array().unwrap().iter().rev().map(id).collect()
    }
}

#[test]
fn heads_are_listed_in_pages_and_take_the_place_of_sequences() {
    let fixture = Fixture::new(&["1\n", "2\n", "3\n"]);
    let heads = fixture.heads();
    assert_eq!(heads.len(), 3);
    let first = fixture.get("site/snapshots?limit=2").json();
    assert_eq!(first["items"][0]["sequence"], 3);
    assert_eq!(first["items"][0]["operation"], "import");
    let rest = fixture.get(&format!("site/snapshots?limit=2&before={}", first["next"])).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert_eq!(rest["next"], Value::Null);
    for at in ["1", heads[0].as_str()] {
        assert_eq!(fixture.get(&format!("site/files/a?at={at}")).body, "1\n");
        assert_eq!(fixture.get(&format!("site/tree/a?at={at}")).status, 200);
        assert_eq!(fixture.get(&format!("site/archive?at={at}")).status, 200);
    }
    let uploaded =
        fixture.call("POST", "snapshots").body(&Archive::new().file("a", "b").bytes()).send().json();
    let foreign = uploaded["id"].as_str().unwrap();
    for (at, error) in
        [("4", "SEQUENCE_NOT_FOUND"), (foreign, "SNAPSHOT_NOT_FOUND"), ("x", "SNAPSHOT_NOT_FOUND")]
    {
        assert_eq!(fixture.get(&format!("site/files/a?at={at}")).error(), error, "{at}");
        assert_eq!(fixture.get(&format!("site/diff?from={at}")).error(), error, "{at}");
    }
    let archive = Archive::new().file("a", "4\n").bytes();
    let import = |expect: &str| {
        fixture.call("POST", &format!("projects/site/import?expect={expect}")).body(&archive).send()
    };
    assert_eq!(import(&heads[0]).error(), "PROJECT_MOVED");
    assert_eq!(import(&heads[2]).json()["operation"]["sequence"], 4);
    let body = json!({"to": heads[1]}).to_string();
    let rolled_back = fixture.call("POST", "projects/site/rollback").json(&body).send();
    assert_eq!(rolled_back.json()["sequence"], 5, "{}", rolled_back.body);
    assert_eq!(fixture.get("site/files/a").body, "2\n");
}

#[test]
fn two_heads_are_compared() {
    let fixture = Fixture::new(&["1\n", "2\n", "3\n"]);
    let heads = fixture.heads();
    let entries = |path: &str| {
        let diff = fixture.get(path).json();
        let entries = diff["entries"].as_array().unwrap_or_else(|| panic!("{diff}")).clone();
        entries.iter().map(|entry| format!("{} {}", entry["change"], entry["path"])).collect::<Vec<_>>()
    };
    assert_eq!(entries("site/diff"), [r#""modified" "a""#]);
    assert_eq!(entries("site/diff?to=1"), [r#""added" "a""#, r#""added" "same""#]);
    assert_eq!(entries("site/diff?from=3&to=0"), [r#""removed" "a""#, r#""removed" "same""#]);
    assert_eq!(entries(&format!("site/diff?from={}&to={}", heads[0], heads[0])), [""; 0]);
    let patch = fixture.get(&format!("site/diff?from={}&patch=true", heads[0]));
    assert!(patch.body.contains("-1\n+3\n"), "{}", patch.body);
    assert_eq!(fixture.get("site/diff?insight=true").json()["totals"]["modified"], 1);
    assert_eq!(fixture.get("site/diff?insight=true&patch=true").error(), "INVALID_REQUEST");
}

#[test]
fn a_renamed_project_keeps_its_history() {
    let fixture = Fixture::new(&["1\n"]);
    let rename = |project: &str, name: &str| {
        let body = json!({ "name": name }).to_string();
        fixture.call("PATCH", &format!("projects/{project}")).json(&body).send()
    };
    let renamed = rename("site", "page").json();
    assert_eq!((&renamed["name"], &renamed["sequence"]), (&json!("page"), &json!(1)));
    assert_eq!(fixture.get("site").error(), "PROJECT_NOT_FOUND");
    assert_eq!(fixture.get("page/files/a").body, "1\n");
    assert_eq!(rename("page", "page").status, 200);
    assert_eq!(rename("page", "../x").error(), "INVALID_REQUEST");
    assert_eq!(fixture.call("POST", "projects").json(r#"{"name":"other"}"#).send().status, 201);
    assert_eq!(rename("page", "other").error(), "PROJECT_EXISTS");
    let id = renamed["id"].as_str().unwrap();
    assert_eq!(fixture.call("PATCH", &format!("projects/{id}")).json("{}").send().json()["name"], "page");
    let unknown = fixture.call("PATCH", "projects/page").json(r#"{"owner":"bob"}"#).send();
    assert_eq!(unknown.error(), "INVALID_REQUEST");
}

#[test]
fn events_of_a_project_are_its_own() {
    let fixture = Fixture::new(&["1\n", "2\n"]);
    assert_eq!(fixture.call("POST", "projects").json(r#"{"name":"other"}"#).send().status, 201);
    let page = fixture.get("site/events").json();
    let kinds: Vec<&str> =
        page["items"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["project.created", "project.advanced", "project.advanced"]);
    let advanced = fixture.get("site/events?type=project.advanced&limit=1").json();
    assert_eq!(advanced["items"][0]["data"]["sequence"], 1);
    let after = fixture.get(&format!("site/events?after={}", advanced["next"])).json();
    assert_eq!(after["items"][0]["data"]["sequence"], 2);
    assert_eq!(fixture.get("nothing/events").error(), "PROJECT_NOT_FOUND");
    // An admin finds the project by its id, and sees no event of a project of the same name of another owner.
    let bob = fixture.server.key("bob", "user");
    let same = fixture.server.call_as(&bob, "POST", "/api/v1/projects").json(r#"{"name":"site"}"#).send();
    assert_eq!(same.status, 201, "{}", same.body);
    let id = fixture.get("site").json()["id"].as_str().unwrap().to_owned();
    let seen = fixture.server.get(&format!("/api/v1/projects/{id}/events")).json();
    assert_eq!(seen["items"].as_array().unwrap().len(), 3, "{seen}");
}

#[test]
fn a_git_repository_enters_a_project_only_if_the_project_keeps_it() {
    let fixture = Fixture::new(&["1\n"]);
    let archive = Archive::new().file(".git/config", "c\n").file("a", "1\n").file("b", "2\n").bytes();
    let import = || fixture.call("POST", "projects/site/import").body(&archive).send().json();
    assert_eq!(fixture.get("site").json()["git"], "ignored");
    assert_eq!(import()["operation"]["sequence"], 2);
    assert_eq!(fixture.get("site/files/.git/config").error(), "PATH_NOT_FOUND");
    let kept = fixture.call("PATCH", "projects/site").json(r#"{"git":"kept"}"#).send().json();
    assert_eq!((&kept["git"], &kept["name"]), (&json!("kept"), &json!("site")));
    assert_eq!(import()["operation"]["sequence"], 3);
    assert_eq!(fixture.get("site/files/.git/config").body, "c\n");
    let made =
        fixture.call("POST", "sandboxes").json(r#"{"template":"base","project":"site"}"#).send().json();
    let sandbox = format!("sandboxes/{}", made["id"].as_str().unwrap());
    let run = json!({"command": "cat .git/config; echo more >> .git/config"}).to_string();
    let ran = fixture.call("POST", &format!("{sandbox}/process/run")).json(&run).send().json();
    assert_eq!(ran["stdout"], "c\n", "{ran}");
    let done = fixture.call("POST", &format!("{sandbox}/complete")).json(r#"{"wait":60}"#).send().json();
    assert_eq!(done["sequence"], 4, "{done}");
    assert_eq!(fixture.get("site/files/.git/config").body, "c\nmore\n");
    assert_eq!(
        fixture.call("PATCH", "projects/site").json(r#"{"git":"x"}"#).send().error(),
        "INVALID_REQUEST"
    );
}

#[test]
fn an_import_names_the_author_and_the_commit() {
    let fixture = Fixture::new(&[]);
    let archive = Archive::new().file("a", "1\n").bytes();
    let import =
        |query: &str| fixture.call("POST", &format!("projects/site/import?{query}")).body(&archive).send();
    for query in
        ["author=", "author=a%0Ab", "commit=abc", "commit=--all", "commitTime=yesterday", &"a".repeat(300)]
    {
        assert_eq!(import(query).error(), "INVALID_REQUEST", "{query}");
    }
    let commit = "0123456789012345678901234567890123456789";
    let query = format!("author=Ada&commit={commit}&commitTime=2001-09-09T01:46:40Z");
    let operation = import(&query).json()["operation"].clone();
    assert_eq!((&operation["author"], &operation["commit"]), (&json!("Ada"), &json!(commit)));
    assert_eq!(operation["commitTime"], "2001-09-09T01:46:40.000Z");
}

#[test]
fn work_that_was_done_outside_is_merged_once() {
    let fixture = Fixture::new(&["one\n\ntwo\n\nthree\n"]);
    let upload = |content: &str| {
        let archive = Archive::new().file("a", content).file("same", "s\n").bytes();
        fixture.call("POST", "snapshots").body(&archive).send().json()["id"].as_str().unwrap().to_owned()
    };
    let complete = |snapshot: &str, base: Value, agent: &str| {
        let body = json!({"snapshot": snapshot, "base": base, "agent": agent, "message": "work", "wait": 60});
        fixture.call("POST", "projects/site/completions").json(&body.to_string()).send()
    };
    let (first, second) = (upload("ONE\n\ntwo\n\nthree\n"), upload("one\n\ntwo\n\nTHREE\n"));
    let landed = complete(&first, json!(1), "writer").json();
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(2)), "{landed}");
    let again = complete(&first, json!(1), "writer").json();
    assert_eq!((&again["id"], &again["sequence"]), (&landed["id"], &json!(2)));
    // The upload is not needed any more.
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{first}")).send().status, 204);
    let base = fixture.heads()[0].clone();
    assert_eq!(complete(&second, json!(base), "editor").json()["sequence"], 3);
    assert_eq!(fixture.get("site/files/a").body, "ONE\n\ntwo\n\nTHREE\n");
    let log = fixture.get("site/operations?limit=1").json();
    assert_eq!((&log["items"][0]["author"], &log["items"][0]["message"]), (&json!("editor"), &json!("work")));
    assert_eq!(log["items"][0]["base"], 1);
    assert_eq!(complete(&second, json!(9), "editor").error(), "SEQUENCE_NOT_FOUND");
    assert_eq!(complete(&first, json!(1), "editor").error(), "SNAPSHOT_NOT_FOUND");
    assert_eq!(complete(&second, json!(1), "").error(), "INVALID_REQUEST");
    // A snapshot of another owner does not exist.
    let bob = fixture.server.key("bob", "user");
    let foreign = fixture.server.call_as(&bob, "POST", "/api/v1/snapshots");
    let foreign = foreign.body(&Archive::new().file("a", "b").bytes()).send().json();
    let foreign = foreign["id"].as_str().unwrap();
    assert_eq!(complete(foreign, json!(1), "editor").error(), "SNAPSHOT_NOT_FOUND");
}

#[test]
fn work_done_outside_is_that_of_a_view() {
    let fixture = Fixture::new(&["1\n"]);
    let policy = json!({"rules": [{"agent": "guest", "path": "same", "access": "none"}]}).to_string();
    assert_eq!(fixture.call("PUT", "projects/site/policy").json(&policy).send().status, 200);
    // The guest does not see `same`, and so does not remove it.
    let archive = Archive::new().file("a", "2\n").bytes();
    let uploaded = fixture.call("POST", "snapshots").body(&archive).send().json();
    let body = json!({"snapshot": uploaded["id"], "base": 1, "agent": "guest", "wait": 60}).to_string();
    let landed = fixture.call("POST", "projects/site/completions").json(&body).send().json();
    assert_eq!((&landed["sequence"], &landed["refused"]), (&json!(2), &json!([])), "{landed}");
    assert_eq!(fixture.get("site/files/same").body, "s\n");
    assert_eq!(fixture.get("site/files/a").body, "2\n");
}
