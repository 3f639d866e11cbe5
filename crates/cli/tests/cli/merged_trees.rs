//! merge-tree.

use crate::support::Place;

const BASE: &str = "one\ntwo\nthree\nfour\nfive\n";

/// A place with directories `base`, `ours` and `theirs` that exclude each other nowhere.
fn three() -> Place {
    let place = Place::new();
    for (name, content) in [
        ("base", BASE),
        ("ours", "ONE\ntwo\nthree\nfour\nfive\n"),
        ("theirs", "one\ntwo\nthree\nfour\nFIVE\n"),
    ] {
        place.write(&format!("{name}/file.txt"), content);
        place.write(&format!("{name}/same.txt"), "same\n");
    }
    place.write("theirs/new/by-theirs.txt", "new\n");
    place
}

/// And where they do.
fn in_conflict() -> Place {
    let place = three();
    place.write("theirs/file.txt", "EINS\ntwo\nthree\nfour\nfive\n");
    place.write("ours/name", "a file\n");
    place.write("theirs/name/inside", "in a directory\n");
    place
}

#[test]
fn snapshots_become_one_tree() {
    let place = three();
    for name in ["base", "ours", "theirs"] {
        place.ok(&["snapshot", name, "--ref", &format!("the-{name}")]);
    }
    let tree = place.ok(&["merge-tree", "the-base", "the-ours", "the-theirs"]);
    assert_eq!(tree.lines().count(), 1);
    assert_eq!(place.json(&["log"]).len(), 3, "nothing was made");
    let both = place.ok(&[
        "merge-tree",
        "the-base",
        "the-ours",
        "the-theirs",
        "--commit",
        "-m",
        "merged",
        "--ref",
        "the-ours",
    ]);
    assert_eq!(both.lines().next(), tree.lines().next());
    assert_eq!(place.ok(&["cat", "the-ours", "file.txt"]), "ONE\ntwo\nthree\nfour\nFIVE\n");
    assert_eq!(place.ok(&["cat", "the-ours", "new/by-theirs.txt"]), "new\n");
    let shown = place.json(&["show", "the-ours"]);
    assert_eq!(shown[0]["tree"], tree.trim_end());
    assert_eq!(shown[0]["parents"].as_array().unwrap().len(), 2);
}

#[test]
fn directories_are_merged_without_a_store() {
    let place = three();
    let ran = place.run(&["merge-tree", "base", "ours", "theirs"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert!(!place.path("store").exists());
    place.ok(&["snapshot", "base", "--ref", "first"]);
    assert_eq!(place.ok(&["merge-tree", "first", "ours", "theirs"]), ran.stdout);
}

#[test]
fn conflicts_are_told_and_nothing_is_written() {
    let place = in_conflict();
    let ran = place.run(&["merge-tree", "base", "ours", "theirs"]);
    assert_eq!(ran.status, 1);
    let lines: Vec<&str> = ran.stdout.lines().skip(1).collect();
    assert_eq!(
        lines,
        ["conflict (content): file.txt", "conflict (file/directory): name, theirs is name~theirs"]
    );
    let ran = place.run(&["--json", "merge-tree", "base", "ours", "theirs"]);
    assert_eq!(ran.status, 1);
    let merge: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let conflict = &merge["conflicts"][0];
    assert_eq!((&conflict["class"], &conflict["path"]), (&"content".into(), &"file.txt".into()));
    assert_eq!(conflict["file"]["places"][0]["ours"]["start"], 0);
    assert_eq!(conflict["theirs"]["size"], 25);
    assert_eq!(merge["merged"].as_array().unwrap().len(), 0);
}

#[test]
fn failures_have_a_status_of_their_own() {
    let place = three();
    let ran = place.run(&["merge-tree", "base", "ours", "nothing"]);
    assert_eq!(ran.status, 128);
    assert!(ran.stderr.contains("`nothing` is neither a snapshot nor a directory"), "{}", ran.stderr);
    let ran = place.run(&["merge-tree", "base", "ours", "theirs", "-m", "why"]);
    assert_eq!(ran.status, 128);
    assert!(ran.stderr.contains("--commit"), "{}", ran.stderr);
    assert_eq!(place.run(&["merge-tree", "base", "ours"]).status, 129);
}
