//! Projects: import, completions of sandboxes, conflicts, history, policies.

use std::fs;

use crate::server::Server;

fn agent(server: &Server, project: &str, agent: &str) {
    server.ok(&["sandbox", "create", "--name", agent, "--project", project, "--agent", agent]);
}

#[test]
fn two_agents_change_a_project() {
    let Some(server) = Server::start() else { return };
    let site = server.place.path("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.md"), "# Title\n\nfirst\n\nlast\n").unwrap();
    fs::write(site.join("notes.txt"), "notes\n").unwrap();
    let site = site.to_str().unwrap();
    server.ok(&["project", "create", "website"]);
    let imported = server.ok(&["project", "import", "website", site, "-m", "first version"]);
    assert!(imported.starts_with("sequence 1: 2 files"), "{imported}");
    agent(&server, "website", "writer");
    agent(&server, "website", "editor");
    server.ok(&["exec", "writer", "--", "sh", "-c", "sed -i s/first/FIRST/ index.md; echo w > notes.txt"]);
    server.ok(&["exec", "editor", "--", "sh", "-c", "sed -i s/last/LAST/ index.md; echo e > notes.txt"]);
    assert_eq!(server.ok(&["complete", "writer", "-m", "write"]), "landed as sequence 2\n");
    let conflict = server.run(&["complete", "editor", "-m", "edit"]);
    assert_eq!(conflict.stdout, "landed as sequence 3, with conflicts\nconflict  notes.txt (content)\n");
    assert_ne!(conflict.status, 0);
    let copy = server.place.path("copy");
    server.ok(&["project", "export", "website", copy.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(copy.join("index.md")).unwrap(), "# Title\n\nFIRST\n\nLAST\n");
    assert_eq!(fs::read_to_string(copy.join("notes.txt")).unwrap(), "w\n");
    let log = server.json(&["project", "log", "website"]);
    let authors: Vec<&str> = log.iter().map(|entry| entry["author"].as_str().unwrap()).collect();
    assert_eq!(authors[..2], ["editor", "writer"]);
    let messages: Vec<&str> = log.iter().map(|entry| entry["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["edit", "write", "first version"]);
    let bases: Vec<Option<u64>> = log.iter().map(|entry| entry["base"].as_u64()).collect();
    assert_eq!(bases, [Some(1), Some(1), None]);
    let graph = server.ok(&["project", "log", "website", "--graph"]);
    let columns: Vec<&str> = graph.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(columns, ["*", "|-.", "* |", "|-'", "*"], "{graph}");
    assert!(graph.starts_with("*    3  "), "{graph}");
    assert!(graph.lines().next().unwrap().ends_with("merge     editor  1 file  edit  (from 1)"), "{graph}");
    assert_eq!(server.json(&["project", "log", "website", "--graph", "-n", "2"]).len(), 2);
    assert_eq!(server.json(&["project", "log", "website", "--before", "3"]).len(), 2);
    assert_eq!(server.json(&["history", "website", "index.md"]).len(), 3);
    server.ok(&["rollback", "website", "1", "index.md"]);
    let former = server.place.path("former");
    server.ok(&["project", "export", "website", former.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(former.join("index.md")).unwrap(), "# Title\n\nfirst\n\nlast\n");
    server.ok(&["project", "rm", "website"]);
    assert_eq!(server.json(&["project", "ls"]).len(), 0);
}

#[test]
fn a_policy_is_set_explained_and_enforced() {
    let Some(server) = Server::start() else { return };
    let directory = server.place.path("files");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("open.txt"), "open\n").unwrap();
    fs::write(directory.join("fixed.txt"), "fixed\n").unwrap();
    server.ok(&["project", "create", "p"]);
    server.ok(&["project", "import", "p", directory.to_str().unwrap()]);
    let policy = server.place.path("policy.json");
    fs::write(&policy, r#"{"rules": [{"agent": "guest-*", "path": "fixed.txt", "access": "R"}]}"#).unwrap();
    assert_eq!(server.ok(&["policy", "set", "p", policy.to_str().unwrap()]), "version 1\n");
    let why = server.ok(&["policy", "explain", "p", "guest-1", "fixed.txt"]);
    assert!(why.starts_with("R  rules[0] for agent `guest-*` at `fixed.txt`"), "{why}");
    agent(&server, "p", "guest-1");
    server.ok(&["exec", "guest-1", "--", "sh", "-c", "echo x >> open.txt; echo x >> fixed.txt"]);
    let refused = server.run(&["complete", "guest-1"]);
    assert!(refused.stdout.starts_with("landed as sequence 2\nrefused   fixed.txt: "), "{}", refused.stdout);
    assert_ne!(refused.status, 0);
    let listed = server.ok(&["project", "refused", "p"]);
    let record = &server.json(&["project", "refused", "p"])[0];
    let id = record["completion"].as_str().unwrap();
    assert_eq!((&record["path"], &record["change"]), (&"fixed.txt".into(), &"change".into()));
    assert!(
        listed.starts_with("COMPLETION") && listed.contains(id) && listed.contains("fixed.txt"),
        "{listed}"
    );
    assert_eq!(server.ok(&["project", "refused", "p", id]), listed);
    assert_eq!(server.ok(&["project", "refused", "p", id, "fixed.txt"]), "fixed\nx\n");
    fs::write(&policy, r#"{"rules": [{"path": "a["}]}"#).unwrap();
    let invalid = server.run(&["policy", "set", "p", policy.to_str().unwrap()]);
    assert!(invalid.stderr.contains("rules[0]"), "{}", invalid.stderr);
    let missing = server.run(&["project", "show", "nothing"]);
    assert!(missing.stderr.contains("workspace project ls"), "{}", missing.stderr);
}
