//! Keys that are bound to projects and agents: what they may do, and that they reveal nothing that is hidden.

mod causes;
mod events;
mod former_states;
mod leaks;
mod push;
mod refused;

use serde_json::{Value, json};

use super::test_server::TestServer;
use crate::snapshots::archive::Archive;
use crate::support::Answer;

/// Server with a project of alice, whose policy hides files from the agent `guest`, and a key of that agent.
struct Fixture {
    server: TestServer,
    alice: String,
    guest: String,
}

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let server = TestServer::with(&[("MAX_SANDBOXES_PER_OWNER", "50")]);
        let alice = server.key("alice", "user");
        let mut fixture = Self { server, alice, guest: String::new() };
        assert_eq!(fixture.owner("POST", "projects", Some(json!({"name": "website"}))).status, 201);
        let archive =
            files.iter().fold(Archive::new(), |archive, (path, content)| archive.file(path, content));
        let import = fixture.server.call_as(&fixture.alice, "POST", "/api/v1/projects/website/import");
        assert_eq!(import.body(&archive.bytes()).send().status, 200);
        let policy = json!({"rules": [
            {"agent": "guest", "path": "secret/**", "access": "none"},
            {"agent": "guest", "path": "**/*.key", "access": "none"},
            {"agent": "guest", "path": "fixed/**", "access": "R"},
        ]});
        assert_eq!(fixture.owner("PUT", "projects/website/policy", Some(policy)).status, 200);
        fixture.guest = fixture.key(&json!({"projects": ["website"], "agents": ["guest"]}));
        fixture
    }

    /// Creates the key of an agent of alice.
    fn key(&self, more: &Value) -> String {
        let mut body = json!({"name": "an agent", "owner": "alice", "role": "agent"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = self.server.post("/api/v1/keys", &body);
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["key"].as_str().unwrap().to_owned()
    }

    fn send(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let call = self.server.call_as(key, method, &format!("/api/v1/{path}"));
        match body {
            Some(body) => call.json(&body.to_string()).send(),
            None => call.send(),
        }
    }

    fn owner(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.send(&self.alice, method, path, body)
    }

    fn agent(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.send(&self.guest, method, path, body)
    }

    fn sandbox(&self, key: &str, agent: &str) -> String {
        let body = json!({"template": "base", "project": "website", "agent": agent});
        let made = self.send(key, "POST", "sandboxes", Some(body));
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    fn run(&self, key: &str, sandbox: &str, command: &str) -> String {
        let path = format!("sandboxes/{sandbox}/process/run");
        let ran = self.send(key, "POST", &path, Some(json!({ "command": command }))).json();
        assert_eq!(ran["exitCode"], 0, "{ran}");
        ran["stdout"].as_str().unwrap().to_owned()
    }

    fn complete(&self, key: &str, sandbox: &str) -> Value {
        let path = format!("sandboxes/{sandbox}/complete");
        let done = self.send(key, "POST", &path, Some(json!({"message": "work", "wait": 60})));
        assert_eq!(done.status, 202, "{}", done.body);
        done.json()
    }

    /// Lets an agent of the owner change files and completes its work.
    fn change(&self, agent: &str, command: &str) {
        let sandbox = self.sandbox(&self.alice, agent);
        self.run(&self.alice, &sandbox, command);
        assert_eq!(self.complete(&self.alice, &sandbox)["state"], "landed");
    }
}

#[test]
fn the_key_of_an_agent_sees_its_view_and_acts_for_no_other() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    let guest = fixture.sandbox(&fixture.guest, "guest");
    assert_eq!(fixture.run(&fixture.guest, &guest, "find . -type f"), "./a.txt\n");
    fixture.run(&fixture.guest, &guest, "echo b > b.txt; mkdir secret; echo mine > secret/mine.md");
    let landed = fixture.complete(&fixture.guest, &guest);
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(2)), "{landed}");
    assert_eq!(fixture.agent("GET", "projects/website/files/b.txt", None).body, "b\n");

    // The owner sees the sandbox of the agent, and the agent no sandbox of the owner.
    let listed = fixture.owner("GET", "sandboxes?project=website", None).json();
    assert_eq!((&listed["total"], &listed["items"][0]["id"]), (&json!(1), &json!(guest)), "{listed}");
    assert_eq!(fixture.owner("GET", &format!("sandboxes/{guest}"), None).status, 200);
    let own = fixture.sandbox(&fixture.alice, "writer");
    assert_eq!(fixture.agent("GET", &format!("sandboxes/{own}"), None).error(), "SANDBOX_NOT_FOUND");
    assert_eq!(fixture.agent("GET", "sandboxes?project=website", None).json()["total"], 1);

    let create = |agent: Option<&str>, project: &str| {
        let body = json!({"template": "base", "project": project, "agent": agent});
        fixture.agent("POST", "sandboxes", Some(body))
    };
    assert_eq!(create(Some("writer"), "website").error(), "FORBIDDEN");
    assert_eq!(create(None, "other").error(), "PROJECT_NOT_FOUND");
    assert_eq!(create(None, "website").json()["agent"], "guest");
    for (method, path, body) in [
        ("POST", "projects", Some(json!({"name": "mine"}))),
        ("DELETE", "projects/website", None),
        ("POST", "projects/website/rollback", Some(json!({"to": 1}))),
        ("POST", "projects/website/import", None),
        ("GET", "projects/website/policy", None),
        ("PUT", "projects/website/policy", Some(json!({}))),
        ("GET", "projects/website/policy/explain?agent=guest&path=a", None),
        ("GET", "keys", None),
    ] {
        assert_eq!(fixture.agent(method, path, body).error(), "FORBIDDEN", "{method} {path}");
    }
    // A project that the key is not bound to does not exist for it.
    assert_eq!(fixture.owner("POST", "projects", Some(json!({"name": "other"}))).status, 201);
    assert_eq!(fixture.agent("GET", "projects/other", None).error(), "PROJECT_NOT_FOUND");
    assert_eq!(fixture.agent("DELETE", "projects/other", None).error(), "PROJECT_NOT_FOUND");
}

