//! snapshot, log, show, refs, rm.

use std::os::unix::net::UnixListener;

use crate::support::{Ran, TestDir, succeed};

#[test]
fn a_line_of_snapshots() {
    let place = TestDir::with_project();
    let first = place.id(&["snapshot", "project", "-m", "first version\n\nwith a body", "--ref", "main"]);
    place.write("project/notes.txt", "more\n");
    let second = place.id(&["snapshot", "project", "-m", "more notes", "--ref", "main", "--author", "ada"]);
    place.id(&["snapshot", "project", "--label", "keep=yes", "--parent", &first, "--parent", &second]);
    insta::assert_snapshot!(place.transcript(&[
        &["log"],
        &["log", "--ref", "main"],
        &["log", "-n", "1"],
        &["log", "--ref", &first],
        &["show", "main"],
        &["refs"],
    ]));
}

#[test]
fn everything_about_a_snapshot() {
    let place = TestDir::with_project();
    let first = place.id(&["snapshot", "project", "-m", "first version\n\nwith a body", "--ref", "main"]);
    let again = place.id(&["snapshot", "project", "--parent", "main", "--label", "k=v=w", "--label", "a="]);
    insta::assert_snapshot!(place.transcript(&[&["show", &first], &["show", &again]]));
}

#[test]
fn parents_follow_the_reference_unless_given() {
    let place = TestDir::with_project();
    let first = place.id(&["snapshot", "project", "--ref", "main"]);
    let second = place.id(&["snapshot", "project", "--ref", "main"]);
    let other = place.id(&["snapshot", "project", "--ref", "main", "--parent", &first]);
    let parents = |id: &str| place.record(&["show", id])["parents"].clone();
    assert_eq!(parents(&first), serde_json::json!([]));
    assert_eq!(parents(&second), serde_json::json!([first]));
    assert_eq!(parents(&other), serde_json::json!([first]));
    assert_eq!(place.record(&["show", "main"])["id"], other.as_str());
}

#[test]
fn a_snapshot_is_named_by_how_far_it_is_before_another() {
    let place = TestDir::with_project();
    let take = |words: &[&str]| place.id(&[&["snapshot", "project"], words].concat());
    let first = take(&["--ref", "main"]);
    let second = take(&["--ref", "main"]);
    let side = take(&[]);
    // Of two parents the first counts.
    let third = take(&["--ref", "main", "--parent", &second, "--parent", &side]);
    let shown = |text: &str| place.record(&["show", text])["id"].clone();
    for (text, id) in [("main~0", &third), ("main~1", &second), ("main~", &second), ("main~2", &first)] {
        assert_eq!(shown(text), id.as_str(), "{text}");
    }
    assert_eq!(shown(&format!("{third}~2")), first.as_str());
    assert_eq!(place.json(&["log", "--ref", "main~1"]).len(), 2);
    place.write("project/later", "x");
    assert_eq!(place.ok(&["diff", "main~2", "main"]), "");
    assert_eq!(place.ok(&["diff", "main~1", "project"]), "added        later\n");
    // A directory may have such a name too.
    std::fs::rename(place.path("project"), place.path("project~1")).unwrap();
    assert_eq!(place.ok(&["diff", "main", "project~1"]), "added        later\n");
    let mut transcript = place.transcript(&[
        &["show", "main~3"],
        &["checkout", "main~99999999999999999999", "copy"],
        &["show", "nothing~1"],
        &["show", "main~x"],
        &["snapshot", "project~1", "--ref", "main~1"],
        &["rm", "--ref", "main~1"],
    ]);
    place.ok(&["rm", "main~1"]);
    transcript.push_str(&place.transcript(&[&["show", "main~2"]]));
    insta::assert_snapshot!(place.redacted(&transcript));
}

