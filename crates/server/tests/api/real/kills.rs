//! Kills of the server at random times: the next start recovers everything.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::stream::{Stream, assert_seamless, printed};
use super::test_server::{TestServer, runs_slow_tests, wait_until};
use crate::support::Call;

/// Deterministic pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn all_sandboxes(server: &TestServer) -> Vec<Value> {
    server.get("/api/v1/sandboxes?limit=100").json()["items"].as_array().unwrap().clone()
}

fn id(sandbox: &Value) -> String {
    sandbox["id"].as_str().unwrap().to_owned()
}

/// Returns `notApplied` of a sandbox.
fn not_applied(sandbox: &Value) -> String {
    sandbox["notApplied"].to_string().replace(&id(sandbox), "ID")
}

/// Checks that catalog rows, directories, workspaces, processes and cgroups belong to the same sandboxes.
fn assert_consistent(server: &TestServer) {
    wait_until("nothing is on its way", || {
        all_sandboxes(server)
            .iter()
            .all(|one| !matches!(one["state"].as_str(), Some("starting" | "stopping")))
    });
    let rows: BTreeSet<String> = all_sandboxes(server).iter().map(id).collect();
    let known = |names: Vec<String>| names.into_iter().filter(|name| name != "kept").collect::<BTreeSet<_>>();
    // Files of deleted sandboxes are removed after the response.
    wait_until("nothing is without a row", || {
        [known(server.sandbox_directories()), known(server.workspaces())]
            .iter()
            .all(|names| names.is_subset(&rows))
    });
    for sandbox in all_sandboxes(server) {
        let running = server.guest_process(&id(&sandbox)).is_some_and(|guest| guest.is_running());
        assert_eq!(running, sandbox["state"] == "running", "{sandbox}");
    }
    let mine = processes(server);
    let strange: Vec<_> = mine.iter().filter(|name| !rows.contains(*name)).collect();
    assert!(strange.is_empty(), "processes without a row: {strange:?}");
    if rustix::process::geteuid().is_root() {
        let text = server.log();
        let groups = workspace_host::cgroup::ids().unwrap();
        // Other tests have cgroups, too; only those of this server are compared.
        let strange: Vec<_> =
            groups.iter().filter(|one| text.contains(*one) && !rows.contains(*one)).collect();
        assert!(strange.is_empty(), "groups without a row: {strange:?}");
    }
}

/// Returns the sandboxes of this server with running processes, found by the directories mounted into them.
fn processes(server: &TestServer) -> BTreeSet<String> {
    let directory = server.path().join("workspaces");
    let name = directory.file_name().and(server.path().file_name()).unwrap().to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mounts = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("mountinfo")).ok());
    let mut found = BTreeSet::new();
    for mounts in mounts {
        for line in mounts.lines().filter(|line| line.contains(&name) && line.contains(" /workspace ")) {
            let sandbox = line.split(['/', ' ']).find(|word| word.starts_with("sbx-"));
            found.extend(sandbox.map(str::to_owned));
        }
    }
    found
}

fn rounds() -> u64 {
    if runs_slow_tests() { 100 } else { 12 }
}

