//! Changes in sandboxes of projects that are deleted or expire.

use serde_json::{Value, json};

use super::disk::Disk;
use super::projects::Fixture;
use super::test_server::wait_until;
use crate::support::Answer;

impl Fixture {
    fn delete(&self, sandbox: &str, query: &str) -> Answer {
        self.call("DELETE", &format!("sandboxes/{sandbox}{query}")).send()
    }

    /// Deletes a sandbox with changes, and waits until they landed.
    #[track_caller]
    fn delete_and_land(&self, sandbox: &str, query: &str) -> Value {
        let deleted = self.delete(sandbox, query);
        assert_eq!(deleted.status, 200, "{}", deleted.body);
        self.landed(&deleted.json())
    }

    /// Waits until the completion of a deleted sandbox is decided, and returns it.
    fn landed(&self, deleted: &Value) -> Value {
        let (project, id) = (deleted["project"].as_str().unwrap(), deleted["completion"].as_str().unwrap());
        let completion = self.get(&format!("projects/{project}/completions/{id}?wait=60")).json();
        assert_eq!(completion["state"], "landed", "{completion}");
        completion
    }

    fn deletes_without_completion(&self, sandbox: &str, query: &str) {
        let deleted = self.delete(sandbox, query);
        assert_eq!(deleted.status, 204, "{}", deleted.body);
    }

    pub(super) fn sequence(&self) -> u64 {
        self.get("projects/website").json()["sequence"].as_u64().unwrap()
    }

    /// Returns the completions of a sandbox.
    pub(super) fn completions_of(&self, sandbox: &str) -> Vec<Value> {
        let all = self.get("projects/website/completions?limit=1000").json();
        let all = all["items"].as_array().unwrap().iter();
        all.filter(|completion| completion["sandbox"] == sandbox).cloned().collect()
    }

    fn sandbox_with(&self, body: &Value) -> String {
        let mut request = json!({"template": "base", "project": "website", "agent": "agent"});
        request.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let made = self.post("sandboxes", &request);
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    fn is_gone(&self, sandbox: &str) -> bool {
        self.get(&format!("sandboxes/{sandbox}")).status == 404
    }
}

#[test]
fn deleting_a_sandbox_completes_its_changes_unless_told_otherwise() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    let first = fixture.sandbox("agent");
    assert_eq!(fixture.get(&format!("sandboxes/{first}")).json()["onEnd"], "complete");
    fixture.run(&first, "echo one > one.txt");
    fixture.complete(&first);
    fixture.run(&first, "echo more >> one.txt");
    assert_eq!(fixture.delete_and_land(&first, "")["sequence"], 3);
    assert_eq!(fixture.file("one.txt"), "one\nmore\n");
    // Sandboxes without changes, with changes of git only, which the project ignores, and without changes since the last
    // completion.
    let (unchanged, git, completed) = (fixture.sandbox("a"), fixture.sandbox("b"), fixture.sandbox("c"));
    fixture.run(&git, "mkdir .git; echo x > .git/index");
    fixture.run(&completed, "echo two > two.txt");
    fixture.complete(&completed);
    for sandbox in [&unchanged, &git, &completed] {
        fixture.deletes_without_completion(sandbox, "");
    }
    assert_eq!(fixture.sequence(), 4);
    let discarded = fixture.sandbox("agent");
    fixture.run(&discarded, "echo x > lost.txt");
    fixture.deletes_without_completion(&discarded, "?complete=false");
    let (discards, overridden) = (json!({"onEnd": "discard"}), "?complete=true");
    let (discarding, kept) = (fixture.sandbox_with(&discards), fixture.sandbox_with(&discards));
    for sandbox in [&discarding, &kept] {
        assert_eq!(fixture.get(&format!("sandboxes/{sandbox}")).json()["onEnd"], "discard");
        fixture.run(sandbox, "echo x > late.txt");
    }
    fixture.deletes_without_completion(&discarding, "");
    assert_eq!(fixture.delete_and_land(&kept, overridden)["sequence"], 5);
    assert_eq!(fixture.get("projects/website/files/lost.txt").error(), "PATH_NOT_FOUND");
    let plain = fixture.post("sandboxes", &json!({"template": "base", "onEnd": "discard"}));
    assert_eq!(plain.error(), "INVALID_REQUEST");
    let plain = fixture.post("sandboxes", &json!({"template": "base"})).json();
    assert_eq!(plain["onEnd"], Value::Null);
    fixture.deletes_without_completion(plain["id"].as_str().unwrap(), "");
}

