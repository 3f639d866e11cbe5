//! Hidden files, and keys that may act for some agents only.

use std::path::Path;

use serde_json::json;

use super::{Fixture, run};

#[test]
fn hidden_files_are_not_in_a_workspace_and_changes_of_them_are_refused() {
    let fixture =
        Fixture::new(&[("open.txt", "open\n"), ("secret/plan.md", "plan\n"), ("fixed.txt", "fixed\n")]);
    let policy = json!({"rules": [
        {"agent": "guest", "path": "secret/**", "access": "none"},
        {"agent": "guest", "path": "fixed.txt", "access": "R"},
        {"agent": "reader", "path": "**", "access": "R"},
    ]});
    let set = fixture.send(&fixture.alice, "PUT", "projects/website/policy", Some(&policy));
    assert_eq!(set.status, 200, "{}", set.body);
    let refused = fixture.post("projects/website/workspaces", &json!({"agent": "reader"}));
    assert_eq!(refused.error(), "WORKSPACE_READ_ONLY");
    let path = fixture.workspace("guest");
    assert_eq!(run(&path, "find . -type f | sort"), "./fixed.txt\n./open.txt\n");
    run(&path, "echo more >> open.txt; echo more >> fixed.txt; mkdir secret; echo mine > secret/plan.md");
    let landed = fixture.complete("guest");
    let mut refused: Vec<_> = landed["refused"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    refused.sort_by_key(ToString::to_string);
    assert_eq!(refused, ["fixed.txt", "secret", "secret/plan.md"], "{landed}");
    assert_eq!(fixture.file("open.txt"), "open\nmore\n");
    assert_eq!(fixture.file("secret/plan.md"), "plan\n");
}

#[test]
fn the_key_of_an_agent_acts_for_its_own_workspace_only() {
    let fixture = Fixture::new(&[("a", "a\n"), ("secret/b", "b\n")]);
    let policy = json!({"rules": [{"agent": "guest", "path": "secret/**", "access": "none"}]});
    assert_eq!(fixture.send(&fixture.alice, "PUT", "projects/website/policy", Some(&policy)).status, 200);
    let guest = fixture.agent_key(&["website"], &["guest"]);
    fixture.workspace("writer");
    // The guest cannot see this change, so its sequence does not count it.
    fixture.import("website", &[("a", "a\n"), ("secret/b", "B\n")]);

    let made = fixture.send(&guest, "POST", "projects/website/workspaces", Some(&json!({})));
    assert_eq!((made.status, &made.json()["agent"]), (201, &json!("guest")), "{}", made.body);
    assert_eq!(made.json()["sequence"], 1, "{}", made.body);
    assert_eq!(fixture.get("projects/website/workspaces/guest").json()["sequence"], 2);
    let path = made.json()["path"].as_str().unwrap().to_owned();
    run(Path::new(&path), "echo c > c");
    let body = json!({"wait": 60});
    let landed =
        fixture.send(&guest, "POST", "projects/website/workspaces/guest/complete", Some(&body)).json();
    assert_eq!((&landed["state"], &landed["sequence"]), (&json!("landed"), &json!(2)), "{landed}");

    let listed = fixture.send(&guest, "GET", "projects/website/workspaces", None).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    let synced = fixture.send(&guest, "POST", "projects/website/sync", Some(&json!({}))).json();
    assert_eq!(synced["total"], 1, "{synced}");
    // The response is the same if the other agent has a workspace (`writer`) and if it has none.
    for agent in ["writer", "nobody"] {
        let one = format!("projects/website/workspaces/{agent}");
        for (method, path) in [
            ("GET", one.clone()),
            ("GET", format!("{one}/changes")),
            ("POST", format!("{one}/complete")),
            ("POST", format!("{one}/rebase")),
            ("DELETE", format!("{one}?discard=true")),
            ("POST", format!("workspace/{agent}/complete")),
        ] {
            let refused = fixture.send(&guest, method, &path, None);
            assert_eq!(refused.error(), "FORBIDDEN", "{method} {path}: {}", refused.body);
        }
        let body = json!({ "agent": agent });
        let refused = fixture.send(&guest, "POST", "projects/website/workspaces", Some(&body));
        assert_eq!(refused.error(), "FORBIDDEN");
    }
    assert_eq!(fixture.get("projects/website/workspaces/writer").status, 200);
}

#[test]
fn a_foreign_key_learns_nothing_about_workspaces() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    fixture.workspace("writer");
    let mallory = fixture.server.key("mallory", "user");
    let bound = {
        let body = json!({"name": "an agent", "owner": "mallory", "role": "agent", "projects": ["own"],
            "agents": ["writer"]});
        let own = fixture.send(&mallory, "POST", "projects", Some(&json!({"name": "own"})));
        assert_eq!(own.status, 201, "{}", own.body);
        let made = fixture.server.post("/api/v1/keys", &body);
        made.json()["key"].as_str().unwrap().to_owned()
    };
    let project = fixture.get("projects/website").json()["id"].as_str().unwrap().to_owned();
    for key in [&mallory, &bound] {
        for project in ["website", "missing", &project] {
            let all = format!("projects/{project}/workspaces");
            for (method, path) in [
                ("GET", all.clone()),
                ("POST", all.clone()),
                ("GET", format!("{all}/writer")),
                ("GET", format!("{all}/writer/changes")),
                ("POST", format!("{all}/writer/complete")),
                ("POST", format!("{all}/writer/rebase")),
                ("DELETE", format!("{all}/writer?discard=true")),
                ("POST", format!("projects/{project}/sync")),
                ("GET", format!("workspace/{project}/path")),
            ] {
                let body = (method == "POST").then(|| json!({}));
                let refused = fixture.send(key, method, &path, body.as_ref());
                assert_eq!(refused.error(), "PROJECT_NOT_FOUND", "{method} {path}: {}", refused.body);
            }
        }
        let refused = fixture.send(key, "POST", "workspace/writer/complete", Some(&json!({})));
        assert_eq!(refused.error(), "WORKSPACE_NOT_FOUND", "{}", refused.body);
    }
    assert_eq!(fixture.get("projects/website/workspaces/writer").status, 200);
}

