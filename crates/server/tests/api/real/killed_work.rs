//! Servers that are killed at each step of a completion that they record by themselves.

use serde_json::{Value, json};

use super::leftovers::{Leftovers, WORK_STEPS};
use super::projects::Fixture;
use super::test_server::wait_until;

/// Steps of recording a completion, and of merging it.
const COMPLETION_STEPS: [&str; 7] = [
    "completion-protected",
    "completion-inserted",
    "completion-queued",
    "merge-committed",
    "merge-synced",
    "advance-committed",
    "merge-advanced",
];

fn steps() -> impl Iterator<Item = (usize, &'static str)> {
    WORK_STEPS.into_iter().chain(COMPLETION_STEPS).enumerate()
}

impl Fixture {
    /// Sends a request. The server may be killed before it responds.
    fn send_before_kill(&self, method: &str, path: &str, body: &Value) {
        drop(self.call(method, path).json(&body.to_string()).try_send());
    }

    fn has_file(&self, round: usize) -> bool {
        let file = self.get(&format!("projects/website/files/{round}.txt"));
        file.status == 200 && file.body == format!("{round}\n")
    }

    fn wait_for_guest(&self, sandbox: &str) {
        wait_until("it is connected", || {
            self.get(&format!("sandboxes/{sandbox}")).json()["agentConnected"] == true
        });
    }

    fn all_landed(&self) -> usize {
        let all = self.get("projects/website/completions?limit=1000").json();
        let all = all["items"].as_array().unwrap();
        assert!(all.iter().all(|one| one["state"] == "landed"), "{all:?}");
        all.len()
    }
}

#[test]
fn an_automatic_merge_that_is_killed_at_a_step_lands_once() {
    let mut fixture = Fixture::new(&[("a.txt", "a\n")]);
    let leftovers = Leftovers::of(&fixture.server);
    let writer = fixture.sandbox("writer");
    let merge = |mode: &str| json!({"merge": {"mode": mode}});
    let mut rounds = 0;
    for (round, step) in steps() {
        let set = fixture.call("PATCH", "projects/website").json(&merge("completion").to_string()).send();
        assert_eq!(set.status, 200, "{}", set.body);
        fixture.run(&writer, &format!("echo {round} > {round}.txt"));
        fixture.server.restart_with_failpoint(step);
        fixture.send_before_kill("PATCH", "projects/website", &merge("write"));
        fixture.server.restart_after_failpoint(step);
        wait_until(step, || fixture.has_file(round));
        fixture.wait_for_guest(&writer);
        rounds += 1;
    }
    wait_until("nothing is queued", || {
        fixture.get("projects/website/completions?state=queued").json()["items"] == json!([])
    });
    assert_eq!((fixture.all_landed(), fixture.sequence()), (rounds, 1 + rounds as u64), "each landed once");
    let versions = fixture.get("projects/website/versions/0.txt").json();
    assert_eq!(versions["items"].as_array().unwrap().len(), 1, "{versions}");
    assert_eq!(fixture.call("DELETE", &format!("sandboxes/{writer}")).send().status, 204);
    leftovers.assert_none_added(&mut fixture.server);
}

#[test]
fn a_removal_that_is_killed_at_a_step_completes_the_changes_once() {
    let mut fixture = Fixture::new(&[("a.txt", "a\n")]);
    let leftovers = Leftovers::of(&fixture.server);
    let mut rounds = 0;
    for (round, step) in steps() {
        let writer = fixture.sandbox("writer");
        fixture.run(&writer, &format!("echo {round} > {round}.txt"));
        fixture.server.restart_with_failpoint(step);
        fixture.send_before_kill("DELETE", &format!("sandboxes/{writer}"), &json!({}));
        fixture.server.restart_after_failpoint(step);
        wait_until(step, || fixture.has_file(round));
        wait_until("the sandbox is gone", || fixture.get(&format!("sandboxes/{writer}")).status == 404);
        rounds += 1;
    }
    assert_eq!((fixture.all_landed(), fixture.sequence()), (rounds, 1 + rounds as u64), "each landed once");
    leftovers.assert_none_added(&mut fixture.server);
}

#[test]
fn a_completion_that_is_killed_at_a_step_can_be_repeated() {
    let mut fixture = Fixture::new(&[("a.txt", "a\n")]);
    let leftovers = Leftovers::of(&fixture.server);
    let mut rounds = 0;
    for (round, step) in COMPLETION_STEPS.into_iter().enumerate() {
        let writer = fixture.sandbox("writer");
        fixture.run(&writer, &format!("echo {round} > {round}.txt"));
        fixture.server.restart_with_failpoint(step);
        let complete = format!("sandboxes/{writer}/complete");
        fixture.send_before_kill("POST", &complete, &json!({"wait": 60}));
        fixture.server.restart_after_failpoint(step);
        fixture.wait_for_guest(&writer);
        let landed = fixture.complete(&writer);
        assert_eq!(landed["state"], "landed", "{step}: {landed}");
        assert!(fixture.has_file(round), "{step}");
        assert_eq!(fixture.call("DELETE", &format!("sandboxes/{writer}")).send().status, 204, "{step}");
        rounds += 1;
    }
    assert_eq!((fixture.all_landed(), fixture.sequence()), (rounds, 1 + rounds as u64), "each landed once");
    leftovers.assert_none_added(&mut fixture.server);
}
