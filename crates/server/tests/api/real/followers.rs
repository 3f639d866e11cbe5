//! Sandboxes that follow the head of a project, and read-only workspaces.

use serde_json::{Value, json};

use super::test_server::{TestServer, wait_until};
use crate::snapshots::archive::Archive;
use crate::support::{Answer, Call};

/// Server with a project `website` of alice, whose two files always have the same number.
struct Fixture {
    server: TestServer,
    alice: String,
}

impl Fixture {
    fn new() -> Self {
        let server = TestServer::new();
        let alice = server.key("alice", "user");
        let fixture = Self { server, alice };
        assert_eq!(fixture.post("projects", &json!({"name": "website"})).status, 201);
        fixture.import(1);
        fixture
    }

    fn call(&self, method: &str, path: &str) -> Call {
        self.server.call_as(&self.alice, method, &format!("/api/v1/{path}"))
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path).json(&body.to_string()).send()
    }

    /// Moves the head to files with this number, which is also its sequence.
    fn import(&self, number: u64) {
        let content = format!("{number}\n");
        let archive = Archive::new().file("a", &content).file("d/b", &content).file("secret/c", &content);
        let imported = self.call("POST", "projects/website/import").body(&archive.bytes()).send();
        assert_eq!(imported.status, 200, "{}", imported.body);
        assert_eq!(imported.json()["operation"]["sequence"], number);
    }

    fn set_policy(&self, rules: &Value) {
        let policy = json!({ "rules": rules }).to_string();
        let set = self.call("PUT", "projects/website/policy").json(&policy).send();
        assert_eq!(set.status, 200, "{}", set.body);
    }

    fn create(&self, agent: &str, more: &Value) -> Answer {
        let mut body = json!({"template": "base", "project": "website", "agent": agent});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.post("sandboxes", &body)
    }

    fn follower(&self, agent: &str) -> String {
        let made = self.create(agent, &json!({"follow": "head"}));
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    fn details(&self, id: &str) -> Value {
        self.call("GET", &format!("sandboxes/{id}")).send().json()
    }

    fn run(&self, id: &str, command: &str) -> String {
        let ran = self.post(&format!("sandboxes/{id}/process/run"), &json!({ "command": command })).json();
        assert_eq!(ran["exitCode"], 0, "{ran}");
        ran["stdout"].as_str().unwrap().to_owned()
    }

    /// Starts a command in the background.
    fn start(&self, id: &str, command: &str) {
        let body = json!({"command": command, "background": true});
        let started = self.post(&format!("sandboxes/{id}/process/run"), &body);
        assert_eq!(started.status, 202, "{}", started.body);
    }

    fn numbers(&self, id: &str) -> String {
        self.run(id, "cat /workspace/a /workspace/d/b | tr '\\n' ' '")
    }

    fn wait_for(&self, id: &str, number: u64) {
        let expected = format!("{number} {number} ");
        wait_until("the follower shows the head", || self.numbers(id) == expected);
        wait_until("its details have the sequence", || self.details(id)["sequence"] == number);
    }

    fn anchors(&self) -> usize {
        let directory = self.server.path().join("workspaces/.anchors");
        std::fs::read_dir(directory).map(Iterator::count).unwrap_or_default()
    }
}

#[test]
fn followers_show_each_new_head_and_cannot_write() {
    let fixture = Fixture::new();
    let followers = [fixture.follower("one"), fixture.follower("two")];
    assert_eq!(fixture.anchors(), 1, "agents with the same view share a mount");
    let details = fixture.details(&followers[0]);
    let shown = (&details["follow"], &details["readOnly"], &details["sequence"]);
    assert_eq!(shown, (&json!("head"), &json!(true), &json!(1)), "{details}");
    for number in 2..5 {
        fixture.import(number);
        for id in &followers {
            fixture.wait_for(id, number);
        }
    }
    let refused = fixture.run(&followers[0], "touch /workspace/new 2>&1 || true");
    assert!(refused.contains("Read-only file system"), "{refused}");
    let file = format!("sandboxes/{}/files/workspace/a", followers[0]);
    let read = fixture.call("GET", &file).send();
    assert_eq!((read.status, read.body.as_str()), (200, "4\n"));
    // The merge of an agent's work arrives like any other change.
    let writer = fixture.create("writer", &json!({})).json()["id"].as_str().unwrap().to_owned();
    fixture.run(&writer, "echo 5 > a; echo 5 > d/b");
    let landed = fixture.post(&format!("sandboxes/{writer}/complete"), &json!({"wait": 60})).json();
    assert_eq!(landed["sequence"], 5, "{landed}");
    fixture.wait_for(&followers[1], 5);
}

