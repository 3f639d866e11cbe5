//! Projects over HTTP: imports, sandboxes of agents, completions, history, policies.

use serde_json::{Value, json};

use super::test_server::TestServer;
use crate::snapshots::archive::Archive;
use crate::support::Answer;

pub(super) struct Fixture {
    pub(super) server: TestServer,
    pub(super) alice: String,
}

impl Fixture {
    /// Starts a server with a project `website` of alice.
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        Self::with(&[], files)
    }

    /// Starts a server like [`Self::new`], with these variables.
    pub(super) fn with(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Self {
        let server = TestServer::with(variables);
        let alice = server.key("alice", "user");
        let fixture = Self { server, alice };
        assert_eq!(fixture.post("projects", &json!({"name": "website"})).status, 201);
        let archive =
            files.iter().fold(Archive::new(), |archive, (path, content)| archive.file(path, content));
        let imported =
            fixture.call("POST", "projects/website/import?message=first").body(&archive.bytes()).send();
        assert_eq!(imported.status, 200, "{}", imported.body);
        assert_eq!(imported.json()["operation"]["sequence"], 1);
        fixture
    }

    pub(super) fn call(&self, method: &str, path: &str) -> crate::support::Call {
        self.server.call_as(&self.alice, method, &format!("/api/v1/{path}"))
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path).json(&body.to_string()).send()
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.call("GET", path).send()
    }

    /// Creates a sandbox of an agent.
    pub(super) fn sandbox(&self, agent: &str) -> String {
        let made = self.post("sandboxes", &json!({"template": "base", "project": "website", "agent": agent}));
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    pub(super) fn run(&self, sandbox: &str, command: &str) -> String {
        let ran =
            self.post(&format!("sandboxes/{sandbox}/process/run"), &json!({ "command": command })).json();
        assert_eq!(ran["exitCode"], 0, "{ran}");
        ran["stdout"].as_str().unwrap().to_owned()
    }

    pub(super) fn complete(&self, sandbox: &str) -> Value {
        let done =
            self.post(&format!("sandboxes/{sandbox}/complete"), &json!({"message": "work", "wait": 60}));
        assert_eq!(done.status, 202, "{}", done.body);
        done.json()
    }

    pub(super) fn file(&self, path: &str) -> String {
        self.get(&format!("projects/website/files/{path}")).body
    }
}

