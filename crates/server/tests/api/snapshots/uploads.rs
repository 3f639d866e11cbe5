//! Uploads of valid and invalid archives.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use workspace_state::{GcOptions, NoProgress, Store};
use workspace_test_support::skip;

use super::SnapshotServer;
use super::archive::Archive;
use crate::real::disk::Disk;
use crate::real::test_server::wait_until;
use crate::support::Answer;

/// Returns the output of a compression program.
pub(super) fn compressed(program: &str, archive: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    let mut child = command.arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    child.stdin.take()?.write_all(archive).ok()?;
    Some(child.wait_with_output().ok()?.stdout)
}

/// Returns the size of all packs of the store in bytes.
fn stored(fixture: &SnapshotServer) -> u64 {
    let packs = std::fs::read_dir(fixture.server.path().join("store/packs")).unwrap();
    packs.map(|pack| pack.unwrap().metadata().unwrap().len()).sum()
}

/// Returns content that cannot be compressed.
pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn archives_may_be_compressed() {
    let fixture = SnapshotServer::new();
    let archive = Archive::new().file("a", "content of a").program("b", "b").bytes();
    let plain = fixture.upload("", &archive).json();
    for program in ["gzip", "zstd"] {
        let Some(bytes) = compressed(program, &archive) else {
            skip(format_args!("a part of it: there is no {program}"));
            continue;
        };
        let answer = fixture.upload("", &bytes);
        assert_eq!((answer.status, &answer.json()["tree"]), (201, &plain["tree"]), "{program}");
        let half = fixture.upload("", &bytes[..bytes.len() / 2]);
        assert_eq!(half.error(), "ARCHIVE_INVALID", "{program}");
    }
}

#[test]
fn hostile_archives_are_refused_completely() {
    let fixture = SnapshotServer::new();
    let fine = || Archive::new().file("fine", "fine");
    for (what, archive) in [
        ("leads out", fine().file("../out", "x")),
        ("leads out in the middle", fine().file("a/../../out", "x")),
        ("absolute", fine().file("/etc/passwd", "x")),
        ("a link to what is not there", fine().hard_link("link", "nothing")),
        ("a link that leads out", fine().hard_link("link", "../../etc/passwd")),
        ("an absolute link", fine().hard_link("link", "/etc/passwd")),
        ("through a symlink", fine().symlink("out", "/etc").file("out/passwd", "x")),
        ("a file that takes a directory's place", fine().file("d/x", "x").file("d", "x")),
    ] {
        let answer = fixture.upload("", &archive.bytes());
        assert_eq!(answer.error(), "ARCHIVE_INVALID", "{what}");
    }
    for (what, bytes) in [
        ("empty", &b""[..]),
        ("text", &[b'x'; 2_000]),
        ("short", b"abc"),
        ("gzip of nothing", b"\x1f\x8b\x08\0\0"),
    ] {
        assert_eq!(fixture.upload("", bytes).error(), "ARCHIVE_INVALID", "{what}");
    }
    assert_eq!(fixture.get_json("snapshots")["total"], 0);
    // Unusual members are accepted, and unsupported ones are reported as skipped.
    let odd = fine().symlink("out", "/etc/passwd").device("null").file("./fine", "again");
    let answer = fixture.upload("", &odd.bytes());
    assert_eq!(answer.status, 201, "{}", answer.body);
    let made = answer.json();
    assert_eq!((&made["skipped"][0]["path"], &made["replaced"][0]), (&"null".into(), &"fine".into()));
    assert!(made["skipped"][0]["reason"].as_str().unwrap().contains("device"), "{made}");
}

