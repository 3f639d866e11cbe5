//! Rebases of the workspaces of sandboxes onto the heads of their projects.

mod kills;

use std::thread::scope;
use std::time::Duration;

use serde_json::{Value, json};

use super::projects::Fixture;
use super::test_server::wait_until;
use crate::support::Answer;

/// Delays after which the server is killed, in milliseconds.
const KILL_DELAYS: [u64; 8] = [1, 5, 10, 20, 35, 55, 80, 120];

const TEXT: &str = "one\ntwo\nthree\nfour\nfive\nsix\n";

/// Returns a project with a text and a counter.
fn project() -> Fixture {
    let fixture = Fixture::new(&[("a.md", TEXT), ("n.crdt.json", "{\"n\": 0}\n"), ("d/b.txt", "b\n")]);
    set_policy(&fixture, &json!([]));
    fixture
}

/// Sets a policy with a counter and other rules.
fn set_policy(fixture: &Fixture, more: &Value) {
    let mut rules = vec![json!({"path": "*.crdt.json", "strategy": "crdt", "schema": {"n": "counter"}})];
    rules.extend(more.as_array().unwrap().clone());
    let set =
        fixture.call("PUT", "projects/website/policy").json(&json!({ "rules": rules }).to_string()).send();
    assert_eq!(set.status, 200, "{}", set.body);
}

fn create(fixture: &Fixture, more: &Value) -> Answer {
    let mut body = json!({"template": "base", "project": "website"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fixture.post("sandboxes", &body)
}

fn created(fixture: &Fixture, more: &Value) -> String {
    let made = create(fixture, more);
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["id"].as_str().unwrap().to_owned()
}

fn rebase(fixture: &Fixture, sandbox: &str) -> Value {
    let rebased = fixture.post(&format!("sandboxes/{sandbox}/rebase"), &json!({}));
    assert_eq!(rebased.status, 200, "{}", rebased.body);
    rebased.json()
}

fn sandbox(fixture: &Fixture, id: &str) -> Value {
    fixture.get(&format!("sandboxes/{id}")).json()
}

/// Lets another agent change files of the project.
fn change(fixture: &Fixture, command: &str) {
    let other = fixture.sandbox("other");
    fixture.run(&other, command);
    assert_eq!(fixture.complete(&other)["state"], "landed");
    assert_eq!(fixture.call("DELETE", &format!("sandboxes/{other}")).send().status, 204);
}

fn count(fixture: &Fixture) -> i64 {
    serde_json::from_str::<Value>(&fixture.file("n.crdt.json")).unwrap()["n"].as_i64().unwrap()
}

fn set_count(fixture: &Fixture, sandbox: &str, to: i64) {
    fixture.run(sandbox, &format!("echo '{{\"n\": {to}}}' > n.crdt.json"));
}

fn count_in(fixture: &Fixture, sandbox: &str) -> i64 {
    let text = fixture.run(sandbox, "cat n.crdt.json");
    serde_json::from_str::<Value>(&text).unwrap()["n"].as_i64().unwrap()
}

/// Returns the paths that the last change of the project changed.
fn last_change(fixture: &Fixture) -> Vec<String> {
    let diff = fixture.get("projects/website/diff").json();
    paths(&diff["entries"])
}

fn paths(entries: &Value) -> Vec<String> {
    entries.as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
}

fn events(fixture: &Fixture, sandbox: &str, kind: &str) -> Vec<Value> {
    let page = fixture.get(&format!("events?sandbox={sandbox}&type={kind}&limit=1000")).json();
    page["items"].as_array().unwrap().clone()
}

#[test]
fn edits_of_both_sides_are_merged_in_place_and_a_completion_has_only_those_of_the_agent() {
    let fixture = project();
    let id = fixture.sandbox("writer");
    fixture.run(
        &id,
        "sed -i s/one/ONE/ a.md; echo mine > mine.txt; mkdir .git; echo index > .git/index; rm d/b.txt",
    );
    set_count(&fixture, &id, 5);
    let sleeper = fixture.post(
        &format!("sandboxes/{id}/process/run"),
        &json!({"command": "sleep 1000", "cwd": "/workspace", "background": true}),
    );
    change(&fixture, "sed -i s/six/SIX/ a.md; echo '{\"n\": 2}' > n.crdt.json; echo theirs > theirs.txt");
    assert_eq!(sandbox(&fixture, &id)["sequence"], 1);
    let rebased = rebase(&fixture, &id);
    assert_eq!((&rebased["state"], &rebased["sequence"]), (&json!("rebased"), &json!(2)), "{rebased}");
    assert_eq!(rebased["sandbox"]["sequence"], 2);
    let merged = json!([{"path": "a.md", "strategy": "text"}, {"path": "n.crdt.json", "strategy": "crdt"}]);
    assert_eq!((&rebased["merged"], &rebased["conflicts"]), (&merged, &json!([])));
    let files = fixture.run(&id, "cat a.md theirs.txt mine.txt .git/index; ls d 2>/dev/null || true");
    assert_eq!(files, "ONE\ntwo\nthree\nfour\nfive\nSIX\ntheirs\nmine\nindex\n");
    assert_eq!(count_in(&fixture, &id), 7);
    // The process in the workspace goes on in the new files.
    let command = fixture.server.command(&id, sleeper.json()["commandId"].as_str().unwrap());
    assert_eq!(command["state"], "running");
    let changes = fixture.get(&format!("sandboxes/{id}/changes")).json();
    let changed = paths(&changes["entries"]);
    assert!(!changed.contains(&"theirs.txt".to_owned()) && changed.contains(&"mine.txt".to_owned()));
    assert_eq!(rebase(&fixture, &id)["state"], "current");
    let landed = fixture.complete(&id);
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(3)), "{landed}");
    assert_eq!(last_change(&fixture), ["a.md", "d/b.txt", "mine.txt", "n.crdt.json"]);
    assert_eq!(count(&fixture), 7);
    assert_eq!(fixture.file("a.md"), "ONE\ntwo\nthree\nfour\nfive\nSIX\n");
    // What was completed is not applied again, before and after another rebase.
    assert_eq!(rebase(&fixture, &id)["state"], "current");
    set_count(&fixture, &id, 8);
    change(&fixture, "echo '{\"n\": 17}' > n.crdt.json");
    assert_eq!(rebase(&fixture, &id)["state"], "rebased");
    assert_eq!(count_in(&fixture, &id), 18);
    assert_eq!(fixture.complete(&id)["sequence"], 5);
    assert_eq!(count(&fixture), 18);
    assert_eq!(fixture.complete(&id)["sequence"], 5, "nothing changed");
    assert_eq!(events(&fixture, &id, "sandbox.rebased").len(), 2);
}

