//! `workspace files`, `workspace ports` and `workspace port-forward`.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::commands::noise;
use crate::server::{Server, soon};
use crate::support::{LONG, Ran, signal, wait};

/// Runs a command with this stdin.
fn run_with_input(server: &Server, words: &[&str], input: &[u8]) -> Ran {
    let mut command = server.workspace(words);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Ran::of(&wait(child))
}

#[test]
fn files_are_written_listed_read_and_removed() {
    let Some(server) = Server::start() else { return };
    let place = &server.place;
    server.sandbox("work");
    assert_eq!(run_with_input(&server, &["files", "put", "work", "notes.txt"], b"hello\n").status, 0);
    place.write("run.sh", "#!/bin/sh\n");
    server.ok(&["files", "put", "-p", "work", "src/run.sh", "run.sh", "--mode", "0755"]);
    assert_eq!(server.ok(&["files", "ls", "work"]), "notes.txt\nsrc/\n");
    assert_eq!(server.ok(&["files", "ls", "work", "-R"]), "notes.txt\nsrc/\nsrc/run.sh\n");
    let long = server.ok(&["files", "ls", "work", "src", "-l"]);
    assert!(long.starts_with("-rwxr-xr-x           10  ") && long.ends_with("  run.sh\n"), "{long}");
    assert_eq!(server.ok(&["files", "cat", "work", "notes.txt"]), "hello\n");
    server.ok(&["files", "mkdir", "-p", "work", "a/b"]);
    server.ok(&["files", "mv", "work", "notes.txt", "a/b/moved.txt"]);
    server.ok(&["files", "get", "work", "/workspace/src/run.sh", "copy.sh"]);
    assert_eq!(place.read("copy.sh"), "#!/bin/sh\n");
    assert_eq!(fs::metadata(place.path("copy.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    server.ok(&["files", "get", "work", "a/b/moved.txt"]);
    assert_eq!(place.read("moved.txt"), "hello\n");
    server.ok(&["files", "rm", "-r", "work", "a"]);
    assert_eq!(server.ok(&["files", "ls", "work"]), "src/\n");
    let entries = server.json(&["files", "ls", "work", "src"]);
    assert_eq!((&entries[0]["path"], &entries[0]["mode"]), (&"run.sh".into(), &"0755".into()));
}

#[test]
fn files_are_copied_described_and_changed_together() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    server.ok(&["exec", "work", "--", "sh", "-c", "mkdir src; printf one > src/a; ln -s src/a link"]);
    server.ok(&["files", "cp", "work", "src/a", "/tmp/a"]);
    assert_eq!(server.ok(&["files", "cat", "work", "/tmp/a"]), "one");
    server.ok(&["files", "cp", "-r", "work", "src", "copy"]);
    assert_eq!(server.ok(&["files", "ls", "work", "copy"]), "a\n");
    server.ok(&["files", "chmod", "work", "0600", "src/a", "/tmp/a"]);
    let details = server.ok(&["files", "stat", "work", "link"]);
    assert!(details.starts_with("path        ") && details.contains("mode        0600\n"), "{details}");
    let details = server.ok(&["files", "stat", "--no-follow", "work", "link"]);
    assert!(
        details.contains("kind        symlink\n") && details.ends_with("target      src/a\n"),
        "{details}"
    );
    let entry = server.json(&["files", "stat", "work", "src/a"]).remove(0);
    assert_eq!((&entry["size"], &entry["kind"]), (&3.into(), &"file".into()));

    let batch =
        |input: &str| run_with_input(&server, &["--json", "files", "batch", "work"], input.as_bytes());
    let made = batch(
        "{\"op\": \"mkdir\", \"path\": \"new/deep\", \"parents\": true}\n\
         {\"op\": \"write\", \"path\": \"new/deep/file\", \"text\": \"two\"}\n\
         {\"op\": \"move\", \"from\": \"copy/a\", \"to\": \"moved\"}\n",
    );
    assert_eq!((made.status, made.stdout.trim_end()), (0, "{\"completed\":3}"), "{}", made.stderr);
    assert_eq!(server.ok(&["files", "cat", "work", "new/deep/file"]), "two");
    let failed =
        batch(r#"{"operations": [{"op": "remove", "path": "moved"}, {"op": "remove", "path": "none"}]}"#);
    let result: Value = serde_json::from_str(&failed.stdout).unwrap();
    assert_eq!((failed.status, &result["completed"], &result["failed"]["index"]), (1, &1.into(), &1.into()));
    assert!(failed.stderr.contains("operation 2 of 2 failed: "), "{}", failed.stderr);
    assert!(failed.stderr.contains("hint: docs/errors.md explains PATH_NOT_FOUND"), "{}", failed.stderr);
    server.place.write("batch.jsonl", "{\"op\": \"remove\", \"path\": \"new\", \"recursive\": true}");
    assert_eq!(server.ok(&["files", "batch", "work", "batch.jsonl"]), "");
    assert_eq!(server.ok(&["files", "ls", "work"]), "copy/\nlink\nsrc/\n");
    for (input, message) in [
        ("", "the batch has no operations"),
        ("{\"op\": \"link\"}", "operation 1 is invalid: "),
        (&" ".repeat((1 << 20) + 1), "larger than 1 MiB"),
    ] {
        let ran = batch(input);
        assert!(ran.status == 1 && ran.stderr.contains(message), "{}", ran.stderr);
    }
}

#[test]
fn a_large_file_and_an_odd_name_round_trip() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let content = noise(5_000_000);
    server.place.write("large", &content);
    server.ok(&["files", "put", "work", "\"one\\ntwo\\377\"", "large"]);
    assert_eq!(server.ok(&["files", "ls", "work"]), "\"one\\ntwo\\377\"\n");
    server.ok(&["files", "get", "work", "\"one\\ntwo\\377\"", "copy"]);
    assert!(fs::read(server.place.path("copy")).unwrap() == content);
}

#[test]
fn conditions_protect_changes_of_others() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let put = |words: &[&str], input: &[u8]| {
        run_with_input(&server, &[&["--json", "files", "put", "work", "file"], words].concat(), input)
    };
    let first: Value = serde_json::from_str(&put(&["--new"], b"1").stdout).unwrap();
    assert_eq!(put(&["--new"], b"2").status, 1);
    let tag = first["etag"].as_str().unwrap();
    assert_eq!(put(&["--if-match", tag.trim_matches('"')], b"2").status, 0);
    let refused = put(&["--if-match", tag], b"3");
    assert!(
        refused.status == 1 && refused.stderr.contains("does not match the condition"),
        "{}",
        refused.stderr
    );
    assert_eq!(server.ok(&["files", "cat", "work", "file"]), "2");
}

#[test]
fn impossible_requests_for_files_are_explained() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    for (words, message) in [
        (&["files", "cat", "work", "none"][..], "hint: check the spelling"),
        (&["files", "cat", "work", "/workspace"], "hint: `workspace cp` copies directories"),
        (&["files", "get", "work", "/workspace"], "hint: `workspace cp` copies directories"),
        (&["files", "cat", "work", "a/../b"], "contains `..`"),
        (&["files", "rm", "work", "none"], "hint: check the spelling"),
        (&["files", "mkdir", "work", "a/b"], "docs/errors.md explains PATH_NOT_FOUND"),
        (&["files", "ls", "nobody"], "there is no sandbox `nobody`"),
        (&["files", "stat", "work", "none"], "hint: check the spelling"),
        (&["files", "cp", "work", "/workspace", "copy"], "copy it recursively"),
        (&["files", "chmod", "work", "0600", "none"], "docs/errors.md explains PATH_NOT_FOUND"),
        (&["files", "chmod", "work", "u+x", "none"], "hint: "),
        (&["files", "batch", "work", "none.jsonl"], "none.jsonl"),
        (&["--json", "files", "cat", "work", "none"], "is not JSON"),
    ] {
        let ran = server.run(words);
        assert!(ran.status != 0 && ran.stderr.contains(message), "{words:?}: {}", ran.stderr);
    }
}

