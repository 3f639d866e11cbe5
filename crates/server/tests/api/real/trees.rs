//! Directories of a sandbox as tar archives.

use serde_json::json;

use super::files::{FileServer, noise};
use crate::snapshots::archive::Archive;
use crate::support::Answer;

fn put(fixture: &FileServer, path: &str, archive: &[u8]) -> Answer {
    let separator = if path.contains('?') { '&' } else { '?' };
    fixture.put(&format!("{path}{separator}archive=tar"), archive)
}

#[test]
fn a_directory_round_trips_as_an_archive() {
    let fixture = FileServer::new();
    let large = noise(300_000);
    let long = format!("{}/name", "d".repeat(120));
    let archive = Archive::new()
        .file("file", "content")
        .program("bin/run", "#!/bin/sh\n")
        .file(b"bin/\xff", "odd")
        .file("large", &large)
        .records(&[("path", long.as_bytes())])
        .file("x", "long")
        .symlink("link", "bin/run")
        .hard_link("again", "file")
        .hard_link("once more", "again")
        .device("device")
        .bytes();
    let answer = put(&fixture, "workspace/tree", &archive);
    let bytes = 3 * 7 + 10 + 3 + large.len() + 4;
    assert_eq!((answer.status, answer.json()), (200, json!({"files": 7, "bytes": bytes, "skipped": 1})));
    let content = "cd tree; cat file again 'once more'; readlink link; stat -c %a bin/run; stat -c %Y file";
    assert_eq!(fixture.output_of(content), "contentcontentcontentbin/run\n755\n1676080896\n");
    let (read, tar) = fixture.read("workspace/tree?archive=tar");
    assert_eq!((read.status, read.header("content-type")), (200, Some("application/x-tar")));
    assert_eq!(put(&fixture, "workspace/copy", &tar).json()["files"], 7);
    fixture.output_of("diff -r --no-dereference tree copy");
    assert_eq!(fixture.output_of("cd copy; stat -c '%a %Y' bin/run; ls | wc -l"), "755 1676080896\n7\n");
    let (head, nothing) = fixture.call("HEAD", "files/workspace/tree?archive=tar").send_for_bytes();
    assert_eq!((head.status, nothing.len()), (200, 0));
    let file = fixture.call("GET", "files/workspace/tree/file?archive=tar").send();
    assert_eq!(file.error(), "FILE_CONFLICT");
}

#[test]
fn an_archive_keeps_files_that_it_does_not_contain() {
    let fixture = FileServer::new();
    fixture.output_of("mkdir tree; echo old > tree/replaced; echo kept > tree/kept");
    let archive = Archive::new().file("./replaced", "new").file("./new/file", "x").bytes();
    assert_eq!(put(&fixture, "workspace/tree", &archive).status, 200);
    assert_eq!(fixture.output_of("cd tree; cat replaced kept new/file"), "newkept\nx");
    assert_eq!(put(&fixture, "workspace/new/", &archive).status, 200);
    let missing = put(&fixture, "workspace/a/b", &archive);
    assert_eq!(missing.error(), "PATH_NOT_FOUND", "{}", missing.body);
    assert_eq!(put(&fixture, "workspace/a/b?mkdirs=true", &archive).status, 200);
    let refused = put(&fixture, "workspace/tree/replaced", &archive);
    assert_eq!(refused.error(), "FILE_CONFLICT", "{}", refused.body);
    for (path, header) in [("workspace/tree?mode=0644", None), ("workspace/tree", Some(("if-match", "*")))] {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut call = fixture.call("PUT", &format!("files/{path}{separator}archive=tar")).body(&archive);
        if let Some((name, value)) = header {
            call = call.header(name, value);
        }
        assert_eq!(call.send().error(), "INVALID_REQUEST", "{path}");
    }
}

#[test]
fn hostile_archives_write_nothing_outside_of_the_directory() {
    let fixture = FileServer::with(&[("MAX_UPLOAD_EXPANDED", "1m")]);
    fixture.output_of("echo secret > /workspace/secret; mkdir tree");
    let whole = Archive::new().file("a", "x").bytes();
    for (archive, error) in [
        (Archive::new().file("../out", "x").bytes(), "ARCHIVE_INVALID"),
        (Archive::new().file("a/../../out", "x").bytes(), "ARCHIVE_INVALID"),
        (Archive::new().file("/workspace/out", "x").bytes(), "ARCHIVE_INVALID"),
        (Archive::new().hard_link("stolen", "../secret").bytes(), "ARCHIVE_INVALID"),
        (Archive::new().hard_link("stolen", "/workspace/secret").bytes(), "ARCHIVE_INVALID"),
        (Archive::new().symlink("up", "..").hard_link("stolen", "up").bytes(), "ARCHIVE_INVALID"),
        (Archive::new().hole("big", 1 << 50).bytes(), "PAYLOAD_TOO_LARGE"),
        (Archive::new().hole("big", 600 << 10).hard_link("again", "big").bytes(), "PAYLOAD_TOO_LARGE"),
        (b"no archive at all".to_vec(), "ARCHIVE_INVALID"),
        (whole[..whole.len() - 1_100].to_vec(), "ARCHIVE_INVALID"),
    ] {
        let answer = put(&fixture, "workspace/tree", &archive);
        assert_eq!(answer.error(), error, "{}", answer.body);
    }
    // A member below a symlink that the archive made.
    let below = Archive::new().symlink("up", "..").file("up/out", "x").bytes();
    let answer = put(&fixture, "workspace/tree", &below);
    assert!((400..500).contains(&answer.status), "{}", answer.body);
    let replaced = Archive::new().symlink("up", "../secret").file("up", "mine").bytes();
    assert_eq!(put(&fixture, "workspace/tree", &replaced).status, 200);
    assert_eq!(fixture.output_of("ls; cat secret; cat tree/up"), "secret\ntree\nsecret\nmine");
}

#[test]
fn archives_may_be_compressed_and_have_a_limit() {
    let fixture = FileServer::with(&[("MAX_UPLOAD", "1m")]);
    let archive = Archive::new().file("a", "compressed").bytes();
    let packed = zstd::encode_all(&archive[..], 1).unwrap();
    assert_eq!(put(&fixture, "workspace/tree", &packed).json()["files"], 1);
    assert_eq!(fixture.output_of("cat tree/a"), "compressed");
    let bomb = crate::snapshots::archive::zeros(8);
    let refused = put(&fixture, "workspace/tree", &bomb);
    assert_eq!(refused.error(), "PAYLOAD_TOO_LARGE", "{}", refused.body);
    assert_eq!(refused.json()["error"]["details"]["setting"], "MAX_UPLOAD");
}

#[test]
fn special_files_are_left_out_and_unreadable_ones_fail() {
    let fixture = FileServer::new();
    fixture.output_of("mkdir -p tree/sub; mkfifo tree/fifo; echo x > tree/file");
    let (_, tar) = fixture.read("workspace/tree?archive=tar");
    assert_eq!(put(&fixture, "workspace/copy", &tar).json(), json!({"files": 1, "bytes": 2, "skipped": 0}));
    assert_eq!(fixture.output_of("ls copy"), "file\nsub\n");
    fixture.output_of("chmod 000 tree/file");
    assert_eq!(fixture.call("GET", "files/workspace/tree?archive=tar").send().error(), "FILE_DENIED");
}
