//! Servers that are killed at each step of a rebase.

use serde_json::json;

use super::{change, count, count_in, created, project, rebase, sandbox, set_count, set_policy};
use crate::real::leftovers::{FORMER_STEP, Leftovers, REBASE_STEPS};
use crate::real::test_server::wait_until;

/// Steps in the merge of a rebase.
const MERGE_STEPS: [&str; 2] = ["rebase-merged", "rebase-synced"];
/// Step that only workspaces have that are replaced by another directory.
const SWAP: &str = "workspace-swapped";

fn kill_at_each_step(provider: Option<&str>) {
    let mut fixture = project();
    let (mut sum, mut rebased) = (0, 0);
    let leftovers = Leftovers::of(&fixture.server);
    let mut steps: Vec<&str> = REBASE_STEPS.into_iter().chain(MERGE_STEPS).collect();
    for (round, step) in steps.iter_mut().enumerate() {
        let id = created(&fixture, &json!({ "agent": "writer", "provider": provider }));
        let before = sandbox(&fixture, &id);
        if *step == SWAP && before["provider"] != "overlay" {
            *step = "workspace-reset";
        }
        set_count(&fixture, &id, sum + 1);
        fixture.run(&id, &format!("echo mine > mine-{round}.txt"));
        change(&fixture, &format!("echo '{{\"n\": {}}}' > n.crdt.json; echo {round} > theirs.txt", sum + 10));
        fixture.server.restart_with_failpoint(step);
        wait_until("it is connected", || sandbox(&fixture, &id)["agentConnected"] == true);
        let answer = fixture.call("POST", &format!("sandboxes/{id}/rebase")).json("{}").try_send();
        assert!(answer.is_none(), "{step} was not reached");
        fixture.server.restart_after_failpoint(step);
        wait_until("it is connected", || sandbox(&fixture, &id)["agentConnected"] == true);
        // The files of before or of after it, and nothing in between.
        let state = sandbox(&fixture, &id);
        assert_eq!(state["state"], "running", "{step}: {state}");
        let is_rebased = state["sequence"].as_i64() > before["sequence"].as_i64();
        rebased += usize::from(is_rebased);
        let theirs = fixture.run(&id, "cat theirs.txt 2>/dev/null || true");
        assert_eq!(theirs == format!("{round}\n"), is_rebased, "{step}: {theirs}");
        assert_eq!(count_in(&fixture, &id), sum + if is_rebased { 11 } else { 1 }, "{step}");
        assert_eq!(fixture.run(&id, &format!("cat mine-{round}.txt")), "mine\n", "{step}");
        // A repeat works, and the changes land once.
        let again = rebase(&fixture, &id);
        assert_eq!(again["state"], if is_rebased { "current" } else { "rebased" }, "{step}: {again}");
        assert_eq!(fixture.run(&id, &format!("cat theirs.txt mine-{round}.txt")), format!("{round}\nmine\n"));
        sum += 11;
        assert_eq!(count_in(&fixture, &id), sum, "{step}");
        assert_eq!(fixture.complete(&id)["state"], "landed", "{step}");
        assert_eq!(count(&fixture), sum, "{step}");
        assert_eq!(fixture.call("DELETE", &format!("sandboxes/{id}")).send().status, 204, "{step}");
    }
    assert!(rebased > 0 && rebased < steps.len(), "{rebased} of {} were rebased", steps.len());
    leftovers.assert_none_added(&mut fixture.server);
}

#[test]
fn a_rebase_that_is_killed_at_a_step_is_whole_or_nothing_and_can_be_repeated() {
    kill_at_each_step(None);
}

#[test]
fn a_rebase_in_place_that_is_killed_at_a_step_is_whole_or_nothing_and_can_be_repeated() {
    kill_at_each_step(Some("copy"));
}

#[test]
fn a_killed_rebase_keeps_the_versions_of_the_agent_that_a_rule_dropped() {
    let mut fixture = project();
    set_policy(&fixture, &json!([{"path": "a.md", "onConflict": "ours"}]));
    let leftovers = Leftovers::of(&fixture.server);
    let steps: Vec<&str> = [FORMER_STEP].into_iter().chain(REBASE_STEPS).collect();
    for (round, mut step) in steps.into_iter().enumerate() {
        let id = fixture.sandbox("writer");
        if step == SWAP && sandbox(&fixture, &id)["provider"] != "overlay" {
            step = "workspace-reset";
        }
        let (mine, theirs) = (format!("mine {round}\n"), format!("theirs {round}\n"));
        fixture.run(&id, &format!("echo 'mine {round}' > a.md"));
        change(&fixture, &format!("echo 'theirs {round}' > a.md"));
        fixture.server.restart_with_failpoint(step);
        wait_until("it is connected", || sandbox(&fixture, &id)["agentConnected"] == true);
        let answer = fixture.call("POST", &format!("sandboxes/{id}/rebase")).json("{}").try_send();
        assert!(answer.is_none(), "{step} was not reached");
        fixture.server.restart_after_failpoint(step);
        wait_until("it is connected", || sandbox(&fixture, &id)["agentConnected"] == true);
        let content = fixture.run(&id, "cat a.md");
        if content == theirs {
            let listed = fixture.get("snapshots?limit=100").json();
            let ids = listed["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap());
            let file = |id: &str| fixture.get(&format!("snapshots/{id}/files/a.md")).body;
            assert!(ids.map(file).any(|file| file == mine), "{step}: the version of the agent is lost");
        } else {
            assert_eq!(content, mine, "{step}");
        }
        assert_eq!(
            fixture.call("DELETE", &format!("sandboxes/{id}?complete=false")).send().status,
            204,
            "{step}"
        );
    }
    leftovers.assert_none_added(&mut fixture.server);
}
