//! Races on paths: programs in the sandbox exchange directories and symlinks at every component of a path, while the
//! API works with it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::files::FileServer;
use super::stream::Stream;
use super::test_server::{runs_slow_tests, wait_until};
use crate::snapshots::archive::Archive;

const EXCHANGE: &str = include_str!("path_races/exchange.py");
/// Fewest exchanges of each pair in a test: fewer would test nothing.
const EXCHANGES_MIN: u64 = 20;
/// Fewest writes and reads that find no symlink.
const SERVED_MIN: usize = 3;
/// Content and names of entries that no request may reach.
const SECRET: &str = "secret";

fn rounds() -> usize {
    if runs_slow_tests() { 500 } else { 40 }
}

/// Programs in the sandbox that exchange names.
struct Race<'a> {
    fixture: &'a FileServer,
    command: String,
}

impl<'a> Race<'a> {
    /// Starts to exchange pairs of names: directory, name, name.
    fn start(fixture: &'a FileServer, pairs: &[[&str; 3]]) -> Self {
        fixture.output_of(&format!(
            "rm -f /tmp/stop /tmp/racing /tmp/exchanged; cat > /tmp/x.py <<'EOF'\n{EXCHANGE}\nEOF"
        ));
        let command = format!("exec /usr/bin/python3 /tmp/x.py {}", pairs.concat().join(" "));
        let command = fixture.server.start_background(&fixture.id, json!({"command": command, "timeout": 0}));
        let race = Self { fixture, command };
        wait_until("they race", || race.exists("racing"));
        race
    }

    fn exists(&self, name: &str) -> bool {
        let state = self.fixture.server.command(&self.fixture.id, &self.command);
        assert!(state["state"] == "running" || name == "exchanged", "{state}");
        self.fixture.read(&format!("tmp/{name}")).0.status == 200
    }

    /// Stops the exchanges. Fails if there were too few.
    fn stop(self) {
        self.fixture.output_of("touch /tmp/stop");
        wait_until("they have stopped", || self.exists("exchanged"));
        let count: u64 = self.fixture.output_of("cat /tmp/exchanged").parse().unwrap();
        assert!(count >= EXCHANGES_MIN, "{count} exchanges");
    }
}

