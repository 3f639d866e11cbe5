//! Sandboxes on snapshots, as clients see them.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use workspace_host::Holder;
use workspace_host::{Process, overlay};

use super::house::{House, full, soon};
use crate::snapshots::archive::Archive;
use crate::support::{Answer, KEY};

/// A snapshot of an owner's; its id.
fn upload(house: &House, key: &str, archive: &Archive) -> String {
    let answer = house.call_as(key, "POST", "/api/v1/snapshots").body(&archive.bytes()).send();
    assert_eq!(answer.status, 201, "{}", answer.body);
    text(&answer.json(), "id")
}

fn some_files() -> Archive {
    Archive::new().file("src/main", "first\n").file("README", "please\n").symlink("link", "src/main")
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("{name} of {value}")).to_owned()
}

fn ask(house: &House, key: &str, path: &str, body: &Value) -> Answer {
    house.call_as(key, "POST", &format!("/api/v1/sandboxes/{path}")).json(&body.to_string()).send()
}

fn done(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.body);
    answer.json()
}

fn commit(house: &House, id: &str) -> String {
    let answer = ask(house, KEY, &format!("{id}/commit"), &json!({}));
    text(&done(&answer, 201)["snapshot"], "id")
}

fn from(house: &House, snapshot: &str) -> String {
    house.create_with(json!({ "snapshot": snapshot }))
}