#[test]
fn a_conflict_leaves_everything_as_it_was() {
    let fixture = project();
    let id = fixture.sandbox("writer");
    fixture.run(&id, "echo mine > a.md; echo new > new.txt");
    change(&fixture, "echo theirs > a.md; echo other > other.txt");
    let snapshots = || fixture.get("snapshots?limit=100").json()["items"].as_array().unwrap().len();
    let (before, count) = (sandbox(&fixture, &id), snapshots());
    let conflicted = rebase(&fixture, &id);
    assert_eq!(conflicted["state"], "conflicts");
    assert_eq!(conflicted["conflicts"], json!([{"path": "a.md", "class": "content"}]));
    assert_eq!(fixture.run(&id, "cat a.md; ls"), "mine\na.md\nd\nn.crdt.json\nnew.txt\n");
    let after = sandbox(&fixture, &id);
    assert_eq!((&after["sequence"], &after["snapshot"]), (&before["sequence"], &before["snapshot"]));
    assert_eq!(snapshots(), count, "no snapshot is left");
    // The refused rebase does not change the completion. Its conflict then waits in a review, and a rebase is possible.
    let completed = fixture.complete(&id);
    assert_eq!((&completed["state"], &completed["sequence"]), (&json!("in_review"), &json!(3)));
    assert_eq!(rebase(&fixture, &id)["state"], "rebased");
    assert_eq!(fixture.run(&id, "cat a.md new.txt other.txt"), "theirs\nnew\nother\n");
    fixture.run(&id, "echo more >> new.txt");
    assert_eq!(fixture.complete(&id)["sequence"], 4);
    assert_eq!((fixture.file("a.md"), last_change(&fixture)), ("theirs\n".into(), vec!["new.txt".into()]));
}

