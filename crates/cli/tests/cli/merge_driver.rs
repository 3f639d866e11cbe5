//! `merge-file` as git's merge driver, with the version of git that is on the path.

use std::process::Command;

use rustix::process::Signal;

use crate::server::soon;
use crate::support::{Ran, TestDir, signal, wait};

/// First version of git that gives up a merge when a driver ends with a status above 128.
const GIVES_UP: (u32, u32) = (2, 42);

/// A repository whose branches `main` and `other` both changed `data.json` and `run.log`.
struct Fixture {
    place: TestDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self { place: TestDir::new() };
        let place = &fixture.place;
        place.write("repository/data.json", "{\"count\": 1, \"name\": \"old\"}\n");
        place.write("repository/run.log", "one\n");
        place.write("repository/.gitattributes", "*.json merge=workspace\n*.log merge=workspace\n");
        fixture.ok(&["init", "-q"]);
        fixture.ok(&["add", "."]);
        fixture.ok(&["commit", "-qm", "base"]);
        fixture.ok(&["branch", "other"]);
        place.write("repository/data.json", "{\"count\": 2, \"name\": \"old\"}\n");
        place.write("repository/run.log", "one\ntwo\n");
        fixture.ok(&["commit", "-qam", "ours"]);
        fixture.ok(&["checkout", "-q", "other"]);
        place.write("repository/data.json", "{\"count\": 1, \"name\": \"new\"}\n");
        place.write("repository/run.log", "one\nthree\n");
        fixture.ok(&["commit", "-qam", "theirs"]);
        fixture.ok(&["checkout", "-q", "main"]);
        fixture
    }

    fn git(&self, words: &[&str]) -> Ran {
        let mut command: Command = self.place.program("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "init.defaultBranch=main"]);
        Ran::of(&command.args(words).current_dir(self.place.path("repository")).output().unwrap())
    }

    fn ok(&self, words: &[&str]) -> String {
        let ran = self.git(words);
        assert_eq!(ran.status, 0, "{words:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    fn version(&self) -> (u32, u32) {
        let text = self.ok(&["--version"]);
        let number = text.split_whitespace().nth(2).unwrap();
        let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap(), parts.next().unwrap())
    }

    /// Merges `other` by a driver.
    fn merge(&self, driver: &str) -> Ran {
        let driver = format!("merge.workspace.driver={driver}");
        self.git(&["-c", &driver, "merge", "-q", "-m", "merge", "other"])
    }

    /// Fails unless nothing of a failed merge looks merged, and it can be undone.
    fn is_told_and_undone(&self, failed: &Ran) {
        assert_ne!(failed.status, 0, "{}", failed.stderr);
        let is_in_progress = self.place.path("repository/.git/MERGE_HEAD").exists();
        assert_eq!(is_in_progress, self.version() < GIVES_UP, "{}", failed.stderr);
        if is_in_progress {
            let unmerged = self.ok(&["diff", "--name-only", "--diff-filter=U"]);
            assert_eq!(unmerged, "data.json\nrun.log\n");
            for file in ["data.json", "run.log"] {
                let text = self.place.read(&format!("repository/{file}"));
                assert!(text.contains("<<<<<<<") && text.contains(">>>>>>>"), "{text}");
            }
            self.ok(&["merge", "--abort"]);
        }
        assert!(!self.place.path("repository/.git/MERGE_HEAD").exists());
        self.ok(&["diff", "--quiet", "HEAD"]);
        assert_eq!(self.place.read("repository/run.log"), "one\ntwo\n");
        assert_eq!(self.ok(&["status", "--porcelain"]), "", "nothing is left");
    }
}

fn driver(options: &str) -> String {
    let program = env!("CARGO_BIN_EXE_workspace");
    format!("{program} merge-file {options} --path %P -L ours -L base -L theirs --marker-size %L %A %O %B")
}

#[test]
fn git_merges_documents_and_logs_by_the_driver() {
    let fixture = Fixture::new();
    let ran = fixture.merge(&driver(""));
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(fixture.place.read("repository/data.json"), "{\"count\": 2, \"name\": \"new\"}\n");
    assert_eq!(fixture.place.read("repository/run.log"), "one\ntwo\nthree\n");
    assert_eq!(fixture.ok(&["status", "--porcelain"]), "", "nothing is left");
}

#[test]
fn a_driver_that_fails_leaves_no_file_that_looks_merged() {
    let fixture = Fixture::new();
    let ran = fixture.merge(&driver("--policy nowhere.json"));
    assert!(
        ran.stderr.contains("nowhere.json") && ran.stderr.contains("git merge --abort"),
        "{}",
        ran.stderr
    );
    fixture.is_told_and_undone(&ran);
    let ran = fixture.merge(&driver("--no-such-option"));
    assert!(ran.stderr.contains("--no-such-option"), "{}", ran.stderr);
    fixture.is_told_and_undone(&ran);
    assert_eq!(fixture.merge(&driver("")).status, 0, "it can be merged again");
}

#[test]
fn a_driver_that_is_killed_leaves_no_file_that_looks_merged() {
    let place = TestDir::new();
    for (name, text) in [("a", "1\n2\n"), ("o", "1\n"), ("b", "1\n3\n")] {
        place.write(&format!(".merge_file_{name}"), text);
    }
    // It waits for rules that never come.
    assert!(Command::new("mkfifo").arg(place.path("rules.json")).status().unwrap().success());
    let words = ["merge-file", "--policy", "rules.json", ".merge_file_a", ".merge_file_o", ".merge_file_b"];
    let child = place.workspace(&words).spawn().unwrap();
    soon("it is marked", || place.read(".merge_file_a").contains(">>>>>>>"));
    signal(&child, Signal::KILL);
    wait(child);
    let marked = place.read(".merge_file_a");
    assert_eq!(marked, "<<<<<<< .merge_file_a\n1\n2\n=======\n1\n3\n>>>>>>> .merge_file_b\n");
}

#[test]
fn a_failure_leaves_files_of_users_alone() {
    let place = TestDir::new();
    for (name, text) in [("a", "1\n2\n"), ("o", "1\n"), ("b", "1\n3\n")] {
        place.write(name, text);
    }
    assert_eq!(
        place.run(&["merge-file", "--policy", "nowhere.json", "--path", "x.log", "a", "o", "b"]).status,
        255
    );
    assert_eq!(place.run(&["merge-file", "--no-such-option", "a", "o", "b"]).status, 129);
    assert_eq!(place.read("a"), "1\n2\n");
}
