//! Refused changes in the workspaces of sandboxes, which the server reverts.

use serde_json::{Value, json};

use super::leftovers::{Leftovers, REBASE_STEPS};
use super::projects::Fixture;
use super::test_server::wait_until;

/// Steps in which the files without the refused changes are made.
const REVERT_STEPS: [&str; 2] = ["revert-committed", "revert-synced"];

/// Returns a project of which the agent `guest` may change only new files in the root, and `open`.
fn project() -> Fixture {
    let fixture = Fixture::new(&[("a.md", "a\n"), ("d/b.txt", "b\n"), ("open/o.txt", "o\n")]);
    let rules = json!({"rules": [
        {"agent": "guest", "path": "a.md", "access": "R"},
        {"agent": "guest", "path": "d/**", "access": "R"},
    ]});
    let set = fixture.call("PUT", "projects/website/policy").json(&rules.to_string()).send();
    assert_eq!(set.status, 200, "{}", set.body);
    fixture
}

fn created(fixture: &Fixture, more: &Value) -> String {
    let mut body = json!({"template": "base", "project": "website", "agent": "guest"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = fixture.post("sandboxes", &body);
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["id"].as_str().unwrap().to_owned()
}

fn sandbox(fixture: &Fixture, id: &str) -> Value {
    fixture.get(&format!("sandboxes/{id}")).json()
}

fn events(fixture: &Fixture, sandbox: &str) -> Vec<Value> {
    let page =
        fixture.get(&format!("events?sandbox={sandbox}&type=sandbox.changes_reverted&limit=100")).json();
    page["items"].as_array().unwrap().clone()
}

fn refused(completion: &Value) -> Vec<&str> {
    completion["refused"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect()
}

#[test]
fn refused_changes_are_reverted_in_place_and_reported() {
    let fixture = project();
    let id = created(&fixture, &json!({}));
    fixture.run(
        &id,
        "echo mine > a.md; rm d/b.txt; echo x > d/x.txt; echo new > new.txt; mkdir .git; echo i > .git/index",
    );
    let completed = fixture.complete(&id);
    assert_eq!(refused(&completed), ["a.md", "d/b.txt", "d/x.txt"], "{completed}");
    wait_until("it is reverted", || sandbox(&fixture, &id).get("reverted").is_some());
    let reverted = json!({
        "completion": completed["id"],
        "count": 3,
        "paths": ["a.md", "d/b.txt", "d/x.txt"],
        "keptCount": 0,
        "kept": [],
    });
    let state = sandbox(&fixture, &id);
    assert_eq!(state["reverted"], reverted);
    let events = events(&fixture, &id);
    assert_eq!((events.len(), &events[0]["data"]["reverted"]), (1, &reverted));
    assert_eq!(events[0]["data"]["snapshotId"], state["snapshot"]);
    let files = fixture.run(&id, "cat a.md new.txt .git/index; ls d; pwd");
    assert_eq!(files, "a\nnew\ni\nb.txt\n/workspace\n");
    // Nothing of it counts as a change: neither now, nor in the next completion.
    let changes = fixture.get(&format!("sandboxes/{id}/changes")).json();
    let changed: Vec<&str> =
        changes["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert!(!changed.contains(&"a.md") && !changed.contains(&"new.txt"), "{changed:?}");
    let sequence = completed["sequence"].clone();
    fixture.run(&id, "echo more >> new.txt");
    let next = fixture.complete(&id);
    assert_eq!((refused(&next), next["sequence"].as_i64()), (vec![], sequence.as_i64().map(|last| last + 1)));
    assert_eq!((fixture.file("a.md"), fixture.file("new.txt")), ("a\n".to_owned(), "new\nmore\n".to_owned()));
    assert_eq!(fixture.call("DELETE", &format!("sandboxes/{id}")).send().status, 204);
    // The refused files can still be read by the owner of the project.
    let path = format!("projects/website/completions/{}/files/a.md", completed["id"].as_str().unwrap());
    assert_eq!(fixture.get(&path).body, "mine\n");
}

#[test]
fn nothing_is_reverted_while_a_process_runs_and_later_edits_stay() {
    let fixture = project();
    let id = created(&fixture, &json!({}));
    fixture.run(&id, "echo mine > a.md; echo mine > d/b.txt");
    // A process that a command has left behind, and which uses no file of the workspace.
    fixture.run(&id, "cd /; setsid sleep 1000 > /dev/null 2>&1 < /dev/null & echo");
    assert_eq!(refused(&fixture.complete(&id)), ["a.md", "d/b.txt"]);
    // The attempts go on: another sandbox is reverted meanwhile.
    let other = created(&fixture, &json!({}));
    fixture.run(&other, "echo mine > a.md");
    fixture.complete(&other);
    wait_until("the other is reverted", || sandbox(&fixture, &other).get("reverted").is_some());
    assert_eq!(fixture.run(&id, "cat a.md d/b.txt; echo again > a.md"), "mine\nmine\n");
    assert_eq!(sandbox(&fixture, &id).get("reverted"), None);
    fixture.run(&id, "pkill sleep || killall sleep");
    wait_until("it is reverted", || sandbox(&fixture, &id).get("reverted").is_some());
    let reverted = sandbox(&fixture, &id)["reverted"].clone();
    assert_eq!((&reverted["paths"], &reverted["kept"]), (&json!(["d/b.txt"]), &json!(["a.md"])));
    assert_eq!(fixture.run(&id, "cat a.md d/b.txt"), "again\nb\n");
    // It is refused again, and then reverted to what the agent began with.
    let completed = fixture.complete(&id);
    assert_eq!(refused(&completed), ["a.md"]);
    // A command would keep the sandbox from being quiet.
    wait_until("the rest is reverted", || {
        sandbox(&fixture, &id)["reverted"]["completion"] == completed["id"]
    });
    assert_eq!(fixture.run(&id, "cat a.md"), "a\n");
}

fn kill_at_each_step(provider: Option<&str>) {
    let mut fixture = project();
    let leftovers = Leftovers::of(&fixture.server);
    for (round, mut step) in REBASE_STEPS.into_iter().chain(REVERT_STEPS).enumerate() {
        let id = created(&fixture, &json!({ "provider": provider }));
        if step == "workspace-swapped" && sandbox(&fixture, &id)["provider"] != "overlay" {
            step = "workspace-reset";
        }
        fixture.run(&id, &format!("echo mine > a.md; echo {round} > mine-{round}.txt"));
        fixture.server.restart_with_failpoint(step);
        wait_until("it is connected", || sandbox(&fixture, &id)["agentConnected"] == true);
        // The server may be killed before it answers.
        let path = format!("sandboxes/{id}/complete");
        let _ = fixture.call("POST", &path).json(&json!({"wait": 1}).to_string()).try_send();
        fixture.server.restart_after_failpoint(step);
        wait_until("it is connected", || sandbox(&fixture, &id)["agentConnected"] == true);
        wait_until("it is reverted", || sandbox(&fixture, &id).get("reverted").is_some());
        assert_eq!(sandbox(&fixture, &id)["state"], "running", "{step}");
        let files = fixture.run(&id, &format!("cat a.md mine-{round}.txt; echo more >> mine-{round}.txt"));
        assert_eq!(files, format!("a\n{round}\n"), "{step}");
        assert_eq!(events(&fixture, &id).len(), 1, "{step}");
        let completed = fixture.complete(&id);
        assert_eq!(
            (&completed["state"], refused(&completed)),
            (&json!("landed"), vec![]),
            "{step}: {completed}"
        );
        assert_eq!(fixture.file(&format!("mine-{round}.txt")), format!("{round}\nmore\n"), "{step}");
        assert_eq!(fixture.call("DELETE", &format!("sandboxes/{id}")).send().status, 204, "{step}");
    }
    leftovers.assert_none_added(&mut fixture.server);
}

#[test]
fn a_revert_that_is_killed_at_a_step_is_finished_by_the_next_server() {
    kill_at_each_step(None);
}

#[test]
fn a_revert_in_place_that_is_killed_at_a_step_is_finished_by_the_next_server() {
    kill_at_each_step(Some("copy"));
}
