//! ls, cat.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::TestDir;

#[test]
fn listings() {
    let place = TestDir::with_project();
    place.write("project/src/deep/er.rs", "");
    place.write("project/line\nline", "odd");
    fs::File::open(place.path("project/README.md"))
        .unwrap()
        .set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000))
        .unwrap();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    insta::assert_snapshot!(place.transcript(&[
        &["ls", "main"],
        &["ls", "main", "src/"],
        &["ls", "main", "-R"],
        &["ls", "main", "/src", "-R"],
        &["ls", "main", "README.md"],
        &["ls", "-l", "main"],
        &["ls", "main", "missing"],
        &["ls", "main", "../escape"],
    ]));
    assert!(place.ok(&["ls", "-l", "main", "README.md"]).contains("2001-09-09 01:46:40 +00:00"));
}

#[test]
fn names_that_are_no_text_survive() {
    let place = TestDir::new();
    fs::create_dir(place.path("project")).unwrap();
    fs::write(place.path("project").join(OsStr::from_bytes(b"caf\xe9")), "latin").unwrap();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    assert_eq!(place.ok(&["ls", "main"]), "\"caf\\351\"\n");
    assert_eq!(place.record(&["ls", "main"])["path"], "\"caf\\351\"");
    let out = place.workspace(&["cat", "main"]).arg(OsStr::from_bytes(b"caf\xe9")).output().unwrap();
    assert_eq!(out.stdout, b"latin");
}

#[test]
fn a_name_is_taken_in_the_quotes_in_which_it_is_printed() {
    let place = TestDir::new();
    place.write("project/one\ntwo/three", "inside\n");
    place.write("project/\"quoted\"", "with quotes\n");
    place.write("project/quoted", "without\n");
    fs::write(place.path("project").join(OsStr::from_bytes(b"caf\xe9")), "latin\n").unwrap();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let listed = place.ok(&["ls", "main", "-R"]);
    assert_eq!(
        listed.lines().collect::<Vec<_>>(),
        [r#""\"quoted\"""#, r#""caf\351""#, r#""one\ntwo"/"#, r#""one\ntwo/three""#, "quoted"]
    );
    let contents: Vec<String> = listed
        .lines()
        .filter(|line| !line.ends_with('/'))
        .map(|line| place.ok(&["cat", "main", line]))
        .collect();
    assert_eq!(contents, ["with quotes\n", "latin\n", "inside\n", "without\n"]);
    assert_eq!(place.ok(&["ls", "main", r#""one\ntwo"/"#]), "three\n");
    insta::assert_snapshot!(place.transcript(&[
        &["cat", "main", r#""one\ntwo""#],
        &["ls", "main", r#""one\nthree""#],
        &["ls", "main", r#""one"#],
        &["cat", "main", r#""quoted\x""#],
        &["cat", "main", r#""one\ntwo"/"three""#],
    ]));
}

#[test]
fn a_control_sequence_in_a_name_is_quoted() {
    let place = TestDir::new();
    place.write("project/\u{9b}31mred", "red\n");
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let listed = place.ok(&["ls", "main"]);
    assert_eq!(listed, "\"\\302\\23331mred\"\n");
    assert_eq!(place.ok(&["cat", "main", listed.trim_end()]), "red\n");
}

#[test]
fn files_are_printed_as_they_are() {
    let place = TestDir::with_project();
    let binary: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    place.write("project/binary", &binary);
    let file = fs::File::create(place.path("project/sparse")).unwrap();
    file.set_len(3 << 20).unwrap();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    assert_eq!(place.workspace(&["cat", "main", "binary"]).output().unwrap().stdout, binary);
    assert_eq!(place.workspace(&["cat", "main", "sparse"]).output().unwrap().stdout, vec![0; 3 << 20]);
    insta::assert_snapshot!(place.transcript(&[
        &["cat", "main", "src/main.rs"],
        &["cat", "main", "main"],
        &["cat", "main", "src"],
        &["cat", "main", "nothing"],
    ]));
}
