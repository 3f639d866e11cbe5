//! Imports of templates: kills, full disk, concurrency.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::disk::Disk;
use super::test_server::{TestServer, names, runs_slow_tests};
use crate::support::{Answer, Call, KEY};

/// Number of files in the archive besides the shell, and the size of each in bytes.
const FILES: usize = 400;
const BYTES: usize = 20_000;
const SIZE: u64 = (FILES * BYTES) as u64 + 7;

/// Returns a root filesystem as a tar archive.
fn archive(compressed: bool) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    for name in ["bin", "files"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    std::fs::write(directory.path().join("bin/sh"), "a shell").unwrap();
    for n in 0..FILES {
        std::fs::write(directory.path().join(format!("files/{n}")), vec![b'x'; BYTES]).unwrap();
    }
    let how = if compressed { "-cz" } else { "-c" };
    Command::new("tar").arg("-C").arg(directory.path()).args([how, "."]).output().unwrap().stdout
}

fn import(server: &TestServer, name: &str, archive: &[u8]) -> Answer {
    server.call("PUT", &format!("/api/v1/templates/{name}")).body(archive).send()
}

/// Returns a template of the list; `None` if it is not there.
fn listed(server: &TestServer, name: &str) -> Option<Value> {
    let list = server.get("/api/v1/templates").json();
    list.as_array().unwrap().iter().find(|one| one["name"] == name && one["present"] == true).cloned()
}

/// Returns the names of all files in the directory of templates.
fn template_files(data: &Path) -> Vec<String> {
    names(&data.join("templates"))
}

#[test]
fn a_killed_import_leaves_the_whole_template_or_nothing() {
    let mut server = TestServer::new();
    let archive = archive(true);
    let began = Instant::now();
    assert_eq!(import(&server, "many", &archive).status, 201);
    let whole = began.elapsed();
    assert_eq!(server.call("DELETE", "/api/v1/templates/many").send().status, 204);
    let (rounds, mut there) = (if runs_slow_tests() { 40 } else { 10 }, 0);
    for round in 0..rounds {
        let address = server.address();
        let answer = std::thread::scope(|scope| {
            let call = Call::new(address, "PUT", "/api/v1/templates/many").key(KEY).body(&archive);
            let client = scope.spawn(move || call.try_send());
            // Kills are spread from the start of the import to shortly after its end.
            std::thread::sleep(whole.mul_f64(1.2) * round / rounds);
            server.signal(Signal::KILL);
            client.join().unwrap()
        });
        server.wait();
        server.start();
        let found = listed(&server, "many");
        if answer.is_some() {
            assert!(found.is_some(), "round {round}: it was acknowledged");
        }
        match found {
            None => assert_eq!(template_files(server.path()), [""; 0], "round {round}"),
            Some(template) => {
                there += 1;
                assert_eq!(template["size"], SIZE, "round {round}");
                assert_eq!(template_files(server.path()), ["many"], "round {round}");
                assert_eq!(names(&server.path().join("templates/many/root/files")).len(), FILES);
                assert_eq!(server.call("DELETE", "/api/v1/templates/many").send().status, 204);
            }
        }
    }
    eprintln!("of {rounds} imports that were killed, {there} were done");
    assert_eq!(import(&server, "many", &archive).status, 201);
}

#[test]
fn an_import_fails_on_a_full_disk_and_works_after_it() {
    let Some(disk) = Disk::mount("64m") else { return };
    let server = TestServer::with(&[("DATA_DIR", disk.path().to_str().unwrap())]);
    let room = Duration::from_secs(10);
    // The archive is received but cannot be unpacked, or cannot even be stored.
    for compressed in [true, false] {
        let archive = archive(compressed);
        disk.fill_but(4 << 20);
        let refused = import(&server, "many", &archive);
        assert_eq!(refused.status, 507, "{}", refused.body);
        let error = refused.json()["error"].clone();
        assert_eq!(error["name"], "STORAGE_FULL", "{error}");
        assert!(error["message"].as_str().unwrap().contains("disk"), "{error}");
        assert_eq!((template_files(disk.path()), listed(&server, "many")), (Vec::new(), None));
        disk.empty();
        super::test_server::wait_until_within(room, "it is imported", || {
            import(&server, "many", &archive).status == 201
        });
        assert_eq!(listed(&server, "many").unwrap()["size"], SIZE);
        assert_eq!(server.call("DELETE", "/api/v1/templates/many").send().status, 204);
    }
}

#[test]
fn one_of_concurrent_imports_of_a_name_succeeds() {
    let server = TestServer::new();
    let archive = archive(true);
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let (server, archive) = (&server, &archive);
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(move || import(server, "many", archive))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let won = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(won, 1, "{answers:?}");
    for lost in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!(
            (lost.status, &lost.json()["error"]["name"]),
            (409, &"TEMPLATE_EXISTS".into()),
            "{lost:?}"
        );
    }
    assert_eq!(template_files(server.path()), ["many"]);
    assert_eq!(listed(&server, "many").unwrap()["size"], SIZE);
}

#[test]
fn a_truncated_archive_is_a_client_error() {
    let server = TestServer::new();
    for compressed in [true, false] {
        let archive = archive(compressed);
        let refused = import(&server, "half", &archive[..archive.len() / 2]);
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(refused.json()["error"]["name"], "INVALID_REQUEST");
        assert_eq!(template_files(server.path()), [""; 0]);
    }
}
