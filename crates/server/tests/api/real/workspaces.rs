//! Workspaces of sandboxes: commit, restore, fork.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use workspace_host::NamespaceHolder;
use workspace_host::{Process, overlay};
use workspace_test_support::requires;

use super::test_server::{TestServer, processes_naming, runs_slow_tests, wait_until};
use crate::snapshots::archive::Archive;
use crate::support::{Answer, KEY};

/// Uploads a snapshot and returns its id.
fn upload(server: &TestServer, key: &str, archive: &Archive) -> String {
    let answer = server.call_as(key, "POST", "/api/v1/snapshots").body(&archive.bytes()).send();
    assert_eq!(answer.status, 201, "{}", answer.body);
    text(&answer.json(), "id")
}

fn some_files() -> Archive {
    Archive::new().file("src/main", "first\n").file("README", "please\n").symlink("link", "src/main")
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("{name} of {value}")).to_owned()
}

fn post_as(server: &TestServer, key: &str, path: &str, body: &Value) -> Answer {
    server.call_as(key, "POST", &format!("/api/v1/sandboxes/{path}")).json(&body.to_string()).send()
}

/// Returns the body of a response, which must have this status.
fn json_of(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.body);
    answer.json()
}

fn commit(server: &TestServer, id: &str) -> String {
    let answer = post_as(server, KEY, &format!("{id}/commit"), &json!({}));
    text(&json_of(&answer, 201)["snapshot"], "id")
}

fn create_from(server: &TestServer, snapshot: &str) -> String {
    server.create_with(json!({ "snapshot": snapshot }))
}

#[test]
fn a_token_restores_only_snapshots_of_its_sandbox() {
    let server = TestServer::new();
    let (base, other) = (upload(&server, KEY, &some_files()), upload(&server, KEY, &some_files()));
    let id = create_from(&server, &base);
    let rights = json!({ "rights": ["snapshot", "lifecycle"] });
    let token = text(&json_of(&post_as(&server, KEY, &format!("{id}/token"), &rights), 201), "token");
    let committed = json_of(&post_as(&server, &token, &format!("{id}/commit"), &json!({})), 201);
    let own = text(&committed["snapshot"], "id");
    let restore =
        |snapshot: &str| post_as(&server, &token, &format!("{id}/restore"), &json!({ "snapshot": snapshot }));
    let elsewhere = commit(&server, &create_from(&server, &base));
    for snapshot in [&other, &elsewhere] {
        assert_eq!(restore(snapshot).error(), "SNAPSHOT_NOT_FOUND");
    }
    json_of(&restore(&base), 200);
    let restored = json_of(&restore(&own), 200);
    assert_eq!(restored["sandbox"]["snapshot"], json!(own));
    assert_eq!(post_as(&server, &token, &format!("{id}/fork"), &json!({})).error(), "FORBIDDEN");
    // A token never keeps a directory of the server, not even one of an admin key.
    let delete =
        server.call_as(&token, "DELETE", &format!("/api/v1/sandboxes/{id}?keep_workspace=true")).send();
    assert!(json_of(&delete, 200)["snapshot"].is_string(), "{}", delete.body);
}

#[test]
fn keeping_a_workspace_needs_the_right_to_make_snapshots() {
    let server = TestServer::new();
    let id = server.create();
    let rights = json!({ "rights": ["lifecycle"] });
    let token = text(&json_of(&post_as(&server, KEY, &format!("{id}/token"), &rights), 201), "token");
    let path = format!("/api/v1/sandboxes/{id}");
    let keep = server.call_as(&token, "DELETE", &format!("{path}?keep_workspace=true")).send();
    assert_eq!(
        (keep.error().as_str(), &keep.json()["error"]["details"]["right"]),
        ("FORBIDDEN", &json!("snapshot"))
    );
    assert_eq!(server.call_as(&token, "DELETE", &path).send().status, 204);
}

