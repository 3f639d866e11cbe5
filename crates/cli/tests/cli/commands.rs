//! Commands in sandboxes: `run`, `exec`, `logs` and `ps`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::server::{Server, soon};
use crate::support::{signal, wait};

/// Returns pseudo-random bytes, the same in every run.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Reads lines until one equals `wanted`.
fn read_until(child: &mut Child, wanted: &str) -> BufReader<std::process::ChildStdout> {
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim_end() != wanted {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "`{wanted}` never came");
    }
    lines
}

#[test]
fn a_program_runs_in_a_sandbox_of_its_own() {
    let Some(server) = Server::start() else { return };
    let words = [
        "run",
        "--env",
        "WORD=a b",
        "--label",
        "k=v",
        "--",
        "sh",
        "-c",
        "echo \"$WORD\"; echo no >&2; exit 7",
    ];
    let ran = server.run(&words);
    assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (7, "a b\n", "no\n"));
    assert_eq!(server.ok(&["ps"]), "", "the sandbox is gone");
    let ran = server.run(&["run", "--keep", "--name", "kept", "--", "true"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let kept = server.json(&["ps"]);
    assert_eq!(kept[0]["name"], "kept");
    assert!(ran.stderr.contains(kept[0]["id"].as_str().unwrap()), "{}", ran.stderr);
}

#[test]
fn every_argument_arrives_as_it_was_given() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let every: String = (1..0x250).filter_map(char::from_u32).collect();
    let words = [
        "", " ", "a'b", "\"", "$HOME", "$(id)", "`id`", "*", "-n", "--", "\\", "\n", "\t\r", "!", "漢字",
        &every,
    ];
    let given: Vec<u8> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
    for start in [&["exec", "work", "--"][..], &["run", "--"]] {
        let output = server.workspace(&[start, &["printf", "%s\\0"], &words].concat()).output().unwrap();
        assert_eq!(output.stdout, given, "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(server.run(&["exec", "work", "--", "if"]).status, 127, "a name, no word of the shell's");
}

#[test]
fn bytes_go_in_and_come_out_as_they_are() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let bytes = noise(3_000_000);
    let mut cat = server.workspace(&["exec", "-i", "work", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, given) = (cat.stdin.take().unwrap(), bytes.clone());
    let writing = std::thread::spawn(move || to.write_all(&given).unwrap());
    let output = cat.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success() && output.stdout == bytes, "{} bytes", output.stdout.len());
    let ran = server.run(&["exec", "work", "--", "cat"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, ""), "without -i there is nothing to read");
}

#[test]
fn input_that_is_read_late_arrives_once() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let bytes = noise(3_000_000);
    // Longer than the server waits for a command to read.
    let mut late = server.workspace(&["exec", "-i", "work", "--", "sh", "-c", "sleep 7; exec cat"]);
    let mut late = late.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, given) = (late.stdin.take().unwrap(), bytes.clone());
    let writing = std::thread::spawn(move || to.write_all(&given).unwrap());
    let output = late.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success() && output.stdout == bytes, "{} bytes", output.stdout.len());
}

#[test]
fn failing_to_run_has_its_own_exit_status() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let status = |words: &[&str]| server.run(words).status;
    assert_eq!(status(&["exec", "--timeout", "1s", "work", "--", "sleep", "60"]), 124);
    assert_eq!(status(&["run", "--timeout", "1s", "--", "sleep", "60"]), 124);
    assert_eq!(status(&["exec", "nobody", "--", "true"]), 125);
    assert_eq!(status(&["run", "--template", "nowhere", "--", "true"]), 125);
    assert_eq!(status(&["exec", "--cwd", "/nowhere", "work", "--", "true"]), 126);
    assert_eq!(status(&["exec", "work", "--", "no-such-program"]), 127);
    assert_eq!(status(&["exec", "work", "--", "sh", "-c", "kill -TERM $$"]), 143);
    assert_eq!(status(&["exec", "work"]), 2);
    assert_eq!(status(&["exec", "-t", "work", "--", "true"]), 2, "there is no terminal here");
}

#[test]
fn an_interrupted_run_leaves_no_sandbox() {
    let Some(server) = Server::start() else { return };
    for (number, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut run = server.workspace(&["run", "--", "sh", "-c", "echo ready; sleep 100"]);
        let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
        let _rest = read_until(&mut run, "ready");
        signal(&run, number);
        assert_eq!(wait(run).status.code(), Some(status));
        assert_eq!(server.ok(&["ps"]), "");
    }
}

#[test]
fn an_interruption_is_passed_on_and_the_second_one_kills() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let exec = |line: &str| {
        let mut exec = server.workspace(&["exec", "work", "--", "sh", "-c", line]);
        exec.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut polite = exec("trap 'echo heard; exit 3' INT; echo ready; while :; do sleep 0.05; done");
    let mut rest = read_until(&mut polite, "ready");
    signal(&polite, Signal::INT);
    let mut text = String::new();
    rest.read_to_string(&mut text).unwrap();
    assert_eq!((wait(polite).status.code(), text.as_str()), (Some(3), "heard\n"));
    let mut deaf = exec("trap 'echo heard' INT; echo ready; while :; do sleep 0.05; done");
    let mut rest = read_until(&mut deaf, "ready");
    signal(&deaf, Signal::INT);
    rest.read_line(&mut text).unwrap();
    signal(&deaf, Signal::INT);
    assert_eq!(wait(deaf).status.code(), Some(137));
}

