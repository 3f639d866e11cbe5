//! Snapshots and notes that agents make with keys of their own: the owner of the project reads them, also as the causes
//! of reviews, and nobody else does.

use serde_json::{Value, json};

use super::Fixture;

/// Creates a sandbox that makes a snapshot after each command.
fn traced(fixture: &Fixture, key: &str, agent: &str) -> String {
    let new = json!({"template": "base", "project": "website", "agent": agent, "trace": "command"});
    let made = fixture.send(key, "POST", "sandboxes", Some(new));
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["id"].as_str().unwrap().to_owned()
}

/// Runs a command, with a note about it.
fn step(fixture: &Fixture, key: &str, sandbox: &str, note: &str, command: &str) {
    let path = format!("sandboxes/{sandbox}/notes");
    let made = fixture.send(key, "POST", &path, Some(json!({ "text": note })));
    assert_eq!(made.status, 201, "{}", made.body);
    fixture.run(key, sandbox, command);
}

/// Returns the causes of a side of a review: their messages and notes, the newest first.
fn causes(review: &Value, side: &str) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |cause: &Value| {
        let notes = cause["notes"].as_array().unwrap().iter().map(|note| text(&note["text"]));
        (text(&cause["message"]), notes.collect())
    };
    review[side]["causes"].as_array().unwrap().iter().map(of).collect()
}

/// Returns the only open review as a caller sees it.
fn review(fixture: &Fixture, key: &str) -> Value {
    let listed = fixture.send(key, "GET", "projects/website/reviews?state=open", None).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    let path = format!("projects/website/reviews/{}", listed["items"][0]["id"].as_str().unwrap());
    fixture.send(key, "GET", &path, None).json()
}

#[test]
fn the_owner_reads_the_snapshots_and_notes_of_its_agents_and_nobody_else_does() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    let bound = |agent: &str| fixture.key(&json!({"projects": ["website"], "agents": [agent]}));
    let (other, bob) = (bound("other"), fixture.server.key("bob", "user"));
    let sandbox = traced(&fixture, &fixture.guest, "guest");
    let base = fixture.agent("GET", "projects/website", None).json()["head"].as_str().unwrap().to_owned();
    step(&fixture, &fixture.guest, &sandbox, "because of x", "echo guest > a.txt");
    let committed =
        fixture.agent("POST", &format!("sandboxes/{sandbox}/commit"), Some(json!({"message": "m"})));
    assert_eq!(committed.status, 201, "{}", committed.body);
    let snapshots = fixture.agent("GET", "snapshots", None).json();
    let made = snapshots["items"].as_array().unwrap();
    assert!(made.len() >= 2, "{snapshots}");
    let ids: Vec<&str> = made.iter().map(|snapshot| snapshot["id"].as_str().unwrap()).collect();
    let (newest, oldest) = (ids[0], ids[ids.len() - 1]);

    for id in &ids {
        for path in ["", "/tree", "/files/a.txt", "/archive"] {
            let path = format!("snapshots/{id}{path}");
            assert_eq!(fixture.owner("GET", &path, None).status, 200, "{path}");
            for (who, key) in [("bob", &bob), ("other", &other)] {
                assert_eq!(
                    fixture.send(key, "GET", &path, None).error(),
                    "SNAPSHOT_NOT_FOUND",
                    "{who} {path}"
                );
            }
        }
    }
    let diff = format!("snapshots/{oldest}/diff/{newest}?why=true");
    assert_eq!(fixture.owner("GET", &diff, None).status, 200);
    assert_eq!(fixture.send(&bob, "GET", &diff, None).error(), "SNAPSHOT_NOT_FOUND");
    // The snapshot of the view is nobody's.
    assert_eq!(fixture.owner("GET", &format!("snapshots/{base}"), None).error(), "SNAPSHOT_NOT_FOUND");
    let notes = format!("sandboxes/{sandbox}/notes");
    assert_eq!(fixture.owner("GET", &notes, None).json()["items"][0]["text"], "because of x");
    assert_eq!(fixture.send(&other, "GET", &notes, None).error(), "SANDBOX_NOT_FOUND");

    // It may read them only. Its list has its own.
    assert_eq!(fixture.owner("GET", "snapshots", None).json()["total"], 0);
    let delete = fixture.owner("DELETE", &format!("snapshots/{newest}"), None);
    assert_eq!(delete.error(), "FORBIDDEN", "{}", delete.body);
    let named = fixture.owner("PUT", "references/mine", Some(json!({"snapshot": newest})));
    assert_eq!(named.error(), "FORBIDDEN", "{}", named.body);
    let episode = json!({"snapshot": newest, "action": "a", "reward": 1.0});
    assert_eq!(fixture.owner("POST", "episodes", Some(episode)).status, 403);
    assert_eq!(fixture.agent("DELETE", &format!("snapshots/{oldest}"), None).status, 204);
    assert_eq!(fixture.owner("GET", &format!("snapshots/{oldest}"), None).error(), "SNAPSHOT_NOT_FOUND");
}