#[test]
fn an_aborted_upload_leaves_no_snapshot() {
    let fixture = SnapshotServer::new();
    assert_eq!(fixture.upload("", &Archive::new().file("a", "a").bytes()).status, 201);
    let before = stored(&fixture);
    let archive = Archive::new().file("big", noise(1, 8 << 20)).bytes();
    // The archive is truncated, but the request is complete.
    for end in [300, 512, 5_000_000, archive.len() - 1_200] {
        let answer = fixture.upload("", &archive[..end]);
        assert_eq!(answer.error(), "ARCHIVE_INVALID", "{end}");
    }
    // The connection is closed early: in the middle of the archive, and after it but before the announced length.
    for (promised, sent) in [(archive.len(), 5_000_000), (archive.len() + 512, archive.len())] {
        let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
        let head = format!(
            "POST /api/v1/snapshots HTTP/1.1\r\nhost: a\r\nx-api-key: {}\r\ncontent-length: {promised}\r\n\r\n",
            fixture.key
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&archive[..sent]).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        stream.shutdown(Shutdown::Both).unwrap();
    }
    // Garbage collection removes the objects of aborted uploads.
    let store = Store::open(fixture.server.path().join("store")).unwrap();
    wait_until("what was written is gone", || {
        let packs = std::fs::read_dir(store.path().join("packs")).unwrap();
        for pack in packs {
            let file = File::options().write(true).open(pack.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(100_000)).unwrap();
        }
        store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
        stored(&fixture) < before + (1 << 20)
    });
    assert_eq!(fixture.get_json("snapshots")["total"], 1);
    assert_eq!(fixture.upload("", &archive).status, 201);
    assert_eq!(fixture.get_json("snapshots")["total"], 2);
}

#[test]
fn the_size_of_an_archive_is_limited() {
    let fixture = SnapshotServer::with(&[("MAX_UPLOAD", "1m")]);
    let large = Archive::new().file("zeros", vec![0; 2 << 20]).bytes();
    // It is refused before anything is sent, or when the limit is reached.
    let length = format!("content-length: {}\r\n\r\n", large.len());
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", (1 << 20) + 1);
    for (head, sent) in [(length, 0), (chunked, (1 << 20) + 1)] {
        let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
        let call = format!(
            "POST /api/v1/snapshots HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: {}\r\n",
            fixture.key
        );
        stream.write_all(&[call.as_bytes(), head.as_bytes(), &large[..sent]].concat()).unwrap();
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(Answer::parse(&answer).error(), "PAYLOAD_TOO_LARGE");
    }
    let small = compressed("gzip", &large).unwrap();
    let answer = fixture.upload("", &small);
    assert_eq!(answer.error(), "PAYLOAD_TOO_LARGE", "a bomb of {} bytes", small.len());
    assert!(answer.body.contains("MAX_UPLOAD"));
    assert_eq!(fixture.get_json("snapshots")["total"], 0);
    // The limit of JSON bodies does not apply.
    assert_eq!(fixture.upload("", &Archive::new().file("a", vec![b'a'; 900_000]).bytes()).status, 201);
}

#[test]
fn concurrent_uploads_succeed() {
    let fixture = SnapshotServer::new();
    let archives: Vec<Vec<u8>> = (0..40)
        .map(|n| {
            Archive::new().file("same", noise(7, 300_000)).file(format!("own-{n}"), noise(n, 100_000)).bytes()
        })
        .collect();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let fixture = &fixture;
        let clients: Vec<_> =
            archives.iter().map(|archive| scope.spawn(move || fixture.upload("", archive))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer.status, 201, "{}", answer.body);
        let tree = fixture.get_json(&format!("snapshots/{}/tree", answer.json()["id"].as_str().unwrap()));
        let names: Vec<_> = tree["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, [format!("own-{n}"), "same".to_owned()]);
    }
    assert_eq!(fixture.get_json("snapshots?limit=100")["items"].as_array().unwrap().len(), 40);
}