#[test]
fn a_reader_sees_every_file_and_one_head_while_the_head_moves() {
    let fixture = Fixture::new();
    let id = fixture.follower("reader");
    // The loop opens the directory by its absolute path in each round, and two files below it.
    let script = "while [ ! -e /tmp/stop ]; do \
        (cd /workspace && read -r a < a && read -r b < d/b && [ \"$a\" = \"$b\" ] && echo $a || echo BAD); \
        read -r c < /workspace/d/b || echo MISSING; done 2>&1 | sort | uniq -c > /tmp/seen; touch /tmp/done";
    fixture.start(&id, script);
    for number in 2..=51 {
        fixture.import(number);
    }
    fixture.wait_for(&id, 51);
    fixture.run(&id, "touch /tmp/stop; while [ ! -e /tmp/done ]; do sleep 0.01; done");
    let seen = fixture.run(&id, "cat /tmp/seen");
    let bad = seen.lines().filter(|line| line.split_whitespace().last().unwrap().parse::<u64>().is_err());
    assert_eq!(bad.collect::<Vec<_>>(), [""; 0], "{seen}");
    assert!(seen.lines().count() > 1, "it saw several heads: {seen}");
}

#[test]
fn a_working_directory_keeps_its_head() {
    let fixture = Fixture::new();
    let id = fixture.follower("reader");
    let script = "cd /workspace/d; touch /tmp/ready; while [ ! -e /tmp/go ]; do sleep 0.01; done; \
        cat b ../a /workspace/a > /tmp/result.new; mv /tmp/result.new /tmp/result";
    fixture.start(&id, script);
    fixture.run(&id, "while [ ! -e /tmp/ready ]; do sleep 0.01; done");
    for number in 2..30 {
        fixture.import(number);
    }
    fixture.wait_for(&id, 29);
    assert_eq!(fixture.server.call("POST", "/api/v1/gc").send().status, 200);
    let result =
        fixture.run(&id, "touch /tmp/go; while [ ! -e /tmp/result ]; do sleep 0.01; done; cat /tmp/result");
    assert_eq!(result, "1\n1\n29\n");
}

#[test]
fn followers_see_only_their_view_also_after_a_change_of_the_policy() {
    let fixture = Fixture::new();
    fixture.set_policy(&json!([{"agent": "guest", "path": "secret/**", "access": "none"}]));
    let (guest, member) = (fixture.follower("guest"), fixture.follower("member"));
    assert_eq!(fixture.anchors(), 2);
    assert_eq!(fixture.run(&guest, "ls /workspace"), "a\nd\n");
    assert_eq!(fixture.run(&member, "ls /workspace"), "a\nd\nsecret\n");
    fixture.import(2);
    fixture.wait_for(&guest, 2);
    fixture.wait_for(&member, 2);
    assert_eq!(fixture.run(&guest, "ls /workspace"), "a\nd\n");
    // From now on nobody may see it.
    fixture.set_policy(&json!([{"path": "secret/**", "access": "none"}]));
    wait_until("the member moves to the other view", || fixture.run(&member, "ls /workspace") == "a\nd\n");
    fixture.import(3);
    fixture.wait_for(&member, 3);
    fixture.wait_for(&guest, 3);
    assert_eq!(fixture.run(&member, "ls /workspace"), "a\nd\n");
    wait_until("the former anchor is removed", || fixture.anchors() == 1);
}

#[test]
fn followers_go_on_after_a_killed_server() {
    let mut fixture = Fixture::new();
    let (id, other) = (fixture.follower("reader"), fixture.follower("other"));
    for round in 0..4 {
        let number = 2 + round * 2;
        fixture.import(number);
        fixture.server.kill();
        fixture.server.start();
        fixture.wait_for(&id, number);
        fixture.import(number + 1);
        fixture.wait_for(&id, number + 1);
    }
    let third = fixture.follower("third");
    for id in [&other, &third] {
        fixture.wait_for(id, 9);
    }
    assert_eq!(fixture.anchors(), 1);
    for id in [id, other, third] {
        assert_eq!(fixture.call("DELETE", &format!("sandboxes/{id}")).send().status, 204);
    }
    wait_until("the anchor ends with its last follower", || fixture.anchors() == 0);
}

