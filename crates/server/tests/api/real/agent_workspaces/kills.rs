//! Servers that are killed at each step of a sync or a rebase.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::rebase::rebase;
use super::{Fixture, run};
use crate::real::leftovers::{FILES_OWNED_STEP, FILES_READ_STEP, Leftovers, MOVE_STEPS};

/// Steps of the merge of a rebase.
const MERGE_STEPS: [&str; 2] = ["rebase-merged", "rebase-synced"];
/// Steps of writing its files.
const CHECKOUT_STEPS: [&str; 3] = ["checkout-started", "checkout-file", "checkout-applied"];

#[test]
fn a_sync_that_is_killed_at_a_step_is_finished_and_can_be_repeated() {
    let mut fixture = Fixture::new(&[("a", "0\n"), ("b", "0\n")]);
    let leftovers = Leftovers::of(&fixture.server);
    let path = fixture.workspace("writer");
    for (round, step) in MOVE_STEPS.into_iter().enumerate() {
        let next = format!("{}\n", round + 1);
        fixture.import("website", &[("a", &next), ("b", &next), (step, "new\n")]);
        let head = fixture.get("projects/website").json();
        fixture.server.restart_with_failpoint(step);
        let sync = fixture.server.call_as(&fixture.alice, "POST", "/api/v1/projects/website/sync");
        assert!(sync.json("{}").try_send().is_none(), "{step} was not reached");
        fixture.server.restart_after_failpoint(step);
        // It was recorded before the first step, so the next server has finished it.
        let shown = fixture.get("projects/website/workspaces/writer").json();
        assert_eq!((&shown["state"], &shown["sequence"]), (&json!("ready"), &head["sequence"]), "{step}");
        assert_eq!(run(&path, "cat a b; ls"), format!("{next}{next}a\nb\n{step}\n"), "{step}");
        assert_eq!(fixture.changes("writer")["total"], 0, "{step}");
        let again = fixture.post("projects/website/sync", &json!({})).json();
        assert_eq!(again, json!({"synced": 0, "skipped": 1, "total": 1}), "{step}");
    }
    // Work after it is merged with the new base.
    run(&path, "echo mine > mine");
    assert_eq!(fixture.complete("writer")["state"], "landed");
    assert_eq!((fixture.file("mine"), fixture.file("a")), ("mine\n".to_owned(), "5\n".to_owned()));
    assert_eq!(fixture.delete("projects/website/workspaces/writer").status, 204);
    leftovers.assert_none_added(&mut fixture.server);
}

fn steps() -> impl Iterator<Item = &'static str> {
    [FILES_READ_STEP].into_iter().chain(MERGE_STEPS).chain(MOVE_STEPS).chain(CHECKOUT_STEPS)
}

/// Creates a project with a counter and files that are merged, and the workspace of an agent with changes of both.
fn project(rules: &Value) -> Fixture {
    let fixture = Fixture::new(&files(0));
    let mut all = vec![json!({"path": "*.crdt.json", "strategy": "crdt", "schema": {"n": "counter"}})];
    all.extend(rules.as_array().unwrap().clone());
    let set = fixture.send(&fixture.alice, "PUT", "projects/website/policy", Some(&json!({ "rules": all })));
    assert_eq!(set.status, 200, "{}", set.body);
    fixture
}

