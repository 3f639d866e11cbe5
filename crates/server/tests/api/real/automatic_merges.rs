//! Merges of running sandboxes, in the modes `periodic` and `write`.

use serde_json::{Value, json};

use super::projects::Fixture;
use super::terminals::{Terminal, open};
use super::test_server::{TestServer, wait_until};
use crate::snapshots::archive::Archive;
use crate::snapshots::uploads::incompressible;

impl Fixture {
    fn set_merge(&self, merge: &Value) {
        let set = self.call("PATCH", "projects/website").json(&json!({ "merge": merge }).to_string()).send();
        assert_eq!(set.status, 200, "{}", set.body);
        assert_eq!(set.json()["merge"]["mode"], merge["mode"]);
    }

    fn has(&self, path: &str, content: &str) -> bool {
        let file = self.get(&format!("projects/website/files/{path}"));
        file.status == 200 && file.body == content
    }

    /// Changes a file in another sandbox, and waits until the change landed: by then the server has checked all sandboxes.
    fn wait_for_merges(&self, other: &str, rounds: u32) {
        for round in 0..rounds {
            self.run(other, &format!("echo {round} > {other}.txt"));
            wait_until("the other one landed", || self.has(&format!("{other}.txt"), &format!("{round}\n")));
        }
    }
}

#[test]
fn merge_modes_are_validated_and_shown() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    assert_eq!(fixture.get("projects/website").json()["merge"], json!({"mode": "completion"}));
    let created =
        fixture.post("projects", &json!({"name": "p", "merge": {"mode": "periodic", "interval": "5m"}}));
    assert_eq!(created.json()["merge"], json!({"mode": "periodic", "interval": 300}), "{}", created.body);
    fixture.set_merge(&json!({"mode": "periodic"}));
    assert_eq!(fixture.get("projects/website").json()["merge"], json!({"mode": "periodic", "interval": 10}));
    for wrong in [
        json!({"mode": "often"}),
        json!({"interval": 5}),
        json!({"mode": "write", "interval": 5}),
        json!({"mode": "periodic", "interval": 0}),
        json!({"mode": "periodic", "interval": "2d"}),
        json!({"mode": "periodic", "interval": -1}),
        json!({"mode": "periodic", "interval": "soon"}),
        json!({"mode": "periodic", "every": 5}),
    ] {
        let refused = fixture.call("PATCH", "projects/website").json(&json!({ "merge": wrong }).to_string());
        assert_eq!(refused.send().error(), "INVALID_REQUEST", "{wrong}");
    }
    // Other settings stay.
    let set = fixture.call("PATCH", "projects/website").json(r#"{"git": "kept"}"#).send();
    assert_eq!(set.json()["merge"]["mode"], "periodic", "{}", set.body);
}

#[test]
fn periodic_merges_land_each_change_once_and_leave_the_workspace_alone() {
    let fixture = Fixture::new(&[("a.txt", "one\n")]);
    let (writer, other) = (fixture.sandbox("writer"), fixture.sandbox("other"));
    fixture.run(&writer, "echo two > a.txt");
    // Not in the default mode.
    assert_eq!(fixture.sequence(), 1);
    fixture.set_merge(&json!({"mode": "periodic", "interval": 1}));
    wait_until("the change landed", || fixture.has("a.txt", "two\n"));
    fixture.wait_for_merges(&other, 2);
    assert_eq!(fixture.completions_of(&writer).len(), 1, "nothing changed since");
    assert_eq!(fixture.run(&writer, "cat a.txt"), "two\n");
    let changes = fixture.get(&format!("sandboxes/{writer}/changes")).json();
    assert!(changes.to_string().contains("a.txt"), "{changes}");
    // The next merge has only the new change: what others changed meanwhile stays.
    let third = fixture.sandbox("third");
    fixture.run(&third, "echo three > a.txt");
    wait_until("it landed", || fixture.has("a.txt", "three\n"));
    fixture.run(&writer, "echo new > new.txt");
    wait_until("it landed", || fixture.has("new.txt", "new\n"));
    assert_eq!(fixture.file("a.txt"), "three\n");
    assert_eq!(fixture.completions_of(&writer).len(), 2);
    // At its end, nothing is left to complete.
    assert_eq!(fixture.call("DELETE", &format!("sandboxes/{writer}")).send().status, 204);
}