/// Returns names, modes and content of everything below a directory of this machine.
fn listing(directory: &Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
        found.push(format!("{} {:o} {content}", path.display(), metadata.permissions().mode()));
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

/// Creates the directories of `a/b/c/file`, of `b/c/file` and so on, so that the rest of a path exists wherever a
/// symlink at any of its components leads.
fn make_tails(directory: &Path) {
    for below in ["", "b", "b/c", "c"] {
        fs::create_dir_all(directory.join(below)).unwrap();
        fs::write(directory.join(below).join("file"), SECRET).unwrap();
        fs::write(directory.join(below).join(format!("{SECRET}-name")), SECRET).unwrap();
    }
}

#[test]
fn no_exchange_at_any_component_leads_out_of_the_sandbox() {
    let fixture = FileServer::new();
    let machine = tempfile::tempdir().unwrap();
    make_tails(machine.path());
    let before = listing(machine.path());
    // Symlinks by an absolute path and by more `..` than the path has components. The last is one to the file itself.
    let outside = machine.path().to_str().unwrap();
    let up = format!("{}{outside}", "../".repeat(20));
    fixture.output_of(&format!(
        "mkdir -p a/b/c; printf original > a/b/c/file; ln -s {outside} a.x; ln -s {up} a/b.x; \
         ln -s {outside} a/b/c.x; ln -s {up}/file a/b/c/file.x"
    ));
    let race = Race::start(
        &fixture,
        &[
            ["/workspace", "a", "a.x"],
            ["/workspace/a", "b", "b.x"],
            ["/workspace/a/b", "c", "c.x"],
            ["/workspace/a/b/c", "file", "file.x"],
        ],
    );
    let mut written = Vec::new();
    let (mut served, mut round) = (0, 0);
    // Most requests find a symlink at one of the components.
    while round < rounds() || written.len() < SERVED_MIN || served < SERVED_MIN {
        round += 1;
        assert!(round < 100 * rounds(), "{} writes and {served} reads succeeded", written.len());
        let content = format!("written {round}");
        // The symlink has the name of the file half of the time, so a write may also replace the symlink.
        let answer = fixture.put("workspace/a/b/c/file", content.as_bytes());
        match answer.status {
            200 => written.push(content),
            _ => assert!(
                ["PATH_NOT_FOUND", "FILE_CONFLICT"].contains(&answer.error().as_str()),
                "{}",
                answer.body
            ),
        }
        let (answer, content) = fixture.read("workspace/a/b/c/file");
        if answer.status == 200 {
            let content = String::from_utf8(content).unwrap();
            assert!(content == "original" || content.starts_with("written "), "{content}");
            served += 1;
        }
        if round > rounds() {
            continue;
        }
        for path in [
            "entries/workspace/a?depth=8",
            "entries/workspace/a/b?depth=8",
            "entries/workspace/a/b/c",
            "files/workspace/a?archive=tar",
            "files/workspace/a/b?archive=tar",
        ] {
            let (answer, body) = fixture.call("GET", path).send_for_bytes();
            assert!([200, 403, 404, 409].contains(&answer.status), "{path}: {}", answer.body);
            assert!(!String::from_utf8_lossy(&body).contains(SECRET), "{path}: {}", answer.body);
        }
        let operations = json!([
            {"op": "chmod", "path": "/workspace/a/b/c/file", "mode": "0601"},
            {"op": "mkdir", "path": "/workspace/a/b/c/new", "parents": false},
            {"op": "copy", "from": "/workspace/a/b/c/file", "to": "/workspace/a/b/c/copy", "replace": true},
            {"op": "move", "from": "/workspace/a/b/c/copy", "to": "/workspace/a/b/c/moved", "replace": true},
            {"op": "remove", "path": "/workspace/a/b/c/new", "recursive": true},
        ]);
        for operation in operations.as_array().unwrap() {
            let batch = json!({"operations": [operation]});
            let answer = fixture.server.post(&fixture.route("files"), &batch);
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
        assert!(fixture.call("DELETE", "files/workspace/a/b/c/moved").send().status < 500);
    }
    race.stop();
    assert_eq!(listing(machine.path()), before);
    // What was acknowledged is in the directory itself, and nowhere else. A later write may have replaced it.
    let found = fixture.output_of("grep -rl '^written ' /workspace /tmp $HOME; true");
    for path in found.lines() {
        let (directory, name) = path.rsplit_once('/').unwrap();
        assert!(["file", "file.x", "copy", "moved"].contains(&name), "{found}");
        assert!(directory.starts_with("/workspace/a"), "{found}");
    }
    let last = written.last().unwrap();
    let contents = fixture.output_of("find a a.x -name 'file*' -type f -exec cat {} +");
    assert!(contents.contains(last.as_str()), "{last} is not in {contents}");
    // No temporary name is left.
    let names = fixture.output_of("find . -name '.*' ! -name . | wc -l");
    assert_eq!(names, "0\n", "{}", fixture.output_of("find ."));
}

/// Returns names, modes, targets and content of everything below a directory of the sandbox.
fn sandbox_listing(fixture: &FileServer, directory: &str) -> String {
    fixture.output_of(&format!(
        "find {directory} -printf '%p %m %y %l\\n' | sort; find {directory} -type f -exec cat {{}} +"
    ))
}

#[test]
fn no_exchange_inside_of_a_directory_leads_out_of_it() {
    let fixture = FileServer::new();
    let set_up = "rm -rf t outside; mkdir -p t/b/c outside/b/c outside/c; printf x > t/b/c/file; \
                  for d in outside outside/b outside/b/c outside/c; do printf secret > $d/file; \
                  printf secret > $d/secret-name; done; \
                  ln -s /workspace/outside t/a.x; ln -s ../../outside t/b.x; ln -s ../../../outside t/b/c.x; \
                  ln -s /workspace/outside/file t/b/c/file.x";
    let pairs = [
        ["/workspace/t", "b", "b.x"],
        ["/workspace/t/b", "c", "c.x"],
        ["/workspace/t/b/c", "file", "file.x"],
    ];
    let archive =
        Archive::new().file("b/c/file", "new").file("b/c/added", "new").file("b/added", "new").bytes();
    for _ in 0..3 {
        fixture.output_of(set_up);
        let before = sandbox_listing(&fixture, "/workspace/outside");
        let race = Race::start(&fixture, &pairs);
        let mut uploads = 0;
        for round in 0..rounds() / 3 {
            let (answer, body) = fixture.read("workspace/t?archive=tar");
            assert!([200, 403, 404, 409].contains(&answer.status), "{}", answer.body);
            assert!(!String::from_utf8_lossy(&body).contains(SECRET), "{}", answer.body);
            let (answer, body) = fixture.call("GET", "entries/workspace/t?depth=8").send_for_bytes();
            assert_eq!(answer.status, 200, "{}", answer.body);
            assert!(!String::from_utf8_lossy(&body).contains("secret-name"), "{}", answer.body);
            let answer = fixture.put("workspace/t?archive=tar", &archive);
            assert!(answer.status < 500, "{}", answer.body);
            uploads += usize::from(answer.status == 200);
            let copy = format!("/workspace/copy{round}");
            let operations = json!({"operations": [
                {"op": "copy", "from": "/workspace/t", "to": copy, "recursive": true},
            ]});
            let answer = fixture.server.post(&fixture.route("files"), &operations);
            assert_eq!(answer.status, 200, "{}", answer.body);
            assert_eq!(
                fixture.output_of(&format!(
                    "grep -rl {SECRET} {copy}; find {copy} -name '{SECRET}*'; rm -rf {copy}"
                )),
                ""
            );
        }
        // A removal of the whole tree, under the same exchanges. It may fail: then something of the tree is left.
        let removed = fixture.call("DELETE", "files/workspace/t?recursive=true").send();
        assert!(removed.status == 204 || (400..500).contains(&removed.status), "{}", removed.body);
        assert_eq!(sandbox_listing(&fixture, "/workspace/outside"), before);
        race.stop();
        assert!(uploads > 0 || rounds() < 100, "no upload succeeded");
    }
}

#[test]
fn a_watch_stays_in_its_directory_during_exchanges() {
    let fixture = FileServer::new();
    fixture.output_of(
        "mkdir -p t/b/c outside/b/c outside/c; ln -s ../outside t/b.x; ln -s ../../outside t/b/c.x",
    );
    let pairs = [["/workspace/t", "b", "b.x"], ["/workspace/t/b", "c", "c.x"]];
    let race = Race::start(&fixture, &pairs);
    let mut stream = Stream::watch(&fixture.server, &fixture.id, "workspace/t?recursive=true").begun();
    for round in 0..rounds() / 4 {
        fixture.output_of(&format!(
            "for d in outside outside/b outside/b/c outside/c; do touch $d/{SECRET}-{round}; done"
        ));
    }
    race.stop();
    fixture.output_of("mkdir t/end");
    let mut seen = 0;
    loop {
        let event = stream.next().expect("the watch goes on");
        let path = |name: &str| event.data[name].as_str().unwrap_or_default().to_owned();
        assert!(!path("path").contains(SECRET) && !path("from").contains(SECRET), "{event:?}");
        seen += 1;
        match event.kind.as_str() {
            // So many exchanges that some were dropped: the directory at the end may be among them.
            "dropped" => drop(fixture.output_of("rmdir t/end; mkdir t/end")),
            _ if path("path") == "end" && event.kind == "created" => break,
            _ => assert_ne!(event.data["type"], Value::from("ended"), "{event:?}"),
        }
    }
    assert!(seen > 1, "{seen} events");
}