/// Starts a command, and returns it with a reader of its output.
fn start(server: &Server, words: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = server.workspace(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

fn line(reader: &mut BufReader<std::process::ChildStdout>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

/// Creates the directory `d` of the sandbox `work`, and starts to watch it. Waits until the watch has begun: until a
/// change is printed.
fn start_watch(server: &Server) -> (Child, BufReader<std::process::ChildStdout>) {
    server.ok(&["files", "mkdir", "work", "d"]);
    let (child, mut output) = start(server, &["files", "watch", "work", "d"]);
    let mut number = 0;
    let (sender, first) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(line(&mut output)).unwrap());
        soon("a change is printed", || {
            number += 1;
            server.ok(&["exec", "work", "--", "touch", &format!("d/{number}")]);
            first.try_recv().is_ok_and(|line| line.starts_with("created "))
        });
    });
    (child, output)
}

#[test]
fn changes_are_printed_until_the_directory_is_removed() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let (child, mut output) = start_watch(&server);
    server.ok(&["exec", "work", "--", "mv", "d/1", "d/new"]);
    loop {
        let line = line(&mut output);
        assert!(!line.is_empty(), "the command ended");
        if line == "renamed     1 -> new\n" {
            break;
        }
    }
    server.ok(&["exec", "work", "--", "rm", "-r", "d"]);
    let ran = Ran::of(&wait(child));
    assert!(ran.status == 0 && ran.stderr.contains("the watched entry was removed"), "{}", ran.stderr);
}