#[test]
fn files_of_a_running_command_or_a_process_that_it_left_are_not_merged() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    fixture.set_merge(&json!({"mode": "write"}));
    let (writer, left, other) =
        (fixture.sandbox("writer"), fixture.sandbox("left"), fixture.sandbox("other"));
    let command = json!({
        "command": "echo half > half.txt; read go; echo whole >> half.txt", "stdin": true, "background": true
    });
    let started = fixture.post(&format!("sandboxes/{writer}/process/run"), &command).json();
    let command = started["commandId"].as_str().unwrap();
    wait_until("it wrote half", || fixture.run(&writer, "cat half.txt || true") == "half\n");
    fixture.run(&left, "(until test -e /tmp/go; do sleep 0.05; done; echo whole >> left.txt) > /dev/null 2>&1 & echo half > left.txt");
    // Events in the sandboxes, after which they are looked at.
    for sandbox in [&writer, &left] {
        let path = format!("sandboxes/{sandbox}/files/workspace/more-{sandbox}.txt");
        let written = fixture.call("PUT", &path).body(b"more").send();
        assert!(written.status < 300, "{}", written.body);
    }
    fixture.wait_for_merges(&other, 3);
    assert!(fixture.completions_of(&writer).is_empty() && fixture.completions_of(&left).is_empty());
    let input = format!("sandboxes/{writer}/process/{command}/stdin");
    assert_eq!(fixture.post(&input, &json!({"data": "\n"})).status, 204);
    fixture.run(&left, "touch /tmp/go");
    wait_until("both landed", || {
        fixture.has("half.txt", "half\nwhole\n") && fixture.has("left.txt", "half\nwhole\n")
    });
    assert_eq!(fixture.file(&format!("more-{writer}.txt")), "more");
    let versions = fixture.get("projects/website/versions/half.txt").json();
    assert_eq!(versions["items"].as_array().unwrap().len(), 1, "half of it never landed: {versions}");
}

#[test]
fn files_over_the_api_and_from_idle_terminals_are_merged() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    fixture.set_merge(&json!({"mode": "write"}));
    let (writer, other) = (fixture.sandbox("writer"), fixture.sandbox("other"));
    let path = format!("sandboxes/{writer}/files/workspace/api.txt");
    let written = fixture.call("PUT", &path).body(b"over the api").send();
    assert!(written.status < 300, "{}", written.body);
    wait_until("it landed", || fixture.has("api.txt", "over the api"));
    let pty = open(&fixture.server, &writer, &json!({"cols": 80, "rows": 24}));
    let mut terminal = Terminal::connect(&fixture.server, &writer, &pty, "");
    terminal.type_in("echo typed > typed.txt; echo do''ne\n");
    terminal.wait_for_output("done");
    wait_until("it landed", || fixture.has("typed.txt", "typed\n"));
    // A program in the terminal may be in the middle of something.
    terminal.type_in("echo half > editor.txt; echo beg''un; cat >> editor.txt\n");
    terminal.wait_for_output("begun");
    fixture.wait_for_merges(&other, 3);
    assert_eq!(fixture.get("projects/website/files/editor.txt").error(), "PATH_NOT_FOUND");
    terminal.type_in("whole\n\u{4}");
    wait_until("it landed", || fixture.has("editor.txt", "half\nwhole\n"));
}

#[test]
fn a_restarted_server_merges_what_the_former_one_did_not() {
    let mut fixture = Fixture::new(&[("a.txt", "a\n")]);
    let writer = fixture.sandbox("writer");
    fixture.set_merge(&json!({"mode": "periodic", "interval": "1h"}));
    fixture.run(&writer, "echo x > x.txt");
    fixture.server.restart();
    assert_eq!(fixture.sequence(), 1);
    fixture.set_merge(&json!({"mode": "write"}));
    wait_until("it landed", || fixture.has("x.txt", "x\n"));
    for round in 0..5 {
        fixture.run(&writer, &format!("echo {round} > {round}.txt"));
        fixture.server.restart();
        wait_until("it landed", || fixture.has(&format!("{round}.txt"), &format!("{round}\n")));
    }
    wait_until("all are decided", || {
        fixture.completions_of(&writer).iter().all(|completion| completion["state"] == "landed")
    });
    assert_eq!(fixture.sequence(), 7, "each change landed once");
}

#[test]
fn two_servers_merge_their_own_sandboxes_once() {
    let fixture = Fixture::new(&[("a.txt", "a\n")]);
    let url = workspace_catalog::sqlite_url(&fixture.server.path().join("catalog.db"));
    let store = fixture.server.path().join("store");
    let variables = [("DATABASE_URL", url.as_str()), ("STORE_DIR", store.to_str().unwrap())];
    let other = TestServer::with(&variables);
    fixture.set_merge(&json!({"mode": "periodic", "interval": 1}));
    let (mine, body) =
        (fixture.sandbox("mine"), json!({"template": "base", "project": "website", "agent": "other"}));
    let call = |method: &str, path: &str, body: &Value| {
        other.call_as(&fixture.alice, method, &format!("/api/v1/{path}")).json(&body.to_string()).send()
    };
    let made = call("POST", "sandboxes", &body);
    assert_eq!(made.status, 201, "{}", made.body);
    let others = made.json()["id"].as_str().unwrap().to_owned();
    for round in 0..3 {
        fixture.run(&mine, &format!("echo {round} > mine.txt"));
        let command = json!({ "command": format!("echo {round} > others.txt") });
        call("POST", &format!("sandboxes/{others}/process/run"), &command);
        let content = format!("{round}\n");
        wait_until("both landed", || {
            fixture.has("mine.txt", &content) && fixture.has("others.txt", &content)
        });
    }
    let counts = [&mine, &others].map(|sandbox| fixture.completions_of(sandbox).len());
    assert_eq!((counts, fixture.sequence()), ([3, 3], 7));
    assert_eq!(call("DELETE", &format!("sandboxes/{others}"), &json!({})).status, 204);
}