#[test]
fn a_sandbox_can_be_committed_restored_and_forked() {
    let server = TestServer::new();
    let snapshot = upload(&server, KEY, &some_files());
    let id = create_from(&server, &snapshot);
    let shown = server.sandbox(&id);
    assert_eq!((&shown["snapshot"], &shown["provider"]), (&json!(snapshot), &json!("overlay")));
    assert_eq!(
        server.output_of(&id, "cat link; echo second > src/main; rm README; echo new > new"),
        "first\n"
    );

    let changes = json_of(&server.get(&format!("/api/v1/sandboxes/{id}/changes")), 200);
    let told: Vec<String> = changes["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| format!("{} {}", text(entry, "change"), text(entry, "path")))
        .collect();
    assert_eq!(told, ["removed README", "added new", "modified src/main"]);
    assert_eq!(changes["base"], json!(snapshot));
    assert!(changes["frozen"]["milliseconds"].as_f64().unwrap() > 0.0);
    let judged = json_of(&server.get(&format!("/api/v1/sandboxes/{id}/changes?insight=true")), 200);
    assert!(judged["totals"].is_object(), "{judged}");
    let patch = server.get(&format!("/api/v1/sandboxes/{id}/changes?patch=true"));
    assert!(patch.body.contains("-first\n+second\n"), "{}", patch.body);

    let order = json!({ "message": "step", "labels": { "step": "1" }, "durability": "buffered" });
    let committed = json_of(&post_as(&server, KEY, &format!("{id}/commit"), &order), 201);
    assert_eq!(committed["snapshot"]["parents"], json!([snapshot]));
    assert_eq!(committed["snapshot"]["message"], "step");
    assert!(matches!(committed["frozen"]["method"].as_str(), Some("cgroup" | "signals")), "{committed}");
    let step = text(&committed["snapshot"], "id");
    let content = server.get(&format!("/api/v1/snapshots/{step}/files/src/main"));
    assert_eq!(content.body, "second\n");

    server.start_background(&id, json!({ "command": "cd src; exec sleep 1000" }));
    server.start_background(&id, json!({ "command": "exec sleep 1000" }));
    let sleeping = || server.output_of(&id, "cat /proc/[0-9]*/comm").matches("sleep").count();
    wait_until("they run", || sleeping() == 2);
    let refused =
        post_as(&server, KEY, &format!("{id}/restore"), &json!({ "snapshot": snapshot, "force": false }));
    assert_eq!((refused.status, &refused.json()["error"]["name"]), (409, &json!("WORKSPACE_IN_USE")));
    let restored =
        json_of(&post_as(&server, KEY, &format!("{id}/restore"), &json!({ "snapshot": snapshot })), 200);
    assert_eq!(restored["ended"].as_array().unwrap().len(), 1, "{restored}");
    assert_eq!(sleeping(), 1);
    assert_eq!(restored["sandbox"]["snapshot"], json!(snapshot));
    assert_eq!(server.output_of(&id, "cat src/main README; ls"), "first\nplease\nREADME\nlink\nsrc\n");

    let forked = json_of(&post_as(&server, KEY, &format!("{id}/fork"), &json!({ "count": 3 })), 201);
    let forks = forked["sandboxes"].as_array().unwrap();
    assert_eq!(forks.len(), 3);
    for fork in forks {
        assert_eq!(server.output_of(&text(fork, "id"), "cat src/main"), "first\n");
    }
    let in_use = server.call("DELETE", &format!("/api/v1/snapshots/{snapshot}")).send();
    assert_eq!((in_use.status, &in_use.json()["error"]["name"]), (409, &json!("SNAPSHOT_IN_USE")));
}

#[test]
fn a_workspace_that_is_too_deep_is_refused_and_kept() {
    let server = TestServer::new();
    let over = create_from(&server, &upload(&server, KEY, &some_files()));
    for id in [&over, &server.create()] {
        // The path is longer than `PATH_MAX`, so it is created step by step.
        let dig = "deep=$(printf 'dir/%.0s' $(seq 1000)); mkdir -p $deep && cd $deep && mkdir -p $deep";
        assert_eq!(server.run(id, dig)["exitCode"], 0);
        for (method, path) in [("POST", "commit"), ("GET", "changes"), ("POST", "fork")] {
            let call = server.call(method, &format!("/api/v1/sandboxes/{id}/{path}"));
            let refused = if method == "POST" { call.json("{}") } else { call }.send();
            let error = &refused.json()["error"];
            assert_eq!((refused.status, &error["name"]), (422, &json!("WORKSPACE_TOO_DEEP")), "{error}");
            assert_eq!(error["details"]["limit"], 1024);
            let message = text(error, "message");
            assert!(message.len() < 500 && message.contains("dir/dir/dir"), "{message}");
        }
        assert_eq!(server.output_of(id, "echo fine"), "fine\n");
    }
    // Only an overlay workspace is kept as a snapshot.
    let path = format!("/api/v1/sandboxes/{over}");
    let refused = server.call("DELETE", &format!("{path}?keep_workspace=true")).send();
    assert_eq!(refused.status, 422, "{}", refused.body);
    let left = server.sandbox(&over);
    assert_eq!(left["state"], "stopped");
    assert!(text(&left, "stateReason").contains("1024 levels are allowed"), "{left}");
    server.delete(&over);
    let longest = server.log().lines().map(str::len).max();
    assert!(longest.is_some_and(|longest| longest < 4_000), "{longest:?}");
}

#[test]
fn a_workspace_with_too_long_paths_is_refused_and_kept() {
    let server = TestServer::new();
    let id = create_from(&server, &upload(&server, KEY, &some_files()));
    // Directories with paths of 256 KiB each.
    let dig = "perl -e 'for (1..990) { my $name = \"n\" x 255; mkdir $name or die; chdir $name or die }
        for (1..2200) { mkdir $_ or die }'";
    let dug = server.run(&id, dig);
    assert_eq!(dug["exitCode"], 0, "{dug}");
    for (method, path) in [("POST", "commit"), ("GET", "changes"), ("POST", "fork")] {
        let call = server.call(method, &format!("/api/v1/sandboxes/{id}/{path}"));
        let refused = if method == "POST" { call.json("{}") } else { call }.send();
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["name"]), (422, &json!("WORKSPACE_TOO_LARGE")), "{error}");
        assert_eq!(error["details"]["limit"], 512 << 20);
        assert!(text(error, "message").contains("remove some of its files"), "{error}");
    }
    assert_eq!(server.output_of(&id, "echo fine"), "fine\n");
    let refused = server.call("DELETE", &format!("/api/v1/sandboxes/{id}?keep_workspace=true")).send();
    assert_eq!(refused.status, 422, "{}", refused.body);
    server.delete(&id);
}

