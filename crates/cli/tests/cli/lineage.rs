//! Notes, causes of differences and searches on a server.

use serde_json::Value;
use workspace_test_support::wait_until;

use crate::server::Server;

#[test]
fn commands_and_notes_of_a_sandbox_explain_its_files() {
    let Some(server) = Server::start() else { return };
    server.ok(&["project", "create", "p"]);
    let words =
        ["sandbox", "create", "--name", "work", "--project", "p", "--agent", "a", "--trace", "command"];
    let id = server.ok(&words).trim_end().to_owned();
    server.sandbox("other");
    assert_eq!(server.json(&["sandbox", "ls", "--project", "p", "--agent", "a"]).len(), 1);
    assert_eq!(server.json(&["sandbox", "ls", "--project", "q"]).len(), 0);
    let details = server.ok(&["sandbox", "get", "work"]);
    assert!(details.contains("project     p\n") && details.contains("trace       command\n"), "{details}");

    server.ok(&["exec", "work", "--", "sh", "-c", "echo 1 > a; echo 1 > b"]);
    let note = server.ok(&["note", "add", "work", "count\nfurther", "--data", r#"{"n": 2}"#]);
    assert!(note.starts_with("note-"), "{note}");
    server.ok(&["exec", "work", "--", "sh", "-c", "echo 2 > a"]);
    let commands = || server.json(&["ps", "work"]);
    wait_until("both are traced", || commands().iter().all(|command| command["snapshot"].is_string()));
    let commands = commands();
    let snapshot = |index: usize| commands[index]["snapshot"].as_str().unwrap().to_owned();
    let (before, after) = (snapshot(1), snapshot(0));
    let notes = server.json(&["note", "ls", "work"]);
    assert_eq!((notes.len(), &notes[0]["data"]["n"]), (1, &Value::from(2)));
    assert_eq!(notes[0]["snapshot"], after.as_str());
    assert!(server.ok(&["note", "ls", "work", "--newest"]).ends_with("  count\n"));
    assert_eq!(server.ok(&["note", "ls", "work", "--command", "cmd-none"]), "");

    let command = commands[0]["commandId"].as_str().unwrap();
    let why = server.ok(&["diff", &before, &after, "--why"]);
    let expected = format!("modified     a\n    command {command}: ");
    assert!(why.starts_with(&expected) && why.ends_with("\n      note: count\n"), "{why}");
    let record = server.json(&["diff", &before, &after, "--why"]).remove(0);
    assert_eq!(
        (&record["causes_complete"], &record["entries"][0]["causes"][0]),
        (&true.into(), &Value::from(after.as_str()))
    );
    // The other way round nothing leads from one to the other.
    let back = server.run(&["diff", &after, &before, "--why"]);
    assert_eq!(back.status, 3, "{}", back.stderr);
    assert!(back.stderr.contains("not all causes are known"), "{}", back.stderr);

    for (words, status) in [
        (&["note", "add", "work", ""][..], 1),
        (&["note", "add", "work", "a", "--data", "[1]"], 2),
        (&["note", "add", "work", "a", "--command", "cmd-none"], 1),
        (&["diff", &before, "./work", "--why"], 1),
        (&["diff", &before, &after, "--why", "--stat"], 2),
        (&["diff", &before, &after, "--server", "http://127.0.0.1:1"], 2),
    ] {
        let ran = server.run(words);
        assert_eq!(ran.status, status, "{words:?}: {}", ran.stderr);
    }
    server.ok(&["sandbox", "rm", &id]);
}

#[test]
fn searches_of_a_server_are_printed() {
    let server = Server::without_sandboxes(&[]);
    assert_eq!(server.ok(&["episodes", "ls"]), "");
    server.place.write("project/a", "1\n");
    let store = server.data().join("store");
    let in_store = |words: &[&str]| {
        let words = [&["--store", store.to_str().unwrap()], words].concat();
        server.ok(&words).trim_end().to_owned()
    };
    let snapshot = in_store(&["snapshot", "project"]);
    let add = |parent: Option<&str>, action: &str| {
        let parent = parent.map(|parent| vec!["--parent", parent]).unwrap_or_default();
        in_store(&[&["episode", "add", &snapshot, "--action", action, "--reward", "1"], &parent[..]].concat())
    };
    let root = add(None, "begin");
    let child = add(Some(&root), "try");
    add(Some(&child), "again");
    let list = server.ok(&["episodes", "ls"]);
    let row = list.lines().nth(1).unwrap();
    assert!(list.starts_with("ID") && row.starts_with(&root) && row.ends_with("3      begin"), "{list}");
    assert_eq!(server.json(&["episodes", "ls", "--oldest"])[0]["steps"], 3);
    let tree = server.ok(&["episodes", "subtree", &root]);
    let actions: Vec<&str> = tree.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(actions, ["begin", "try", "again"]);
    assert!(tree.lines().nth(2).unwrap().starts_with("    "), "{tree}");
    let cut = server.run(&["episodes", "subtree", &root, "--depth", "1"]);
    assert_eq!((cut.status, cut.stdout.lines().count()), (3, 2), "{}", cut.stderr);
    assert_eq!(server.run(&["episodes", "subtree", "none"]).status, 1);
}