#[test]
fn a_rule_that_decides_a_conflict_leaves_a_snapshot_of_the_former_files() {
    let fixture = project();
    set_policy(
        &fixture,
        &json!([{"path": "a.md", "onConflict": "ours"}, {"path": "d/**", "critical": true}]),
    );
    let id = fixture.sandbox("writer");
    fixture.run(&id, "echo mine > a.md; echo critical > d/b.txt");
    change(&fixture, "echo theirs > a.md");
    let rebased = rebase(&fixture, &id);
    assert_eq!(rebased["state"], "rebased", "{rebased}");
    // A critical change needs a review when it is completed, and not before.
    assert_eq!(fixture.run(&id, "cat a.md d/b.txt"), "theirs\ncritical\n");
    let former = rebased["former"].as_str().unwrap();
    assert_eq!(fixture.get(&format!("snapshots/{former}/files/a.md")).body, "mine\n");
}

#[test]
fn refused_changes_are_taken_back_by_the_rebase_after_a_completion() {
    let fixture = project();
    set_policy(&fixture, &json!([{"agent": "guest", "path": "a.md", "access": "R"}]));
    let id = created(&fixture, &json!({"agent": "guest"}));
    fixture.run(&id, "echo mine > a.md; echo new > new.txt");
    // As long as a command runs, the server does not revert them by itself.
    fixture.server.start_background(&id, json!({"command": "sleep 1000"}));
    let completed = fixture.complete(&id);
    assert_eq!(completed["refused"][0]["path"], "a.md", "{completed}");
    assert_eq!(rebase(&fixture, &id)["state"], "rebased");
    assert_eq!(fixture.run(&id, "cat a.md new.txt"), format!("{TEXT}new\n"));
    // With `follow: "rebase"`, the server rebases the sandbox after the completion, although the head did not move.
    let id = created(&fixture, &json!({"agent": "guest", "follow": "rebase"}));
    fixture.run(&id, "echo mine > a.md");
    assert_eq!(fixture.complete(&id)["state"], "refused");
    wait_until("the refused change is taken back", || fixture.run(&id, "cat a.md") == TEXT);
}

#[test]
fn hidden_files_never_appear_in_a_rebased_workspace_or_its_report() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/key.pem", "key\n")]);
    let policy = json!({"rules": [{"agent": "guest", "path": "secret/**", "access": "none"}]});
    let set = fixture.call("PUT", "projects/website/policy").json(&policy.to_string()).send();
    assert_eq!(set.status, 200);
    let id = created(&fixture, &json!({"agent": "guest"}));
    fixture.run(&id, "echo mine > mine.txt; mkdir secret; echo guess > secret/key.pem");
    change(&fixture, "echo changed > secret/key.pem; echo more > secret/more.pem");
    // The guest cannot see the changes, so there is nothing to rebase onto.
    let current = fixture.post(&format!("sandboxes/{id}/rebase"), &json!({}));
    assert_eq!(current.json()["state"], "current", "{}", current.body);
    change(&fixture, "echo again > secret/key.pem; mv secret/more.pem secret/other.pem; echo b > b.txt");
    let rebased = fixture.post(&format!("sandboxes/{id}/rebase"), &json!({}));
    assert_eq!(rebased.json()["state"], "rebased");
    assert!(!rebased.body.contains("secret") && !rebased.body.contains("pem"), "{}", rebased.body);
    let files = fixture.run(&id, "find . -type f | sort; cat secret/key.pem");
    assert_eq!(files, "./a.txt\n./b.txt\n./mine.txt\n./secret/key.pem\nguess\n", "its own file is its own");
    wait_until("the base is the head", || sandbox(&fixture, &id)["sequence"] == 3);
    // The policy hides more files from the guest. They are removed from its workspace, but not the file that it has made.
    let policy = json!({"rules": [{"agent": "guest", "path": "{secret,a.txt}/**", "access": "none"}]});
    let set = fixture.call("PUT", "projects/website/policy").json(&policy.to_string()).send();
    assert_eq!(set.status, 200);
    wait_until("the guest is told", || sandbox(&fixture, &id)["baseMoved"] == true);
    assert_eq!(rebase(&fixture, &id)["state"], "rebased");
    assert_eq!(fixture.run(&id, "ls"), "b.txt\nmine.txt\nsecret\n");
}