#[test]
fn a_reader_that_leaves_ends_the_command() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let mut exec = server.workspace(&["exec", "work", "--", "yes"]);
    let mut exec = exec.stdout(Stdio::piped()).spawn().unwrap();
    drop(read_until(&mut exec, "y"));
    assert_eq!(wait(exec).status.code(), Some(0));
    soon("it ended", || server.json(&["ps", "work"])[0]["state"] != "running");
}

#[test]
fn output_goes_on_over_the_death_of_the_server() {
    let Some(mut server) = Server::start() else { return };
    server.sandbox("work");
    let line = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); printf '%05d \\377\\000 %s\\n' $i \"$(head -c 200 /dev/zero | tr '\\0' x)\"; \
                echo e$i >&2; sleep 0.005; done; exit 4";
    let exec = server
        .workspace(&["exec", "work", "--", "sh", "-c", line])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let exec = exec.unwrap();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(600));
        server.kill();
        std::thread::sleep(Duration::from_millis(300));
        server.begin();
    }
    let output = exec.wait_with_output().unwrap();
    let row =
        |i: u32| [format!("{i:05} ").as_bytes(), b"\xff\0 ", "x".repeat(200).as_bytes(), b"\n"].concat();
    let rows: Vec<u8> = (1..=400).flat_map(row).collect();
    assert!(output.stdout == rows, "{} bytes instead of {}", output.stdout.len(), rows.len());
    let errors: String = (1..=400).map(|i| format!("e{i}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&output.stderr), errors);
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn logs_end_while_a_command_prints_without_pause() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let line = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.02; done";
    let command = server.ok(&["exec", "-d", "work", "--", "sh", "-c", line]);
    let command = command.trim_end();
    soon("it printed", || server.ok(&["logs", "work", command]).contains("line 3\n"));
    let tail = server.ok(&["logs", "work", command, "--tail", "2"]);
    assert_eq!(tail.lines().count(), 2, "{tail}");
    // With a copy among the commands, this program merges the output.
    server.place.write("a", "1");
    server.ok(&["cp", "a", "work:"]);
    server.ok(&["cp", "work:a", "b"]);
    let logs = server.ok(&["logs", "work"]);
    assert!(logs.lines().all(|line| line.starts_with("line ")), "{logs}");
    assert_eq!(server.json(&["ps", "work"]).last().unwrap()["state"], "running");
}

#[test]
fn commands_are_found_by_their_tag() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    server.ok(&["exec", "--tag", "tests", "work", "--", "true"]);
    server.ok(&["exec", "work", "--", "true"]);
    let command = server.ok(&["exec", "-d", "--tag", "tests", "work", "--", "true"]);
    let found = server.json(&["ps", "work", "--tag", "tests"]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((&found[0]["commandId"], &found[0]["tag"]), (&command.trim_end().into(), &"tests".into()));
    assert_eq!(server.ok(&["ps", "-q", "work", "--tag", "none"]), "");
    server.ok(&["run", "--keep", "--name", "kept", "--tag", "first", "--", "true"]);
    assert_eq!(server.json(&["ps", "kept"])[0]["tag"], "first");
    assert_eq!(server.run(&["ps", "--tag", "tests"]).status, 2, "it needs a sandbox");
    assert_eq!(server.run(&["exec", "-t", "--tag", "tests", "work", "--", "true"]).status, 2);
}

#[test]
fn measurements_of_a_sandbox_are_listed() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    soon("it was measured", || !server.json(&["sandbox", "metrics", "work"]).is_empty());
    let samples = server.json(&["sandbox", "metrics", "work", "--since", "10m"]);
    assert!(samples[0]["time"].is_string() && samples[0]["disk"].is_u64(), "{samples:?}");
    let table = server.ok(&["sandbox", "metrics", "work"]);
    assert!(table.starts_with("TIME ") && table.contains(" PROCESSES "), "{table}");
    assert!(table.lines().count() > samples.len(), "{table}");
    assert_eq!(server.ok(&["sandbox", "metrics", "work", "--since", "2100-01-01"]), "");
    assert_eq!(server.ok(&["sandbox", "metrics", "work", "--until", "2000-01-01"]), "");
}

#[test]
fn a_detached_command_is_found_again() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let line = "for i in 1 2 3; do echo line $i; done; echo wrong >&2; while [ ! -e go ]; do sleep 0.05; done; echo end";
    let command = server.ok(&["exec", "-d", "work", "--", "sh", "-c", line]);
    let command = command.trim_end();
    assert_eq!(server.ok(&["ps", "-q", "work"]).trim_end(), command);
    soon("its PID is shown", || server.json(&["ps", "work"])[0]["pid"].is_u64());
    let (pid, table) = (server.json(&["ps", "work"])[0]["pid"].to_string(), server.ok(&["ps", "work"]));
    let is_shown = table.lines().any(|line| line.split_whitespace().any(|word| word == pid));
    assert!(is_shown && table.contains(" TAG "), "{table}");
    soon("it printed", || server.run(&["logs", "work", command]).stderr == "wrong\n");
    assert_eq!(
        server.ok(&["logs", "work", command]),
        "line 1\nline 2\nline 3\n",
        "it runs on, this does not wait"
    );
    let mut follow = server.workspace(&["logs", "-f", "work", command]);
    let follow = follow.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    server.ok(&["exec", "work", "--", "touch", "go"]);
    let output = follow.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "line 1\nline 2\nline 3\nend\n");
    assert_eq!(server.ok(&["logs", "work", command, "--tail", "1"]), "end\n");
    assert_eq!(server.ok(&["logs", "work", command, "--since", "2100-01-01"]), "");
    assert!(server.ok(&["logs", "work"]).contains("line 2\n"));
    assert_eq!(server.run(&["logs", "-f", "work"]).status, 2);
}