/// Program that returns all bytes of its connections, on port 7000 of the loopback.
const ECHO: &str = "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); bind(S, sockaddr_in(7000, INADDR_LOOPBACK)) or die; \
                    listen(S, 50); while (accept(C, S)) { if (!fork) { while (sysread(C, $b, 65536)) { syswrite(C, $b) } exit } close C }'";

#[test]
fn a_local_port_is_forwarded() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let (mut forward, mut output) = start(&server, &["port-forward", "work", "0:7000"]);
    let announced = line(&mut output);
    let (address, target) = announced.trim().split_once(" -> ").unwrap_or_else(|| panic!("{announced}"));
    assert_eq!(target, "work:7000");
    // Nothing listens yet: the connection is closed, and the command stays.
    let mut refused = TcpStream::connect(address).unwrap();
    assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0);
    server.ok(&["exec", "-d", "work", "--", "sh", "-c", ECHO]);
    soon("it listens", || server.ok(&["ports", "work"]).contains("7000"));
    let table = server.ok(&["ports", "work"]);
    assert!(
        table.starts_with("PORT  ADDRESS") && table.contains("127.0.0.1") && table.contains("perl"),
        "{table}"
    );
    assert_eq!(server.json(&["ports", "work"])[0]["port"], 7000);
    let content = noise(1_000_000);
    let connections: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    std::thread::scope(|scope| {
        for connection in &connections {
            let (content, mut connection) = (&content, connection);
            scope.spawn(move || {
                connection.write_all(content).unwrap();
                connection.shutdown(Shutdown::Write).unwrap();
            });
        }
        for mut connection in &connections {
            let mut received = Vec::new();
            connection.read_to_end(&mut received).unwrap();
            assert!(received == content, "{} bytes", received.len());
        }
    });
    signal(&forward, Signal::INT);
    let mut stderr = String::new();
    forward.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(forward.wait().unwrap().code(), Some(130));
    assert!(stderr.contains("note: nothing listens on port 7000 of the sandbox yet"), "{stderr}");
    assert!(stderr.contains("hint: `workspace ports SANDBOX` lists the ports"), "{stderr}");
}

/// Connects to a forwarded port, and waits until the program in the sandbox answers.
fn echoed(address: &str) -> TcpStream {
    let mut answered = None;
    soon("the program answers", || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(LONG)).unwrap();
        let is_echoed = connection.write_all(b"x").is_ok() && connection.read_exact(&mut [0]).is_ok();
        answered = is_echoed.then_some(connection);
        is_echoed
    });
    answered.unwrap()
}

#[test]
fn a_killed_server_ends_watches_and_resets_forwarded_connections() {
    let Some(mut server) = Server::start() else { return };
    server.sandbox("work");
    server.ok(&["exec", "-d", "work", "--", "sh", "-c", ECHO]);
    let (watch, _watch_output) = start_watch(&server);
    let (mut forward, mut output) = start(&server, &["port-forward", "work", "0:7000"]);
    let announced = line(&mut output);
    let (address, _) = announced.trim().split_once(" -> ").unwrap_or_else(|| panic!("{announced}"));
    let mut connection = echoed(address);
    server.kill();
    let ran = Ran::of(&wait(watch));
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("lost the connection to the server"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: list the directory again"), "{}", ran.stderr);
    // A program must not take the part that it has got for everything.
    let ended = connection.read(&mut [0]).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
    // The command goes on with the next server.
    server.begin();
    drop(echoed(address));
    signal(&forward, Signal::INT);
    let mut stderr = String::new();
    forward.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(forward.wait().unwrap().code(), Some(130));
    assert!(stderr.contains("error: lost the connection to the server at "), "{stderr}");
}
