//! ref and export, with snapshots on a server.

use std::fs;

use crate::server::Server;
use crate::support::Ran;

/// A server with snapshots of `project`, made with its store.
struct SnapshotServer {
    server: Server,
    url: String,
}

impl SnapshotServer {
    fn new() -> Self {
        let server = Server::without_sandboxes(&[]);
        server.place.write("project/README.md", "# A project\n");
        server.place.write("project/src/main.rs", "fn main() {}\n");
        let url = server.url();
        Self { server, url }
    }

    /// Runs a command on the server's store.
    fn in_store(&self, words: &[&str]) -> Vec<u8> {
        let store = self.server.data().join("store");
        let words = [&["--store", store.to_str().unwrap()], words].concat();
        let output = self.server.workspace(&words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Takes a snapshot of `project` in the server's store.
    fn snapshot(&self) -> String {
        String::from_utf8(self.in_store(&["snapshot", "project"])).unwrap().trim_end().to_owned()
    }

    /// Runs a command with `--server`.
    fn run(&self, words: &[&str]) -> Ran {
        self.server.run(&[words, &["--server", &self.url]].concat())
    }

    /// Runs a command with `--server` that must succeed, and returns its stdout.
    fn ok(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.status, 0, "{words:?}: {}", ran.stderr);
        ran.stdout
    }
}

#[test]
fn references_of_a_server_are_made_moved_and_removed() {
    let fixture = SnapshotServer::new();
    let first = fixture.snapshot();
    fixture.server.place.write("project/more", "more\n");
    let second = fixture.snapshot();
    assert_eq!(fixture.ok(&["ref", "set", "main", &first]), format!("{first}  main\n"));
    assert_eq!(fixture.ok(&["ref", "set", "runs/42", "main", "--new"]), format!("{first}  runs/42\n"));
    for (words, told) in [
        (&["ref", "set", "main", &second, "--new"][..], "points to"),
        (&["ref", "set", "main", &second, "--expect", &second], "points to"),
        (&["ref", "set", "none", &second, "--expect", &first], "there is no reference `none`"),
        (&["ref", "set", "main", "none"], "there is no reference `none`"),
        (&["ref", "set", "main", "main~1"], "neither a full id nor a reference"),
        (&["ref", "rm", "runs/42", "none"], "there is no reference `none`"),
    ] {
        let ran = fixture.run(words);
        assert_eq!(ran.status, 1, "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(told) && ran.stderr.contains("hint: "), "{words:?}: {}", ran.stderr);
    }
    let moved = fixture.ok(&["--json", "ref", "set", "main", &second, "--expect", &first]);
    let moved: serde_json::Value = serde_json::from_str(&moved).unwrap();
    assert_eq!(moved, serde_json::json!({"name": "main", "snapshot": second, "previous": first}));
    assert_eq!(fixture.ok(&["ref", "ls"]), format!("{second}  main\n{first}  runs/42\n"));
    assert_eq!(
        String::from_utf8(fixture.in_store(&["refs"])).unwrap(),
        format!("{second}  main\n{first}  runs/42\n")
    );
    assert_eq!(fixture.ok(&["ref", "rm", "runs/42", "main", "main"]), "");
    assert_eq!(fixture.ok(&["ref", "ls"]), "");
}

#[test]
fn only_the_option_selects_a_server_for_references() {
    let fixture = SnapshotServer::new();
    // WORKSPACE_SERVER is set here.
    let ran = fixture.server.run(&["ref", "ls"]);
    assert!(ran.status == 1 && ran.stderr.contains("there is no store"), "{}", ran.stderr);
    assert_eq!(fixture.server.run(&["ref", "ls", "--api-key", "x"]).status, 2);
    let ran = fixture.run(&["ref", "ls", "--api-key", "wrong-key-0123456789"]);
    assert!(ran.status == 1 && ran.stderr.contains("--api-key"), "{}", ran.stderr);
}

#[test]
fn a_snapshot_of_a_server_is_exported_as_from_its_store() {
    let fixture = SnapshotServer::new();
    let id = fixture.snapshot();
    fixture.ok(&["ref", "set", "main", &id]);
    let file = || fs::read(fixture.server.place.path("x.tar")).unwrap();
    for words in [&[id.as_str()][..], &["main"], &["main", "src"], &["main", "src/main.rs"]] {
        let words = [&["export"], words].concat();
        assert_eq!(fixture.ok(&[&words[..], &["-o", "x.tar"]].concat()), "");
        let local = fixture.in_store(&words);
        assert!(local.len() >= 1024 && file() == local, "{words:?}");
        let printed = fixture.server.workspace(&[&words[..], &["--server", &fixture.url]].concat()).output();
        assert!(printed.unwrap().stdout == local, "{words:?}");
    }

    // A failure leaves the file as it was, and nothing beside it.
    let before = file();
    for (words, told) in [
        (["export", "main", "nothing"], "there is no `nothing`"),
        (["export", "none", ""], "there is no reference"),
    ] {
        let ran = fixture.run(&[&words[..], &["-o", "x.tar"]].concat());
        assert!(ran.status == 1 && ran.stderr.contains(told), "{}", ran.stderr);
    }
    assert!(file() == before);
    let ran = fixture.run(&["export", "main", "-o", "/dev/null"]);
    assert!(ran.status == 1 && ran.stderr.contains("not a regular file"), "{}", ran.stderr);
    let names = fs::read_dir(fixture.server.place.path("")).unwrap();
    let hidden = names.filter(|name| name.as_ref().unwrap().file_name().as_encoded_bytes().starts_with(b"."));
    assert_eq!(hidden.count(), 0);
    assert_eq!(fixture.run(&["--json", "export", "main"]).status, 2);
}

#[test]
fn snapshots_of_a_server_are_listed_and_removed() {
    let fixture = SnapshotServer::new();
    let first = fixture.snapshot();
    fixture.server.place.write("project/more", "more\n");
    let second = fixture.snapshot();
    fixture.ok(&["ref", "set", "main", &second]);
    assert_eq!(fixture.ok(&["ref", "get", "main"]), format!("{second}\n"));
    let record: serde_json::Value =
        serde_json::from_str(&fixture.ok(&["--json", "ref", "get", "main"])).unwrap();
    assert_eq!(record, serde_json::json!({"name": "main", "snapshot": second}));
    let log = fixture.ok(&["log"]);
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].starts_with(&second) && lines[0].contains("[main]"), "{log}");
    assert!(lines.len() == 2 && lines[1].starts_with(&first), "{log}");
    assert_eq!(fixture.ok(&["log", "-n", "1"]).lines().count(), 1);
    assert_eq!(fixture.ok(&["--json", "log"]).lines().count(), 2);
    for (words, status, told) in [
        (&["log", "--ref", "main"][..], 2, "--ref"),
        (&["ref", "get", "none"], 1, "there is no reference `none`"),
        (&["rm", "main"], 1, "workspace rm --ref NAME"),
        (&["rm", &first, "none"], 1, "there is no reference `none`"),
        (&["rm", "--ref", "none"], 1, "there is no reference `none`"),
        (&["rm", &first[..8]], 1, "there is no reference"),
        (&["rm"], 2, "no snapshot or reference specified"),
    ] {
        let ran = fixture.run(words);
        assert!(ran.status == status && ran.stderr.contains(told), "{words:?}: {}", ran.stderr);
    }
    // A failure after the first removal says what was removed.
    let ran = fixture.run(&["rm", &first, &second]);
    assert!(
        ran.status == 1 && ran.stderr.contains("1 snapshot and 0 references before it"),
        "{}",
        ran.stderr
    );
    let removed = fixture.ok(&["--json", "rm", "--ref", "main", "main"]);
    let removed: serde_json::Value = serde_json::from_str(&removed).unwrap();
    assert_eq!(removed, serde_json::json!({"snapshots": [second], "references": ["main"]}));
    assert_eq!(fixture.ok(&["log"]), "");
}
