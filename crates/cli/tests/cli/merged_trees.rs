//! merge-tree.

use std::process::Stdio;
use std::time::Duration;

use crate::support::{Ran, TestDir};

const BASE: &str = "one\ntwo\nthree\nfour\nfive\n";

/// Creates directories `base`, `ours` and `theirs` without conflicts.
fn three() -> TestDir {
    let place = TestDir::new();
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

/// Creates directories `base`, `ours` and `theirs` with conflicts.
fn in_conflict() -> TestDir {
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
    assert_eq!(ran.status, 255);
    assert!(ran.stderr.contains("`nothing` is neither a snapshot nor a directory"), "{}", ran.stderr);
    let ran = place.run(&["merge-tree", "base", "ours", "theirs", "-m", "why"]);
    assert_eq!(ran.status, 129);
    assert!(ran.stderr.contains("--commit"), "{}", ran.stderr);
    assert_eq!(place.run(&["merge-tree", "base", "ours"]).status, 129);
}

#[test]
fn many_sides_are_merged_one_after_another_and_give_the_same_in_any_order() {
    let place = three();
    for (name, content) in [("second", "one\ntwo\nTHREE\nfour\nfive\n"), ("third", "one\ntwo\nthree\n")] {
        place.write(&format!("{name}/file.txt"), content);
        place.write(&format!("{name}/same.txt"), "same\n");
    }
    place.write("second/by-second.txt", "new\n");
    let merge = |sides: &[&str]| {
        let words = ["merge-tree", "base", "ours"].into_iter().chain(sides.iter().copied());
        place.run(&words.collect::<Vec<_>>())
    };
    // Ours has line 1, the second line 3, theirs line 5.
    let first = merge(&["theirs", "second"]);
    assert_eq!((first.status, first.stdout.lines().count()), (0, 1), "{}", first.stdout);
    assert_eq!(merge(&["second", "theirs"]).stdout, first.stdout);
    let words = ["merge-tree", "base", "ours", "theirs", "second", "--commit", "--ref", "all"];
    assert!(place.ok(&words).starts_with(&first.stdout));
    assert_eq!(place.ok(&["cat", "all", "file.txt"]), "ONE\ntwo\nTHREE\nfour\nFIVE\n");
    // The third has no line 5: whose conflict it is, is told.
    let third = merge(&["theirs", "third"]);
    assert_eq!(third.status, 1);
    assert!(third.stdout.ends_with("conflict (content): file.txt, of third\n"), "{}", third.stdout);
    assert_eq!(place.json(&["log"]).len(), 1, "what is between is gone");
}

#[test]
fn a_policy_says_how_files_are_merged_and_what_becomes_of_conflicts() {
    let place = in_conflict();
    place.write(
        "rules.json",
        r#"[{"path": "file.*", "onConflict": "theirs"}, {"path": "same.txt", "strategy": "critical"}]"#,
    );
    place.write("theirs/same.txt", "other\n");
    let ran = place.run(&["merge-tree", "base", "ours", "theirs", "--policy", "rules.json"]);
    let lines: Vec<&str> = ran.stdout.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "conflict (content): file.txt, theirs was taken",
            "conflict (file/directory): name, theirs is name~theirs",
            "conflict (critical): same.txt",
        ]
    );
    for (rules, said) in [
        ("{}", "is not a list of rules"),
        (r#"[{"path": "a", "onconflict": "ours"}]"#, "unknown field `onconflict`"),
        (r#"[{"path": "a", "strategy": "guess"}]"#, "unknown strategy `guess`"),
        (r#"[{"path": "a["}]"#, "`a[` is not a valid path pattern"),
    ] {
        place.write("rules.json", rules);
        for words in [
            &["merge-tree", "base", "ours", "theirs", "--policy", "rules.json"][..],
            &[
                "merge-file",
                "-p",
                "ours/file.txt",
                "base/file.txt",
                "theirs/file.txt",
                "--policy",
                "rules.json",
            ],
        ] {
            let ran = place.run(words);
            assert_eq!(ran.status, 255);
            assert!(ran.stderr.contains(said), "{}", ran.stderr);
        }
    }
}

#[test]
fn conflicts_tell_what_they_would_become() {
    let place = in_conflict();
    let ran = place.run(&["--json", "merge-tree", "base", "ours", "theirs", "--priority", "ours"]);
    let merge: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let choices = &merge["conflicts"][0]["choices"];
    assert_eq!(choices[0]["content"], "ONE\ntwo\nthree\nfour\nfive\n");
    assert_eq!(choices[1]["content"], "EINS\ntwo\nthree\nfour\nfive\n");
    let rules = |at: usize| choices[at]["onConflict"].as_array().unwrap();
    assert!(rules(0).contains(&"ours".into()) && rules(0).contains(&"priority".into()), "{choices}");
    assert!(rules(1).contains(&"theirs".into()), "{choices}");
    // Both are in the tree: there is nothing to choose.
    assert!(merge["conflicts"][1].get("choices").is_none());
}

#[test]
fn merges_into_one_reference_at_once_lose_nothing() {
    let place = TestDir::new();
    place.write("base/f", "x\n");
    let base = place.ok(&["snapshot", "base", "--ref", "main"]);
    let base = base.trim_end();
    let sides: Vec<String> = (0..6)
        .map(|number| {
            place.write(&format!("side{number}/f"), "x\n");
            place.write(&format!("side{number}/new{number}"), "new\n");
            place.ok(&["snapshot", &format!("side{number}")]).trim_end().to_owned()
        })
        .collect();
    std::thread::scope(|scope| {
        for side in &sides {
            let place = &place;
            scope.spawn(move || {
                // Who comes too late merges again, onto what is there now.
                let words = ["merge-tree", base, "main", side, "--commit", "--ref", "main"];
                while place.run(&words).status != 0 {}
            });
        }
    });
    let names = place.ok(&["ls", "main"]);
    assert_eq!(names.lines().count(), 7, "{names}");
    // What is merged onto something else than the reference stands at would leave that behind.
    let late = place.run(&["merge-tree", base, base, &sides[0], "--commit", "--ref", "main"]);
    assert_eq!(late.status, 255);
    assert!(late.stderr.contains("neither OURS nor BASE"), "{}", late.stderr);
}

#[test]
fn a_merge_of_many_sides_that_is_killed_is_done_or_was_never_there() {
    let place = TestDir::new();
    place.write("base/f", "x\n");
    let base = place.id(&["snapshot", "base"]);
    let sides: Vec<String> = (0..4)
        .map(|number| {
            place.write(&format!("side{number}/f"), "x\n");
            place.write(&format!("side{number}/new{number}"), "new\n");
            place.id(&["snapshot", &format!("side{number}")])
        })
        .collect();
    let merge = |reference: &str| {
        let words = ["merge-tree", &base, &base].into_iter().chain(sides.iter().map(String::as_str));
        place.workspace(&words.chain(["--commit", "--ref", reference]).collect::<Vec<_>>())
    };
    let (mut done, mut ended) = (0, 0);
    // From before it has opened the store to after its end.
    for wait in 0..60 {
        let reference = format!("after-{wait}");
        let mut child = merge(&reference).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        ended += usize::from(child.wait().unwrap().success());
        let listed = place.run(&["ls", &reference]);
        if listed.status == 0 {
            assert_eq!(listed.stdout.lines().count(), 5, "after {wait} ms: {}", listed.stdout);
            done += 1;
        }
    }
    assert!(done >= ended && done < 60, "{done} done, {ended} ended");
    place.ok(&["gc"]);
    place.ok(&["verify"]);
    assert!(merge("at-last").stdout(Stdio::null()).status().unwrap().success());
    assert_eq!(place.ok(&["ls", "at-last"]).lines().count(), 5);
}

#[test]
fn unreadable_files_do_not_merge_as_removed() {
    let place = three();
    place.chmod("theirs/same.txt", 0o000);
    for sides in [["base", "ours", "theirs"], ["base", "theirs", "ours"], ["theirs", "ours", "base"]] {
        let mut command = place.program("setpriv");
        if rustix::process::geteuid().is_root() {
            command.arg("--bounding-set=-dac_override,-dac_read_search");
        }
        command.arg(env!("CARGO_BIN_EXE_workspace")).args(["--store", "store", "merge-tree"]).args(sides);
        let ran = Ran::of(&command.args(["--commit", "--ref", "merged"]).output().unwrap());
        assert_eq!(ran.status, 255, "{}", ran.stderr);
        assert!(ran.stderr.contains("skipped same.txt") && ran.stderr.contains("hint: "), "{}", ran.stderr);
        assert_eq!(place.run(&["ls", "merged"]).status, 1);
    }
}

#[test]
fn ignored_files_of_a_side_do_not_merge_as_removed() {
    let place = three();
    for name in ["base", "ours", "theirs"] {
        place.write(&format!("{name}/secret.env"), "KEY=1\n");
        place.write(&format!("{name}/target/debug/out.o"), "object\n");
        place.write(&format!("{name}/gone.env"), "KEY=2\n");
    }
    place.ok(&["snapshot", "base", "--ref", "first"]);
    place.write("theirs/.workspaceignore", "*.env\ntarget/\n");
    place.write("theirs/secret.env", "KEY=3\n");
    std::fs::remove_file(place.path("theirs/gone.env")).unwrap();
    std::fs::remove_file(place.path("theirs/target/debug/out.o")).unwrap();
    for base in ["first", "base"] {
        let ran = place.run(&["merge-tree", base, "ours", "theirs", "--commit", "--ref", "merged"]);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
        assert_eq!(
            place.ok(&["cat", "merged", "secret.env"]),
            "KEY=1\n",
            "what it ignores it did not change"
        );
        assert_eq!(place.ok(&["cat", "merged", "target/debug/out.o"]), "object\n");
        assert_eq!(place.run(&["cat", "merged", "gone.env"]).status, 1, "it is not there any more");
        place.ok(&["rm", "--ref", "merged"]);
    }
    let ran =
        place.run(&["merge-tree", "first", "ours", "theirs", "--no-ignore", "--commit", "--ref", "all"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(place.ok(&["cat", "all", "secret.env"]), "KEY=3\n");
}

#[test]
fn a_reference_moves_only_from_what_was_merged() {
    let place = three();
    place.ok(&["snapshot", "base", "--ref", "base"]);
    place.write("other/precious", "x\n");
    let other = place.id(&["snapshot", "other", "--ref", "main"]);
    for ours in ["./ours", "base"] {
        let ran = place.run(&["merge-tree", "base", ours, "theirs", "--commit", "--ref", "main"]);
        assert_eq!(ran.status, 255, "{}", ran.stdout);
        assert!(ran.stderr.contains("neither OURS nor BASE"), "{}", ran.stderr);
        assert_eq!(place.record(&["show", "main"])["id"], other.as_str());
    }
    // What both come from has nothing that the result has not.
    let before = place.record(&["show", "base"])["id"].clone();
    place.ok(&["merge-tree", "base", "./ours", "./theirs", "--commit", "--ref", "base"]);
    assert_eq!(place.record(&["show", "base"])["parents"], serde_json::json!([before]));
}

#[test]
fn files_that_never_conflict_are_the_same_in_any_order_of_sides() {
    let place = TestDir::new();
    let write = |name: &str, list: &str| {
        place.write(&format!("{name}/board.crdt.json"), format!("{{\"l\": [{list}]}}\n"));
    };
    write("base", "\"a\"");
    for (name, list) in [("one", "\"a\", \"1\""), ("two", "\"a\", \"2\""), ("three", "\"3\"")] {
        write(name, list);
    }
    let merge = |sides: [&str; 3]| place.ok(&[&["merge-tree", "base"], &sides[..]].concat());
    let first = merge(["one", "two", "three"]);
    for sides in [["one", "three", "two"], ["three", "one", "two"], ["two", "three", "one"]] {
        assert_eq!(merge(sides), first, "{sides:?}");
    }
}

#[test]
fn the_last_writer_wins_in_any_order_of_sides() {
    let place = TestDir::new();
    place.write("rules.json", r#"[{"path": "**", "onConflict": "lww"}]"#);
    let snapshot = |name: &str, f: &str, g: &str| {
        place.write("side/f", f);
        place.write("side/g", g);
        place.ok(&["snapshot", "side", "--ref", name]);
    };
    snapshot("base", "0\n", "0\n");
    snapshot("first", "1\n", "0\n");
    snapshot("second", "2\n", "0\n");
    // The latest of all, but not of `f`.
    snapshot("third", "0\n", "3\n");
    for sides in [["first", "third", "second"], ["second", "third", "first"], ["third", "second", "first"]] {
        let words = [&["merge-tree", "base"], &sides[..], &["--policy", "rules.json"]].concat();
        place.ok(&[&words[..], &["--commit", "--ref", "merged"]].concat());
        assert_eq!(place.ok(&["cat", "merged", "f"]), "2\n", "{sides:?}");
        assert_eq!(place.ok(&["cat", "merged", "g"]), "3\n");
        place.ok(&["rm", "--ref", "merged"]);
    }
}