#[test]
fn sandboxes_are_told_once_that_their_base_moved_and_not_of_their_own_changes() {
    let fixture = project();
    let policy = json!([{"agent": "guest", "path": "d/**", "access": "none"}]);
    set_policy(&fixture, &policy);
    let (id, guest) = (fixture.sandbox("writer"), created(&fixture, &json!({"agent": "guest"})));
    fixture.run(&id, "echo mine > mine.txt");
    assert_eq!(fixture.complete(&id)["sequence"], 2);
    // The guest sees the completed change, but not the next changes, which are in `d`.
    wait_until("the guest is told", || sandbox(&fixture, &guest)["baseMoved"] == true);
    assert_eq!(rebase(&fixture, &guest)["state"], "rebased");
    for number in 0..5 {
        change(&fixture, &format!("echo {number} > d/c.txt"));
    }
    wait_until("the owner is told", || sandbox(&fixture, &id)["baseMoved"] == true);
    assert_eq!(events(&fixture, &id, "sandbox.base_moved").len(), 1);
    assert_eq!(sandbox(&fixture, &guest).get("baseMoved"), None);
    assert_eq!(events(&fixture, &guest, "sandbox.base_moved").len(), 1);
    assert_eq!(rebase(&fixture, &id)["state"], "rebased");
    assert_eq!(sandbox(&fixture, &id).get("baseMoved"), None);
    let told = &events(&fixture, &id, "sandbox.base_moved")[0];
    assert_eq!((&told["data"]["project"], told["data"].get("sequence")), (&json!("website"), None));
}

#[test]
fn an_idle_sandbox_that_follows_by_rebases_gets_each_new_head() {
    let mut fixture = project();
    let id = created(&fixture, &json!({"agent": "writer", "follow": "rebase"}));
    assert_eq!(sandbox(&fixture, &id)["follow"], "rebase");
    fixture.run(&id, "sed -i s/one/ONE/ a.md");
    change(&fixture, "sed -i s/six/SIX/ a.md");
    wait_until("it has the new head", || sandbox(&fixture, &id)["sequence"] == 2);
    assert_eq!(fixture.run(&id, "head -n1 a.md; tail -n1 a.md"), "ONE\nSIX\n");
    // Not while a command runs.
    let running = fixture.server.start_background(&id, json!({"command": "sleep 1000"}));
    change(&fixture, "echo new > new.txt");
    wait_until("it is told", || sandbox(&fixture, &id)["baseMoved"] == true);
    assert_eq!(sandbox(&fixture, &id)["sequence"], 2);
    fixture.server.restart();
    wait_until("it is told", || sandbox(&fixture, &id)["agentConnected"] == true);
    let kill = fixture.post(&format!("sandboxes/{id}/process/{running}/kill"), &json!({"signal": 9}));
    assert!(kill.status < 300, "{}", kill.body);
    wait_until("it has the new head", || sandbox(&fixture, &id)["sequence"] == 3);
    assert_eq!(fixture.run(&id, "cat new.txt"), "new\n");
    // A fork is rebased, too.
    let forked = fixture.post(&format!("sandboxes/{id}/fork"), &json!({"count": 1})).json();
    let fork = forked["sandboxes"][0]["id"].as_str().unwrap().to_owned();
    change(&fixture, "echo newer > new.txt");
    wait_until("both have the new head", || {
        // A command would keep the sandbox from being idle.
        [&id, &fork].iter().all(|id| sandbox(&fixture, id)["sequence"] == 4)
    });
    // Rebases without commits in between leave one snapshot.
    let made = fixture.get("snapshots?limit=100").json()["items"].as_array().unwrap().len();
    for number in 0..3 {
        change(&fixture, &format!("echo {number} > new.txt"));
        wait_until("it has the new head", || fixture.run(&id, "cat new.txt") == format!("{number}\n"));
    }
    let completed = 3;
    wait_until("former snapshots are removed", || {
        let now = fixture.get("snapshots?limit=100").json()["items"].as_array().unwrap().len();
        now <= made + completed + 1
    });
    assert_eq!(fixture.complete(&id)["state"], "landed");
    assert_eq!(last_change(&fixture), ["a.md"]);
}

