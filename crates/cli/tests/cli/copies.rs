//! `workspace cp`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use crate::commands::noise;
use crate::server::Server;

fn same(a: &std::path::Path, b: &std::path::Path) {
    let output = Command::new("diff").args(["-r", "--no-dereference"]).args([a, b]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn directories_go_in_and_come_out_as_they_are() {
    let Some(server) = Server::start() else { return };
    let place = &server.place;
    server.sandbox("work");
    // More than a server keeps of what a command prints.
    place.write("project/large", noise(20_000_000));
    place.write("project/below/it's $ö \\ \"dd\"", b"\0\xff\n");
    place.write("project/empty", "");
    place.chmod("project/empty", 0o751);
    fs::create_dir(place.path("project/nothing")).unwrap();
    symlink("below/none", place.path("project/link")).unwrap();
    server.ok(&["cp", "project", "work:"]);
    server.ok(&["cp", "work:project", "copy"]);
    same(&place.path("project"), &place.path("copy"));
    assert_eq!(fs::metadata(place.path("copy/empty")).unwrap().permissions().mode() & 0o777, 0o751);
    assert_eq!(fs::read_link(place.path("copy/link")).unwrap(), std::path::Path::new("below/none"));
    // Once more: into what is there.
    fs::create_dir(place.path("into")).unwrap();
    server.ok(&["cp", "work:/workspace/project", "work:project/empty", "into"]);
    server.ok(&["cp", "work:project", "into"]);
    same(&place.path("project"), &place.path("into/project"));
    assert!(place.path("into/empty").exists());
}

#[test]
fn a_file_gets_the_name_that_it_is_given() {
    let Some(server) = Server::start() else { return };
    let place = &server.place;
    server.sandbox("work");
    place.write("a", "1");
    place.write("x:y", "2");
    server.ok(&["cp", "a", "work:b"]);
    server.ok(&["cp", "a", "./x:y", "work:/tmp"]);
    assert_eq!(server.ok(&["exec", "work", "--", "sh", "-c", "cat b /tmp/a /tmp/x:y"]), "112");
    server.ok(&["cp", "work:/tmp/x:y", "c"]);
    assert_eq!(place.read("c"), "2");
    server.ok(&["cp", "work:/tmp/x:y", "."]);
    assert_eq!(place.read("x:y"), "2");
}

#[test]
fn copies_are_not_in_the_logs() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    server.place.write("a", "content of the file\n");
    server.ok(&["exec", "work", "--", "echo", "first"]);
    server.ok(&["cp", "a", "work:"]);
    server.ok(&["cp", "work:a", "b"]);
    server.ok(&["exec", "work", "--", "sh", "-c", "echo second; printf third"]);
    assert_eq!(server.ok(&["logs", "work"]), "first\nsecond\nthird\n");
    assert_eq!(server.ok(&["logs", "work", "--tail", "2"]), "second\nthird\n");
    assert_eq!(server.ok(&["logs", "work", "--since", "2100-01-01"]), "");
}

#[test]
fn impossible_copies_are_explained() {
    let Some(server) = Server::start() else { return };
    let place = &server.place;
    server.sandbox("work");
    place.write("a", "1");
    insta::assert_snapshot!(server.transcript(&[
        &["cp", "a", "b"],
        &["cp", "work:a", "work:b"],
        &["cp", "a", "work:../b"],
        &["cp", "work:/", "b"],
        &["cp", "none", "work:"],
        &["cp", "work:none", "b"],
        &["cp", "a", "work:none/"],
        &["cp", "a", "work:/none/b"],
        &["cp", "work:none", "none/"],
        &["cp", "a", "nobody:"],
    ]));
    assert!(!place.path("b").exists());
    let _socket = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    let ran = server.run(&["cp", "a", "socket", "work:"]);
    assert_eq!(ran.status, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("socket"), "{}", ran.stderr);
}

#[test]
fn copies_run_no_program_of_the_sandbox_and_follow_no_link() {
    let Some(server) = Server::start() else { return };
    let place = &server.place;
    server.ok(&["sandbox", "create", "--name", "evil", "--env", "PATH=/workspace/bin:/usr/bin:/bin"]);
    // Programs with the names of `tar` and `dd`, and links that lead out of the directory.
    let hostile = "mkdir bin d; printf '#!/bin/sh\\ntouch /workspace/ran\\n' > bin/tar; chmod +x bin/tar; cp bin/tar bin/dd; \
                   ln -s ../../private d/up; ln -s d/up link";
    server.ok(&["exec", "evil", "--", "sh", "-c", hostile]);
    fs::create_dir(place.path("private")).unwrap();
    fs::create_dir_all(place.path("far/inside")).unwrap();
    place.write("file", "x");
    server.ok(&["cp", "file", "evil:d"]);
    for name in ["evil:d", "evil:link"] {
        let mut copy = server.workspace(&["cp", name, "."]);
        let output = copy.current_dir(place.path("far/inside")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(fs::read_link(place.path("far/inside/d/up")).unwrap(), std::path::Path::new("../../private"));
    assert_eq!(fs::read_link(place.path("far/inside/link")).unwrap(), std::path::Path::new("d/up"));
    assert_eq!(fs::read_dir(place.path("private")).unwrap().count(), 0);
    // Nothing is copied through a link that is in the place of the copy.
    fs::remove_dir_all(place.path("far/inside/d")).unwrap();
    symlink("../../private", place.path("far/inside/d")).unwrap();
    let mut copy = server.workspace(&["cp", "evil:d", "."]);
    let output = copy.current_dir(place.path("far/inside")).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("a symlink is in the place of the directory"), "{stderr}");
    assert_eq!(fs::read_dir(place.path("private")).unwrap().count(), 0);
    assert_eq!(server.ok(&["files", "ls", "evil"]), "bin/\nd/\nlink\n");
}
