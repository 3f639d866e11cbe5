//! Downloads of snapshots as archives.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::SnapshotServer;
use super::archive::{Archive, filled};
use super::uploads::noise;

impl SnapshotServer {
    /// Downloads the archive of a snapshot. `query` is empty or begins with `?`.
    fn download(&self, id: &str, query: &str) -> Vec<u8> {
        let (head, body) = self.call("GET", &format!("snapshots/{id}/archive{query}")).download();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body
    }

    /// Opens a connection and requests the archive of a snapshot.
    fn request_archive(&self, id: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = format!(
            "GET /api/v1/snapshots/{id}/archive HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: {}\r\n\r\n",
            self.key
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }
}

/// Returns the names of the members of an archive, which must be short.
fn names(archive: &[u8]) -> Vec<String> {
    let (mut names, mut at) = (Vec::new(), 0);
    while archive[at] != 0 {
        let field = |from: usize, to: usize| {
            let field = archive[at + from..at + to].split(|byte| *byte == 0).next().unwrap();
            String::from_utf8_lossy(field).into_owned()
        };
        let size = usize::from_str_radix(field(124, 136).trim(), 8).unwrap();
        // Records of the next member have no name of their own.
        if archive[at + 156] != b'x' {
            names.push(field(0, 100));
        }
        at += 512 + size.next_multiple_of(512);
    }
    assert_eq!(archive.len() - at, 1024, "the end of the archive");
    names
}

#[test]
fn an_archive_has_all_that_was_uploaded() {
    let fixture = SnapshotServer::new();
    let long = "long-name-".repeat(20);
    let archive = Archive::new()
        .program("bin/run", "#!/bin/sh\n")
        .file("data/plain", noise(1, 700_000))
        .hard_link("data/again", "data/plain")
        .symlink("link", "../outside")
        .records(&[("SCHILY.xattr.user.note", b"\0\xff=\n"), ("mtime", b"1234567890.123456789")])
        .file("noted", "with an attribute")
        .hole("sparse", 5 << 30)
        .records(&[("path", long.as_bytes())])
        .file("short", "of the long name")
        .file(b"d/\xff\n", "no text")
        .file("empty", "");
    let made = fixture.upload("", &archive.bytes()).json();
    let id = made["id"].as_str().unwrap();
    let (head, downloaded) = fixture.call("GET", &format!("snapshots/{id}/archive")).download();
    for line in [
        "content-type: application/x-tar".to_owned(),
        format!("content-disposition: attachment; filename=\"{id}.tar\""),
        "cache-control: no-store".to_owned(),
    ] {
        assert!(head.lines().any(|it| it == line), "{line} in {head}");
    }
    // Holes are not sent.
    assert!(downloaded.len() < 1 << 20, "{}", downloaded.len());

    let again = fixture.upload("", &downloaded).json();
    for field in ["tree", "files", "directories", "symlinks", "bytes"] {
        assert_eq!(again[field], made[field], "{field}");
    }
    // Times and hard links are not a part of the tree, but of the archive.
    assert!(fixture.download(again["id"].as_str().unwrap(), "") == downloaded);

    let answer = fixture.call("HEAD", &format!("snapshots/{id}/archive")).send();
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(answer.header("content-type"), Some("application/x-tar"));
}

#[test]
fn a_part_of_a_snapshot_is_archived_relative_to_it() {
    let fixture = SnapshotServer::new();
    let archive = Archive::new()
        .file("src/main.rs", "fn main() {}\n")
        .file("src/deep/er/file", "x")
        .hard_link("src/deep/link", "src/main.rs")
        .symlink("src/out", "/etc")
        .file(b"\xff/\xfe", "no text")
        .file("a b+c/x", "signs");
    let id = fixture.create_snapshot(&archive);
    for (path, expected) in [
        ("src", vec!["./", "deep/", "deep/er/", "deep/er/file", "deep/link", "main.rs", "out"]),
        ("/src//deep/", vec!["./", "er/", "er/file", "link"]),
        ("src%2Fmain.rs", vec!["main.rs"]),
        ("src/deep/link", vec!["link"]),
        ("src/out", vec!["out"]),
        ("a+b%2Bc", vec!["./", "x"]),
        ("%ff", vec!["./", "\u{fffd}"]),
    ] {
        assert_eq!(names(&fixture.download(&id, &format!("?path={path}"))), expected, "{path}");
    }
    let part = fixture.upload("", &fixture.download(&id, "?path=src")).json();
    let part = part["id"].as_str().unwrap();
    assert_eq!(fixture.get(&format!("snapshots/{part}/files/main.rs")).body, "fn main() {}\n");
    assert_eq!(fixture.get(&format!("snapshots/{part}/files/deep/link")).body, "fn main() {}\n");
    for (query, error) in [
        ("?path=nothing", "PATH_NOT_FOUND"),
        ("?path=src/out/passwd", "PATH_NOT_FOUND"),
        ("?path=src/main.rs/x", "PATH_NOT_FOUND"),
        ("?path=../etc", "INVALID_REQUEST"),
        ("?path=a%00b", "INVALID_REQUEST"),
        ("?path=%zz", "INVALID_REQUEST"),
        ("?path=a&path=b", "INVALID_REQUEST"),
        ("?format=zip", "INVALID_REQUEST"),
    ] {
        assert_eq!(fixture.get(&format!("snapshots/{id}/archive{query}")).error(), error, "{query}");
    }
    let unknown = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718";
    for unknown in [unknown, "main", &id[..12], ".."] {
        let answer = fixture.get(&format!("snapshots/{unknown}/archive"));
        assert_eq!(answer.error(), "SNAPSHOT_NOT_FOUND", "{unknown}");
    }
}

#[test]
fn slow_and_disconnected_downloads_do_not_block_others() {
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("big", noise(3, 20 << 20)));
    let small = fixture.create_snapshot(&Archive::new().file("small", "here"));
    let mut slow: Vec<TcpStream> = Vec::new();
    for _ in 0..40 {
        let mut stream = fixture.request_archive(&id);
        stream.read_exact(&mut [0; 100]).unwrap();
        slow.push(stream);
    }
    slow.truncate(20);
    assert_eq!(names(&fixture.download(&small, "")), ["./", "small"]);
    assert_eq!(fixture.upload("", &Archive::new().file("a", "b").bytes()).status, 201);
    // A client that continues after a pause gets all of it.
    let mut rest = Vec::new();
    slow.pop().unwrap().read_to_end(&mut rest).unwrap();
    assert!(rest.len() > 20 << 20 && rest.ends_with(b"\r\n0\r\n\r\n"), "{}", rest.len());
    // A snapshot that is being downloaded can be deleted.
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{id}")).send().status, 204);
}