#[test]
fn a_batch_deletion_names_the_completions() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    let sandboxes: Vec<String> = ["one", "two", "three"].map(|agent| fixture.sandbox(agent)).into();
    for sandbox in &sandboxes[..2] {
        fixture.run(sandbox, &format!("echo x > {sandbox}.txt"));
    }
    let deleted = fixture.post("sandboxes/batch-delete", &json!({ "ids": sandboxes })).json();
    assert_eq!(deleted["succeeded"].as_array().unwrap().len(), 3, "{deleted}");
    let completions = deleted["completions"].as_array().unwrap();
    let of: Vec<&str> = completions.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(of, [&sandboxes[0], &sandboxes[1]]);
    for completion in completions {
        fixture.landed(completion);
        assert_eq!(fixture.file(&format!("{}.txt", completion["id"].as_str().unwrap())), "x\n");
    }
    let discarded = fixture.sandbox("four");
    fixture.run(&discarded, "echo x > lost.txt");
    let body = json!({ "ids": [discarded], "complete": false });
    let deleted = fixture.post("sandboxes/batch-delete", &body).json();
    assert_eq!((&deleted["completions"], fixture.sequence()), (&Value::Null, 3), "{deleted}");
}

#[test]
fn expiry_completes_running_and_paused_sandboxes() {
    let variables = [("EXPIRY_INTERVAL", "1"), ("MAX_PAUSED", "1")];
    let fixture = Fixture::with(&variables, &[("a.txt", "a\n")]);
    let (running, paused) = (fixture.sandbox("running"), fixture.sandbox("paused"));
    let lost = fixture.sandbox_with(&json!({"onEnd": "discard"}));
    for sandbox in [&running, &paused, &lost] {
        fixture.run(sandbox, &format!("echo x > {sandbox}.txt"));
    }
    let pause = fixture.post(&format!("sandboxes/{paused}/pause"), &json!({"keep": "disk"}));
    assert_eq!(pause.status, 200, "{}", pause.body);
    for sandbox in [&running, &lost] {
        let set = fixture.call("PUT", &format!("sandboxes/{sandbox}/timeout"));
        assert_eq!(set.json(r#"{"timeoutSeconds": 1}"#).send().status, 200);
    }
    for sandbox in [&running, &paused, &lost] {
        wait_until("it has expired", || fixture.is_gone(sandbox));
    }
    for (sandbox, count) in [(&running, 1), (&paused, 1), (&lost, 0)] {
        assert_eq!(fixture.completions_of(sandbox).len(), count);
    }
    wait_until("both landed", || fixture.sequence() == 3);
    for sandbox in [&running, &paused] {
        assert_eq!(fixture.file(&format!("{sandbox}.txt")), "x\n");
    }
}

#[test]
fn deleting_a_sandbox_that_is_paused_to_disk_completes_its_changes() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    let sandbox = fixture.sandbox("agent");
    fixture.run(&sandbox, "echo x > x.txt");
    let pause = fixture.post(&format!("sandboxes/{sandbox}/pause"), &json!({"keep": "disk"}));
    assert_eq!(pause.status, 200, "{}", pause.body);
    fixture.delete_and_land(&sandbox, "");
    assert_eq!(fixture.file("x.txt"), "x\n");
}

#[test]
fn forks_complete_only_their_own_changes_at_their_end() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    let original = fixture.sandbox("agent");
    fixture.run(&original, "echo draft > draft.txt");
    let forks = fixture.post(&format!("sandboxes/{original}/fork"), &json!({"count": 2})).json();
    let id = |index: usize| forks["sandboxes"][index]["id"].as_str().unwrap().to_owned();
    // The first fork has changed nothing itself.
    fixture.deletes_without_completion(&id(0), "");
    fixture.run(&id(1), "echo x > x.txt");
    fixture.delete_and_land(&id(1), "");
    assert_eq!(fixture.file("x.txt"), "x\n");
    let discarding = json!({"count": 1, "onEnd": "discard"});
    let forked = fixture.post(&format!("sandboxes/{original}/fork"), &discarding).json();
    let fork = forked["sandboxes"][0]["id"].as_str().unwrap();
    fixture.run(fork, "echo y > y.txt");
    fixture.deletes_without_completion(fork, "");
    assert_eq!(fixture.sequence(), 2);
}