#[test]
fn a_key_for_several_agents_names_one() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    let both = fixture.key(&json!({"projects": ["website"], "agents": ["guest", "writer"]}));
    let read = |key: &str, agent: &str, path: &str| {
        let call = fixture.server.call_as(key, "GET", &format!("/api/v1/projects/website/{path}"));
        call.header("x-agent", agent).send()
    };
    assert_eq!(fixture.send(&both, "GET", "projects/website", None).error(), "AGENT_REQUIRED");
    assert_eq!(read(&both, "writer", "files/secret/plan.md").body, "plan\n");
    assert_eq!(read(&both, "guest", "files/secret/plan.md").error(), "PATH_NOT_FOUND");
    assert_eq!(read(&both, "root", "tree").error(), "FORBIDDEN");
    // The owner can look at the project as an agent sees it.
    assert_eq!(read(&fixture.alice, "guest", "files/secret/plan.md").error(), "PATH_NOT_FOUND");
    for (wrong, field) in [
        (json!({"role": "user", "projects": ["website"]}), "role"),
        (json!({"role": "agent"}), "projects"),
        (json!({"role": "user", "owner": "alice/agents/guest"}), "owner"),
        (json!({"role": "agent", "projects": ["website"], "agents": ["a\u{7}"]}), "agents"),
    ] {
        let mut body = json!({"name": "wrong", "owner": "alice"});
        body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let answer = fixture.server.post("/api/v1/keys", &body);
        assert_eq!(
            (answer.error(), &answer.json()["error"]["details"]["field"]),
            ("INVALID_REQUEST".into(), &json!(field))
        );
    }
}

#[test]
fn a_reviewer_resolves_what_it_may_see_and_the_policy_lets_it() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("secret/plan.md", "plan\n")]);
    let policy = json!({"rules": [
        {"agent": "checker", "path": "secret/**", "access": "none"},
        {"path": "b.txt", "reviewers": ["boss"]},
    ]});
    assert_eq!(fixture.owner("PUT", "projects/website/policy", Some(policy)).status, 200);
    let bound = json!({"role": "reviewer", "projects": ["website"], "agents": ["checker"]});
    let checker = fixture.key(&bound);
    let sandboxes = ["one", "two"].map(|agent| fixture.sandbox(&fixture.alice, agent));
    for (sandbox, text) in sandboxes.iter().zip(["one", "two"]) {
        let write = format!("for file in a.txt b.txt secret/plan.md; do echo {text} > $file; done");
        fixture.run(&fixture.alice, sandbox, &write);
        fixture.complete(&fixture.alice, sandbox);
    }
    let reviews = |key: &str| fixture.send(key, "GET", "projects/website/reviews", None).json();
    let all = reviews(&fixture.alice)["items"].as_array().unwrap().clone();
    assert_eq!(all.len(), 3, "{all:?}");
    let id = |path: &str| {
        let found = all.iter().find(|review| review["path"] == path).unwrap();
        format!("projects/website/reviews/{}", found["id"].as_str().unwrap())
    };
    // The reviewer sees the review that it may resolve. An agent that is no reviewer sees none.
    let own = reviews(&checker)["items"].as_array().unwrap().clone();
    assert_eq!(own.iter().map(|review| &review["path"]).collect::<Vec<_>>(), ["a.txt"]);
    assert_eq!(fixture.agent("GET", "projects/website/reviews", None).error(), "FORBIDDEN");
    for hidden in ["b.txt", "secret/plan.md"] {
        for path in [id(hidden), format!("{}/versions/theirs", id(hidden))] {
            assert_eq!(fixture.send(&checker, "GET", &path, None).error(), "REVIEW_NOT_FOUND", "{path}");
        }
        let path = format!("{}/resolve", id(hidden));
        let refused = fixture.send(&checker, "POST", &path, Some(json!({"choice": "theirs"})));
        assert_eq!(refused.error(), "REVIEW_NOT_FOUND");
    }
    assert_eq!(
        fixture.send(&checker, "GET", &format!("{}/versions/theirs", id("a.txt")), None).body,
        "two\n"
    );
    for query in ["?path=secret%2Fplan.md&limit=1", "?path=b.txt&limit=1"] {
        let found = fixture.send(&checker, "GET", &format!("projects/website/reviews{query}"), None).json();
        assert_eq!((&found["items"], found.get("next")), (&json!([]), None), "{found}");
    }
    // Sequences count only the changes that the reviewer can see, also in errors.
    let path = format!("{}/resolve", id("a.txt"));
    let wrong = fixture.send(&checker, "POST", &path, Some(json!({"choice": "theirs", "expect": "99"})));
    let seen = fixture.send(&checker, "GET", "projects/website", None).json()["sequence"].clone();
    assert_eq!(wrong.json()["error"]["details"]["head"], seen, "{}", wrong.body);
    let resolved = fixture.send(&checker, "POST", &path, Some(json!({"choice": "theirs"})));
    assert_eq!(resolved.json()["review"]["resolvedBy"], "checker", "{}", resolved.body);
    assert_eq!(resolved.json()["operation"]["operator"], "agent");
    assert_eq!(fixture.owner("GET", "projects/website/files/a.txt", None).body, "two\n");
}