#[test]
fn a_review_names_the_causes_of_an_agent_with_a_key_of_its_own() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    let reviewer = json!({"role": "reviewer", "projects": ["website"], "agents": ["guest"]});
    let reviewer = fixture.key(&reviewer);
    let (ours, theirs) = (
        traced(&fixture, &fixture.alice, "writer"),
        traced(&fixture, &fixture.key(&json!({"projects": ["website"], "agents": ["coder"]})), "coder"),
    );
    let coder = fixture.key(&json!({"projects": ["website"], "agents": ["coder"]}));
    step(&fixture, &fixture.alice, &ours, "ours", "echo writer > a.txt; cat secret/plan.md");
    step(&fixture, &coder, &theirs, "theirs", "echo coder > a.txt; cat secret/plan.md");
    assert_eq!(fixture.complete(&fixture.alice, &ours)["state"], "landed");
    assert_eq!(fixture.complete(&coder, &theirs)["state"], "in_review");

    let seen = review(&fixture, &fixture.alice);
    let commands = ["echo writer > a.txt; cat secret/plan.md", "echo coder > a.txt; cat secret/plan.md"];
    for (side, command) in ["oursChange", "theirsChange"].into_iter().zip(commands) {
        let note = side.trim_end_matches("Change").to_owned();
        assert_eq!(causes(&seen, side), [(command.to_owned(), vec![note])], "{seen}");
    }
    // Command lines may name hidden files: the reviewer sees the agents, the times and the notes.
    let shown = review(&fixture, &reviewer);
    assert_eq!(
        (&shown["agent"], &shown["oursChange"]["operation"]["author"]),
        (&json!("coder"), &json!("writer"))
    );
    for side in ["oursChange", "theirsChange"] {
        let note = side.trim_end_matches("Change").to_owned();
        assert_eq!(causes(&shown, side), [(String::new(), vec![note])], "{shown}");
        assert_eq!(shown[side]["causes"][0]["time"], seen[side]["causes"][0]["time"]);
    }
    assert!(!shown.to_string().contains("secret"), "{shown}");
}

#[test]
fn a_reviewer_sees_no_causes_at_hidden_paths() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    let reviewer = json!({"role": "reviewer", "projects": ["website"], "agents": ["guest"]});
    let reviewer = fixture.key(&reviewer);
    let (ours, theirs) =
        (traced(&fixture, &fixture.alice, "writer"), traced(&fixture, &fixture.alice, "editor"));
    step(&fixture, &fixture.alice, &ours, "ours", "echo writer > new.md");
    let text = "for line in $(seq 50); do echo editor $line; done > secret/new.md";
    step(&fixture, &fixture.alice, &theirs, "a draft in secret", text);
    step(&fixture, &fixture.alice, &theirs, "published", "mv secret/new.md new.md");
    assert_eq!(fixture.complete(&fixture.alice, &ours)["state"], "landed");
    assert_eq!(fixture.complete(&fixture.alice, &theirs)["state"], "in_review");
    let notes = |key: &str| -> Vec<String> {
        let found = causes(&review(&fixture, key), "theirsChange");
        found.into_iter().flat_map(|(_, notes)| notes).collect()
    };
    assert_eq!(notes(&fixture.alice), ["published", "a draft in secret"]);
    assert_eq!(notes(&reviewer), ["published"]);
}
