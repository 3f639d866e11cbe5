//! Clients that stall in the middle of archives and connections, or disappear.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tungstenite::Message;

use super::files::{FileServer, begin_read, noise};
use super::ports;
use super::test_server::wait_until;
use crate::snapshots::archive::Archive;
use crate::support::KEY;

/// Number of files in the archives.
const FILES: usize = 40;
/// Maximum number of transfers of a sandbox at a time.
const TRANSFERS_MAX: usize = 16;
/// Memory by which a server may grow for stalled clients.
const GROWTH_MAX: u64 = 64 << 20;

/// Program that sends without an end on port 7000 of the loopback.
const ENDLESS: &str = "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); bind(S, sockaddr_in(7000, INADDR_LOOPBACK)) or die; \
                       listen(S, 50); $SIG{PIPE} = q(IGNORE); while (accept(C, S)) { if (!fork) { 1 while syswrite(C, q(x) x 65536); exit } close C }'";

/// Returns an archive of files that begin with a word. It is larger than all buffers on its way.
fn archive(word: &str) -> Vec<u8> {
    let content = [word.as_bytes(), &noise(100_000)].concat();
    (0..FILES).fold(Archive::new(), |archive, number| archive.file(format!("{number}"), &content)).bytes()
}

/// Starts to send an archive, of which only a part is sent.
fn begin_upload(fixture: &FileServer, archive: &[u8], sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    let route = fixture.route("files/workspace/tree?archive=tar");
    let head = format!(
        "PUT {route} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n",
        archive.len()
    );
    stream.write_all(&[head.as_bytes(), &archive[..sent]].concat()).unwrap();
    stream
}

/// Checks that each file of the tree is old or new as a whole, and that there is nothing else.
fn assert_whole(fixture: &FileServer) {
    let listed = fixture.output_of("cd tree; ls -A | wc -l; sha256sum * | cut -c 1-64 | sort -u | wc -l");
    let numbers: Vec<usize> = listed.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert!(numbers[0] == FILES && numbers[1] <= 2, "{listed}{}", fixture.output_of("ls -lA tree"));
}

#[test]
fn clients_that_leave_in_the_middle_of_archives_keep_whole_files_and_free_their_places() {
    let fixture = FileServer::new();
    let (old, new) = (archive("old"), archive("new"));
    assert_eq!(fixture.put("workspace/tree?archive=tar", &old).status, 200);
    // More than there are places for transfers, so those of the earlier ones must have become free.
    for round in 0..TRANSFERS_MAX + 4 {
        drop(begin_upload(&fixture, &new, new.len() * round / (TRANSFERS_MAX + 4)));
        drop(begin_read(&fixture, "files/workspace/tree?archive=tar"));
    }
    wait_until("nothing is written any more", || {
        assert_whole(&fixture);
        fixture.put("workspace/tree?archive=tar", &old).status == 200
            && fixture.output_of("cd tree; grep -l ^new *; true").is_empty()
    });
    assert_eq!(fixture.output_of("find . -name '.*' ! -name . | wc -l"), "0\n");
}

#[test]
fn stalled_clients_of_archives_and_ports_delay_nobody_and_take_little_memory() {
    let fixture = FileServer::new();
    fixture.output_of("mkdir big; head -c 64m /dev/zero > big/zeros; echo small > small");
    assert_eq!(fixture.put("workspace/tree?archive=tar", &archive("old")).status, 200);
    fixture.server.start_background(&fixture.id, json!({"command": ENDLESS, "timeout": 0}));
    wait_until("it listens", || {
        let ports = fixture.call("GET", "ports").send().json();
        ports["items"].as_array().unwrap().iter().any(|port| port["port"] == 7000)
    });
    let before = fixture.server.resident_bytes();
    let new = archive("new");
    let uploads: Vec<TcpStream> = (0..4).map(|_| begin_upload(&fixture, &new, new.len() / 2)).collect();
    let downloads: Vec<TcpStream> =
        (0..4).map(|_| begin_read(&fixture, "files/workspace/big?archive=tar")).collect();
    let mut connections: Vec<_> = (0..4).map(|_| ports::connect(&fixture, 7000).unwrap()).collect();
    for connection in &mut connections {
        assert!(matches!(connection.read().unwrap(), Message::Binary(_)));
    }
    // Small files, listings, commands, and what needs the workspace for itself.
    assert_eq!(fixture.read("workspace/small").1, b"small\n");
    assert_eq!(fixture.call("GET", "entries/workspace?depth=2").send().status, 200);
    assert_eq!(fixture.output_of("echo usable"), "usable\n");
    let commit = fixture.server.post(&fixture.route("commit"), &json!({}));
    assert_eq!(commit.status, 201, "{}", commit.body);
    assert_whole(&fixture);
    let grown = fixture.server.resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "the server grew by {} MiB", grown >> 20);
    // A restore ends all of them, without waiting for their clients.
    let restored =
        fixture.server.post(&fixture.route("restore"), &json!({"snapshot": commit.json()["snapshot"]["id"]}));
    assert_eq!(restored.status, 200, "{}", restored.body);
    drop((uploads, downloads, connections));
    assert_whole(&fixture);
    assert_eq!(fixture.read("workspace/big?archive=tar").1.len() >> 20, 64);
}