#[test]
fn a_sandbox_goes_from_snapshot_to_snapshot() {
    let house = House::new();
    let snapshot = upload(&house, KEY, &some_files());
    let id = from(&house, &snapshot);
    let shown = house.sandbox(&id);
    assert_eq!((&shown["snapshot"], &shown["provider"]), (&json!(snapshot), &json!("overlay")));
    assert_eq!(house.out(&id, "cat link; echo second > src/main; rm README; echo new > new"), "first\n");

    let changes = done(&house.get(&format!("/api/v1/sandboxes/{id}/changes")), 200);
    let told: Vec<String> = changes["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| format!("{} {}", text(entry, "change"), text(entry, "path")))
        .collect();
    assert_eq!(told, ["removed README", "added new", "modified src/main"]);
    assert_eq!(changes["base"], json!(snapshot));
    assert!(changes["frozen"]["milliseconds"].as_f64().unwrap() > 0.0);
    let judged = done(&house.get(&format!("/api/v1/sandboxes/{id}/changes?insight=true")), 200);
    assert!(judged["totals"].is_object(), "{judged}");
    let patch = house.get(&format!("/api/v1/sandboxes/{id}/changes?patch=true"));
    assert!(patch.body.contains("-first\n+second\n"), "{}", patch.body);

    let order = json!({ "message": "step", "labels": { "step": "1" }, "durability": "buffered" });
    let committed = done(&ask(&house, KEY, &format!("{id}/commit"), &order), 201);
    assert_eq!(committed["snapshot"]["parents"], json!([snapshot]));
    assert_eq!(committed["snapshot"]["message"], "step");
    assert!(matches!(committed["frozen"]["way"].as_str(), Some("cgroup" | "signals")), "{committed}");
    let step = text(&committed["snapshot"], "id");
    let content = house.get(&format!("/api/v1/snapshots/{step}/files/src/main"));
    assert_eq!(content.body, "second\n");

    house.begin(&id, json!({ "command": "cd src; exec sleep 1000" }));
    house.begin(&id, json!({ "command": "exec sleep 1000" }));
    let sleeping = || house.out(&id, "cat /proc/[0-9]*/comm").matches("sleep").count();
    soon("they run", || sleeping() == 2);
    let refused =
        ask(&house, KEY, &format!("{id}/restore"), &json!({ "snapshot": snapshot, "force": false }));
    assert_eq!((refused.status, &refused.json()["error"]["name"]), (409, &json!("WORKSPACE_IN_USE")));
    let restored = done(&ask(&house, KEY, &format!("{id}/restore"), &json!({ "snapshot": snapshot })), 200);
    assert_eq!(restored["ended"].as_array().unwrap().len(), 1, "{restored}");
    assert_eq!(sleeping(), 1);
    assert_eq!(restored["sandbox"]["snapshot"], json!(snapshot));
    assert_eq!(house.out(&id, "cat src/main README; ls"), "first\nplease\nREADME\nlink\nsrc\n");

    let forked = done(&ask(&house, KEY, &format!("{id}/fork"), &json!({ "count": 3 })), 201);
    let forks = forked["sandboxes"].as_array().unwrap();
    assert_eq!(forks.len(), 3);
    for fork in forks {
        assert_eq!(house.out(&text(fork, "id"), "cat src/main"), "first\n");
    }
    let in_use = house.call("DELETE", &format!("/api/v1/snapshots/{snapshot}")).send();
    assert_eq!((in_use.status, &in_use.json()["error"]["name"]), (409, &json!("SNAPSHOT_IN_USE")));
}

#[test]
fn a_workspace_too_deep_for_a_snapshot_is_named_and_stays() {
    let house = House::new();
    let over = from(&house, &upload(&house, KEY, &some_files()));
    for id in [&over, &house.create()] {
        // Longer than a path may be that is given at once.
        let dig = "deep=$(printf 'dir/%.0s' $(seq 1000)); mkdir -p $deep && cd $deep && mkdir -p $deep";
        assert_eq!(house.run(id, dig)["exitCode"], 0);
        for (method, path) in [("POST", "commit"), ("GET", "changes"), ("POST", "fork")] {
            let call = house.call(method, &format!("/api/v1/sandboxes/{id}/{path}"));
            let refused = if method == "POST" { call.json("{}") } else { call }.send();
            let error = &refused.json()["error"];
            assert_eq!((refused.status, &error["name"]), (422, &json!("WORKSPACE_TOO_DEEP")), "{error}");
            assert_eq!(error["details"]["limit"], 1024);
            let message = text(error, "message");
            assert!(message.len() < 500 && message.contains("dir/dir/dir"), "{message}");
        }
        assert_eq!(house.out(id, "echo fine"), "fine\n");
    }
    // Only what lies over shared files is kept as a snapshot.
    let path = format!("/api/v1/sandboxes/{over}");
    let refused = house.call("DELETE", &format!("{path}?keep_workspace=true")).send();
    assert_eq!(refused.status, 422, "{}", refused.body);
    let left = house.sandbox(&over);
    assert_eq!(left["state"], "stopped");
    assert!(text(&left, "stateReason").contains("1024 levels are allowed"), "{left}");
    house.delete(&over);
    let longest = house.log().lines().map(str::len).max();
    assert!(longest.is_some_and(|longest| longest < 4_000), "{longest:?}");
}

#[test]
fn a_workspace_of_too_long_paths_is_refused_and_stays() {
    let house = House::new();
    let id = from(&house, &upload(&house, KEY, &some_files()));
    // Directories that have a path of a quarter of a megabyte each.
    let dig = "perl -e 'for (1..990) { my $name = \"n\" x 255; mkdir $name or die; chdir $name or die }
        for (1..2200) { mkdir $_ or die }'";
    let dug = house.run(&id, dig);
    assert_eq!(dug["exitCode"], 0, "{dug}");
    for (method, path) in [("POST", "commit"), ("GET", "changes"), ("POST", "fork")] {
        let call = house.call(method, &format!("/api/v1/sandboxes/{id}/{path}"));
        let refused = if method == "POST" { call.json("{}") } else { call }.send();
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["name"]), (422, &json!("WORKSPACE_TOO_LARGE")), "{error}");
        assert_eq!(error["details"]["limit"], 512 << 20);
        assert!(text(error, "message").contains("remove some of its files"), "{error}");
    }
    assert_eq!(house.out(&id, "echo fine"), "fine\n");
    let refused = house.call("DELETE", &format!("/api/v1/sandboxes/{id}?keep_workspace=true")).send();
    assert_eq!(refused.status, 422, "{}", refused.body);
    house.delete(&id);
}

#[test]
fn who_asks_for_files_as_they_are_read_is_told_why_there_are_none() {
    let house = House::new();
    let snapshot = upload(&house, KEY, &some_files());
    let order = json!({ "template": "base", "snapshot": snapshot, "materialize": "lazy" });
    let made = house.post("/api/v1/sandboxes", &order);
    if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok() {
        let id = text(&done(&made, 201), "id");
        assert_eq!(house.out(&id, "cat link"), "first\n");
        return;
    }
    let error = &made.json()["error"];
    assert_eq!((made.status, &error["name"]), (422, &json!("PROVIDER_UNAVAILABLE")), "{error}");
    assert!(text(error, "message").contains("/dev/fuse"), "{error}");
    assert_eq!(error["details"]["materialize"], "lazy");
}