/// Returns the files of the project after some rounds.
fn files(round: u32) -> [(&'static str, &'static str); 3] {
    let (counter, text) = match round {
        0 => (r#"{"n": 0}"#, "0\n"),
        _ => (r#"{"n": 10}"#, "1\n"),
    };
    [("n.crdt.json", counter), ("theirs", text), ("d/theirs", text)]
}

fn workspace(fixture: &Fixture) -> PathBuf {
    let body = json!({"agent": "writer", "provider": "copy"});
    let made = fixture.post("projects/website/workspaces", &body).json();
    PathBuf::from(made["path"].as_str().unwrap())
}

/// Kills the server at a step of the rebase.
fn kill_at(fixture: &mut Fixture, step: &str) {
    fixture.server.restart_with_failpoint(step);
    let path = "/api/v1/projects/website/workspaces/writer/rebase";
    let call = fixture.server.call_as(&fixture.alice, "POST", path);
    assert!(call.try_send().is_none(), "{step} was not reached");
}

fn state(fixture: &Fixture) -> (String, u64) {
    let shown = fixture.get("projects/website/workspaces/writer").json();
    (shown["state"].as_str().unwrap().to_owned(), shown["sequence"].as_u64().unwrap())
}

const FILES: &str = "cat n.crdt.json theirs d/theirs mine | tr -d ' \n'";
const FORMER: &str = r#"{"n":1}00mine"#;
const REBASED: &str = r#"{"n":11}11mine"#;

#[test]
fn a_rebase_that_is_killed_at_a_step_is_whole_or_nothing_and_can_be_repeated() {
    let mut fixture = project(&json!([]));
    let leftovers = Leftovers::of(&fixture.server);
    let mut rebased = 0;
    for step in steps() {
        fixture.import("website", &files(0));
        let (path, made) = (workspace(&fixture), fixture.sequence());
        run(&path, r#"echo mine > mine; echo '{"n": 1}' > n.crdt.json"#);
        fixture.import("website", &files(1));
        kill_at(&mut fixture, step);
        // The agent goes on while the server is down.
        run(&path, "echo more > more");
        fixture.server.restart_after_failpoint(step);
        let (state, sequence) = state(&fixture);
        let is_rebased = sequence == made + 1;
        rebased += usize::from(is_rebased);
        assert_eq!((state.as_str(), is_rebased || sequence == made), ("ready", true), "{step}: {sequence}");
        assert_eq!(run(&path, FILES), if is_rebased { REBASED } else { FORMER }, "{step}");
        let again = rebase(&fixture);
        assert_eq!(again["state"], if is_rebased { "current" } else { "rebased" }, "{step}: {again}");
        assert_eq!(run(&path, FILES), REBASED, "{step}");
        let landed = fixture.complete("writer");
        assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(made + 2)), "{step}");
        let head =
            ["n.crdt.json", "theirs", "mine", "more"].map(|path| fixture.file(path).replace(['\n', ' '], ""));
        assert_eq!(head, [r#"{"n":11}"#, "1", "mine", "more"], "{step}");
        assert_eq!(fixture.delete("projects/website/workspaces/writer").status, 204, "{step}");
    }
    assert!(rebased > 0 && rebased < steps().count(), "{rebased} were rebased");
    leftovers.assert_none_added(&mut fixture.server);
}

/// A file that the rebase has not replaced yet is changed before the next start.
#[test]
fn a_killed_rebase_is_undone_if_the_agent_changed_a_file_in_the_way() {
    for step in ["move-begun", "checkout-started", "checkout-file"] {
        let mut fixture = project(&json!([]));
        let leftovers = Leftovers::of(&fixture.server);
        let path = workspace(&fixture);
        run(&path, r#"echo mine > mine; echo '{"n": 1}' > n.crdt.json"#);
        fixture.import("website", &files(1));
        kill_at(&mut fixture, step);
        run(&path, "echo other > d/theirs");
        fixture.server.restart_after_failpoint(step);
        assert_eq!(state(&fixture), ("ready".to_owned(), 1), "{step}");
        assert_eq!(run(&path, FILES), r#"{"n":1}0othermine"#, "{step}");
        let conflicted = rebase(&fixture);
        assert_eq!(
            conflicted["conflicts"],
            json!([{"path": "d/theirs", "class": "content"}]),
            "{conflicted}"
        );
        run(&path, "echo 0 > d/theirs");
        assert_eq!(rebase(&fixture)["state"], "rebased", "{step}");
        assert_eq!(run(&path, FILES), REBASED, "{step}");
        assert_eq!(fixture.delete("projects/website/workspaces/writer?discard=true").status, 204);
        leftovers.assert_none_added(&mut fixture.server);
    }
}

#[test]
fn a_killed_rebase_keeps_the_versions_of_the_agent_that_a_rule_dropped() {
    let mut fixture = project(&json!([{"path": "theirs", "onConflict": "ours"}]));
    let leftovers = Leftovers::of(&fixture.server);
    for (round, step) in [FILES_OWNED_STEP].into_iter().chain(steps()).enumerate() {
        fixture.import("website", &files(0));
        let path = workspace(&fixture);
        let mine = format!("mine {round}\n");
        run(&path, &format!("echo 'mine {round}' > theirs"));
        fixture.import("website", &files(1));
        kill_at(&mut fixture, step);
        fixture.server.restart_after_failpoint(step);
        let content = run(&path, "cat theirs");
        if content == "1\n" {
            let listed = fixture.get("snapshots?limit=100").json();
            let ids = listed["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap());
            let file = |id: &str| fixture.get(&format!("snapshots/{id}/files/theirs")).body;
            assert!(ids.map(file).any(|file| file == mine), "{step}: the version of the agent is lost");
        } else {
            assert_eq!(content, mine, "{step}");
        }
        assert_eq!(fixture.delete("projects/website/workspaces/writer?discard=true").status, 204, "{step}");
    }
    leftovers.assert_none_added(&mut fixture.server);
}
