//! mount, umount.

use std::fs;

use crate::support::TestDir;

#[test]
fn every_snapshot_can_be_looked_at() {
    let place = TestDir::with_project();
    let id = place.id(&["snapshot", "project", "--ref", "main"]);
    fs::create_dir(place.path("view")).unwrap();
    place.ok(&["mount", "view"]);
    let shown = fs::read_to_string(place.path("view").join(&id).join("src/main.rs"));
    let named = fs::read_to_string(place.path("view/main/README.md"));
    // Snapshots that are made while it is mounted are there too.
    place.write("project/later", "x");
    let later = place.snapshot("project");
    let appeared = fs::read_to_string(place.path("view").join(later).join("later"));
    let again = place.transcript(&[&["mount", "view"]]);
    place.ok(&["umount", "view"]);
    assert_eq!(shown.unwrap(), place.read("project/src/main.rs"));
    assert_eq!(named.unwrap(), "# A project\n");
    assert_eq!(appeared.unwrap(), "x");
    assert_eq!(fs::read_dir(place.path("view")).unwrap().count(), 0);
    insta::assert_snapshot!(again);
}

#[test]
fn a_view_in_the_foreground_ends_when_it_is_unmounted() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    fs::create_dir(place.path("view")).unwrap();
    let mut child = place.workspace(&["mount", "view", "--foreground"]).spawn().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !place.path("view/main/README.md").exists() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let shown = fs::read_to_string(place.path("view/main/README.md"));
    place.ok(&["umount", "view"]);
    assert!(child.wait().unwrap().success());
    assert_eq!(shown.unwrap(), "# A project\n");
}

#[test]
fn impossible_mounts_are_explained() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    insta::assert_snapshot!(place.transcript(&[
        &["mount", "missing"],
        &["mount", "project"],
        &["mount", "project/README.md"],
        &["umount", "project"],
        &["--store", "nothing", "mount", "project/src"],
    ]));
}