#[test]
fn what_is_another_owners_cannot_be_used() {
    let house = House::new();
    let (alice, bob) = (house.key("alice", "user"), house.key("bob", "user"));
    let theirs = upload(&house, &alice, &some_files());
    let order = json!({ "template": "base", "snapshot": theirs }).to_string();
    let made = house.call_as(&alice, "POST", "/api/v1/sandboxes").json(&order).send();
    let id = text(&done(&made, 201), "id");
    let refused = house.call_as(&bob, "POST", "/api/v1/sandboxes").json(&order).send();
    assert_eq!((refused.status, &refused.json()["error"]["name"]), (404, &json!("SNAPSHOT_NOT_FOUND")));
    for (path, body) in [
        ("commit", json!({})),
        ("fork", json!({ "count": 1 })),
        ("restore", json!({ "snapshot": upload(&house, &bob, &some_files()) })),
    ] {
        let refused = ask(&house, &bob, &format!("{id}/{path}"), &body);
        assert_eq!((refused.status, &refused.json()["error"]["name"]), (404, &json!("SANDBOX_NOT_FOUND")));
    }
    // A snapshot of somebody else's is none also for one's own sandbox.
    let own = upload(&house, &bob, &some_files());
    let refused = ask(&house, &alice, &format!("{id}/restore"), &json!({ "snapshot": own }));
    assert_eq!((refused.status, &refused.json()["error"]["name"]), (404, &json!("SNAPSHOT_NOT_FOUND")));
    // What is committed belongs to whose the sandbox is, also when an administrator does it.
    let committed = commit(&house, &id);
    let seen = |key: &str| house.call_as(key, "GET", &format!("/api/v1/snapshots/{committed}")).send().status;
    assert_eq!((seen(&alice), seen(&bob)), (200, 404));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let house = House::new();
    let snapshot = upload(&house, KEY, &some_files());
    let create = |body: &Value| house.post("/api/v1/sandboxes", body);
    for (field, value) in
        [("snapshot", json!("nonsense")), ("provider", json!("magic")), ("materialize", json!("now"))]
    {
        let mut order = json!({ "template": "base", "snapshot": snapshot });
        order[field] = value;
        let refused = create(&order);
        assert!(matches!(refused.status, 400 | 404), "{}", refused.body);
    }
    let clone = create(&json!({ "template": "base", "snapshot": snapshot, "provider": "clone" }));
    // Only where the filesystem of the tests can share blocks.
    if clone.status != 201 {
        assert_eq!((clone.status, &clone.json()["error"]["name"]), (422, &json!("PROVIDER_UNAVAILABLE")));
    }
    let copy = create(&json!({ "template": "base", "snapshot": snapshot, "provider": "copy" }));
    assert_eq!(done(&copy, 201)["provider"], "copy");
    assert!(house.get("/api/v1/sandboxes").json()["total"].as_u64().unwrap() <= 2);
    let id = text(&copy.json(), "id");
    for (path, body) in [
        ("commit", json!({ "message": "x".repeat(70_000) })),
        ("commit", json!({ "unknown": 1 })),
        ("fork", json!({ "count": 0 })),
        ("fork", json!({ "count": 5_000 })),
        ("restore", json!({})),
    ] {
        let refused = ask(&house, KEY, &format!("{id}/{path}"), &body);
        assert_eq!(refused.status, 400, "{path} {}", refused.body);
    }
    let unknown = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718";
    let refused = ask(&house, KEY, &format!("{id}/restore"), &json!({ "snapshot": unknown }));
    assert_eq!(refused.status, 404, "{}", refused.body);
    assert_eq!(house.out(&id, "cat src/main"), "first\n");
}

/// No mount and no directory of a workspace that no sandbox has; nothing stands still.
fn assert_tidy(house: &House) {
    let rows = house.get("/api/v1/sandboxes?limit=100").json();
    let ids: Vec<String> = rows["items"].as_array().unwrap().iter().map(|row| text(row, "id")).collect();
    // The files of deleted sandboxes go behind the answer.
    soon("no workspace is nobody's", || house.workspaces().iter().all(|name| ids.contains(name)));
    let holder = match Process::read(&house.path().join("holder")) {
        Ok(Some(held)) => Holder::Process(held),
        _ => Holder::Machine,
    };
    let mounted = overlay::mounted(&holder, &house.path().join("workspaces")).unwrap();
    for path in &mounted {
        let path = path.to_string_lossy();
        assert!(ids.iter().any(|id| path.contains(id.as_str())), "{path} is mounted for nobody");
    }
    let mut uppers: Vec<_> = mounted.iter().map(|path| path.with_file_name("upper")).collect();
    uppers.dedup();
    assert_eq!(uppers.len(), mounted.len(), "an upper is mounted twice: {mounted:?}");
    for id in house.places() {
        assert!(!house.path().join("sandboxes").join(&id).join("frozen").exists(), "{id} stands still");
    }
}

