//! Error messages, hints and exit statuses.

use std::process::Stdio;

use crate::support::{Ran, TestDir};

#[test]
fn messages_have_hints() {
    let place = TestDir::with_project();
    let without_store = place.transcript(&[&["log"], &["show", "main"], &["verify", "--repair"]]);
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let with_store = place.transcript(&[
        &["show", "nothing"],
        &["show", "deadbeef"],
        &["show", "12"],
        &["log", "--ref", "other"],
        &["snapshot", "missing"],
        &["snapshot", "project/README.md"],
        &["snapshot", "project", "--ref", "bad name"],
        &["snapshot", "project", "--parent", "nothing"],
        &["snapshot", "project", "--label", "nokey"],
        &["checkout", "nothing", "copy"],
        &["import", "missing.tar"],
        &["import-git", "project"],
        &["frobnicate"],
    ]);
    insta::assert_snapshot!(format!("{without_store}{with_store}"));
}

#[test]
fn every_error_says_what_to_do() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.write("text.tar", "hello\n".repeat(1000));
    place.write("short.tar", "hello\n");
    place.write("empty.tar", "");
    let commands: &[&[&str]] = &[
        &["snapshot", "missing"],
        &["snapshot", "project/README.md"],
        &["checkout", "main", "project/README.md"],
        &["checkout", "main", "project/README.md/below"],
        &["import", "missing.tar"],
        &["import", "project"],
        &["import", "text.tar"],
        &["import", "short.tar"],
        &["import", "empty.tar"],
        &["import-git", "missing"],
        &["import-git", "project"],
        &["import-git", "https://example.org/repository.git"],
        &["import-git", "git@example.org:repository"],
        &["ls", "main", "../escape"],
        &["cat", "main", "src/main.rs/below"],
        &["log", "--ref", "other"],
        &["rm", "--ref", "other"],
        &["diff", "main", "missing"],
        &["umount", "project"],
        &["umount", "missing"],
        &["umount", "missing", "--lazy"],
        &["--store", "project/README.md", "log"],
        &["--store", "project/README.md", "snapshot", "project"],
        &["generate", "man", "missing"],
    ];
    for words in commands {
        let ran = place.run(words);
        let last = ran.stderr.lines().last().unwrap_or_default();
        assert!(ran.status == 1 && last.starts_with("hint: "), "{words:?}: {}", ran.stderr);
        assert!(!last.contains("not expected"), "{words:?}: {}", ran.stderr);
    }
    insta::assert_snapshot!(place.transcript(commands));
}

#[test]
fn a_directory_that_is_no_store_is_left_alone() {
    let place = TestDir::with_project();
    let ran = place.run(&["--store", "project", "snapshot", "project"]);
    assert_eq!(ran.status, 1);
    insta::assert_snapshot!(place.redacted(&ran.stderr));
    assert!(!place.path("project/format").exists());
}

#[test]
fn a_newer_store_is_refused() {
    let place = TestDir::with_project();
    place.snapshot("project");
    // A newer version brings its own copy.
    std::fs::remove_file(place.path("store/format.copy")).unwrap();
    place.write("store/format", "elevo-workspace store 999\n");
    insta::assert_snapshot!(place.transcript(&[&["log"]]));
}

#[test]
fn the_store_has_a_default_place() {
    let place = TestDir::with_project();
    let run = |variables: &[(&str, &str)]| {
        let mut command = place.workspace(&["snapshot", "project"]);
        command.env_remove("WORKSPACE_STORE");
        for (name, value) in variables {
            command.env(name, value);
        }
        Ran::of(&command.output().unwrap())
    };
    assert_eq!(run(&[]).status, 0);
    assert!(place.path("home/.local/share/elevo-workspace/store/format").exists());
    let data = place.path("data");
    assert_eq!(run(&[("XDG_DATA_HOME", data.to_str().unwrap())]).status, 0);
    assert!(place.path("data/elevo-workspace/store/format").exists());
    // The specification of these directories wants a relative path to be ignored.
    assert_eq!(run(&[("XDG_DATA_HOME", "relative")]).status, 0);
    assert!(!place.path("relative").exists());
    let nowhere = run(&[("HOME", "")]);
    assert_eq!(nowhere.status, 1);
    assert!(nowhere.stderr.contains("hint: select a store"), "{}", nowhere.stderr);
}