#[test]
fn uploads_fail_on_a_full_disk_and_work_again_after_it() {
    let Some(disk) = Disk::mount("64m") else { return };
    let fixture = SnapshotServer::with(&[("DATA_DIR", disk.path().to_str().unwrap())]);
    assert_eq!(fixture.upload("", &Archive::new().file("a", "a").bytes()).status, 201);
    disk.fill_but(4 << 20);
    let archive = Archive::new().file("big", noise(3, 16 << 20)).bytes();
    let refused = fixture.upload("", &archive);
    assert_eq!((refused.status, refused.error().as_str()), (507, "STORAGE_FULL"), "{}", refused.body);
    assert_eq!(fixture.get_json("snapshots")["total"], 1);
    disk.empty();
    wait_until("it is taken", || fixture.upload("", &archive).status == 201);
}

#[test]
fn the_number_of_an_owners_snapshots_is_limited() {
    let mut fixture = SnapshotServer::with(&[("MAX_SNAPSHOTS_PER_OWNER", "2")]);
    let admin = fixture.key.clone();
    fixture.key = fixture.key_of("alice", "user");
    let archive = |content: &str| Archive::new().file("a", content);
    let first = fixture.create_snapshot(&archive("1"));
    fixture.create_snapshot(&archive("2"));
    let refused = fixture.upload("", &archive("3").bytes());
    assert_eq!((refused.status, refused.error()), (429, "SNAPSHOT_LIMIT_EXCEEDED".to_owned()));
    assert_eq!(refused.header("retry-after"), None, "waiting does not help");
    let details = &refused.json()["error"]["details"];
    assert_eq!((&details["limit"], &details["setting"]), (&2.into(), &"MAX_SNAPSHOTS_PER_OWNER".into()));
    for _ in 0..3 {
        let made = fixture.call_as(&admin, "POST", "snapshots").body(&archive("4").bytes()).send();
        assert_eq!(made.status, 201, "administrators have no limit: {}", made.body);
    }
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{first}")).send().status, 204);
    fixture.create_snapshot(&archive("3"));
}

#[test]
fn an_upload_has_a_timeout() {
    let fixture = SnapshotServer::with(&[("UPLOAD_TIMEOUT", "1")]);
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    let head = format!(
        "POST /api/v1/snapshots HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: {}\r\ncontent-length: 9999\r\n\r\n",
        fixture.key
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(b"begun").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = Answer::parse(&answer);
    assert_eq!((answer.status, answer.error()), (408, "REQUEST_TIMEOUT".to_owned()));
    assert_eq!(answer.json()["error"]["details"]["setting"], "UPLOAD_TIMEOUT");
}

#[test]
fn the_total_size_of_an_owners_snapshots_is_limited() {
    let mut fixture = SnapshotServer::with(&[("MAX_SNAPSHOT_BYTES_PER_OWNER", "200k")]);
    let admin = fixture.key.clone();
    fixture.key = fixture.key_of("alice", "user");
    let archive = |seed: u64| Archive::new().file("a", incompressible(seed, 150_000));
    let first = fixture.create_snapshot(&archive(1));
    fixture.create_snapshot(&archive(2));
    let refused = fixture.upload("", &archive(3).bytes());
    assert_eq!((refused.status, refused.error()), (429, "SNAPSHOT_LIMIT_EXCEEDED".to_owned()));
    assert_eq!(refused.json()["error"]["details"]["setting"], "MAX_SNAPSHOT_BYTES_PER_OWNER");
    let made = fixture.call_as(&admin, "POST", "snapshots").body(&archive(3).bytes()).send();
    assert_eq!(made.status, 201, "administrators have no limit: {}", made.body);
    assert_eq!(fixture.call("DELETE", &format!("snapshots/{first}")).send().status, 204);
    // The collection that the refusal started may still run.
    wait_until("garbage is collected", || fixture.call_as(&admin, "POST", "gc").send().status == 200);
    fixture.create_snapshot(&archive(4));
    assert_eq!(fixture.upload("", &archive(5).bytes()).error(), "SNAPSHOT_LIMIT_EXCEEDED");
}

/// Returns text without repetitions.
pub(crate) fn incompressible(seed: u64, length: usize) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + (state % 90) as u8)
    };
    (0..length).map(next).collect()
}
