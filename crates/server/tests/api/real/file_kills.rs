//! Kills of the server in the middle of writes, and writes to a full disk.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::files::{FileServer, noise};
use super::test_server::{runs_slow_tests, wait_until};
use crate::snapshots::archive::Archive;
use crate::support::{Answer, KEY};

const OLD: &[u8] = b"old content";

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Sends the head of a `PUT`, and a part of the body.
fn begin_put(mut stream: TcpStream, route: &str, length: usize, sent: &[u8]) -> TcpStream {
    let head = format!(
        "PUT {route} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {KEY}\r\n\
         content-length: {length}\r\n\r\n"
    );
    // The server may have been killed.
    drop(stream.write_all(head.as_bytes()));
    drop(stream.write_all(sent));
    stream
}

/// Reads the response; `None` if the server was killed before it had sent one.
fn answer(mut stream: TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes));
    bytes.windows(4).any(|four| four == b"\r\n\r\n").then(|| Answer::parse(&bytes))
}

/// Restarts a killed server, and checks that a file is old or new, and new if that was acknowledged.
fn assert_whole_after_restart(fixture: &mut FileServer, new: &[u8], is_acknowledged: bool) {
    fixture.server.start();
    let id = fixture.id.clone();
    wait_until("the guest is back", || fixture.server.sandbox(&id)["agentConnected"] == true);
    let (answer, content) = fixture.read("workspace/file");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(content == new || (content == OLD && !is_acknowledged), "{} bytes", content.len());
    assert_eq!(fixture.output_of("ls -A"), "file\n");
}

#[test]
fn a_kill_of_the_server_before_the_end_of_a_body_keeps_the_old_file() {
    let mut fixture = FileServer::new();
    let content = noise(2 << 20);
    // Without any content, in the middle, and before the last byte.
    for sent in [0, content.len() / 2, content.len() - 1] {
        assert_eq!(fixture.put("workspace/file", OLD).status, 200);
        let route = fixture.route("files/workspace/file");
        let stream = begin_put(connect(fixture.server.address()), &route, content.len(), &content[..sent]);
        // The request is served: another one finds its transfer in progress, or its temporary file.
        assert_eq!(fixture.read("workspace/file").1, OLD);
        fixture.server.kill();
        assert!(answer(stream).is_none());
        assert_whole_after_restart(&mut fixture, OLD, true);
    }
}

#[test]
fn a_kill_of_the_server_at_the_end_of_a_write_leaves_a_whole_file() {
    let mut fixture = FileServer::new();
    let rounds = if runs_slow_tests() { 200 } else { 25 };
    let mut state = 1_u64;
    for round in 0..rounds {
        assert_eq!(fixture.put("workspace/file", OLD).status, 200);
        // Small content is sent to the I/O worker in one message, larger content in several.
        let content = noise(if round % 2 == 0 { 50_000 } else { 300_000 });
        let (stream, route) = (connect(fixture.server.address()), fixture.route("files/workspace/file"));
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let delay = Duration::from_micros((state >> 33) % 6_000);
        let replied = std::thread::scope(|scope| {
            let put = scope.spawn(|| answer(begin_put(stream, &route, content.len(), &content)));
            std::thread::sleep(delay);
            fixture.server.kill();
            put.join().unwrap()
        });
        let is_acknowledged = replied.is_some_and(|answer| answer.status == 200);
        assert_whole_after_restart(&mut fixture, &content, is_acknowledged);
    }
}

/// Server with a sandbox whose `/tmp` is small and full.
fn full_directory() -> FileServer {
    let mut fixture = FileServer::new();
    fixture.id = fixture.server.create_with(json!({"resources": {"memory": "128m"}}));
    fixture.output_of("cd /tmp; mkdir d; printf old > d/file; cat /dev/zero > fill 2>/dev/null; true");
    fixture
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_written() {
    let fixture = full_directory();
    for len in [10_000, 3 << 20] {
        let refused = fixture.put("tmp/d/file", &noise(len));
        assert_eq!((refused.status, refused.error().as_str()), (507, "DISK_LIMIT_EXCEEDED"), "{len}");
        let archive = Archive::new().file("new", noise(len)).bytes();
        let refused = fixture.put("tmp/d?archive=tar", &archive);
        assert_eq!((refused.status, refused.error().as_str()), (507, "DISK_LIMIT_EXCEEDED"), "{len}");
    }
    let batch = json!({"operations": [
        {"op": "chmod", "path": "/tmp/d/file", "mode": "0600"},
        {"op": "write", "path": "/tmp/d/new", "text": "x".repeat(10_000)},
        {"op": "remove", "path": "/tmp/d/file"},
    ]});
    let answer: Value = fixture.server.post(&fixture.route("files"), &batch).json();
    assert_eq!((&answer["completed"], &answer["failed"]["index"]), (&json!(1), &json!(1)), "{answer}");
    assert_eq!(answer["failed"]["error"]["name"], "DISK_LIMIT_EXCEEDED", "{answer}");
    assert_eq!(fixture.output_of("cd /tmp; cat d/file; ls -A d; rm fill"), "oldfile\n");
    assert_eq!(fixture.put("tmp/d/file", &noise(3 << 20)).status, 200);
}