#[test]
fn a_conflict_is_reported_once_per_head_and_nothing_moves() {
    let mut fixture = project();
    let id = created(&fixture, &json!({"agent": "writer", "follow": "rebase"}));
    fixture.run(&id, "echo mine > a.md");
    change(&fixture, "echo theirs > a.md");
    let told = |fixture: &Fixture| events(fixture, &id, "sandbox.rebase_conflicted");
    wait_until("the conflict is reported", || told(&fixture).len() == 1);
    assert_eq!(told(&fixture)[0]["data"]["conflicts"], json!([{"path": "a.md", "class": "content"}]));
    assert_eq!(fixture.run(&id, "cat a.md"), "mine\n");
    fixture.server.restart();
    wait_until("it is connected", || sandbox(&fixture, &id)["agentConnected"] == true);
    // The next head conflicts, too, and is reported once more.
    change(&fixture, "echo other > other.txt");
    wait_until("the conflict is reported again", || told(&fixture).len() == 2);
    let state = sandbox(&fixture, &id);
    assert_eq!((&state["sequence"], &state["baseMoved"]), (&json!(1), &json!(true)));
    // Once nothing conflicts any more, the sandbox is rebased onto the next head.
    fixture.run(&id, "echo theirs > a.md");
    change(&fixture, "echo another > another.txt");
    wait_until("it has the new head", || sandbox(&fixture, &id)["sequence"] == 4);
    assert_eq!(fixture.run(&id, "cat a.md other.txt another.txt"), "theirs\nother\nanother\n");
}

#[test]
fn a_completion_of_what_conflicts_is_followed_by_a_rebase_also_if_the_head_stays() {
    let mut fixture = project();
    let id = created(&fixture, &json!({"agent": "writer", "follow": "rebase"}));
    fixture.run(&id, "echo mine > a.md");
    change(&fixture, "echo theirs > a.md");
    let told = |fixture: &Fixture| events(fixture, &id, "sandbox.rebase_conflicted").len();
    wait_until("the conflict is reported", || told(&fixture) == 1);
    // The reported conflict is still known after a restart.
    fixture.server.restart();
    wait_until("it is connected", || sandbox(&fixture, &id)["agentConnected"] == true);
    let completed = fixture.complete(&id);
    assert_eq!((&completed["state"], completed.get("sequence")), (&json!("in_review"), None), "{completed}");
    wait_until("it has the file of the head", || fixture.run(&id, "cat a.md") == "theirs\n");
    wait_until("it has the base of the head", || sandbox(&fixture, &id)["sequence"] == 2);
    assert_eq!(told(&fixture), 1);
}

#[test]
fn a_server_killed_during_a_rebase_leaves_the_workspace_before_or_after_it() {
    let mut fixture = project();
    let (mut sum, mut rebased) = (0, 0);
    for (round, delay) in KILL_DELAYS.into_iter().enumerate() {
        let id = fixture.sandbox("writer");
        let began = sandbox(&fixture, &id)["sequence"].as_i64().unwrap();
        set_count(&fixture, &id, sum + 1);
        fixture.run(&id, &format!("echo mine > mine-{round}.txt"));
        change(&fixture, &format!("echo '{{\"n\": {}}}' > n.crdt.json; echo {round} > theirs.txt", sum + 10));
        let call = fixture.call("POST", &format!("sandboxes/{id}/rebase")).json("{}");
        scope(|threads| {
            // There is no response if the server is killed first.
            threads.spawn(|| call.try_send());
            std::thread::sleep(Duration::from_millis(delay));
            fixture.server.signal(rustix::process::Signal::KILL);
        });
        fixture.server.wait();
        fixture.server.start();
        wait_until("it is connected", || sandbox(&fixture, &id)["agentConnected"] == true);
        let state = sandbox(&fixture, &id);
        assert_eq!(state["state"], "running", "{state}");
        let is_rebased = state["sequence"].as_i64().unwrap() > began;
        rebased += u32::from(is_rebased);
        let theirs = fixture.run(&id, "cat theirs.txt 2>/dev/null || echo none");
        let expected = (is_rebased, is_rebased || round > 0);
        assert_eq!((theirs == format!("{round}\n"), theirs != "none\n"), expected, "{theirs}");
        assert_eq!(count_in(&fixture, &id), sum + if is_rebased { 11 } else { 1 });
        assert_eq!(fixture.run(&id, &format!("cat mine-{round}.txt")), "mine\n");
        // Its changes land exactly once, whatever happened.
        assert_eq!(fixture.complete(&id)["state"], "landed");
        sum += 11;
        assert_eq!(count(&fixture), sum);
        assert_eq!(fixture.call("DELETE", &format!("sandboxes/{id}")).send().status, 204);
    }
    eprintln!("{rebased} of {} workspaces were rebased", KILL_DELAYS.len());
}

