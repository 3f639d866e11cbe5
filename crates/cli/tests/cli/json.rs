//! The records of `--json`: their fields are an interface.

use serde_json::Value;

use crate::support::TestDir;

/// The names of a record's fields, in order.
fn fields(record: &Value) -> String {
    let names: Vec<&str> = record.as_object().unwrap().keys().map(String::as_str).collect();
    names.join(" ")
}

#[test]
fn every_command_that_prints_data_has_stable_fields() {
    let place = TestDir::with_project();
    let snapshot = place.record(&["snapshot", "project", "--ref", "main"]);
    place.write("project/new", "x");
    place.write("x.tar", place.workspace(&["export", "main"]).output().unwrap().stdout);
    let episode = place.record(&["episode", "add", "main", "--action", "a", "--reward", "1", "--data", "1"]);
    let mut shown = String::new();
    let mut show = |name: &str, record: &Value| shown.push_str(&format!("{name}: {}\n", fields(record)));
    show("snapshot", &snapshot);
    show("episode add", &episode);
    let commands: [&[&str]; 14] = [
        &["log"],
        &["show", "main"],
        &["refs"],
        &["ls", "main", "main"],
        &["cat", "main", "README.md"],
        &["diff", "main", "project"],
        &["diff", "main", "project", "--patch"],
        &["diff", "main", "project", "--stat"],
        &["diff", "main", "project", "--insight"],
        &["checkout", "main", "copy"],
        &["gc"],
        &["verify"],
        &["import", "x.tar"],
        &["rm", "--ref", "main"],
    ];
    for words in commands {
        show(&words.join(" "), &place.json(words)[0]);
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn times_are_lossless_and_ids_are_text() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let file = std::fs::File::open(place.path("project/README.md")).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    file.set_modified(time).unwrap();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let entry = place.record(&["ls", "main", "README.md"]);
    assert_eq!(entry["modified"], "2001-09-09T01:46:40.123456789Z");
    assert_eq!(entry["mode"].as_str().unwrap().len(), 4);
    assert_eq!(place.record(&["show", "main"])["tree"].as_str().unwrap().len(), 64);
}

#[test]
fn modes_have_one_form() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.chmod("project/build.sh", 0o600);
    place.ok(&["snapshot", "project", "--ref", "main"]);
    assert_eq!(place.record(&["ls", "main", "build.sh"])["mode"], "0600");
    assert_eq!(place.record(&["cat", "main", "build.sh"])["mode"], "0600");
    let insight = &place.record(&["diff", "main~1", "main", "--insight"])["entries"][0];
    let differences = [&[][..], &["--patch"], &["--stat"]]
        .map(|form| place.record(&[&["diff", "main~1", "main"], form].concat()));
    for difference in differences.iter().chain([insight]) {
        assert_eq!(difference["old"]["mode"], "0755", "{difference}");
        assert_eq!(difference["new"]["mode"], "0600", "{difference}");
    }
}

#[test]
fn content_is_text_or_hexadecimal() {
    let place = TestDir::with_project();
    place.write("project/binary", b"\xff\x00");
    place.ok(&["snapshot", "project", "--ref", "main"]);
    assert_eq!(place.record(&["cat", "main", "README.md"])["content"], "# A project\n");
    let binary = place.record(&["cat", "main", "binary"]);
    assert_eq!(binary["content_hex"], "ff00");
    assert_eq!(binary.get("content"), None);
}

#[test]
fn an_archive_is_not_json() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    assert_eq!(place.run(&["--json", "export", "main"]).status, 2);
}

#[test]
fn a_snapshot_and_an_import_of_the_same_files_count_alike() {
    let place = TestDir::with_project();
    place.write("project/deep/er/file", "x");
    std::fs::hard_link(place.path("project/README.md"), place.path("project/hard")).unwrap();
    let counts = |record: &Value| {
        ["files", "directories", "symlinks", "bytes"].map(|field| record[field].as_u64().unwrap())
    };
    let taken = counts(&place.record(&["snapshot", "project"]));
    assert_eq!(taken[1], 3, "the root does not count");
    let tar = |words: &[&str]| {
        let mut tar = place.program("tar");
        crate::support::succeed(tar.args(words).current_dir(place.path("project")));
        counts(&place.record(&["import", "x.tar"]))
    };
    assert_eq!(tar(&["-cf", "../x.tar", "."]), taken);
    // Once more, and without naming a directory.
    let files = ["README.md", "build.sh", "hard", "main", "src/main.rs", "deep/er/file"];
    assert_eq!(tar(&[&["-cf", "../x.tar"], &files[..], &files[..]].concat()), taken);
}
