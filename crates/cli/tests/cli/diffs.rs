//! diff.

use crate::support::TestDir;

/// A place with a snapshot `first`, and `project` changed since.
fn changed() -> TestDir {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "first"]);
    place.write("project/src/main.rs", "fn main() {\n    println!(\"hello, world\");\n}\n");
    place.write("project/new/file.txt", "one\ntwo\n");
    place.write("project/binary", b"\0\x01\x02");
    place.chmod("project/README.md", 0o755);
    std::fs::rename(place.path("project/build.sh"), place.path("project/make.sh")).unwrap();
    std::fs::remove_file(place.path("project/main")).unwrap();
    place
}

#[test]
fn two_snapshots_in_every_form() {
    let place = changed();
    place.ok(&["snapshot", "project", "--ref", "second"]);
    insta::assert_snapshot!(place.transcript(&[
        &["diff", "first", "second"],
        &["diff", "first", "second", "--stat"],
        &["diff", "first", "second", "--patch"],
        &["diff", "first", "second", "--insight"],
        &["diff", "first", "first", "--stat"],
        &["diff", "first", "first"],
    ]));
}

#[test]
fn a_directory_is_compared_without_leaving_a_snapshot() {
    let place = changed();
    let with_directory = place.ok(&["diff", "first", "project"]);
    assert_eq!(place.json(&["log"]).len(), 1);
    place.ok(&["snapshot", "project", "--ref", "second"]);
    assert_eq!(with_directory, place.ok(&["diff", "first", "second"]));
    assert_eq!(place.ok(&["diff", "second", "project"]), "");
    assert_eq!(place.ok(&["diff", "project", "project"]), "");
}

#[test]
fn ignored_files_are_compared_on_request() {
    let place = TestDir::with_project();
    place.write("project/.workspaceignore", "*.log\n");
    place.write("project/build.log", "built\n");
    place.ok(&["snapshot", "project", "--ref", "first"]);
    place.ok(&["snapshot", "project", "--ref", "whole", "--no-ignore"]);
    assert_eq!(place.ok(&["diff", "first", "project"]), "");
    assert_eq!(place.ok(&["diff", "first", "project", "--no-ignore"]), "added        build.log\n");
    assert_eq!(place.ok(&["diff", "whole", "project", "--no-ignore"]), "");
    assert_eq!(place.ok(&["diff", "whole", "project"]), "removed      build.log\n");
}

#[test]
fn a_snapshot_wins_over_a_directory_of_the_same_name() {
    let place = changed();
    place.ok(&["snapshot", "project", "--ref", "project"]);
    place.write("project/later", "x");
    assert_eq!(place.ok(&["diff", "project", "project"]), "");
    assert_eq!(place.ok(&["diff", "project", "./project"]), "added        later\n");
}

#[test]
fn a_patch_applies_with_git() {
    let place = changed();
    std::fs::remove_file(place.path("project/binary")).unwrap();
    place.ok(&["snapshot", "project", "--ref", "second"]);
    place.ok(&["checkout", "first", "copy"]);
    place.write("x.patch", place.ok(&["diff", "first", "second", "--patch"]));
    let mut git = place.program("git");
    crate::support::succeed(git.args(["apply", "../x.patch"]).current_dir(place.path("copy")));
    assert_eq!(place.ok(&["diff", "second", "copy"]), "");
}

#[test]
fn names_that_are_neither_snapshot_nor_directory_are_explained() {
    let place = changed();
    insta::assert_snapshot!(
        place
            .transcript(&[&["diff", "first", "nothing"], &["diff", "first", "second", "--stat", "--patch"],])
    );
}
