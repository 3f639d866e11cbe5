//! Graceful shutdown; metrics and log lines.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::stream::{Stream, printed};
use super::test_server::{TestServer, agent_program, server_program, wait_until};

#[test]
fn a_server_that_cannot_listen_leaves_no_sandboxes() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let data = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(server_program());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("DATA_DIR", data.path()).env("AGENT_PROGRAM", agent_program());
    command.env("POOL_SIZE", "8").env("REQUIRE_ISOLATION", "best-effort");
    let ended = command.env("API_PORT", taken.local_addr().unwrap().port().to_string()).output().unwrap();
    assert!(!ended.status.success(), "{ended:?}");
    let left = std::fs::read_dir(data.path().join("sandboxes")).unwrap().count();
    assert_eq!(left, 0, "sandboxes of the warm pool outlive it");
}

#[test]
fn a_shutdown_does_not_cut_a_stream_that_ends_in_time() {
    let mut server = TestServer::new();
    let id = server.create();
    let mut stream = Stream::run(&server, &id, json!({"command": "echo one; sleep 1; echo two"})).begun();
    assert_eq!(stream.first().bytes(), b"one\n");
    server.signal(Signal::TERM);
    let rest = stream.rest();
    assert_eq!(printed(&rest), b"two\n");
    assert_eq!(rest.last().unwrap().kind, "exit");
    assert!(server.wait().success());
}

#[test]
fn a_stream_cut_by_a_shutdown_can_be_resumed() {
    let mut server = TestServer::with(&[("SHUTDOWN_TIMEOUT", "1")]);
    let id = server.create();
    let mut stream = Stream::run(&server, &id, json!({"command": "echo one; sleep 6; echo two"})).begun();
    let first = stream.first();
    let began = Instant::now();
    server.signal(Signal::TERM);
    let rest = stream.rest();
    assert!(rest.is_empty(), "a command that goes on did not end: {rest:?}");
    assert!(server.wait().success());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    server.start();
    let command = first.data["commandId"].as_str().unwrap();
    let rest = Stream::output(&server, &id, command, Some(&first.id)).begun().rest();
    assert_eq!(printed(&rest), b"two\n");
    assert_eq!(rest.last().unwrap().kind, "exit");
}

#[test]
fn a_shutdown_finishes_creations() {
    let mut server = TestServer::new();
    let address = server.address();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let make = || {
            let call =
                crate::support::Call::new(address, "POST", "/api/v1/sandboxes").key(crate::support::KEY);
            call.json(r#"{"template":"base"}"#).try_send()
        };
        let makers: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
        std::thread::sleep(Duration::from_millis(15));
        server.signal(Signal::TERM);
        makers.into_iter().filter_map(|maker| maker.join().unwrap()).collect()
    });
    assert!(server.wait().success());
    server.start();
    for answer in answers {
        if answer.status == 503 {
            assert_eq!(answer.error(), "SHUTTING_DOWN");
            continue;
        }
        assert_eq!(answer.status, 201, "{}", answer.body);
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        wait_until("its guest is back", || server.sandbox(&id)["agentConnected"] == true);
        assert_eq!(server.output_of(&id, "echo usable"), "usable\n");
    }
    let list = server.get("/api/v1/sandboxes").json();
    let states = list["items"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap());
    assert!(states.into_iter().all(|state| state == "running"), "{list}");
}

/// Creates a sandbox with a large workspace, so that a commit takes a while.
fn filled(server: &TestServer, bytes: u64) -> String {
    let id = server.create();
    let fill = format!("head -c {bytes} /dev/urandom > big && echo done");
    assert_eq!(server.output_of(&id, &fill), "done\n");
    id
}

fn is_frozen(server: &TestServer, id: &str) -> bool {
    server.path().join("sandboxes").join(id).join("frozen").exists()
}

fn snapshots(server: &TestServer) -> usize {
    server.get("/api/v1/snapshots").json()["items"].as_array().unwrap().len()
}

#[test]
fn a_disconnect_cancels_a_commit() {
    let server = TestServer::new();
    let id = filled(&server, 200_000_000);
    let mut client = std::net::TcpStream::connect(server.address()).unwrap();
    let key = crate::support::KEY;
    let head =
        format!("POST /api/v1/sandboxes/{id}/commit HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n");
    write!(client, "{head}content-length: 0\r\n\r\n").unwrap();
    wait_until("it is under way", || is_frozen(&server, &id));
    drop(client);
    wait_until("the sandbox goes on", || !is_frozen(&server, &id));
    assert_eq!(server.output_of(&id, "echo works"), "works\n");
    assert_eq!(snapshots(&server), 0);
    assert_eq!(server.post(&format!("/api/v1/sandboxes/{id}/commit"), &json!({})).status, 201);
    assert_eq!(snapshots(&server), 1);
}

#[test]
fn a_shutdown_cancels_a_long_commit() {
    let mut server = TestServer::with(&[("SHUTDOWN_TIMEOUT", "2")]);
    let id = filled(&server, 300_000_000);
    let (address, path) = (server.address(), format!("/api/v1/sandboxes/{id}/commit"));
    let answer = std::thread::scope(|scope| {
        let call = crate::support::Call::new(address, "POST", &path).key(crate::support::KEY).json("{}");
        let commit = scope.spawn(move || call.try_send());
        wait_until("it is under way", || is_frozen(&server, &id));
        server.signal(Signal::TERM);
        commit.join().unwrap()
    });
    assert!(server.wait().success());
    // A fast machine finishes in time, and a slow one may be disconnected before it sends the error.
    let made = answer.map(|answer| match answer.status {
        503 => {
            assert_eq!(answer.error(), "SHUTTING_DOWN");
            0
        }
        status => {
            assert_eq!(status, 201, "{}", answer.body);
            1
        }
    });
    server.start();
    wait_until("its guest is back", || server.sandbox(&id)["agentConnected"] == true);
    wait_until("it is not frozen", || !is_frozen(&server, &id));
    assert_eq!(server.output_of(&id, "echo works"), "works\n");
    assert!(made.is_none_or(|made| snapshots(&server) == made), "{made:?}");
}

#[test]
fn metrics_have_documented_names_and_log_lines_are_json() {
    let server = TestServer::new();
    let id = server.create();
    server.run(&id, "true");
    let has = |line: &str| server.get("/metrics").body.lines().any(|one| one.starts_with(line));
    wait_until("sandboxes are counted", || has("sandbox_total{state=\"running\"} 1"));
    for line in [
        "# TYPE sandbox_total gauge",
        "# TYPE sandbox_create_duration_seconds histogram",
        "sandbox_create_duration_seconds_bucket{le=\"+Inf\"} 1",
        "sandbox_create_duration_seconds_count{} 1",
        "# TYPE api_request_duration_seconds histogram",
        "api_request_duration_seconds_bucket{endpoint=\"POST /api/v1/sandboxes\",le=",
        "# TYPE api_request_total counter",
        "api_request_total{endpoint=\"POST /api/v1/sandboxes/{id}/process/run\",status=\"200\"} 1",
    ] {
        assert!(has(line), "no {line} in\n{}", server.get("/metrics").body);
    }
    for line in server.log().lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        assert!(line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string());
    }
    let audit = std::fs::read_to_string(server.path().join("audit.log")).unwrap();
    for event in ["sandbox.created", "command.run"] {
        assert!(audit.lines().any(|line| line.contains(event) && line.contains(&id)), "{event} in {audit}");
    }
}