#[test]
fn a_large_archive_is_sent_in_constant_memory() {
    let fixture = SnapshotServer::new();
    let size = 400 << 20;
    let answer = fixture.upload("", &filled(400, b'x'));
    assert_eq!(answer.status, 201, "{}", answer.body);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let small = fixture.create_snapshot(&Archive::new().file("small", "here"));
    fixture.download(&small, "");
    let before = fixture.server.resident_bytes();
    let mut stream = fixture.request_archive(&id);
    let (mut received, mut sampled, mut most) = (0, 0, 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = stream.read(&mut buffer).unwrap();
        received += read;
        if received >= sampled {
            most = most.max(fixture.server.resident_bytes());
            sampled = received + (8 << 20);
        }
        if read == 0 {
            break;
        }
    }
    assert!(received > size, "{received}");
    assert!(most < before + (100 << 20), "{before} bytes became {most}");
}

#[test]
fn a_removed_snapshot_ends_its_downloads_early() {
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("big", noise(7, 40 << 20)));
    let mut stream = fixture.request_archive(&id);
    stream.read_exact(&mut [0; 100]).unwrap();
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{id}")).send().status, 204);
    let mut rest = Vec::new();
    // The end of a complete body is missing.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 40 << 20 && !rest.ends_with(b"\r\n0\r\n\r\n"), "{}", rest.len());
}