#[test]
fn agents_work_on_one_project_and_their_changes_are_merged() {
    let fixture =
        Fixture::new(&[("readme.md", "hello\n"), ("docs/a.md", "one\ntwo\nthree\nfour\nfive\nsix\n")]);
    let (first, second) = (fixture.sandbox("writer"), fixture.sandbox("editor"));
    assert_eq!(fixture.run(&first, "cat readme.md"), "hello\n");
    fixture.run(&first, "sed -i s/one/ONE/ docs/a.md; echo new > new.md");
    fixture.run(&second, "sed -i s/six/SIX/ docs/a.md; mv readme.md README.md");
    let landed = fixture.complete(&first);
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(2)), "{landed}");
    // The sandbox is not needed any more.
    assert_eq!(fixture.call("DELETE", &format!("sandboxes/{first}")).send().status, 204);
    let landed = fixture.complete(&second);
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(3)), "{landed}");
    assert_eq!(fixture.file("docs/a.md"), "ONE\ntwo\nthree\nfour\nfive\nSIX\n");
    assert_eq!(fixture.file("new.md"), "new\n");
    assert_eq!(fixture.file("README.md"), "hello\n");
    assert_eq!(fixture.get("projects/website/files/readme.md").error(), "PATH_NOT_FOUND");
    assert_eq!(fixture.get("projects/website/files/readme.md?at=2").body, "hello\n");
    let operations = fixture.get("projects/website/operations").json();
    let authors: Vec<&str> =
        operations["items"].as_array().unwrap().iter().map(|item| item["author"].as_str().unwrap()).collect();
    assert_eq!(authors, ["editor", "writer", "a test"]);
    let total = |path: &str| fixture.get(&format!("projects/website/{path}")).json()["total"].clone();
    assert_eq!([total("operations?limit=1&before=3"), total("snapshots?limit=1")], [3, 3]);
    assert_eq!([total("operations?author=editor"), total("completions?limit=1")], [1, 2]);
    assert_eq!(total("completions?agent=writer&state=landed"), 1);
    assert_eq!(operations["items"][0]["merged"][0], json!({"path": "docs/a.md", "strategy": "text"}));
    let versions = fixture.get("projects/website/versions/README.md").json();
    let changes: Vec<&str> =
        versions["items"].as_array().unwrap().iter().map(|item| item["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["renamed", "added"]);
    let undone = fixture.post("projects/website/rollback", &json!({"to": 1, "path": "docs"}));
    assert_eq!(undone.json()["sequence"], 4, "{}", undone.body);
    assert_eq!(fixture.file("docs/a.md"), "one\ntwo\nthree\nfour\nfive\nsix\n");
}

#[test]
fn a_policy_hides_files_from_an_agent_and_refuses_its_changes() {
    let fixture =
        Fixture::new(&[("open.txt", "open\n"), ("secret/key.pem", "key\n"), ("fixed.txt", "fixed\n")]);
    let policy = json!({"rules": [
        {"agent": "guest", "path": "secret/**", "access": "none"},
        {"agent": "guest", "path": "fixed.txt", "access": "R"},
    ]});
    let set = fixture.call("PUT", "projects/website/policy").json(&policy.to_string()).send();
    assert_eq!(set.json()["version"], 1, "{}", set.body);
    let why = fixture.get("projects/website/policy/explain?agent=guest&path=secret%2Fkey.pem").json();
    assert_eq!((&why["access"], &why["rule"]), (&json!("none"), &json!(0)), "{why}");
    let sandbox = fixture.sandbox("guest");
    assert_eq!(fixture.run(&sandbox, "ls"), "fixed.txt\nopen.txt\n");
    fixture.run(
        &sandbox,
        "echo more >> open.txt; echo more >> fixed.txt; mkdir secret; echo mine > secret/key.pem",
    );
    let landed = fixture.complete(&sandbox);
    let refused: Vec<&str> =
        landed["refused"].as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap()).collect();
    assert_eq!(refused, ["fixed.txt", "secret", "secret/key.pem"], "{landed}");
    assert_eq!(fixture.file("open.txt"), "open\nmore\n");
    assert_eq!(
        (fixture.file("fixed.txt"), fixture.file("secret/key.pem")),
        ("fixed\n".into(), "key\n".into())
    );
    let wrong = fixture.call("PUT", "projects/website/policy").json(r#"{"rules":[{"path":"a["}]}"#).send();
    assert_eq!(wrong.error(), "POLICY_INVALID", "{}", wrong.body);
    let stale = fixture.call("PUT", "projects/website/policy").header("if-match", "\"0\"");
    assert_eq!(stale.json(&policy.to_string()).send().error(), "PRECONDITION_FAILED");
}

#[test]
fn projects_of_another_owner_do_not_exist() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    let bob = fixture.server.key("bob", "user");
    let sandbox = fixture.sandbox("agent");
    let completion = fixture.complete(&sandbox)["id"].as_str().unwrap().to_owned();
    for path in [
        "projects/website".to_owned(),
        "projects/website/tree".to_owned(),
        "projects/website/files/a.txt".to_owned(),
        "projects/website/archive".to_owned(),
        "projects/website/operations".to_owned(),
        "projects/website/versions/a.txt".to_owned(),
        "projects/website/policy".to_owned(),
        "projects/website/policy/explain?agent=a&path=a".to_owned(),
        "projects/website/completions".to_owned(),
        format!("projects/website/completions/{completion}"),
    ] {
        let answer = fixture.server.call_as(&bob, "GET", &format!("/api/v1/{path}")).send();
        assert_eq!(answer.error(), "PROJECT_NOT_FOUND", "{path}");
    }
    let body = json!({"template": "base", "project": "website"}).to_string();
    let made = fixture.server.call_as(&bob, "POST", "/api/v1/sandboxes").json(&body).send();
    assert_eq!(made.error(), "PROJECT_NOT_FOUND");
    assert_eq!(fixture.server.call_as(&bob, "GET", "/api/v1/projects").send().json()["total"], 0);
    let plain = fixture.post("sandboxes", &json!({"template": "base"})).json();
    let complete = format!("sandboxes/{}/complete", plain["id"].as_str().unwrap());
    assert_eq!(fixture.post(&complete, &json!({})).error(), "SANDBOX_WITHOUT_PROJECT");
    assert_eq!(fixture.post("projects", &json!({"name": "website"})).error(), "PROJECT_EXISTS");
}

