//! Output to pipes and closed readers.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{TestDir, signal, wait};

#[test]
fn a_broken_pipe_is_success() {
    let place = TestDir::with_project();
    place.write("project/large", vec![b'x'; 4 << 20]);
    for number in 0..200 {
        place.write(&format!("project/many/{number:0100}"), "");
    }
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let commands: [&[&str]; 5] = [
        &["cat", "main", "large"],
        &["export", "main"],
        &["--json", "cat", "main", "large"],
        &["ls", "-R", "main"],
        &["completions", "bash"],
    ];
    for words in commands {
        let mut child = place.workspace(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The reader goes away after a byte.
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{words:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{words:?}");
    }
}

#[test]
fn a_full_disk_is_not_success() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = place.workspace(&["cat", "main", "README.md"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: cannot write the output"));
}

/// Runs a command line on a terminal, and returns its output and status.
fn on_a_terminal(place: &TestDir, line: &str) -> (String, Option<i32>) {
    let mut script: Command = place.program("script");
    let output = script
        .args(["-qec", line, "/dev/null"])
        .env("WORKSPACE_STORE", "store")
        .env("TERM", "xterm")
        .output();
    let output = output.unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn an_archive_is_not_written_to_a_terminal() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let program = env!("CARGO_BIN_EXE_workspace");
    let (shown, status) = on_a_terminal(&place, &format!("{program} export main"));
    assert!(shown.contains("error: an archive cannot be printed on a terminal"), "{shown}");
    assert!(shown.contains("hint: write it to a file: `workspace export main > x.tar`"), "{shown}");
    assert_eq!(status, Some(2));
    let (shown, status) = on_a_terminal(&place, &format!("{program} import"));
    assert!(shown.contains("error: an archive cannot be read from a terminal"), "{shown}");
    assert_eq!(status, Some(2));
}

#[test]
fn long_work_shows_progress_on_a_terminal_and_only_there() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.write("x.tar", place.workspace(&["export", "main"]).output().unwrap().stdout);
    let program = env!("CARGO_BIN_EXE_workspace");
    // An archive that takes its time.
    let slowly = format!("(head -c 1000 x.tar; sleep 2; tail -c +1001 x.tar) | {program} import");
    let (shown, status) = on_a_terminal(&place, &format!("sh -c '{slowly}'"));
    assert_eq!(status, Some(0), "{shown}");
    assert!(shown.contains("importing entries"), "{shown:?}");
    let quietly = place.program("sh").args(["-c", &slowly]).env("WORKSPACE_STORE", "store").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&quietly.stderr), "");
    // Short work shows nothing.
    let (shown, _) = on_a_terminal(&place, &format!("{program} import x.tar"));
    assert!(!shown.contains("importing"), "{shown:?}");
}

#[test]
fn data_and_messages_do_not_mix() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let ran = place.run(&["checkout", "main", "copy"]);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.starts_with("wrote "), "{}", ran.stderr);
    let ran = place.run(&["--json", "checkout", "main", "again"]);
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.starts_with('{'), "{}", ran.stdout);
}

#[test]
fn an_interrupted_command_leaves_nothing_half_done() {
    let place = TestDir::with_project();
    let id = place.snapshot("project");
    let archive = place.workspace(&["export", &id]).output().unwrap().stdout;
    let mut child = place.workspace(&["import"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&archive[..archive.len() - 1024]).unwrap();
    input.flush().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(&child, Signal::INT);
    assert_eq!(wait(child).status.signal(), Some(2));
    drop(input);
    assert_eq!(place.json(&["log"]).len(), 1);
    assert_eq!(place.record(&["verify"])["damage"], serde_json::json!([]));
    assert_eq!(std::fs::read_dir(place.path(".")).unwrap().count(), 2, "the project and the store");
}