#[test]
fn ids_may_be_shortened_while_they_are_unambiguous() {
    let place = TestDir::with_project();
    let first = place.snapshot("project");
    let shown = |text: &str| place.record(&["show", text])["id"].clone();
    assert_eq!(shown(&first[..4]), first.as_str());
    assert_eq!(shown(&first[..10].to_uppercase()), first.as_str());
    assert_eq!(shown(&first.replace('-', "")[..20]), first.as_str());
    let second = place.snapshot("project");
    let common = first.chars().zip(second.chars()).take_while(|(a, b)| a == b).count();
    let ran = place.run(&["show", &first[..common]]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("is ambiguous: it is a prefix of more than one snapshot id"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains(&first) && ran.stderr.contains(&second), "{}", ran.stderr);
    assert_eq!(shown(&second[..common + 1]), second.as_str());
}

#[test]
fn sockets_and_pipes_are_named_and_skipped() {
    let place = TestDir::with_project();
    let _socket = UnixListener::bind(place.path("project/socket")).unwrap();
    let fifo = place.path("project/pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    insta::assert_snapshot!(place.transcript(&[&["snapshot", "project", "--ref", "main"], &["ls", "main"]]));
}

#[test]
fn an_unreadable_file_is_a_reservation() {
    let place = TestDir::with_project();
    place.chmod("project/README.md", 0o000);
    // Root would read everything.
    let mut command = place.program("setpriv");
    if rustix::process::geteuid().is_root() {
        command.arg("--bounding-set=-dac_override,-dac_read_search");
    }
    command.arg(env!("CARGO_BIN_EXE_workspace")).args(["--store", "store", "snapshot", "project"]);
    let ran = Ran::of(&command.output().unwrap());
    assert_eq!(ran.status, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: skipped README.md: "), "{}", ran.stderr);
}

#[test]
fn ignore_files_are_honoured_unless_told_otherwise() {
    let place = TestDir::with_project();
    place.write("project/.workspaceignore", "*.o\n");
    place.write("project/main.o", "object");
    place.ok(&["snapshot", "project", "--ref", "with"]);
    place.ok(&["snapshot", "project", "--ref", "without", "--no-ignore"]);
    assert!(!place.ok(&["ls", "with"]).contains("main.o"));
    assert!(place.ok(&["ls", "without"]).contains("main.o"));
}

#[test]
fn snapshots_and_references_are_removed() {
    let place = TestDir::with_project();
    let first = place.id(&["snapshot", "project", "--ref", "main"]);
    let second = place.snapshot("project");
    insta::assert_snapshot!(place.transcript(&[
        &["rm", &second],
        &["rm", &second],
        &["rm", "main"],
        &["rm", "--ref", "nothing"],
        &["rm", "--ref", "main", &first, &first],
        &["log"],
        &["refs"],
        &["rm"],
    ]));
}

#[test]
fn episodes_that_name_what_is_removed_are_counted() {
    let place = TestDir::with_project();
    let [first, second] = [place.snapshot("project"), place.snapshot("project")];
    for (snapshot, reward) in [(&first, "0"), (&first, "1"), (&second, "2")] {
        place.ok(&["episode", "add", snapshot, "--action", "a", "--reward", reward]);
    }
    let ran = place.run(&["rm", &first]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, ""));
    assert!(ran.stderr.starts_with("warning: 2 episodes name "), "{}", ran.stderr);
    assert_eq!(place.record(&["rm", &second])["episodes"], 1);
    assert_eq!(place.json(&["episode", "tree"]).len(), 3);
}

#[test]
fn the_author_is_the_user() {
    let place = TestDir::with_project();
    let author = |variables: &[(&str, &str)]| {
        let mut command = place.workspace(&["--json", "snapshot", "project"]);
        command.env_remove("USER").envs(variables.iter().copied());
        let ran = succeed(&mut command);
        serde_json::from_str::<serde_json::Value>(&ran.stdout).unwrap()["author"].clone()
    };
    assert_eq!(author(&[("USER", "ada"), ("LOGNAME", "grace")]), "ada");
    assert_eq!(author(&[("USER", ""), ("LOGNAME", "grace")]), "grace");
    // Nobody says: what the system knows, which for a user without a name is a number.
    assert_ne!(author(&[]), "");
}

#[test]
fn nothing_is_removed_when_one_name_is_wrong() {
    let place = TestDir::with_project();
    let id = place.snapshot("project");
    assert_eq!(place.run(&["rm", &id, "deadbeef"]).status, 1);
    assert_eq!(place.json(&["log"]).len(), 1);
}

#[test]
fn control_characters_in_messages_do_not_reach_the_terminal() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "-m", "\u{1b}[31mred", "--author", "\u{7}", "--ref", "main"]);
    for words in [&["log"][..], &["show", "main"]] {
        let out = place.ok(words);
        assert!(out.contains("\\u{1b}[31mred"), "{out}");
        assert!(!out.contains(['\u{1b}', '\u{7}']), "{out}");
    }
}
