//! Completions, manual pages, help.

use std::fs;
use std::path::Path;

use crate::support::TestDir;

#[test]
fn completion_scripts_are_printed() {
    let place = TestDir::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.ok(&["completions", shell]);
        assert!(script.contains("import-git"), "{shell}");
    }
    assert_eq!(place.run(&["completions", "tcsh"]).status, 2);
}

#[test]
fn the_bash_script_completes_commands() {
    let place = TestDir::new();
    place.write("complete", place.ok(&["completions", "bash"]));
    let line = "source ./complete; COMP_WORDS=(workspace che); COMP_CWORD=1; \
                _workspace workspace che workspace; echo \"${COMPREPLY[@]}\"";
    let output = place.program("bash").args(["-c", line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "checkout\n");
}

#[test]
fn the_files_that_are_checked_in_are_those_that_are_generated() {
    let place = TestDir::new();
    for kind in ["man", "completions"] {
        fs::create_dir(place.path(kind)).unwrap();
        place.ok(&["generate", kind, kind]);
        let kept = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).join(kind);
        assert_eq!(listing(&place.path(kind)), listing(&kept), "run `make generate`");
    }
    let pages = listing(&place.path("man"));
    let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"workspace.1") && names.contains(&"workspace-episode-add.1"), "{names:?}");
    assert!(
        !names.iter().any(|name| name.contains("generate") || name.contains("serve-lazy-mount")),
        "{names:?}"
    );
}

#[test]
fn a_synopsis_says_what_is_needed_what_may_be_left_out_and_what_repeated() {
    let place = TestDir::new();
    fs::create_dir(place.path("man")).unwrap();
    place.ok(&["generate", "man", "man"]);
    let synopses = listing(&place.path("man")).into_iter().map(|(name, page)| {
        let section = page.split(".SH SYNOPSIS\n").nth(1).unwrap().split(".SH").next().unwrap();
        let line = section.lines().find(|line| !line.starts_with('.')).unwrap().to_owned();
        let plain = [("\\fB", ""), ("\\fI", ""), ("\\fR", ""), ("\\-", "-"), ("\\ ", " ")];
        let line = plain.iter().fold(line, |line, (roff, text)| line.replace(roff, text));
        format!("{name}: {line}\n")
    });
    insta::assert_snapshot!(synopses.collect::<String>());
}

fn listing(directory: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn help() {
    let place = TestDir::new();
    let commands: [&[&str]; 6] = [
        &["--help"],
        &["snapshot", "--help"],
        &["diff", "-h"],
        &["gc", "-h"],
        &["episode", "-h"],
        &["import-git", "--help"],
    ];
    insta::assert_snapshot!(place.transcript(&commands));
}