#[test]
fn a_rebase_races_with_completions_commits_and_deletions() {
    let fixture = project();
    let id = fixture.sandbox("writer");
    for round in 1..=5 {
        set_count(&fixture, &id, count_in(&fixture, &id) + 1);
        fixture.run(&id, &format!("echo {round} > mine.txt"));
        change(&fixture, &format!("echo {round} > theirs.txt"));
        let statuses = scope(|threads| {
            let post = |path: &'static str, body: Value| {
                let (fixture, id) = (&fixture, &id);
                threads.spawn(move || fixture.post(&format!("sandboxes/{id}/{path}"), &body).status)
            };
            let tasks = [
                post("rebase", json!({})),
                post("complete", json!({"wait": 60})),
                post("commit", json!({})),
                post("rebase", json!({})),
            ];
            tasks.map(|task| task.join().unwrap())
        });
        assert_eq!(statuses, [200, 202, 201, 200]);
        assert_eq!(fixture.complete(&id)["state"], "landed");
        assert_eq!((count(&fixture), fixture.file("theirs.txt")), (round, format!("{round}\n")));
        assert_eq!(fixture.file("mine.txt"), format!("{round}\n"));
    }
    fixture.run(&id, "echo last > mine.txt");
    change(&fixture, "echo last > theirs.txt");
    let removal = format!("sandboxes/{id}?complete=false");
    let (rebased, deleted) = scope(|threads| {
        let rebase = threads.spawn(|| fixture.post(&format!("sandboxes/{id}/rebase"), &json!({})));
        let delete = threads.spawn(|| fixture.call("DELETE", &removal).send());
        (rebase.join().unwrap(), delete.join().unwrap())
    });
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    assert!([200, 404, 409].contains(&rebased.status), "{}", rebased.body);
    assert_eq!(fixture.get(&format!("sandboxes/{id}")).error(), "SANDBOX_NOT_FOUND");
}

#[test]
fn a_restored_snapshot_from_before_a_rebase_undoes_no_changes_of_others() {
    let fixture = project();
    let id = fixture.sandbox("writer");
    fixture.run(&id, "echo mine > mine.txt");
    let first = fixture.post(&format!("sandboxes/{id}/commit"), &json!({})).json();
    change(&fixture, "echo theirs > theirs.txt; rm d/b.txt; echo '{\"n\": 3}' > n.crdt.json");
    let rebased = rebase(&fixture, &id);
    set_count(&fixture, &id, 4);
    let second = fixture.post(&format!("sandboxes/{id}/commit"), &json!({})).json();
    let restore = |snapshot: &Value| {
        let restored = fixture.post(&format!("sandboxes/{id}/restore"), &json!({ "snapshot": snapshot }));
        assert_eq!(restored.status, 200, "{}", restored.body);
        restored.json()["sandbox"]["sequence"].clone()
    };
    assert_eq!(restore(&first["snapshot"]["id"]), 1);
    assert_eq!(fixture.complete(&id)["state"], "landed");
    assert_eq!(last_change(&fixture), ["mine.txt"]);
    assert_eq!(restore(&second["snapshot"]["id"]), 2);
    assert_eq!(fixture.complete(&id)["state"], "landed");
    assert_eq!((count(&fixture), fixture.file("theirs.txt")), (4, "theirs\n".into()));
    assert_eq!(restore(&rebased["snapshot"]), 2);
    // A fork completes what was not completed.
    fixture.run(&id, "echo fork > fork.txt");
    let forked = fixture.post(&format!("sandboxes/{id}/fork"), &json!({"count": 1})).json();
    let fork = forked["sandboxes"][0]["id"].as_str().unwrap();
    set_count(&fixture, fork, 5);
    assert_eq!(fixture.complete(fork)["state"], "landed");
    assert_eq!((count(&fixture), fixture.file("fork.txt")), (5, "fork\n".into()));
}

