//! checkout.

use std::os::unix::fs::PermissionsExt;

use crate::support::TestDir;

#[test]
fn a_directory_goes_from_snapshot_to_snapshot() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "first"]);
    place.write("project/src/main.rs", "fn main() {}\n");
    std::fs::remove_file(place.path("project/README.md")).unwrap();
    place.ok(&["snapshot", "project", "--ref", "second"]);
    insta::assert_snapshot!(place.transcript(&[
        &["checkout", "first", "copy"],
        &["checkout", "second", "copy"],
        &["checkout", "second", "copy"],
    ]));
    assert_eq!(place.read("copy/src/main.rs"), "fn main() {}\n");
    assert_eq!(place.read("copy/main"), "fn main() {}\n");
    assert!(!place.path("copy/README.md").exists());
    let mode = place.path("copy/build.sh").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn local_edits_are_refused_unless_forced() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "first"]);
    place.write("project/src/main.rs", "fn main() {}\n");
    place.ok(&["snapshot", "project", "--ref", "second"]);
    place.ok(&["checkout", "first", "copy"]);
    place.write("copy/src/main.rs", "edited\n");
    let refused = place.transcript(&[&["checkout", "second", "copy"]]);
    assert_eq!(place.read("copy/src/main.rs"), "edited\n");
    insta::assert_snapshot!(refused);
    place.ok(&["checkout", "second", "copy", "--force"]);
    assert_eq!(place.read("copy/src/main.rs"), "fn main() {}\n");
}

#[test]
fn a_directory_with_something_else_in_it_is_refused() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.write("other/file", "mine");
    insta::assert_snapshot!(place.transcript(&[&["checkout", "main", "other"]]));
    assert_eq!(place.read("other/file"), "mine");
}

#[test]
fn looking_at_a_directory_does_not_let_a_checkout_replace_it() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.write("other/file", "mine");
    place.ok(&["diff", "main", "other"]);
    place.ok(&["diff", "./other", "./project"]);
    assert_ne!(place.run(&["checkout", "main", "other"]).status, 0);
    assert_eq!(place.read("other/file"), "mine");
    // What is in no snapshot any more is not replaced either.
    place.ok(&["snapshot", "other", "--ref", "other"]);
    place.ok(&["rm", "--ref", "other", "other"]);
    insta::assert_snapshot!(place.transcript(&[&["checkout", "main", "other"]]));
    assert_eq!(place.read("other/file"), "mine");
}

#[test]
fn a_checkout_of_a_removed_snapshot_is_known_after_its_collection() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.write("other/file", "mine");
    let removed = place.id(&["snapshot", "other"]);
    place.ok(&["rm", &removed]);
    place.ok(&["gc"]);
    let ran = place.run(&["checkout", "main", "other"]);
    let expected = format!("holds the content of snapshot {removed}, which was removed from this store");
    assert!(ran.status == 1 && ran.stderr.contains(&expected), "{}", ran.stderr);
    assert!(ran.stderr.contains("`workspace snapshot` keeps it; `--force` overwrites it"), "{}", ran.stderr);
    assert_eq!(place.read("other/file"), "mine");
    place.ok(&["snapshot", "other"]);
    place.ok(&["checkout", "main", "other"]);
}

#[test]
fn force_overwrites_what_is_in_the_way_and_nothing_else() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.write("other/README.md", "in the way");
    place.write("other/mine", "mine");
    place.write("other/src/mine", "mine");
    place.ok(&["checkout", "main", "other", "--force"]);
    assert_eq!(place.read("other/README.md"), "# A project\n");
    assert_eq!(place.read("other/mine"), "mine");
    assert_eq!(place.read("other/src/mine"), "mine");
    // Again, and now from a snapshot that is known.
    place.write("other/README.md", "edited");
    place.ok(&["checkout", "main", "other", "--force"]);
    assert_eq!(place.read("other/README.md"), "# A project\n");
    assert_eq!(place.read("other/mine"), "mine");
}

#[test]
fn a_directory_that_was_snapshotted_is_one_to_check_out_into() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.write("project/README.md", "# Changed\n");
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.ok(&["checkout", "main~1", "project"]);
    assert_eq!(place.read("project/README.md"), "# A project\n");
}

#[test]
fn set_id_bits_are_dropped_unless_kept() {
    let place = TestDir::with_project();
    place.chmod("project/build.sh", 0o6755);
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.ok(&["checkout", "main", "safe"]);
    place.ok(&["checkout", "main", "kept", "--keep-set-id", "--sync"]);
    let mode = |path: &str| place.path(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("safe/build.sh"), 0o755);
    assert_eq!(mode("kept/build.sh"), 0o6755);
}