#[test]
fn a_kill_during_creations_loses_nothing() {
    let mut server = TestServer::with(&[("MAX_SANDBOXES", "1000")]);
    let mut chance = Random(1);
    let first = server.create();
    let usual = not_applied(&server.sandbox(&first));
    server.delete(&first);
    for round in 0..rounds() {
        let made = Mutex::new(Vec::new());
        let address = server.address();
        std::thread::scope(|scope| {
            for n in 0..3 {
                let made = &made;
                scope.spawn(move || {
                    for attempt in 0..2 {
                        let key = format!("{round}-{n}-{attempt}");
                        let call = Call::new(address, "POST", "/api/v1/sandboxes").key(crate::support::KEY);
                        let call = call.header("idempotency-key", &key).json(r#"{"template":"base"}"#);
                        let Some(answer) = call.try_send() else { return };
                        assert_eq!(answer.status, 201, "{}", answer.body);
                        made.lock().push(answer.json()["id"].as_str().unwrap().to_owned());
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(chance.below(80)));
            server.signal(Signal::KILL);
        });
        server.wait();
        server.start();
        let mut acknowledged = made.into_inner();
        assert_consistent(&server);
        // A sandbox whose creation was finished by the next server has the same fields.
        for sandbox in all_sandboxes(&server).iter().filter(|sandbox| sandbox["state"] == "running") {
            assert_eq!(not_applied(sandbox), usual, "{sandbox}");
        }
        // A repeated request creates the unacknowledged sandbox, or returns it.
        let key = format!("{round}-0-0");
        let again = server.call("POST", "/api/v1/sandboxes").header("idempotency-key", &key);
        let again = again.json(r#"{"template":"base"}"#).send();
        assert_eq!((again.status, &again.json()["state"]), (201, &json!("running")), "{}", again.body);
        acknowledged.push(id(&again.json()));
        for one in &acknowledged {
            wait_until("the guest is back", || server.sandbox(one)["agentConnected"] == true);
            assert_eq!(server.output_of(one, "echo usable"), "usable\n");
        }
        for sandbox in all_sandboxes(&server) {
            server.delete(&id(&sandbox));
        }
    }
    wait_until("nothing is left", || {
        server.sandbox_directories().is_empty()
            && server.workspaces().is_empty()
            && processes(&server).is_empty()
    });
}

#[test]
fn limits_hold_after_a_server_kill() {
    let mut server = TestServer::with(&[("REQUIRE_ISOLATION", "strict")]);
    let mut chance = Random(5);
    for _ in 0..rounds() {
        let address = server.address();
        std::thread::scope(|scope| {
            let call = Call::new(address, "POST", "/api/v1/sandboxes").key(crate::support::KEY);
            scope.spawn(move || call.json(r#"{"template":"base"}"#).try_send());
            std::thread::sleep(Duration::from_millis(chance.below(40)));
            server.signal(Signal::KILL);
        });
        server.wait();
        server.start();
        assert_consistent(&server);
        for sandbox in all_sandboxes(&server) {
            assert!(sandbox["state"] != "running" || sandbox["notApplied"] == json!([]), "{sandbox}");
            server.delete(&id(&sandbox));
        }
    }
}

/// Number of sandboxes in the warm pool.
const POOL_SIZE: usize = 4;

/// Creates sandboxes until the server is killed. Returns the successful responses.
fn create_until_killed(server: &TestServer, after: Duration) -> Vec<String> {
    let made = Mutex::new(Vec::new());
    let address = server.address();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..POOL_SIZE {
                    let call = Call::new(address, "POST", "/api/v1/sandboxes").key(crate::support::KEY);
                    let Some(answer) = call.json(r#"{"template":"base"}"#).try_send() else { return };
                    assert_eq!(answer.status, 201, "{}", answer.body);
                    made.lock().push(id(&answer.json()));
                }
            });
        }
        std::thread::sleep(after);
        server.signal(Signal::KILL);
    });
    made.into_inner()
}

#[test]
fn a_kill_during_assignments_of_the_warm_pool_loses_nothing() {
    let mut server = TestServer::with(&[("MAX_SANDBOXES", "1000")]);
    let mut chance = Random(4);
    let mut given = 0;
    for round in 0..rounds() {
        server.kill();
        server.set("POOL_SIZE", &POOL_SIZE.to_string());
        server.start();
        // The warm pool grows with the demand.
        wait_until("one is there", || !server.sandbox_directories().is_empty());
        for one in (0..2).map(|_| server.create()).collect::<Vec<_>>() {
            server.delete(&one);
        }
        wait_until("some are there", || server.sandbox_directories().len() >= 2);
        let before: BTreeSet<String> = server.sandbox_directories().into_iter().collect();
        let answered = create_until_killed(&server, Duration::from_millis(chance.below(60)));
        server.wait();
        given += answered.iter().filter(|one| before.contains(*one)).count();
        let left: BTreeSet<String> = server.sandbox_directories().into_iter().chain(before).collect();
        let guests: Vec<_> = left.iter().filter_map(|one| Some((one, server.guest_process(one)?))).collect();
        server.set("POOL_SIZE", "0");
        server.start();
        assert_consistent(&server);
        let rows: BTreeSet<String> = all_sandboxes(&server).iter().map(id).collect();
        let lost: Vec<_> = answered.iter().filter(|one| !rows.contains(*one)).collect();
        assert!(lost.is_empty(), "round {round}: answered and gone: {lost:?}");
        for (one, guest) in guests {
            assert!(rows.contains(one) || !guest.is_running(), "round {round}: {one} runs for nobody");
        }
        assert_groups(&left, &rows);
        for one in &answered {
            wait_until("the guest is back", || server.sandbox(one)["agentConnected"] == true);
            assert_eq!(server.output_of(one, "echo usable >file; cat file"), "usable\n");
            let file = server.path().join("workspaces").join(one).join("1/tree/file");
            assert_eq!(std::fs::read_to_string(file).unwrap(), "usable\n");
        }
        rows.iter().for_each(|one| server.delete(one));
        wait_until("nothing is left", || {
            server.sandbox_directories().is_empty()
                && server.workspaces().is_empty()
                && processes(&server).is_empty()
        });
    }
    assert!(given > 0, "nothing was given away");
}

/// Checks that only sandboxes with a catalog row have cgroups.
fn assert_groups(left: &BTreeSet<String>, rows: &BTreeSet<String>) {
    if rustix::process::geteuid().is_root() {
        let groups = workspace_host::cgroup::ids().unwrap();
        let strange: Vec<_> =
            groups.iter().filter(|one| left.contains(*one) && !rows.contains(*one)).collect();
        assert!(strange.is_empty(), "groups without a row: {strange:?}");
    }
}

#[test]
fn a_kill_during_deletions_loses_nothing() {
    let mut server = TestServer::with(&[("MAX_SANDBOXES", "1000")]);
    let mut chance = Random(2);
    for round in 0..rounds() {
        let ids: Vec<String> = (0..3).map(|_| server.create()).collect();
        let keep = round % 3 == 0;
        let address = server.address();
        let acknowledged = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let (ids, acknowledged) = (&ids, &acknowledged);
            scope.spawn(move || {
                for id in ids {
                    let path = format!("/api/v1/sandboxes/{id}?keep_workspace={keep}");
                    let Some(answer) =
                        Call::new(address, "DELETE", &path).key(crate::support::KEY).try_send()
                    else {
                        return;
                    };
                    assert!(answer.status < 300, "{}", answer.body);
                    acknowledged.lock().push(id.clone());
                }
            });
            std::thread::sleep(Duration::from_millis(chance.below(25)));
            server.signal(Signal::KILL);
        });
        server.wait();
        server.start();
        assert_consistent(&server);
        let rows: BTreeSet<String> = all_sandboxes(&server).iter().map(id).collect();
        for gone in acknowledged.into_inner() {
            assert!(!rows.contains(&gone), "{gone} was deleted");
            assert_eq!(server.path().join("workspaces/kept").join(&gone).exists(), keep);
        }
        for left in rows {
            wait_until("the guest is back", || server.sandbox(&left)["agentConnected"] == true);
            assert_eq!(server.output_of(&left, "echo usable"), "usable\n");
            server.delete(&left);
        }
    }
    wait_until("nothing is left", || {
        server.sandbox_directories().is_empty() && processes(&server).is_empty()
    });
}

#[test]
fn repeated_kills_lose_no_output_of_a_command() {
    let mut server = TestServer::new();
    let id = server.create();
    let print = "i=0; while [ $i -lt 3000 ]; do echo number $i; i=$((i+1)); done; sleep 1; echo end";
    let command = server.start_running(&id, json!({ "command": print }));
    let mut chance = Random(3);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(chance.below(100)));
        server.restart();
    }
    let events = Stream::output(&server, &id, &command, None).begun().rest();
    let expected: String = (0..3_000).map(|n| format!("number {n}\n")).chain(["end\n".to_owned()]).collect();
    assert_seamless(&events, 0);
    assert_eq!(String::from_utf8(printed(&events)).unwrap(), expected);
    wait_until("its end is written down", || server.command(&id, &command)["exitCode"] == 0);
    assert_consistent(&server);
}