#[test]
fn short_paths_find_the_workspace_of_the_agent() {
    let fixture = Fixture::new(&[("a", "a\n")]);
    fixture.create_project("blog");
    let one = fixture.agent_key(&["website", "blog"], &["writer"]);
    let both = fixture.agent_key(&["website"], &["writer", "editor"]);
    assert_eq!(fixture.send(&one, "GET", "workspace/website/path", None).error(), "WORKSPACE_NOT_FOUND");
    let path = fixture.workspace("writer");
    let found = fixture.send(&one, "GET", "workspace/website/path", None);
    assert_eq!(found.json()["path"], path.to_str().unwrap(), "{}", found.body);
    assert_eq!(fixture.send(&both, "GET", "workspace/website/path", None).error(), "AGENT_REQUIRED");
    let named = fixture.server.call_as(&both, "GET", "/api/v1/workspace/website/path");
    assert_eq!(named.header("x-agent", "writer").send().json()["agent"], "writer");
    // The agent of the owner's key has the name of the key.
    assert_eq!(fixture.get("workspace/website/path").error(), "WORKSPACE_NOT_FOUND");
    assert_eq!(fixture.post("projects/website/workspaces", &json!({})).status, 201);
    assert_eq!(fixture.get("workspace/website/path").json()["agent"], "a test");

    run(&path, "echo b > b");
    let body = json!({"wait": 60});
    let landed = fixture.send(&one, "POST", "workspace/writer/complete", Some(&body));
    assert_eq!(landed.json()["state"], "landed", "{}", landed.body);
    assert_eq!(fixture.post("workspace/writer/complete", &body).json()["id"], landed.json()["id"]);
    assert_eq!(fixture.post("workspace/nobody/complete", &body).error(), "WORKSPACE_NOT_FOUND");
    assert_eq!(fixture.post("projects/blog/workspaces", &json!({"agent": "writer"})).status, 201);
    for key in [&one, &fixture.alice] {
        let ambiguous = fixture.send(key, "POST", "workspace/writer/complete", Some(&body));
        assert_eq!((ambiguous.status, ambiguous.error().as_str()), (409, "WORKSPACE_AMBIGUOUS"));
    }
}
