//! Small archives that cause a lot of work.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::SnapshotServer;
use super::archive::{Archive, zeros};
use super::uploads::compressed;
use crate::real::test_server::{names, wait_until, wait_until_within};
use crate::support::Answer;

/// MiB of zeros that take minutes to import, in a body that fits in the read-ahead buffer.
const SLOW_MEBIBYTES: usize = 120_000;

/// Sends the head of an upload and a part of its body.
fn begin_upload(fixture: &SnapshotServer, key: &str, length: usize, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "POST /api/v1/snapshots HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: {key}\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), sent].concat()).unwrap();
    stream
}

/// Returns true if a child of this process has ended.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

#[test]
fn a_path_with_too_many_components_is_refused() {
    let fixture = SnapshotServer::new();
    let path = "a/".repeat(200_000);
    let archive = Archive::new().records(&[("path", path.as_bytes())]).file("x", "").bytes();
    let before = fixture.server.resident_bytes();
    let answer = fixture.upload("", &compressed("gzip", &archive).unwrap());
    assert_eq!((answer.status, answer.error().as_str()), (400, "ARCHIVE_INVALID"), "{}", answer.body);
    assert!(answer.body.contains("1024 levels") && answer.body.len() < 2_000, "{}", answer.body);
    let after = fixture.server.resident_bytes();
    assert!(after < before + (200 << 20), "{before} bytes became {after}");
}

#[test]
fn sparse_files_count_with_their_holes() {
    let fixture = SnapshotServer::with(&[("MAX_UPLOAD_EXPANDED", "1g")]);
    for size in [(1 << 30) + 1, 1 << 62, 1 << 63, u64::MAX] {
        let answer = fixture.upload("", &Archive::new().hole("big", size).bytes());
        assert_eq!((answer.status, answer.error().as_str()), (413, "PAYLOAD_TOO_LARGE"), "{size}");
        assert_eq!(answer.json()["error"]["details"]["setting"], "MAX_UPLOAD_EXPANDED");
    }
    // Each hard link counts as a file.
    let twice = Archive::new().hole("big", 600 << 20).hard_link("again", "big").bytes();
    assert_eq!(fixture.upload("", &twice).status, 413);
    assert_eq!(fixture.get_json("snapshots")["total"], 0);
    assert_eq!(fixture.upload("", &Archive::new().hole("big", 1 << 30).bytes()).status, 201);
}

#[test]
fn a_disconnect_cancels_an_upload() {
    let limits = [("MAX_UPLOAD", "1t"), ("MAX_UPLOAD_EXPANDED", "1t")];
    let fixture = SnapshotServer::with(
        &[&limits[..], &[("MAX_UPLOADS", "1"), ("MAX_UPLOADS_PER_OWNER", "1")]].concat(),
    );
    let archive = zeros(SLOW_MEBIBYTES);
    let stream = begin_upload(&fixture, &fixture.key, archive.len(), &archive);
    std::thread::sleep(Duration::from_millis(500));
    stream.shutdown(Shutdown::Both).unwrap();
    // The only permit is free again.
    let answer = fixture.upload("", &Archive::new().file("a", "a").bytes());
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert_eq!(fixture.get_json("snapshots")["total"], 1);
}

#[test]
fn a_shutdown_cancels_long_uploads_in_time() {
    let limits = [("MAX_UPLOAD", "1t"), ("MAX_UPLOAD_EXPANDED", "1t"), ("SHUTDOWN_TIMEOUT", "4")];
    let mut fixture = SnapshotServer::with(&limits);
    let archive = zeros(SLOW_MEBIBYTES);
    let mut streams: Vec<_> =
        (0..3).map(|_| begin_upload(&fixture, &fixture.key, archive.len(), &archive)).collect();
    // Another upload never sends the rest.
    let _silent = begin_upload(&fixture, &fixture.key, archive.len(), &archive[..1000]);
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    fixture.server.signal(Signal::TERM);
    for stream in &mut streams {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(Answer::parse(&answer).error(), "SHUTTING_DOWN");
    }
    let pid = fixture.server.pid();
    wait_until_within(Duration::from_secs(30), "the server ends", || has_ended(pid));
    assert!(fixture.server.wait().success());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn uploads_of_one_owner_do_not_block_others() {
    let fixture = SnapshotServer::with(&[("MAX_UPLOADS", "3"), ("MAX_UPLOADS_PER_OWNER", "2")]);
    let (one, other) = (fixture.key_of("one", "user"), fixture.key_of("other", "user"));
    // Each waits for a body that is not sent.
    let held: Vec<_> = (0..5).map(|_| begin_upload(&fixture, &one, 10_000, b"")).collect();
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..3 {
        let archive = Archive::new().file("a", "a").bytes();
        let answer = fixture.call_as(&other, "POST", "snapshots").body(&archive).send();
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    drop(held);
    wait_until("its turns are free again", || {
        let archive = Archive::new().file("a", "a").bytes();
        fixture.call_as(&one, "POST", "snapshots").body(&archive).send().status == 201
    });
}

#[test]
fn invalid_and_too_large_templates_are_client_errors() {
    let fixture = SnapshotServer::with(&[("MAX_TEMPLATE", "64m")]);
    let import = |bytes: &[u8]| fixture.call("PUT", "templates/x").body(bytes).send();
    let shell = || Archive::new().program("bin/sh", "#!");
    for (what, archive) in
        [("a sparse file", shell().hole("big", 1 << 62).bytes()), ("what is compressed", zeros(65))]
    {
        let answer = import(&archive);
        assert_eq!((answer.status, answer.error().as_str()), (413, "PAYLOAD_TOO_LARGE"), "{what}");
        assert_eq!(answer.json()["error"]["details"]["setting"], "MAX_TEMPLATE", "{what}");
    }
    // A template whose announced length is too large is refused before its body is sent.
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    let head = format!(
        "PUT /api/v1/templates/x HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: {}\r\ncontent-length: {}\r\n\r\n",
        fixture.key,
        (64 << 20) + 1
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(Answer::parse(&answer).error(), "PAYLOAD_TOO_LARGE");
    let (long, deep) = ("n".repeat(300), "d/".repeat(10_000));
    for path in [&b"a\0b"[..], long.as_bytes(), deep.as_bytes(), b".wh..."] {
        let answer = import(&shell().records(&[("path", path)]).file("x", "").bytes());
        assert_eq!((answer.status, answer.error().as_str()), (400, "INVALID_REQUEST"), "{}", answer.body);
    }
    assert_eq!(names(&fixture.server.path().join("templates")), [""; 0]);
    assert_eq!(import(&shell().hole("big", 10 << 20).bytes()).status, 201);
}
