//! Access to a sandbox that is passed on: previews, signed URLs, tickets for terminals.

use serde_json::Value;
use workspace_test_support::wait_until;

use crate::http::{open_websocket, request};
use crate::server::Server;

/// Program that answers every HTTP request on port 7000 with the header `Host` that it got.
const ECHO_HOST: &str = "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); bind(S, sockaddr_in(7000, INADDR_LOOPBACK)) or die; \
    listen(S, 50); while (accept(C, S)) { my $h = q(); while (defined($_ = <C>) && /\\S/) { $h = $1 if /^host: (\\S+)/i } \
    my $b = qq(got $h\\n); syswrite(C, qq(HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: ) . length($b) . qq(\\r\\n\\r\\n$b)); close C }'";

#[test]
fn a_url_shows_the_program_on_a_port() {
    let Some(server) = Server::start() else { return };
    let id = server.sandbox("work");
    let url = |words: &[&str]| {
        let words = [&["sandbox", "url", "work", "7000"], words].concat();
        server.ok(&words).trim_end().to_owned()
    };
    let path_url = url(&["--path"]);
    assert!(path_url.starts_with(&format!("{}/preview/{id}/7000/@wsp_", server.url())), "{path_url}");
    // Nothing listens yet.
    assert_eq!(request("GET", &path_url, "", b"").status, 502);
    server.ok(&["exec", "-d", "work", "--", "sh", "-c", ECHO_HOST]);
    wait_until("it listens", || request("GET", &path_url, "", b"").status == 200);
    let local = url(&["--path", "--host-header", "localhost"]);
    assert_eq!(request("GET", &local, "", b"").body, b"got localhost:7000\n");

    let own_host = url(&[]);
    assert!(own_host.starts_with(&format!("http://7000-{id}.localhost:")), "{own_host}");
    let ran = server.run(&["sandbox", "url", "work", "7000", "--expires", "15m"]);
    assert!(ran.stderr.starts_with("note: it expires "), "{}", ran.stderr);
    let preview = server.json(&["sandbox", "url", "work", "7000"]).remove(0);
    for field in ["url", "pathUrl", "token", "expiresAt"] {
        assert!(preview[field].is_string(), "{preview}");
    }
    for (words, status, message) in [
        (&["7000", "--expires", "2d"][..], 1, "expiresInSeconds"),
        (&["0"], 2, "0 is not in 1..=65535"),
        (&["http"], 2, "invalid digit"),
    ] {
        let ran = server.run(&[&["sandbox", "url", "work"], words].concat());
        assert!(ran.status == status && ran.stderr.contains(message), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn a_signed_url_reads_or_writes_one_file() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    server.ok(&["exec", "work", "--", "sh", "-c", "printf old > 'a b'"]);
    let url = |words: &[&str]| server.ok(&[&["files", "url", "work"], words].concat()).trim_end().to_owned();
    let read = url(&["a b"]);
    assert_eq!(request("GET", &read, "", b"").body, b"old");
    assert_eq!(request("PUT", &read, "", b"new").status, 401);
    let write = url(&["/workspace/a b", "--upload", "--max-size", "1k", "--expires", "1m"]);
    assert_eq!(request("PUT", &write, "", &[b'x'; 1025]).status, 413);
    assert_eq!(request("PUT", &write, "", b"new").status, 200);
    assert_eq!(request("GET", &write, "", b"").status, 401);
    assert_eq!(server.ok(&["files", "cat", "work", "a b"]), "new");
    let signed = server.json(&["files", "url", "work", "a b"]).remove(0);
    assert!(signed["url"].is_string() && signed["expiresAt"].is_string(), "{signed}");
    for (words, status, message) in [
        (&["a", "--max-size", "1k"][..], 2, "--upload"),
        (&["a", "--upload", "--max-size", "much"], 2, "expected a size"),
        (&["\"\\377\""], 1, "is not UTF-8"),
        (&["../a"], 2, "contains `..`"),
    ] {
        let ran = server.run(&[&["files", "url", "work"], words].concat());
        assert!(ran.status == status && ran.stderr.contains(message), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn a_ticket_opens_a_terminal_once() {
    let Some(server) = Server::start() else { return };
    let id = server.sandbox("work");
    let words = ["terminal", "create", "work", "--shell", "/bin/sh", "--cols", "100", "--env", "A=b"];
    let terminal = server.ok(&words).trim_end().to_owned();
    let ticket = |words: &[&str]| {
        let words = [&["terminal", "ticket", "work", &terminal], words].concat();
        server.ok(&words).trim_end().to_owned()
    };
    let url = ticket(&["--read-only"]);
    let path = format!("/api/v1/sandboxes/{id}/pty/{terminal}/ws?ticket=wtt_");
    assert!(url.starts_with("ws://") && url.contains(&path), "{url}");
    assert_eq!(open_websocket(&url), 101);
    assert_eq!(open_websocket(&url), 401);
    let record = server.json(&["terminal", "ticket", "work", &terminal]).remove(0);
    let text = |name: &str| record[name].as_str().unwrap().to_owned();
    assert!(text("url").ends_with(&text("ticket")) && !text("expiresAt").is_empty());
    let made = server.json(&["terminal", "create", "work"]).remove(0);
    assert!(made["websocketUrl"].is_string(), "{made}");
    let is_open = || {
        let processes = server.json(&["ps", "work", "--processes"]);
        processes.iter().any(|process| process["commandId"] == terminal.as_str())
    };
    assert!(is_open());
    server.ok(&["terminal", "rm", "work", &terminal]);
    wait_until("its shell was killed", || !is_open());
    let ran = server.run(&["terminal", "ticket", "work", "pty-none"]);
    assert!(ran.status == 1 && ran.stderr.contains("`workspace terminal create"), "{}", ran.stderr);
    let ran = server.run(&["terminal", "rm", "work", "../.."]);
    assert!(ran.status == 1 && ran.stderr.contains("is not the id of a terminal"), "{}", ran.stderr);
}

#[test]
fn processes_are_listed_and_killed_with_their_command() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let command = server.ok(&["exec", "-d", "work", "--", "sleep", "1000"]).trim_end().to_owned();
    let processes = || server.json(&["ps", "work", "--processes"]);
    wait_until("it runs", || processes().iter().any(|process| process["arguments"] == "sleep 1000"));
    let table = server.ok(&["ps", "work", "--processes"]);
    assert!(table.starts_with("PID") && table.contains(&command), "{table}");
    let pids = server.ok(&["ps", "work", "--processes", "-q"]);
    assert!(pids.lines().all(|pid| pid.parse::<u32>().is_ok()), "{pids}");
    server.ok(&["kill", "work", &command, "--signal", "USR1"]);
    let state = || {
        let commands = server.json(&["ps", "work"]);
        commands.into_iter().find(|one| one["commandId"] == command.as_str()).unwrap()
    };
    wait_until("it ended", || state()["state"] != "running");
    assert_eq!(state()["exitCode"], Value::from(128 + 10));
    for (words, status, message) in [
        (&["work", &command][..], 1, "workspace logs"),
        (&["work", "cmd-none"], 1, "workspace ps SANDBOX"),
        (&["work", "a/b"], 1, "is not the id of a command"),
        (&["work", &command, "--signal", "NONE"], 2, "expected a number from 1 to 64"),
    ] {
        let ran = server.run(&[&["kill"], words].concat());
        assert!(ran.status == status && ran.stderr.contains(message), "{words:?}: {}", ran.stderr);
    }
}