#[test]
fn a_killed_server_completes_a_deleted_sandbox_exactly_once() {
    let mut fixture = Fixture::new(&[("a.txt", "a\n")]);
    let mut ended = Vec::new();
    for round in 0..8 {
        let sandbox = fixture.sandbox("agent");
        fixture.run(&sandbox, &format!("echo {round} > {round}.txt"));
        std::thread::scope(|scope| {
            let (fixture, sandbox) = (&fixture, sandbox.as_str());
            let deletion = scope.spawn(move || {
                // The connection ends with the server.
                fixture.call("DELETE", &format!("sandboxes/{sandbox}")).try_send();
            });
            // The server is killed at moments from the begin of the removal to after its end.
            let is_so_far = || match round % 4 {
                0 => fixture.get(&format!("sandboxes/{sandbox}")).body.contains("\"stopping\""),
                1 | 2 => !fixture.completions_of(sandbox).is_empty(),
                _ => true,
            };
            wait_until("the removal has come so far", || is_so_far() || fixture.is_gone(sandbox));
            fixture.server.signal(rustix::process::Signal::KILL);
            deletion.join().unwrap();
        });
        fixture.server.wait();
        fixture.server.start();
        ended.push((round, sandbox));
    }
    for (round, sandbox) in ended {
        if !fixture.is_gone(&sandbox)
            && fixture.get(&format!("sandboxes/{sandbox}")).json()["state"] != "stopping"
        {
            // The server was killed before it recorded the removal.
            assert_eq!(fixture.delete(&sandbox, "").status, 200);
        }
        wait_until("it is removed", || fixture.is_gone(&sandbox));
        assert_eq!(fixture.completions_of(&sandbox).len(), 1);
        wait_until("it landed", || fixture.completions_of(&sandbox)[0]["state"] == "landed");
        assert_eq!(fixture.file(&format!("{round}.txt")), format!("{round}\n"));
    }
    assert_eq!(fixture.sequence(), 9);
}

#[test]
fn a_sandbox_can_be_deleted_after_its_project() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    let sandbox = fixture.sandbox("agent");
    fixture.run(&sandbox, "echo x > x.txt");
    assert_eq!(fixture.call("DELETE", "projects/website").send().status, 204);
    fixture.deletes_without_completion(&sandbox, "");
}

#[test]
fn an_agent_that_deletes_its_sandbox_gets_its_completion() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("fixed/b.txt", "b\n")]);
    let policy = json!({"rules": [{"agent": "guest", "path": "fixed/**", "access": "R"}]});
    let set = fixture.call("PUT", "projects/website/policy").json(&policy.to_string()).send();
    assert_eq!(set.status, 200, "{}", set.body);
    let key = json!({"name": "an agent", "owner": "alice", "role": "agent", "projects": ["website"], "agents": ["guest"]});
    let key = fixture.server.post("/api/v1/keys", &key).json()["key"].as_str().unwrap().to_owned();
    let agent = |method: &str, path: &str, body: Value| {
        fixture.server.call_as(&key, method, &format!("/api/v1/{path}")).json(&body.to_string()).send()
    };
    let made = agent("POST", "sandboxes", json!({"template": "base", "project": "website"})).json();
    let sandbox = made["id"].as_str().unwrap();
    let command = json!({"command": "echo x > x.txt; echo y > fixed/b.txt"});
    agent("POST", &format!("sandboxes/{sandbox}/process/run"), command);
    let deleted =
        fixture.server.call_as(&key, "DELETE", &format!("/api/v1/sandboxes/{sandbox}")).send().json();
    let path =
        format!("/api/v1/projects/website/completions/{}?wait=60", deleted["completion"].as_str().unwrap());
    let completion = fixture.server.call_as(&key, "GET", &path).send().json();
    assert_eq!(completion["state"], "landed", "{completion}");
    assert_eq!(completion["refused"][0]["path"], "fixed/b.txt", "{completion}");
    assert_eq!((fixture.file("x.txt"), fixture.file("fixed/b.txt")), ("x\n".into(), "b\n".into()));
}

#[test]
fn a_sandbox_stays_with_its_files_while_its_changes_cannot_be_completed() {
    let Some(disk) = Disk::mount("64m") else { return };
    // Otherwise the server would stop the sandbox while it writes.
    let variables = [("DATA_DIR", disk.path().to_str().unwrap()), ("DISK_RESERVE", "1m")];
    let fixture = Fixture::with(&variables, &[("a.txt", "a\n")]);
    let sandbox = fixture.sandbox("agent");
    fixture.run(&sandbox, "head -c 8000000 /dev/urandom > large; sha256sum large > sum");
    disk.while_full(|| {
        let refused = fixture.delete(&sandbox, "");
        // The catalog is on the same disk.
        let errors = ["STORAGE_FULL", "CATALOG_UNAVAILABLE"];
        assert!(errors.contains(&refused.error().as_str()), "{}", refused.body);
    });
    disk.empty();
    assert_eq!(fixture.get(&format!("sandboxes/{sandbox}")).status, 200);
    fixture.delete_and_land(&sandbox, "");
    let (_, large) = fixture.call("GET", "projects/website/files/large").send_for_bytes();
    assert_eq!(large.len(), 8_000_000);
}
