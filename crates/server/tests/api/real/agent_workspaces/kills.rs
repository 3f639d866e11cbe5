//! Servers that are killed at each step of a sync.

use serde_json::json;

use super::{Fixture, run};
use crate::real::leftovers::{Leftovers, MOVE_STEPS};

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
