//! `workspace run` where no server runs: in a temporary local sandbox.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use workspace_test_support::requires;

use crate::support::{Ran, signal, wait};
use crate::terminal::Terminal;
use crate::trials::{User, says, users};

const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";
const NOTE: &str = "note: no server at http://127.0.0.1:8080: running in a temporary local sandbox;";

/// Returns the users to test as; none if a program listens at the default address.
fn users_without_server() -> Vec<User> {
    let is_free = TcpStream::connect(DEFAULT_ADDRESS).is_err();
    if requires(is_free, format_args!("the free address {DEFAULT_ADDRESS}")) { users() } else { Vec::new() }
}

fn started(user: &User, options: &[&str], line: &str) -> Child {
    let words = [&["run"], options, &["--", "sh", "-c", line]].concat();
    let mut command = user.around(&[], &words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_program_runs_without_a_server() {
    for user in users_without_server() {
        let line = "echo \"$WORD\"; pwd; ls -A; echo no >&2; exit 7";
        let ran = user.run(&["run", "--env", "WORD=a b", "--", "sh", "-c", line]);
        assert_eq!((ran.status, ran.stdout.as_str()), (7, "a b\n/workspace\n"), "{}", ran.stderr);
        let (note, rest) = ran.stderr.split_once('\n').unwrap();
        assert!(note.starts_with(NOTE) && note.contains("`workspace-server`"), "{note}");
        assert_eq!(rest, "no\n");
        assert_eq!(user.run(&["run", "--timeout", "1s", "--", "sleep", "60"]).status, 124);
        assert_eq!(user.run(&["run", "--", "no-such-program"]).status, 127);
        user.is_clean();
    }
}

#[test]
fn stdin_is_forwarded_only_if_requested() {
    for user in users_without_server() {
        for (options, expected) in [(&["-i"][..], "a\nb\n"), (&[], "")] {
            let mut child = started(&user, options, "sort");
            // A program without stdin may have ended before.
            let _ = child.stdin.take().unwrap().write_all(b"b\na\n");
            let ran = Ran::of(&wait(child));
            assert_eq!((ran.status, ran.stdout.as_str()), (0, expected), "{}", ran.stderr);
        }
        user.is_clean();
    }
}

#[test]
fn a_signal_removes_the_temporary_sandbox() {
    for user in users_without_server() {
        for (number, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let mut child = started(&user, &[], "echo ready; sleep 100");
            says(&mut child, "ready");
            signal(&child, number);
            assert_eq!(wait(child).status.code(), Some(status));
            user.is_clean();
        }
    }
}

#[test]
fn a_reader_that_leaves_ends_the_program() {
    for user in users_without_server() {
        let mut child = started(&user, &[], "exec yes ready");
        says(&mut child, "ready");
        drop(child.stdout.take());
        assert_eq!(wait(child).status.code(), Some(0));
        user.is_clean();
    }
}

#[test]
fn a_program_gets_a_terminal_without_a_server() {
    for user in users_without_server() {
        let line = "stty size; read -r word; echo \"got $word\"; exit 5";
        let words = ["run", "-t", "--", "sh", "-c", line];
        let mut terminal = Terminal::new(user.around(&["setsid", "--ctty"], &words));
        terminal.shows("33 91");
        terminal.enter("it\r");
        terminal.shows("got it");
        assert_eq!(terminal.ends(), Some(5), "{}", terminal.seen());
        user.is_clean();
    }
}

#[test]
fn options_that_need_a_server_say_so() {
    for user in users_without_server() {
        for option in [&["--keep"][..], &["--name", "work"], &["--label", "k=v"], &["--memory", "1g"]] {
            let ran = user.run(&[&["run"], option, &["--", "true"]].concat());
            assert_eq!((ran.status, ran.stdout.as_str()), (125, ""), "{option:?}");
            let expected = format!("error: {} needs a server, and there is none at", option[0]);
            assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
            assert!(ran.stderr.contains("hint: start a server with"), "{}", ran.stderr);
        }
    }
}

#[test]
fn a_configured_server_must_be_there() {
    for user in users_without_server() {
        for configured in [["--server", "http://127.0.0.1:8080"], ["--api-key", "some-key"]] {
            let ran = user.run(&[&["run"], &configured[..], &["--", "true"]].concat());
            assert_eq!(ran.status, 125, "{}", ran.stderr);
            assert!(ran.stderr.starts_with("error: there is no server at"), "{}", ran.stderr);
        }
    }
}