#[test]
fn automatic_merges_are_refused_like_requested_ones_while_the_quota_of_the_project_is_used_up() {
    let fixture = Fixture::with(&[("MAX_SNAPSHOT_BYTES_PER_OWNER", "200k")], &[("a.txt", "a\n")]);
    fixture.set_merge(&json!({"mode": "write"}));
    let key = json!({"name": "guest", "owner": "alice", "role": "agent", "projects": ["website"], "agents": ["guest"]});
    let made = fixture.server.post("/api/v1/keys", &key);
    assert_eq!(made.status, 201, "{}", made.body);
    let guest = made.json()["key"].as_str().unwrap().to_owned();
    let call = |method: &str, path: &str, body: &Value| {
        fixture.server.call_as(&guest, method, &format!("/api/v1/{path}")).json(&body.to_string()).send()
    };
    let create = || {
        let made = call("POST", "sandboxes", &json!({"template": "base", "project": "website"}));
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let run = |sandbox: &str, command: &str| {
        let ran = call("POST", &format!("sandboxes/{sandbox}/process/run"), &json!({ "command": command }));
        assert_eq!(ran.json()["exitCode"], 0, "{}", ran.body);
    };
    let told = |key: &str, sandbox: &str| {
        let path = format!("/api/v1/events?type=completion.failed&sandbox={sandbox}");
        let page = fixture.server.call_as(key, "GET", &path).send().json();
        page["items"].as_array().unwrap().iter().map(|event| event["data"].clone()).collect::<Vec<_>>()
    };
    let (running, ended) = (create(), create());
    run(&running, "echo one > one.txt");
    wait_until("it landed", || fixture.has("one.txt", "one\n"));
    // The agent has a quota of its own, of which it uses little.
    let archive = Archive::new().file("large", incompressible(1, 250_000));
    let uploaded = fixture.call("POST", "snapshots").body(&archive.bytes()).send();
    assert_eq!(uploaded.status, 201, "{}", uploaded.body);
    run(&running, "echo two > two.txt");
    wait_until("the owner is told", || told(&fixture.alice, &running).len() == 1);
    let data = &told(&fixture.alice, &running)[0];
    assert_eq!((&data["project"], &data["agent"]), (&json!("website"), &json!("guest")));
    assert!(data["reason"].as_str().unwrap().contains("MAX_SNAPSHOT_BYTES_PER_OWNER"), "{data}");
    wait_until("the agent is told", || told(&guest, &running).len() == 1);
    assert_eq!(told(&guest, &running)[0], json!({"project": "website", "agent": "guest"}));
    let refused = call("POST", &format!("sandboxes/{running}/complete"), &json!({}));
    assert_eq!(
        (refused.status, refused.error().as_str()),
        (429, "SNAPSHOT_LIMIT_EXCEEDED"),
        "{}",
        refused.body
    );
    assert!(!refused.body.contains("alice") && !refused.body.contains("bytes\""), "{}", refused.body);
    run(&ended, "echo three > three.txt");
    let refused = call("DELETE", &format!("sandboxes/{ended}"), &json!({}));
    assert_eq!(
        (refused.status, refused.error().as_str()),
        (429, "SNAPSHOT_LIMIT_EXCEEDED"),
        "{}",
        refused.body
    );
    let reason = call("GET", &format!("sandboxes/{ended}"), &json!({})).json()["stateReason"].clone();
    assert!(reason.as_str().is_some_and(|reason| !reason.contains("alice")), "{reason}");
    assert_eq!(fixture.completions_of(&running).len(), 1);
    // What was refused lands when there is room again.
    let id = uploaded.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{id}")).send().status, 204);
    wait_until("garbage is collected", || {
        fixture.server.post("/api/v1/gc", &json!({})).status == 200 && fixture.has("two.txt", "two\n")
    });
    wait_until("the other one is deleted", || {
        [200, 404].contains(&call("DELETE", &format!("sandboxes/{ended}"), &json!({})).status)
    });
    wait_until("it landed", || fixture.has("three.txt", "three\n"));
    assert_eq!((told(&fixture.alice, &running).len(), told(&guest, &running).len()), (1, 1));
}
