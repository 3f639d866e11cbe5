//! Refused changes: the owner of the project reads what the agent had, and nobody else does.

use serde_json::{Value, json};

use super::Fixture;

/// Lets the guest change files that it may not change, and completes its work.
fn refused(fixture: &Fixture) -> Value {
    let sandbox = fixture.sandbox(&fixture.guest, "guest");
    let work = "echo changed > fixed/f.txt; echo new > 'fixed/a b%.txt'; mkdir -p secret keys; \
        echo mine > secret/plan.md; rm fixed/old.txt; mkdir docs; echo fine > docs/fine.md";
    fixture.run(&fixture.guest, &sandbox, work);
    let completed = fixture.complete(&fixture.guest, &sandbox);
    // What was completed stays, whatever becomes of the sandbox.
    assert_eq!(fixture.agent("DELETE", &format!("sandboxes/{sandbox}"), None).status, 204);
    completed
}

#[test]
fn the_owner_of_a_project_reads_refused_files() {
    let files = [
        ("a.txt", "a\n"),
        ("fixed/f.txt", "fixed\n"),
        ("fixed/old.txt", "old\n"),
        ("secret/plan.md", "plan\n"),
    ];
    let fixture = Fixture::new(&files);
    let completed = refused(&fixture);
    let id = completed["id"].as_str().unwrap();
    let shown = fixture.owner("GET", &format!("projects/website/completions/{id}"), None).json();
    let listed = fixture.owner("GET", "projects/website/completions", None).json()["items"][0].clone();
    assert_eq!(shown, listed);
    let refused: Vec<(&str, Option<&str>)> = shown["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["path"].as_str().unwrap(), change["content"].as_str()))
        .collect();
    let content = |wanted: &str| {
        let (_, route) =
            refused.iter().find(|(path, _)| *path == wanted).unwrap_or_else(|| panic!("{shown}"));
        route.unwrap().strip_prefix("/api/v1/").unwrap().to_owned()
    };
    for (path, text) in
        [("fixed/f.txt", "changed\n"), ("fixed/a b%.txt", "new\n"), ("secret/plan.md", "mine\n")]
    {
        assert_eq!(fixture.owner("GET", &content(path), None).body, text, "{path}");
    }
    // The head, and the deletion, which left nothing.
    assert_eq!(fixture.owner("GET", "projects/website/files/secret/plan.md", None).body, "plan\n");
    assert_eq!(refused.iter().find(|(path, _)| *path == "fixed/old.txt"), Some(&("fixed/old.txt", None)));
    let files = format!("projects/website/completions/{id}/files");
    assert_eq!(fixture.owner("GET", &format!("{files}/fixed/old.txt"), None).error(), "PATH_NOT_FOUND");
    assert_eq!(fixture.owner("GET", &format!("{files}/docs/fine.md"), None).body, "fine\n");
    let part = fixture.server.call_as(&fixture.alice, "GET", &format!("/api/v1/{}", content("fixed/f.txt")));
    let part = part.header("range", "bytes=1-3").send();
    assert_eq!((part.status, part.body.as_str()), (206, "han"));
    let missing = fixture.owner("GET", "projects/website/completions/none/files/a.txt", None);
    assert_eq!(missing.error(), "COMPLETION_NOT_FOUND");

    // An agent, also this one, a reviewer and another owner get neither the content nor the link to it.
    let bound = |role: &str, agent: &str| {
        fixture.key(&json!({"role": role, "projects": ["website"], "agents": [agent]}))
    };
    let route = content("fixed/f.txt");
    for key in [&fixture.guest, &bound("agent", "other"), &bound("reviewer", "guest")] {
        assert_eq!(fixture.send(key, "GET", &route, None).error(), "FORBIDDEN");
    }
    let bob = fixture.server.key("bob", "user");
    assert_eq!(fixture.send(&bob, "GET", &route, None).error(), "PROJECT_NOT_FOUND");
    assert_eq!(fixture.server.call("GET", &format!("/api/v1/{route}")).send().body, "changed\n", "an admin");
    let own = fixture.agent("GET", &format!("projects/website/completions/{id}"), None).json();
    for completion in [&completed, &own] {
        let changes = completion["refused"].as_array().unwrap();
        assert!(!changes.is_empty() && changes.iter().all(|change| change.get("content").is_none()));
    }
}