#[test]
fn lazy_materialization_fails_with_a_reason_where_unavailable() {
    let server = TestServer::new();
    let snapshot = upload(&server, KEY, &some_files());
    let order = json!({ "template": "base", "snapshot": snapshot, "materialize": "lazy" });
    let made = server.post("/api/v1/sandboxes", &order);
    if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok() {
        let id = text(&json_of(&made, 201), "id");
        assert_eq!(server.output_of(&id, "cat link"), "first\n");
        return;
    }
    let error = &made.json()["error"];
    assert_eq!((made.status, &error["name"]), (422, &json!("PROVIDER_UNAVAILABLE")), "{error}");
    assert!(text(error, "message").contains("/dev/fuse"), "{error}");
    assert_eq!(error["details"]["materialize"], "lazy");
}

/// The daemon of a lazy mount must be killed, too: it keeps the mount namespace of an ordinary user even when the
/// namespace holder is killed.
#[test]
fn killing_all_processes_ends_a_lazy_mount() {
    let has_fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !requires(has_fuse, "/dev/fuse") {
        return;
    }
    let mut server = TestServer::new();
    let snapshot = upload(&server, KEY, &some_files());
    let order = json!({ "template": "base", "snapshot": snapshot, "materialize": "lazy" });
    json_of(&server.post("/api/v1/sandboxes", &order), 201);
    assert!(!processes_naming(server.path()).is_empty());
    server.kill_all();
    assert!(processes_naming(server.path()).is_empty());
}

