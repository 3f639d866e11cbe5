//! Workspaces of agents that run in processes and containers which the server did not start.

mod access;
mod containers;
mod hostile;
mod kills;
mod rebase;
mod recovery;
mod sync;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::test_server::TestServer;
use crate::snapshots::archive::Archive;
use crate::support::Answer;

/// Server with a project `website` of alice.
struct Fixture {
    server: TestServer,
    alice: String,
}

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        Self::with(&[], files)
    }

    fn with(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Self {
        let server = TestServer::with(variables);
        let alice = server.key("alice", "user");
        let fixture = Self { server, alice };
        fixture.create_project("website");
        fixture.import("website", files);
        fixture
    }

    fn create_project(&self, name: &str) {
        assert_eq!(self.post("projects", &json!({ "name": name })).status, 201);
    }

    /// Replaces the files of a project.
    fn import(&self, project: &str, files: &[(&str, &str)]) {
        let archive =
            files.iter().fold(Archive::new(), |archive, (path, content)| archive.file(path, content));
        let path = format!("/api/v1/projects/{project}/import");
        let imported = self.server.call_as(&self.alice, "POST", &path).body(&archive.bytes()).send();
        assert_eq!(imported.status, 200, "{}", imported.body);
    }

    fn send(&self, key: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let call = self.server.call_as(key, method, &format!("/api/v1/{path}"));
        match body {
            Some(body) => call.json(&body.to_string()).send(),
            None => call.send(),
        }
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(&self.alice, "POST", path, Some(body))
    }

    fn get(&self, path: &str) -> Answer {
        self.send(&self.alice, "GET", path, None)
    }

    fn delete(&self, path: &str) -> Answer {
        self.send(&self.alice, "DELETE", path, None)
    }

    /// Creates the key of an agent of alice.
    fn agent_key(&self, projects: &[&str], agents: &[&str]) -> String {
        let body = json!({"name": "an agent", "owner": "alice", "role": "agent", "projects": projects,
            "agents": agents});
        let made = self.server.post("/api/v1/keys", &body);
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["key"].as_str().unwrap().to_owned()
    }

    /// Creates the workspace of an agent, and returns its directory.
    fn workspace(&self, agent: &str) -> PathBuf {
        let made = self.post("projects/website/workspaces", &json!({ "agent": agent }));
        assert_eq!(made.status, 201, "{}", made.body);
        PathBuf::from(made.json()["path"].as_str().unwrap())
    }

    fn try_complete(&self, agent: &str) -> Answer {
        let body = json!({"message": "work", "wait": 60});
        self.post(&format!("projects/website/workspaces/{agent}/complete"), &body)
    }

    fn complete(&self, agent: &str) -> Value {
        let done = self.try_complete(agent);
        assert_eq!(done.status, 202, "{}", done.body);
        done.json()
    }

    fn changes(&self, agent: &str) -> Value {
        let changes = self.get(&format!("projects/website/workspaces/{agent}/changes"));
        assert_eq!(changes.status, 200, "{}", changes.body);
        changes.json()
    }

    fn file(&self, path: &str) -> String {
        self.get(&format!("projects/website/files/{path}")).body
    }

    fn sequence(&self) -> u64 {
        self.get("projects/website").json()["sequence"].as_u64().unwrap()
    }
}