#[test]
fn a_snapshot_whose_parent_was_deleted_is_restored_with_the_base_that_it_was_made_with() {
    let fixture = project();
    let id = fixture.sandbox("writer");
    let commit = |id: &str| {
        let committed = fixture.post(&format!("sandboxes/{id}/commit"), &json!({})).json();
        committed["snapshot"]["id"].as_str().unwrap().to_owned()
    };
    let delete = |path: String| {
        let deleted = fixture.call("DELETE", &path).send();
        assert_eq!(deleted.status, 204, "{}", deleted.body);
    };
    let restore = |to: &str| {
        fixture.post(&format!("sandboxes/{id}/restore"), &json!({ "snapshot": to, "force": true }))
    };
    change(&fixture, "echo '{\"n\": 2}' > n.crdt.json; echo theirs > theirs.txt");
    assert_eq!(rebase(&fixture, &id)["sequence"], 2);
    fixture.run(&id, "echo mine > mine.txt");
    let first = commit(&id);
    fixture.run(&id, "echo more >> mine.txt");
    let second = commit(&id);
    let fork = fixture.post(&format!("sandboxes/{id}/fork"), &json!({})).json();
    change(&fixture, "echo '{\"n\": 5}' > n.crdt.json; echo other > other.txt");
    assert_eq!(rebase(&fixture, &id)["sequence"], 3);
    delete(format!("snapshots/{first}"));
    let restored = restore(&second);
    assert_eq!(restored.status, 200, "{}", restored.body);
    assert_eq!(restored.json()["sandbox"]["sequence"], 2);
    assert_eq!(fixture.complete(&id)["state"], "landed");
    assert_eq!((last_change(&fixture), count(&fixture)), (vec!["mine.txt".to_owned()], 5));
    // The base of a snapshot of another sandbox cannot be found without its ancestors, so the restore is refused.
    let forked = fork["sandboxes"][0]["id"].as_str().unwrap();
    fixture.run(forked, "echo fork > fork.txt");
    let third = commit(forked);
    delete(format!("sandboxes/{forked}?complete=false"));
    let base = format!("snapshots/{}", fork["snapshot"]["id"].as_str().unwrap());
    wait_until("no sandbox uses it", || fixture.call("DELETE", &base).send().status == 204);
    let refused = restore(&third);
    assert_eq!(
        (refused.status, refused.error().as_str()),
        (409, "SNAPSHOT_BASE_UNKNOWN"),
        "{}",
        refused.body
    );
    assert_eq!(refused.json()["error"]["details"]["snapshot"], third.as_str());
    assert_eq!(fixture.run(&id, "ls"), "a.md\nd\nmine.txt\nn.crdt.json\ntheirs.txt\n");
    assert_eq!(sandbox(&fixture, &id)["sequence"], 2);
}

#[test]
fn a_sandbox_that_was_paused_to_disk_keeps_the_base_of_its_rebase() {
    let fixture = project();
    let id = fixture.sandbox("writer");
    set_count(&fixture, &id, 1);
    change(&fixture, "echo '{\"n\": 10}' > n.crdt.json");
    assert_eq!(rebase(&fixture, &id)["state"], "rebased");
    assert_eq!(fixture.post(&format!("sandboxes/{id}/pause"), &json!({"keep": "disk"})).status, 200);
    assert_eq!(fixture.post(&format!("sandboxes/{id}/resume"), &json!({})).status, 200);
    assert_eq!(count_in(&fixture, &id), 11);
    change(&fixture, "echo '{\"n\": 110}' > n.crdt.json");
    assert_eq!(rebase(&fixture, &id)["state"], "rebased");
    assert_eq!(fixture.complete(&id)["state"], "landed");
    assert_eq!(count(&fixture), 111);
}

#[test]
fn workspaces_of_other_providers_are_rebased_in_place() {
    let fixture = project();
    let id = created(&fixture, &json!({"agent": "writer", "provider": "copy"}));
    fixture.run(&id, "sed -i s/one/ONE/ a.md; echo mine > mine.txt");
    change(&fixture, "sed -i s/six/SIX/ a.md; rm -r d");
    assert_eq!(rebase(&fixture, &id)["state"], "rebased");
    assert_eq!(
        fixture.run(&id, "head -n1 a.md; tail -n1 a.md; ls"),
        "ONE\nSIX\na.md\nmine.txt\nn.crdt.json\n"
    );
    assert_eq!(fixture.complete(&id)["state"], "landed");
    assert_eq!(last_change(&fixture), ["a.md", "mine.txt"]);
}