#[test]
fn the_option_wins_over_the_variable() {
    let place = TestDir::with_project();
    place.ok(&["--store", "other", "snapshot", "project"]);
    assert!(place.path("other/format").exists() && !place.path("store").exists());
    assert_eq!(place.json(&["log", "--store", "other"]).len(), 1);
}

#[test]
fn two_who_move_a_reference_do_not_undo_each_other() {
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    let run = || {
        let mut command = place.workspace(&["snapshot", "project", "--ref", "main"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut all = [run(), run(), run(), run()];
    let won =
        all.iter_mut().filter_map(|child| child.wait().unwrap().code()).filter(|code| *code == 0).count();
    // Everyone who was told to have won is in the history.
    assert_eq!(place.json(&["log", "--ref", "main"]).len(), won + 1);
}

#[test]
fn a_bad_reference_name_is_refused_before_anything_is_read() {
    let place = TestDir::new();
    for command in ["snapshot", "import", "import-git"] {
        let ran = place.run(&[command, "not-even-there", "--ref", "bad name"]);
        assert_eq!(ran.status, 2, "{command}");
        assert!(ran.stderr.contains("bad name"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("not-even-there"), "{}", ran.stderr);
    }
    assert!(!place.path("store").exists());
}

#[test]
fn help_and_version_are_data() {
    let place = TestDir::new();
    for words in [&["--help"][..], &["help", "snapshot"], &["episode", "add", "--help"], &["--version"]] {
        let ran = place.run(words);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{words:?}");
    }
    assert_eq!(place.run(&[]).status, 2);
}

#[test]
fn a_program_without_the_separator_is_told_where_it_goes() {
    let place = TestDir::new();
    let hint = |words: &[&str]| {
        let ran = place.run(words);
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        ran.stderr.lines().last().unwrap_or_default().to_owned()
    };
    let told = |line: &str| format!("hint: put `--` before the program: `workspace {line}`");
    assert_eq!(hint(&["run", "echo", "hello"]), told("run -- echo hello"));
    assert_eq!(hint(&["run", "--name", "a b", "sh", "-c", "x; y"]), told("run --name 'a b' -- sh -c 'x; y'"));
    assert_eq!(hint(&["exec", "work", "make"]), told("exec work -- make"));
    assert_eq!(hint(&["try", "make", "clean"]), told("try -- make clean"));
    // No program was given.
    for words in [&["run", "--nonsense"][..], &["ls", "a", "b", "c"], &["exec"]] {
        assert!(!hint(words).contains("put `--`"), "{words:?}");
    }
}

#[test]
fn commands_outside_the_group_sandbox_are_told_to_be_there() {
    let place = TestDir::new();
    let hint = |words: &[&str]| {
        let ran = place.run(words);
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        ran.stderr.lines().last().unwrap_or_default().to_owned()
    };
    let told = |name: &str, line: &str| format!("hint: `{name}` is a command of its own: `workspace {line}`");
    assert_eq!(hint(&["sandbox", "exec", "work", "--", "ls", "a b"]), told("exec", "exec work -- ls 'a b'"));
    assert_eq!(hint(&["sandbox", "shell", "work"]), told("shell", "shell work"));
    assert_eq!(hint(&["--json", "sandbox", "logs", "work"]), told("logs", "--json logs work"));
    for words in [&["sandbox", "frobnicate"][..], &["sandbox", "get"], &["frobnicate", "sandbox", "exec"]] {
        assert!(!hint(words).contains("of its own"), "{words:?}");
    }
}