/// Runs a script of a process that the server does not know in a directory. Returns its output.
fn run(directory: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn work_of_a_plain_process_lands() {
    let fixture =
        Fixture::new(&[("readme.md", "hello\n"), ("docs/a.md", "one\ntwo\nthree\n"), ("old", "old\n")]);
    let made = fixture.post("projects/website/workspaces", &json!({"agent": "writer"}));
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    let project = fixture.get("projects/website").json();
    assert_eq!((&made["agent"], &made["state"]), (&json!("writer"), &json!("ready")), "{made}");
    assert_eq!((&made["sequence"], &made["baseSnapshot"]), (&json!(1), &project["head"]), "{made}");
    assert!(["clone", "copy"].contains(&made["provider"].as_str().unwrap()), "{made}");
    let path = PathBuf::from(made["path"].as_str().unwrap());
    assert_eq!(run(&path, "cat readme.md docs/a.md"), "hello\none\ntwo\nthree\n");
    let owner = run(&path, "stat -c %u:%g . readme.md | sort -u");
    assert_eq!(owner.trim(), made["user"].as_str().unwrap());
    assert_eq!(fixture.changes("writer")["total"], 0);

    run(
        &path,
        "sed -i s/three/THREE/ docs/a.md; echo new > new.md; rm old; mkdir d; mv readme.md d/moved.md",
    );
    std::fs::write(path.join("binary"), [0xff, 0, 1]).unwrap();
    let changes = fixture.changes("writer");
    let modified: Vec<_> =
        changes["modified"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
    assert_eq!(modified, ["binary", "d", "d/moved.md", "docs/a.md", "new.md"], "{changes}");
    assert_eq!(changes["modified"][0]["contentBase64"], "/wAB");
    assert_eq!(changes["modified"][3]["content"], "one\ntwo\nTHREE\n");
    assert_eq!((&changes["deleted"], &changes["completed"]), (&json!(["readme.md", "old"]), &json!(false)));
    assert_eq!((&changes["total"], &changes["truncated"]), (&json!(7), &json!(false)));
    assert_eq!(changes["baseSnapshot"], project["head"]);

    let landed = fixture.complete("writer");
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(2)), "{landed}");
    assert_eq!(fixture.file("docs/a.md"), "one\ntwo\nTHREE\n");
    assert_eq!((fixture.file("new.md"), fixture.file("d/moved.md")), ("new\n".into(), "hello\n".into()));
    assert_eq!(fixture.get("projects/website/files/old").error(), "PATH_NOT_FOUND");
    let operation = &fixture.get("projects/website/operations").json()["items"][0];
    assert_eq!((&operation["author"], &operation["message"]), (&json!("writer"), &json!("work")));
    assert_eq!(fixture.changes("writer")["completed"], true);

    // The same files again are the same completion; further changes are further work.
    assert_eq!(fixture.complete("writer")["id"], landed["id"]);
    assert_eq!(fixture.sequence(), 2);
    run(&path, "echo more >> new.md");
    assert_eq!(fixture.complete("writer")["sequence"], 3);
    assert_eq!(fixture.file("new.md"), "new\nmore\n");
    assert_eq!(fixture.delete("projects/website/workspaces/writer").status, 204);
    assert!(!path.exists());
    assert_eq!(fixture.get("projects/website/workspaces/writer").error(), "WORKSPACE_NOT_FOUND");
}

#[test]
fn a_repeated_request_to_complete_is_applied_once() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    let path = fixture.workspace("writer");
    run(&path, "echo b > b");
    let complete = |key: &str| {
        let path = "/api/v1/projects/website/workspaces/writer/complete";
        let call = fixture.server.call_as(&fixture.alice, "POST", path).header("idempotency-key", key);
        call.json(r#"{"wait":60}"#).send().json()
    };
    let first = complete("one");
    run(&path, "echo c > c");
    assert_eq!(complete("one"), first);
    assert_eq!((fixture.sequence(), fixture.get("projects/website/files/c").status), (2, 404));
    assert_eq!(complete("two")["sequence"], 3);
    let listed = fixture.get("projects/website/completions").json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
}

#[test]
fn concurrent_requests_make_one_workspace_and_one_completion() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    let all = |path: &str, body: &Value| {
        std::thread::scope(|scope| {
            let sent: Vec<_> = (0..6).map(|_| scope.spawn(|| fixture.post(path, body))).collect();
            sent.into_iter().map(|answer| answer.join().unwrap()).collect::<Vec<_>>()
        })
    };
    let made = all("projects/website/workspaces", &json!({"agent": "writer"}));
    let mut statuses: Vec<_> = made.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 201]);
    assert!(made.iter().all(|answer| answer.json() == made[0].json()));
    run(Path::new(made[0].json()["path"].as_str().unwrap()), "echo b > b");
    let completed = all("projects/website/workspaces/writer/complete", &json!({"wait": 60}));
    let ids: Vec<_> = completed.iter().map(|answer| answer.json()["id"].clone()).collect();
    assert!(ids.iter().all(|id| id.is_string() && *id == ids[0]), "{ids:?}");
    assert_eq!(fixture.sequence(), 2);
    let mut deleted: Vec<_> = std::thread::scope(|scope| {
        let one = "projects/website/workspaces/writer";
        let sent: Vec<_> = (0..3).map(|_| scope.spawn(|| fixture.delete(one).status)).collect();
        sent.into_iter().map(|status| status.join().unwrap()).collect()
    });
    deleted.sort_unstable();
    assert_eq!(deleted, [204, 404, 404]);
}