#[test]
fn operations_on_a_follower() {
    let fixture = Fixture::new();
    let id = fixture.follower("reader");
    fixture.import(2);
    fixture.wait_for(&id, 2);
    let committed = fixture.post(&format!("sandboxes/{id}/commit"), &json!({"message": "as it is"})).json();
    let snapshot = committed["snapshot"]["id"].as_str().unwrap().to_owned();
    let file = fixture.call("GET", &format!("snapshots/{snapshot}/files/d/b")).send();
    assert_eq!(file.body, "2\n", "{committed}");
    let completed = fixture.post(&format!("sandboxes/{id}/complete"), &json!({}));
    assert_eq!((completed.status, completed.error().as_str()), (409, "WORKSPACE_READ_ONLY"));
    let restored = fixture.post(&format!("sandboxes/{id}/restore"), &json!({ "snapshot": snapshot }));
    assert_eq!((restored.status, restored.error().as_str()), (409, "WORKSPACE_READ_ONLY"));
    let paused = fixture.post(&format!("sandboxes/{id}/pause"), &json!({"keep": "disk"}));
    assert_eq!((paused.status, paused.error().as_str()), (409, "WORKSPACE_READ_ONLY"));
    assert_eq!(fixture.post(&format!("sandboxes/{id}/pause"), &json!({"keep": "memory"})).status, 200);
    fixture.import(3);
    assert_eq!(fixture.post(&format!("sandboxes/{id}/resume"), &json!({})).status, 200);
    fixture.wait_for(&id, 3);
    let forked = fixture.post(&format!("sandboxes/{id}/fork"), &json!({"count": 1})).json();
    let fork = forked["sandboxes"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.details(&fork)["follow"], "head", "{forked}");
    fixture.import(4);
    fixture.wait_for(&fork, 4);
    let changes = fixture.call("GET", &format!("sandboxes/{id}/changes")).send();
    assert_eq!(changes.status, 200, "{}", changes.body);
}

#[test]
fn requests_to_follow_nothing_are_refused() {
    let fixture = Fixture::new();
    let plain = fixture.post("sandboxes", &json!({"template": "base", "follow": "head"}));
    assert_eq!((plain.status, plain.error().as_str()), (400, "INVALID_REQUEST"), "{}", plain.body);
    let unknown = fixture.create("reader", &json!({"follow": "tail"}));
    assert_eq!(unknown.status, 400, "{}", unknown.body);
    let kept = fixture.create("reader", &json!({"follow": "head", "onTimeout": "pause"}));
    assert_eq!((kept.status, kept.error().as_str()), (400, "INVALID_REQUEST"), "{}", kept.body);
    let traced = fixture.create("reader", &json!({"follow": "head", "trace": "command"}));
    assert_eq!((traced.status, traced.error().as_str()), (400, "INVALID_REQUEST"), "{}", traced.body);
    assert_eq!(fixture.anchors(), 0);
}

#[test]
fn an_agent_without_write_access_has_a_read_only_workspace() {
    let fixture = Fixture::new();
    fixture.set_policy(&json!([
        {"agent": "guest", "path": "**", "access": "R"},
        {"agent": "guest", "path": "secret/**", "access": "none"},
    ]));
    let made = fixture.create("guest", &json!({})).json();
    let id = made["id"].as_str().unwrap();
    assert_eq!((&made["readOnly"], made.get("follow")), (&json!(true), None), "{made}");
    let refused = fixture.run(id, "touch /workspace/new 2>&1 || true; ls /workspace");
    assert!(refused.contains("Read-only file system") && !refused.contains("secret"), "{refused}");
    fixture.import(2);
    assert_eq!(fixture.numbers(id), "1 1 ", "it does not follow");
    let completed = fixture.post(&format!("sandboxes/{id}/complete"), &json!({}));
    assert_eq!((completed.status, completed.error().as_str()), (409, "WORKSPACE_READ_ONLY"));
    assert_eq!(fixture.create("writer", &json!({})).json().get("readOnly"), None);
    // It can be paused to disk and comes back as it was.
    assert_eq!(fixture.post(&format!("sandboxes/{id}/pause"), &json!({"keep": "disk"})).status, 200);
    assert_eq!(fixture.post(&format!("sandboxes/{id}/resume"), &json!({})).status, 200);
    let refused = fixture.run(id, "touch /workspace/new 2>&1 || true; cat /workspace/a");
    assert!(refused.contains("Read-only file system") && refused.ends_with("1\n"), "{refused}");
}
