//! Merging files: as git does, and by type.

use std::process::Command;

use crate::support::{Ran, TestDir};

fn versions(place: &TestDir, ending: &str, [ours, base, theirs]: [&str; 3]) -> [String; 3] {
    let names = ["ours", "base", "theirs"].map(|name| format!("{name}.{ending}"));
    for (name, text) in names.iter().zip([ours, base, theirs]) {
        place.write(name, text);
    }
    names
}

fn merge(place: &TestDir, options: &[&str], names: &[String; 3]) -> Ran {
    let mut words = vec!["merge-file"];
    words.extend(options);
    words.extend(names.iter().map(String::as_str));
    place.run(&words)
}

#[test]
fn fields_of_one_line_are_merged_and_ours_gets_the_result() {
    let place = TestDir::new();
    let base = r#"{"count":1,"name":"old"}"#;
    let names =
        versions(&place, "json", [r#"{"count":2,"name":"old"}"#, base, r#"{"count":1,"name":"new"}"#]);
    let printed = merge(&place, &["-p"], &names);
    assert_eq!((printed.status, printed.stdout.as_str()), (0, r#"{"count":2,"name":"new"}"#));
    assert_eq!(place.read("ours.json"), r#"{"count":2,"name":"old"}"#);
    place.chmod("ours.json", 0o750);
    assert_eq!(merge(&place, &[], &names).status, 0);
    assert_eq!(place.read("ours.json"), r#"{"count":2,"name":"new"}"#);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(place.path("ours.json")).unwrap());
    assert_eq!(mode & 0o777, 0o750);
    // As text it is one line.
    let names =
        versions(&place, "json", [r#"{"count":2,"name":"old"}"#, base, r#"{"count":1,"name":"new"}"#]);
    assert_eq!(merge(&place, &["-p", "--type", "text"], &names).status, 1);
}

#[test]
fn conflicts_are_counted_shown_and_told() {
    let place = TestDir::new();
    let names = versions(&place, "json", [r#"{"count":2}"#, r#"{"count":1}"#, r#"{"count":3}"#]);
    let ran = merge(&place, &["-p", "-L", "mine", "-L", "old", "-L", "yours", "--style", "diff3"], &names);
    assert_eq!(ran.status, 1);
    let shown =
        "<<<<<<< mine\n{\"count\":2}\n||||||| old\n{\"count\":1}\n=======\n{\"count\":3}\n>>>>>>> yours\n";
    assert_eq!(ran.stdout, shown);
    assert!(ran.stderr.contains("at count"), "{}", ran.stderr);
    assert_eq!(merge(&place, &["-p", "-q"], &names).stderr, "");
    for (option, content) in [("--ours", r#"{"count":2}"#), ("--theirs", r#"{"count":3}"#)] {
        let settled = merge(&place, &["-p", option], &names);
        assert_eq!((settled.status, settled.stdout.as_str()), (0, content));
    }
    let both = merge(&place, &["-p", "--union"], &names);
    assert_eq!((both.status, both.stdout.as_str()), (0, "{\"count\":2}\n{\"count\":3}"));
    assert!(both.stderr.contains("may not be valid json"), "{}", both.stderr);
    let told = place.run(&["--json", "merge-file", "ours.json", "base.json", "theirs.json"]);
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!((&told["conflicts"], &told["strategy"]), (&1.into(), &"json".into()));
    assert_eq!(told["conflict"]["places"][0]["path"], "count");
}

#[test]
fn lines_that_merge_to_nonsense_are_a_conflict() {
    let place = TestDir::new();
    let base = "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": 3\n}\n";
    let ours = base.replace("  \"a\"", "  \"x\": 1,\n  \"a\"");
    let theirs = base.replace("\"c\": 3", "\"c\": 3,\n  \"x\": 2");
    let names = versions(&place, "json", [&ours, base, &theirs]);
    let ran = merge(&place, &["-p"], &names);
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("<<<<<<<") && ran.stderr.contains("at x"), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(merge(&place, &["-p", "--type", "text"], &names).status, 0);
}

#[test]
fn failures_have_a_status_that_is_no_number_of_conflicts() {
    let place = TestDir::new();
    let names = versions(&place, "bin", ["a\0b", "a\0", "a\0c"]);
    let ran = merge(&place, &[], &names);
    assert_eq!(ran.status, 128);
    assert!(ran.stderr.contains("is not text"), "{}", ran.stderr);
    assert_eq!(merge(&place, &["--type", "binary"], &names).status, 1);
    assert_eq!(place.read("ours.bin"), "a\0b");
    assert_eq!(place.run(&["merge-file", "ours.bin", "none", "theirs.bin"]).status, 255);
    assert_eq!(place.run(&["merge-file", "ours.bin"]).status, 129);
    assert_eq!(place.run(&["merge-file", "--help"]).status, 0);
}

#[test]
fn only_values_in_conflict_are_shown_and_the_rest_is_merged() {
    let place = TestDir::new();
    let json = |name: &str, more: &str| {
        format!("{{\n  \"name\": \"{name}\",\n  \"needs\": {{\n    \"a\": 1{more}\n  }}\n}}\n")
    };
    let [ours, base, theirs] = [json("x", ",\n    \"c\": 3"), json("old", ""), json("y", ",\n    \"b\": 2")];
    let names = versions(&place, "json", [&ours, &base, &theirs]);
    let ran = merge(&place, &["-p", "-L", "o", "-L", "b", "-L", "t"], &names);
    assert_eq!(ran.status, 1);
    let expected = "{
<<<<<<< o
  \"name\": \"x\",
=======
  \"name\": \"y\",
>>>>>>> t
  \"needs\": {
    \"a\": 1,
    \"b\": 2,
    \"c\": 3
  }
}
";
    assert_eq!(ran.stdout, expected);
    assert_eq!(ran.stderr, "conflict in ours.json: both sides changed the same values\n  at name\n");
}

#[test]
fn decisions_of_rules_are_reported_and_those_of_options_are_not() {
    let place = TestDir::new();
    let names = versions(&place, "txt", ["1\n", "0\n", "2\n"]);
    place.write("rules.json", r#"[{"path": "**", "onConflict": "theirs"}]"#);
    let ran = merge(&place, &["-p", "--policy", "rules.json"], &names);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "2\n"));
    assert_eq!(ran.stderr, "conflict in ours.txt: both sides changed the same lines, theirs was taken\n");
    let ran = merge(&place, &["-p", "--theirs"], &names);
    assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (0, "2\n", ""));
    let toml = merge(&place, &["-p", "--type", "toml"], &names);
    assert!(toml.stderr.contains("it cannot be parsed or written as toml"), "{}", toml.stderr);
}

#[test]
fn an_output_that_takes_nothing_is_no_conflict() {
    let place = TestDir::new();
    let names = versions(&place, "txt", ["1\n", "0\n", "0\n"]);
    for words in
        [vec!["merge-file", "-p", &names[0], &names[1], &names[2]], vec!["merge-tree", ".", ".", "."]]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = place.workspace(&words).stdout(full).stderr(std::process::Stdio::null()).status();
        assert_eq!(status.unwrap().code(), Some(255), "{words:?}");
    }
}

#[test]
fn the_file_that_gets_the_result_keeps_what_was_given_to_it() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    use std::os::unix::fs::MetadataExt;
    let place = TestDir::new();
    let names = versions(&place, "txt", ["a\nb\nC\n", "a\nb\nc\n", "A\nb\nc\n"]);
    let ours = place.path("ours.txt");
    place.chmod("ours.txt", 0o640);
    setxattr(&ours, "user.mark", b"x", XattrFlags::empty()).unwrap();
    let owner = if rustix::process::geteuid().is_root() { Some(12345) } else { None };
    std::os::unix::fs::chown(&ours, owner, owner).unwrap();
    let before = ours.metadata().unwrap();
    assert_eq!(merge(&place, &[], &names).status, 0);
    assert_eq!(place.read("ours.txt"), "A\nb\nC\n");
    let after = ours.metadata().unwrap();
    let of = |metadata: &std::fs::Metadata| (metadata.mode(), metadata.uid(), metadata.gid());
    assert_eq!(of(&after), of(&before));
    let mut value = [0; 8];
    assert_eq!(getxattr(&ours, "user.mark", &mut value[..]), Ok(1));
}

#[test]
fn letters_of_two_bytes_get_no_markers_of_one() {
    let place = TestDir::new();
    let utf16 = |text: &str| -> Vec<u8> {
        format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
    };
    for (name, text) in [("ours.txt", "a\nb\nC\n"), ("base.txt", "a\nb\nc\n"), ("theirs.txt", "A\nb\nc\n")] {
        place.write(name, utf16(text));
    }
    let words = ["merge-file", "ours.txt", "base.txt", "theirs.txt"];
    assert_eq!(place.run(&words).status, 0);
    assert_eq!(std::fs::read(place.path("ours.txt")).unwrap(), utf16("A\nb\nC\n"));
    place.write("theirs.txt", utf16("a\nb\nX\n"));
    assert_eq!(place.run(&words).status, 1);
    assert_eq!(std::fs::read(place.path("ours.txt")).unwrap(), utf16("A\nb\nC\n"));
}

#[test]
fn a_symlink_stays_one() {
    let place = TestDir::new();
    let [_, base, theirs] = versions(&place, "txt", ["a\nb\nC\n", "a\nb\nc\n", "A\nb\nc\n"]);
    std::os::unix::fs::symlink("ours.txt", place.path("link")).unwrap();
    assert_eq!(place.run(&["merge-file", "link", &base, &theirs]).status, 0);
    assert_eq!(place.read("ours.txt"), "A\nb\nC\n");
    assert!(place.path("link").is_symlink());
    let left = std::fs::read_dir(place.path("")).unwrap().count();
    assert_eq!(left, 4, "nothing else is there");
}

#[test]
fn only_a_file_that_may_be_written_gets_the_result() {
    let place = TestDir::new();
    let names = versions(&place, "txt", ["a\n", "b\n", "c\n"]);
    let fifo = place.path("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let ran = place.run(&["merge-file", fifo.to_str().unwrap(), &names[1], &names[2]]);
    assert_eq!(ran.status, 255);
    assert!(ran.stderr.contains("is not a regular file") && ran.stderr.contains("`-p`"), "{}", ran.stderr);
    let kind = std::fs::symlink_metadata(&fifo).unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
}

#[test]
fn files_added_by_both_sides_have_no_base() {
    let place = TestDir::new();
    let names = versions(&place, "crdt.json", [r#"{"a": 1}"#, "", r#"{"b": 2}"#]);
    let ran = merge(&place, &["-p"], &names);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "{\n  \"a\": 1,\n  \"b\": 2\n}\n"), "{}", ran.stderr);
}

#[test]
fn reviews_show_the_base_in_every_style() {
    let place = TestDir::new();
    let names = versions(&place, "txt", ["1\n2\n3\n", "1\n2\n3\n", "1\ntwo\n3\n"]);
    place.write("rules.json", r#"[{"path": "*.txt", "strategy": "critical"}]"#);
    let labels = ["-L", "o", "-L", "b", "-L", "t", "--policy", "rules.json", "-p"];
    for (style, shown) in [
        ("merge", "1\n<<<<<<< o\n2\n=======\ntwo\n>>>>>>> t\n3\n"),
        ("diff3", "1\n<<<<<<< o\n2\n||||||| b\n2\n=======\ntwo\n>>>>>>> t\n3\n"),
    ] {
        let ran = merge(&place, &[&labels[..], &["--style", style]].concat(), &names);
        assert_eq!((ran.status, ran.stdout.as_str()), (1, shown));
    }
    // With --json and -p everything is told, and nothing is written.
    let mut words = vec!["--json", "merge-file"];
    words.extend(labels);
    words.extend(names.iter().map(String::as_str));
    let told: serde_json::Value = serde_json::from_str(&place.run(&words).stdout).unwrap();
    assert_eq!(told["content"], "1\n<<<<<<< o\n2\n=======\ntwo\n>>>>>>> t\n3\n");
    assert_eq!(told["choices"][1]["content"], "1\ntwo\n3\n");
    assert_eq!(place.read("ours.txt"), "1\n2\n3\n");
}
