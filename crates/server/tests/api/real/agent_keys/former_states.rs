//! Sandboxes and workspaces that start with a former state of a project.

use serde_json::{Value, json};

use super::Fixture;
use super::leaks::project_with_changes;
use crate::support::Answer;

/// Creates a sandbox with the files of a former state.
fn start(fixture: &Fixture, key: &str, base: &Value) -> Answer {
    let body = json!({"template": "base", "project": "website", "agent": "guest", "baseSnapshot": base});
    fixture.send(key, "POST", "sandboxes", Some(body))
}

fn id(made: &Answer) -> String {
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_sandbox_starts_with_a_former_state_and_its_changes_are_merged_from_there() {
    let fixture =
        Fixture::new(&[("a.txt", "1\n2\n3\n4\n5\n"), ("gone.txt", "gone\n"), ("secret/plan.md", "plan\n")]);
    fixture.change("writer", "echo more >> secret/plan.md");
    fixture.change("writer", "sed -i s/1/ONE/ a.txt; rm gone.txt; echo new > new.txt");
    // The owner names the state by the sequence of the project, or by the id of the head; the agent by its own sequence.
    let heads = fixture.owner("GET", "projects/website/snapshots", None).json();
    let head = &heads["items"][1];
    assert_eq!(head["sequence"], 2, "{heads}");
    for (key, base) in
        [(&fixture.alice, json!(2)), (&fixture.alice, head["snapshot"].clone()), (&fixture.guest, json!(1))]
    {
        let sandbox = id(&start(&fixture, key, &base));
        let files = fixture.run(key, &sandbox, "find . -type f | sort; cat a.txt");
        assert_eq!(files, "./a.txt\n./gone.txt\n1\n2\n3\n4\n5\n", "{base}");
    }
    // What others changed since then is not taken back.
    let sandbox = id(&start(&fixture, &fixture.guest, &json!(1)));
    fixture.run(&fixture.guest, &sandbox, "sed -i s/5/FIVE/ a.txt");
    let landed = fixture.complete(&fixture.guest, &sandbox);
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(3)), "{landed}");
    let read = |path: &str| fixture.owner("GET", &format!("projects/website/files/{path}"), None);
    assert_eq!(read("a.txt").body, "ONE\n2\n3\n4\nFIVE\n");
    assert_eq!(
        (read("new.txt").body.as_str(), read("gone.txt").error().as_str()),
        ("new\n", "PATH_NOT_FOUND")
    );
    let operation = fixture.owner("GET", "projects/website/operations", None).json()["items"][0].clone();
    assert_eq!((&operation["sequence"], &operation["base"]), (&json!(4), &json!(1)), "{operation}");
    // A change of what was removed since then conflicts, as usual.
    let sandbox = id(&start(&fixture, &fixture.guest, &json!(1)));
    fixture.run(&fixture.guest, &sandbox, "echo changed > gone.txt");
    assert_eq!(fixture.complete(&fixture.guest, &sandbox)["state"], "in_review");
    // Before the first change there were no files.
    let sandbox = id(&start(&fixture, &fixture.guest, &json!(0)));
    assert_eq!(fixture.run(&fixture.guest, &sandbox, "find . -type f"), "");
}

#[test]
fn wrong_former_states_are_refused() {
    let fixture = Fixture::new(&[("a.txt", "a\n"), ("secret/plan.md", "plan\n")]);
    fixture.change("writer", "echo more >> secret/plan.md");
    let head = fixture.owner("GET", "projects/website", None).json()["head"].clone();
    for (key, base, error) in [
        (&fixture.alice, json!(3), "SEQUENCE_NOT_FOUND"),
        (&fixture.alice, json!("none"), "SNAPSHOT_NOT_FOUND"),
        // The agent has seen one change.
        (&fixture.guest, json!(2), "SEQUENCE_NOT_FOUND"),
        (&fixture.guest, head, "SEQUENCE_NOT_FOUND"),
    ] {
        assert_eq!(start(&fixture, key, &base).error(), error, "{base}");
        let body = json!({"agent": "guest", "baseSnapshot": base});
        assert_eq!(
            fixture.send(key, "POST", "projects/website/workspaces", Some(body)).error(),
            error,
            "{base}"
        );
    }
    for more in [json!({"follow": "head"}), json!({"follow": "rebase"}), json!({"project": null})] {
        let mut body = json!({"template": "base", "project": "website", "agent": "guest", "baseSnapshot": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = fixture.owner("POST", "sandboxes", Some(body));
        let details = refused.json()["error"]["details"].clone();
        assert_eq!(
            (refused.error(), &details["field"]),
            ("INVALID_REQUEST".into(), &json!("baseSnapshot")),
            "{more}"
        );
    }
}

#[test]
fn a_workspace_starts_with_a_former_state() {
    let fixture = Fixture::new(&[("a.txt", "1\n"), ("secret/plan.md", "plan\n")]);
    fixture.change("writer", "echo more >> secret/plan.md");
    fixture.change("writer", "echo 2 > a.txt");
    let create = |base: Option<u64>| {
        let body = json!({"baseSnapshot": base, "provider": "copy"});
        fixture.agent("POST", "projects/website/workspaces", Some(body))
    };
    let made = create(Some(1));
    assert_eq!((made.status, &made.json()["sequence"]), (201, &json!(1)), "{}", made.body);
    let path = made.json()["path"].as_str().unwrap().to_owned();
    assert_eq!(std::fs::read_to_string(format!("{path}/a.txt")).unwrap(), "1\n");
    std::fs::write(format!("{path}/b.txt"), "b\n").unwrap();
    let completed =
        fixture.agent("POST", "projects/website/workspaces/guest/complete", Some(json!({"wait": 60})));
    assert_eq!(completed.json()["state"], "landed", "{}", completed.body);
    let read = |path: &str| fixture.owner("GET", &format!("projects/website/files/{path}"), None).body;
    assert_eq!((read("a.txt"), read("b.txt")), ("2\n".into(), "b\n".into()));
    // The workspace is there already, and has this base.
    assert_eq!((create(None).status, create(Some(1)).status), (200, 200));
    let other = create(Some(2));
    assert_eq!(
        (other.error(), &other.json()["error"]["details"]["field"]),
        ("INVALID_REQUEST".into(), &json!("baseSnapshot"))
    );
}

#[test]
fn former_states_are_the_same_with_and_without_hidden_files() {
    let fixtures = [project_with_changes(false), project_with_changes(true)];
    let head = fixtures[0].agent("GET", "projects/website", None).json()["sequence"].as_u64().unwrap();
    for base in 0..=head + 1 {
        let [without, with] = fixtures.each_ref().map(|fixture| {
            let made = start(fixture, &fixture.guest, &json!(base));
            if made.status != 201 {
                return json!([made.status, made.error(), made.json()["error"]["details"]]);
            }
            let sandbox = id(&made);
            let mut shown = made.json();
            super::leaks::normalised(&mut shown);
            // Directories have the time of the import, or of the workspace, before all of them are touched.
            let time = if base <= 1 { "" } else { "%T@" };
            // Without link counts: those of directories depend on the number of layers of the workspace.
            let listing = format!("find . -printf '%p %y %m %s {time}\\n' | sort");
            let seen = fixture.run(&fixture.guest, &sandbox, &listing);
            assert_eq!(fixture.agent("DELETE", &format!("sandboxes/{sandbox}"), None).status, 204);
            json!([shown, seen])
        });
        assert_eq!(without, with, "{base}");
    }
}