#[test]
fn what_was_written_outlives_a_crash_of_the_machine() {
    let mut house = House::new();
    let snapshot = upload(&house, KEY, &some_files());
    let (over, alone) = (from(&house, &snapshot), house.create());
    house.out(&over, "echo second > src/main; rm README");
    house.out(&alone, "echo precious > file");
    house.end_all();
    house.start();
    for (id, path, content) in [(&over, "src/main", "second\n"), (&alone, "file", "precious\n")] {
        soon("it is given up", || house.sandbox(id)["state"] == "stopped");
        let kept = commit(&house, id);
        let read = house.get(&format!("/api/v1/snapshots/{kept}/files/{path}"));
        assert_eq!((read.status, read.body.as_str()), (200, content));
        let forked = done(&ask(&house, KEY, &format!("{id}/fork"), &json!({ "count": 1 })), 201);
        assert_eq!(house.out(&text(&forked["sandboxes"][0], "id"), &format!("cat {path}")), content);
        house.delete(id);
    }
    assert_tidy(&house);
}

fn rounds() -> u64 {
    if full() { 60 } else { 10 }
}

/// What is done with a sandbox when the server is killed.
fn killed_during(step: impl Fn(&House, &str, &str) + Sync) {
    let mut house = House::with(&[("MAX_SANDBOXES", "1000"), ("RATE_LIMIT", "off")]);
    let base = upload(&house, KEY, &some_files());
    let id = from(&house, &base);
    for round in 0..rounds() {
        let number = format!("{round}");
        // A restore may have been finished or not; what is written now is there in any case.
        house.out(&id, &format!("echo {number} > number; echo x > x-{number}"));
        let kept = commit(&house, &id);
        std::thread::scope(|scope| {
            scope.spawn(|| step(&house, &id, &kept));
            std::thread::sleep(Duration::from_millis(round * 7 % 40));
            house.signal(Signal::KILL);
        });
        house.wait();
        house.start();
        soon("the guest is back", || house.sandbox(&id)["agentConnected"] == true);
        soon("nothing is on its way", || {
            let rows = house.get("/api/v1/sandboxes?limit=100").json();
            let rows = rows["items"].as_array().unwrap().clone();
            rows.iter().all(|one| !matches!(one["state"].as_str(), Some("starting" | "stopping")))
        });
        assert_tidy(&house);
        // Nothing that was acknowledged is lost.
        let content = house.get(&format!("/api/v1/snapshots/{kept}/files/number"));
        assert_eq!(content.body, format!("{number}\n"));
        assert_eq!(house.out(&id, "cat number"), format!("{number}\n"));
        let rows = house.get("/api/v1/sandboxes?limit=100").json();
        for row in rows["items"].as_array().unwrap().iter().filter(|row| row["id"] != json!(id)) {
            house.delete(&text(row, "id"));
        }
        soon("the others are gone", || house.workspaces() == std::slice::from_ref(&id));
    }
}

fn try_to_ask(house: &House, path: &str, body: &Value) {
    let path = format!("/api/v1/sandboxes/{path}");
    drop(house.call("POST", &path).json(&body.to_string()).try_send());
}

#[test]
fn killed_while_commits_are_made() {
    killed_during(|house, id, _| {
        for _ in 0..20 {
            try_to_ask(house, &format!("{id}/commit"), &json!({ "message": "again" }));
        }
    });
}

#[test]
fn killed_while_a_sandbox_is_restored() {
    killed_during(|house, id, kept| {
        for _ in 0..10 {
            try_to_ask(house, &format!("{id}/restore"), &json!({ "snapshot": kept }));
        }
    });
}

#[test]
fn killed_while_sandboxes_are_forked_and_removed() {
    killed_during(|house, id, _| {
        let path = format!("/api/v1/sandboxes/{id}/fork");
        for _ in 0..5 {
            let forked = house.call("POST", &path).json(r#"{"count":3}"#).try_send();
            let Some(forked) = forked.filter(|answer| answer.status == 201) else { return };
            for fork in forked.json()["sandboxes"].as_array().unwrap() {
                let path = format!("/api/v1/sandboxes/{}", text(fork, "id"));
                drop(house.call("DELETE", &path).try_send());
            }
        }
    });
}