#[test]
fn sandboxes_that_ended_during_downtime_are_stopped_with_a_reason() {
    let mut server = TestServer::new();
    let (one, other) = (server.create(), server.create());
    let command = server.start_background(&one, json!({"command": "echo printed; sleep 1000"}));
    wait_until("it prints", || {
        server.get(&format!("/api/v1/sandboxes/{one}/logs")).json()["logs"] == "printed\n"
    });
    let guest = server.guest_process(&one).unwrap();
    server.kill();
    guest.kill();
    wait_until("it is gone", || !guest.is_running());
    server.start();
    let sandbox = server.sandbox(&one);
    assert_eq!(sandbox["state"], "stopped");
    assert!(sandbox["stateReason"].as_str().unwrap().contains("while the server was down"), "{sandbox}");
    assert_eq!(server.command(&one, &command)["state"], "failed");
    let events = Stream::output(&server, &one, &command, None).begun().rest();
    assert_eq!(printed(&events), b"printed\n");
    assert_eq!(events.last().unwrap().kind, "error");
    assert_consistent(&server);
    wait_until("the other is as it was", || server.sandbox(&other)["agentConnected"] == true);
    assert_eq!(server.output_of(&other, "echo usable"), "usable\n");
    let kept = server.call("DELETE", &format!("/api/v1/sandboxes/{one}?keep_workspace=true")).send();
    assert_eq!(kept.status, 200, "{}", kept.body);
}