#[test]
fn snapshots_of_another_owner_cannot_be_used() {
    let server = TestServer::new();
    let (alice, bob) = (server.key("alice", "user"), server.key("bob", "user"));
    let theirs = upload(&server, &alice, &some_files());
    let order = json!({ "template": "base", "snapshot": theirs }).to_string();
    let made = server.call_as(&alice, "POST", "/api/v1/sandboxes").json(&order).send();
    let id = text(&json_of(&made, 201), "id");
    let refused = server.call_as(&bob, "POST", "/api/v1/sandboxes").json(&order).send();
    assert_eq!((refused.status, &refused.json()["error"]["name"]), (404, &json!("SNAPSHOT_NOT_FOUND")));
    for (path, body) in [
        ("commit", json!({})),
        ("fork", json!({ "count": 1 })),
        ("restore", json!({ "snapshot": upload(&server, &bob, &some_files()) })),
    ] {
        let refused = post_as(&server, &bob, &format!("{id}/{path}"), &body);
        assert_eq!((refused.status, &refused.json()["error"]["name"]), (404, &json!("SANDBOX_NOT_FOUND")));
    }
    // A snapshot of another owner is not found, also for one's own sandbox.
    let own = upload(&server, &bob, &some_files());
    let refused = post_as(&server, &alice, &format!("{id}/restore"), &json!({ "snapshot": own }));
    assert_eq!((refused.status, &refused.json()["error"]["name"]), (404, &json!("SNAPSHOT_NOT_FOUND")));
    // A snapshot belongs to the owner of the sandbox, also if an admin commits it.
    let committed = commit(&server, &id);
    let seen =
        |key: &str| server.call_as(key, "GET", &format!("/api/v1/snapshots/{committed}")).send().status;
    assert_eq!((seen(&alice), seen(&bob)), (200, 404));
}

#[test]
fn invalid_requests_are_refused() {
    let server = TestServer::new();
    let snapshot = upload(&server, KEY, &some_files());
    let create = |body: &Value| server.post("/api/v1/sandboxes", body);
    for (field, value) in
        [("snapshot", json!("nonsense")), ("provider", json!("magic")), ("materialize", json!("now"))]
    {
        let mut order = json!({ "template": "base", "snapshot": snapshot });
        order[field] = value;
        let refused = create(&order);
        assert!(matches!(refused.status, 400 | 404), "{}", refused.body);
    }
    let clone = create(&json!({ "template": "base", "snapshot": snapshot, "provider": "clone" }));
    // `clone` is available only on filesystems with reflinks.
    if clone.status != 201 {
        assert_eq!((clone.status, &clone.json()["error"]["name"]), (422, &json!("PROVIDER_UNAVAILABLE")));
    }
    let copy = create(&json!({ "template": "base", "snapshot": snapshot, "provider": "copy" }));
    assert_eq!(json_of(&copy, 201)["provider"], "copy");
    assert!(server.get("/api/v1/sandboxes").json()["total"].as_u64().unwrap() <= 2);
    let id = text(&copy.json(), "id");
    for (path, body) in [
        ("commit", json!({ "message": "x".repeat(70_000) })),
        ("commit", json!({ "unknown": 1 })),
        ("fork", json!({ "count": 0 })),
        ("fork", json!({ "count": 5_000 })),
        ("restore", json!({})),
    ] {
        let refused = post_as(&server, KEY, &format!("{id}/{path}"), &body);
        assert_eq!(refused.status, 400, "{path} {}", refused.body);
    }
    let unknown = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718";
    let refused = post_as(&server, KEY, &format!("{id}/restore"), &json!({ "snapshot": unknown }));
    assert_eq!(refused.status, 404, "{}", refused.body);
    assert_eq!(server.output_of(&id, "cat src/main"), "first\n");
}

/// Checks that all mounts and directories belong to sandboxes, and that nothing is frozen.
fn assert_tidy(server: &TestServer) {
    let rows = server.get("/api/v1/sandboxes?limit=100").json();
    let ids: Vec<String> = rows["items"].as_array().unwrap().iter().map(|row| text(row, "id")).collect();
    // Files of deleted sandboxes are removed after the response.
    wait_until("no workspace is nobody's", || server.workspaces().iter().all(|name| ids.contains(name)));
    let holder = match Process::read(&server.path().join("holder")) {
        Ok(Some(held)) => NamespaceHolder::Process(held),
        _ => NamespaceHolder::None,
    };
    let mounted = overlay::mounted(&holder, &server.path().join("workspaces")).unwrap();
    for path in &mounted {
        let path = path.to_string_lossy();
        assert!(ids.iter().any(|id| path.contains(id.as_str())), "{path} is mounted for nobody");
    }
    let mut uppers: Vec<_> = mounted.iter().map(|path| path.with_file_name("upper")).collect();
    uppers.dedup();
    assert_eq!(uppers.len(), mounted.len(), "an upper is mounted twice: {mounted:?}");
    for id in server.sandbox_directories() {
        assert!(!server.path().join("sandboxes").join(&id).join("frozen").exists(), "{id} stands still");
    }
}