#[test]
fn a_completion_survives_a_killed_server() {
    let mut fixture = Fixture::new(&[("a.txt", "a\n")]);
    for round in 0..5 {
        let sandbox = fixture.sandbox("agent");
        fixture.run(&sandbox, &format!("echo {round} > {round}.txt"));
        let queued = fixture.post(&format!("sandboxes/{sandbox}/complete"), &json!({}));
        assert_eq!(queued.status, 202, "{}", queued.body);
        let id = queued.json()["id"].as_str().unwrap().to_owned();
        fixture.server.kill();
        fixture.server.start();
        let landed = fixture.get(&format!("projects/website/completions/{id}?wait=60")).json();
        assert_eq!(
            (&landed["state"], &landed["sequence"]),
            (&json!("landed"), &json!(round + 2)),
            "{landed}"
        );
        assert_eq!(fixture.file(&format!("{round}.txt")), format!("{round}\n"));
    }
    assert_eq!(fixture.get("projects/website").json()["sequence"], 6);
}

#[test]
fn a_fork_completes_only_what_was_not_completed_before() {
    let fixture = Fixture::new(&[("n.crdt.json", "{\"n\": 0}\n"), ("a.txt", "a\n")]);
    let policy = json!({"rules": [{"path": "*.crdt.json", "strategy": "crdt", "schema": {"n": "counter"}}]});
    let set = fixture.call("PUT", "projects/website/policy").json(&policy.to_string()).send();
    assert_eq!(set.status, 200, "{}", set.body);
    let first = fixture.sandbox("first");
    fixture.run(&first, "echo '{\"n\": 5}' > n.crdt.json; echo old > old.txt");
    fixture.complete(&first);
    fixture.run(&first, "echo between > between.txt");
    let forked = fixture.post(&format!("sandboxes/{first}/fork"), &json!({"count": 2})).json();
    let forks: Vec<&str> =
        forked["sandboxes"].as_array().unwrap().iter().map(|fork| fork["id"].as_str().unwrap()).collect();
    // Somebody else removes a file that was completed: the forks must not bring it back.
    let other = fixture.sandbox("other");
    fixture.run(&other, "rm old.txt");
    fixture.complete(&other);
    for (index, fork) in forks.iter().enumerate() {
        fixture.run(fork, &format!("echo '{{\"n\": 6}}' > n.crdt.json; echo {index} > {index}.txt"));
        assert_eq!(fixture.complete(fork)["state"], "landed");
    }
    // A fork of a fork begins where that one was completed.
    let second = fixture.post(&format!("sandboxes/{}/fork", forks[0]), &json!({"count": 1})).json();
    let second = second["sandboxes"][0]["id"].as_str().unwrap();
    fixture.run(second, "echo '{\"n\": 7}' > n.crdt.json");
    fixture.complete(second);
    assert_eq!(serde_json::from_str::<Value>(&fixture.file("n.crdt.json")).unwrap()["n"], 8);
    assert_eq!((fixture.file("0.txt"), fixture.file("1.txt")), ("0\n".into(), "1\n".into()));
    assert_eq!(fixture.file("between.txt"), "between\n");
    assert_eq!(fixture.get("projects/website/files/old.txt").error(), "PATH_NOT_FOUND");
}

#[test]
fn an_undo_is_completed_and_keys_belong_to_one_sandbox() {
    let fixture = Fixture::new(&[("a.txt", "one\n")]);
    let (first, second) = (fixture.sandbox("first"), fixture.sandbox("second"));
    fixture.run(&first, "echo two > a.txt");
    assert_eq!(fixture.complete(&first)["sequence"], 2);
    // Nothing changed since: the same completion.
    assert_eq!(fixture.complete(&first)["sequence"], 2);
    fixture.run(&first, "echo one > a.txt");
    assert_eq!(fixture.complete(&first)["sequence"], 3);
    assert_eq!(fixture.file("a.txt"), "one\n");
    fixture.run(&first, "echo two > a.txt");
    assert_eq!(fixture.complete(&first)["sequence"], 4);
    fixture.run(&second, "echo b > b.txt");
    fixture.run(&first, "echo c > c.txt");
    let complete = |sandbox: &str| {
        let call =
            fixture.call("POST", &format!("sandboxes/{sandbox}/complete")).header("idempotency-key", "done");
        call.json(r#"{"wait": 60}"#).send().json()["sequence"].clone()
    };
    assert_eq!((complete(&first), complete(&second), complete(&first)), (json!(5), json!(6), json!(5)));
    let wrong = fixture.post(&format!("sandboxes/{first}/complete"), &json!({"message": "a\u{0}b"}));
    assert_eq!(wrong.error(), "INVALID_REQUEST");
}