#[test]
fn agents_that_change_the_same_file_are_merged_or_reviewed() {
    let fixture = Fixture::new(&[("a.md", "one\ntwo\nthree\nfour\nfive\nsix\n")]);
    let (writer, editor) = (fixture.workspace("writer"), fixture.workspace("editor"));
    assert_ne!(writer, editor);
    run(&writer, "sed -i s/one/ONE/ a.md");
    run(&editor, "sed -i s/six/SIX/ a.md");
    assert_eq!(fixture.complete("writer")["state"], "landed");
    assert_eq!(fixture.complete("editor")["state"], "landed");
    assert_eq!(fixture.file("a.md"), "ONE\ntwo\nthree\nfour\nfive\nSIX\n");
    run(&writer, "sed -i s/two/mine/ a.md");
    run(&editor, "sed -i s/two/yours/ a.md");
    assert_eq!(fixture.complete("writer")["state"], "landed");
    let conflict = fixture.complete("editor");
    assert_eq!(
        (&conflict["state"], &conflict["conflicts"][0]["path"]),
        (&json!("in_review"), &json!("a.md"))
    );
}

#[test]
fn a_workspace_with_work_that_was_not_completed_is_deleted_only_on_demand() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    let path = fixture.workspace("writer");
    run(&path, "echo b > b");
    let one = "projects/website/workspaces/writer";
    assert_eq!(fixture.delete(one).error(), "WORKSPACE_UNCOMPLETED");
    assert_eq!(fixture.delete(&format!("{one}?discard=false")).error(), "WORKSPACE_UNCOMPLETED");
    assert_eq!(run(&path, "cat b"), "b\n");
    assert_eq!(fixture.delete("projects/website").error(), "PROJECT_IN_USE");
    assert_eq!(fixture.delete(&format!("{one}?discard=true")).status, 204);
    assert!(!path.exists());
    assert_eq!(fixture.delete(one).error(), "WORKSPACE_NOT_FOUND");
    // One without changes is deleted at once, and so is the project then.
    fixture.workspace("writer");
    assert_eq!(fixture.delete(one).status, 204);
    assert_eq!(fixture.delete("projects/website").status, 204);
}

#[test]
fn requests_for_workspaces_are_checked_and_limited() {
    let fixture = Fixture::with(&[("MAX_WORKSPACES_PER_OWNER", "2")], &[("a", "a\n")]);
    let create = |body: Value| fixture.post("projects/website/workspaces", &body);
    assert_eq!(create(json!({"agent": "a", "provider": "overlay"})).error(), "PROVIDER_UNAVAILABLE");
    for (field, body) in [
        ("provider", json!({"agent": "a", "provider": "zfs"})),
        ("agent", json!({"agent": ""})),
        ("agent", json!({"agent": "a\u{0}b"})),
        ("agent", json!({"agent": "x".repeat(200)})),
    ] {
        let refused = create(body);
        assert_eq!(refused.error(), "INVALID_REQUEST", "{}", refused.body);
        assert_eq!(refused.json()["error"]["details"]["field"], field);
    }
    assert_eq!(fixture.server.workspaces(), [""; 0], "nothing is left of refused requests");
    let made = create(json!({"agent": "a", "provider": "copy"}));
    assert_eq!((made.status, &made.json()["provider"]), (201, &json!("copy")), "{}", made.body);
    let again = create(json!({"agent": "a"}));
    assert_eq!((again.status, again.json()), (200, made.json()));
    // Without `agent`, the workspace belongs to an agent with the name of the key, which may contain spaces.
    assert_eq!(create(json!({})).json()["agent"], "a test");
    assert_eq!(create(json!({"agent": "c"})).error(), "WORKSPACE_LIMIT_EXCEEDED");
    let listed = fixture.get("projects/website/workspaces").json();
    let agents: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| &item["agent"]).collect();
    assert_eq!(agents, ["a", "a test"]);
    let page = fixture.get("projects/website/workspaces?limit=1").json();
    let next = fixture
        .get(&format!("projects/website/workspaces?limit=1&cursor={}", page["next"].as_str().unwrap()));
    assert_eq!(next.json()["items"][0]["agent"], "a test");
    assert_eq!(fixture.delete("projects/website/workspaces/a%20test").status, 204);
    let strange = "ä/../b";
    assert_eq!(create(json!({ "agent": strange })).status, 201);
    let one = fixture.get("projects/website/workspaces/%C3%A4%2F..%2Fb");
    assert_eq!(one.json()["agent"], strange, "{}", one.body);
    assert_eq!(fixture.get("projects/website/workspaces/missing/changes").error(), "WORKSPACE_NOT_FOUND");
}