#[test]
fn written_files_survive_a_machine_crash() {
    let mut server = TestServer::new();
    let snapshot = upload(&server, KEY, &some_files());
    let (over, alone) = (create_from(&server, &snapshot), server.create());
    server.output_of(&over, "echo second > src/main; rm README");
    server.output_of(&alone, "echo precious > file");
    server.kill_all();
    server.start();
    for (id, path, content) in [(&over, "src/main", "second\n"), (&alone, "file", "precious\n")] {
        wait_until("it is given up", || server.sandbox(id)["state"] == "stopped");
        let kept = commit(&server, id);
        let read = server.get(&format!("/api/v1/snapshots/{kept}/files/{path}"));
        assert_eq!((read.status, read.body.as_str()), (200, content));
        let forked = json_of(&post_as(&server, KEY, &format!("{id}/fork"), &json!({ "count": 1 })), 201);
        assert_eq!(server.output_of(&text(&forked["sandboxes"][0], "id"), &format!("cat {path}")), content);
        server.delete(id);
    }
    assert_tidy(&server);
}

fn rounds() -> u64 {
    if runs_slow_tests() { 60 } else { 10 }
}

/// Kills the server in each round at another moment of `step`, an operation on a sandbox with a snapshot, and checks
/// that the next start recovers everything.
fn killed_during(step: impl Fn(&TestServer, &str, &str) + Sync) {
    let mut server = TestServer::with(&[("MAX_SANDBOXES", "1000"), ("RATE_LIMIT", "off")]);
    let base = upload(&server, KEY, &some_files());
    let id = create_from(&server, &base);
    for round in 0..rounds() {
        let number = format!("{round}");
        // The restore may have been finished or not; new files exist in both cases.
        server.output_of(&id, &format!("echo {number} > number; echo x > x-{number}"));
        let kept = commit(&server, &id);
        std::thread::scope(|scope| {
            scope.spawn(|| step(&server, &id, &kept));
            std::thread::sleep(Duration::from_millis(round * 7 % 40));
            server.signal(Signal::KILL);
        });
        server.wait();
        server.start();
        wait_until("the guest is back", || server.sandbox(&id)["agentConnected"] == true);
        wait_until("nothing is on its way", || {
            let rows = server.get("/api/v1/sandboxes?limit=100").json();
            let rows = rows["items"].as_array().unwrap().clone();
            rows.iter().all(|one| !matches!(one["state"].as_str(), Some("starting" | "stopping")))
        });
        assert_tidy(&server);
        // No acknowledged operation is lost.
        let content = server.get(&format!("/api/v1/snapshots/{kept}/files/number"));
        assert_eq!(content.body, format!("{number}\n"));
        assert_eq!(server.output_of(&id, "cat number"), format!("{number}\n"));
        let rows = server.get("/api/v1/sandboxes?limit=100").json();
        for row in rows["items"].as_array().unwrap().iter().filter(|row| row["id"] != json!(id)) {
            server.delete(&text(row, "id"));
        }
        wait_until("the others are gone", || server.workspaces() == std::slice::from_ref(&id));
    }
}

fn try_post(server: &TestServer, path: &str, body: &Value) {
    let path = format!("/api/v1/sandboxes/{path}");
    drop(server.call("POST", &path).json(&body.to_string()).try_send());
}

#[test]
fn a_kill_during_commits_loses_nothing() {
    killed_during(|server, id, _| {
        for _ in 0..20 {
            try_post(server, &format!("{id}/commit"), &json!({ "message": "again" }));
        }
    });
}

#[test]
fn a_kill_during_a_restore_loses_nothing() {
    killed_during(|server, id, kept| {
        for _ in 0..10 {
            try_post(server, &format!("{id}/restore"), &json!({ "snapshot": kept }));
        }
    });
}

#[test]
fn a_kill_during_forks_and_deletions_loses_nothing() {
    killed_during(|server, id, _| {
        let path = format!("/api/v1/sandboxes/{id}/fork");
        for _ in 0..5 {
            let forked = server.call("POST", &path).json(r#"{"count":3}"#).try_send();
            let Some(forked) = forked.filter(|answer| answer.status == 201) else { return };
            for fork in forked.json()["sandboxes"].as_array().unwrap() {
                let path = format!("/api/v1/sandboxes/{}", text(fork, "id"));
                drop(server.call("DELETE", &path).try_send());
            }
        }
    });
}