#[test]
fn what_cannot_be_rebased_is_refused_with_a_reason() {
    let fixture = project();
    set_policy(&fixture, &json!([{"agent": "reader", "path": "**", "access": "R"}]));
    let post = |id: &str, body: &Value| fixture.post(&format!("sandboxes/{id}/rebase"), body);
    let plain = fixture.post("sandboxes", &json!({"template": "base"})).json();
    assert_eq!(post(plain["id"].as_str().unwrap(), &json!({})).error(), "SANDBOX_WITHOUT_PROJECT");
    let follower = create(&fixture, &json!({"agent": "writer", "follow": "head"}));
    if follower.status == 201 {
        let refused = post(follower.json()["id"].as_str().unwrap(), &json!({}));
        assert_eq!((refused.status, refused.error().as_str()), (409, "WORKSPACE_READ_ONLY"));
    }
    let reader = create(&fixture, &json!({"agent": "reader"})).json();
    if reader["readOnly"] == true {
        assert_eq!(post(reader["id"].as_str().unwrap(), &json!({})).error(), "WORKSPACE_READ_ONLY");
    }
    let wrong = create(&fixture, &json!({"agent": "reader", "follow": "rebase"}));
    assert_eq!(wrong.error(), "INVALID_REQUEST", "{}", wrong.body);
    let wrong = fixture.post("sandboxes", &json!({"template": "base", "follow": "rebase"}));
    assert_eq!(wrong.error(), "INVALID_REQUEST");
    let id = fixture.sandbox("writer");
    assert_eq!(post(&id, &json!({"force": 1})).error(), "INVALID_REQUEST");
    change(&fixture, "echo theirs > theirs.txt");
    for keep in ["memory", "disk"] {
        assert_eq!(fixture.post(&format!("sandboxes/{id}/pause"), &json!({ "keep": keep })).status, 200);
        let refused = post(&id, &json!({}));
        assert_eq!((refused.status, refused.error().as_str()), (409, "SANDBOX_NOT_RUNNING"));
        assert!(refused.body.contains("paused"), "{}", refused.body);
        assert_eq!(fixture.post(&format!("sandboxes/{id}/resume"), &json!({})).status, 200);
    }
    // Processes in a directory of the workspace are named, and ended only if that is wanted.
    let inside = json!({"command": "cd d; exec sleep 1000", "background": true});
    fixture.post(&format!("sandboxes/{id}/process/run"), &inside);
    wait_until("the process is in the directory", || {
        let list = "ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -c '/workspace/d$' || true";
        fixture.run(&id, list) != "0\n"
    });
    let refused = post(&id, &json!({}));
    assert_eq!((refused.status, refused.error().as_str()), (409, "WORKSPACE_IN_USE"), "{}", refused.body);
    assert_eq!(sandbox(&fixture, &id)["sequence"], 1);
    let forced = post(&id, &json!({"force": true})).json();
    assert_eq!((&forced["state"], &forced["ended"][0]["command"]), (&json!("rebased"), &json!("sleep")));
    let bob = fixture.server.key("bob", "user");
    let path = format!("/api/v1/sandboxes/{id}/rebase");
    let foreign = fixture.server.call_as(&bob, "POST", &path).json("{}").send();
    assert_eq!(foreign.error(), "SANDBOX_NOT_FOUND");
    let deleted = fixture.call("DELETE", "projects/website").send();
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    assert_eq!(post(&id, &json!({})).error(), "PROJECT_NOT_FOUND");
}

#[test]
fn a_fork_that_changed_nothing_completes_nothing_after_a_rebase() {
    let fixture = project();
    let id = fixture.sandbox("writer");
    set_count(&fixture, &id, 1);
    let forked = fixture.post(&format!("sandboxes/{id}/fork"), &json!({"count": 1})).json();
    let fork = forked["sandboxes"][0]["id"].as_str().unwrap();
    change(&fixture, "echo theirs > theirs.txt");
    assert_eq!(rebase(&fixture, fork)["state"], "rebased");
    assert_eq!((count_in(&fixture, fork), fixture.run(fork, "cat theirs.txt").as_str()), (1, "theirs\n"));
    let deleted = fixture.call("DELETE", &format!("sandboxes/{fork}")).send();
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    assert_eq!(fixture.complete(&id)["state"], "landed");
    assert_eq!(count(&fixture), 1);
}

#[test]
fn a_refused_deletion_can_be_repeated_after_a_rebase_and_another_policy() {
    let fixture = project();
    set_policy(&fixture, &json!([{"agent": "writer", "path": "**", "access": "RW-"}]));
    let id = fixture.sandbox("writer");
    fixture.run(&id, "rm a.md");
    assert_eq!(fixture.complete(&id)["refused"][0]["path"], "a.md");
    assert_eq!(rebase(&fixture, &id)["state"], "rebased");
    assert_eq!(fixture.run(&id, "cat a.md"), TEXT);
    set_policy(&fixture, &json!([]));
    fixture.run(&id, "rm a.md");
    assert_eq!(fixture.complete(&id)["state"], "landed");
    assert_eq!(fixture.get("projects/website/files/a.md").status, 404);
}
