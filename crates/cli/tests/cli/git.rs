//! import-git.

use std::fs;
use std::process::Command;

use crate::support::{TestDir, succeed};

fn git(place: &TestDir, words: &[&str]) -> Command {
    let mut command = place.program("git");
    command.current_dir(place.path("repository"));
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Ada Lovelace");
        command.env(format!("GIT_{role}_EMAIL"), "ada@example.org");
        command.env(format!("GIT_{role}_DATE"), "2001-09-09T01:46:40+0200");
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").args([
        "-c",
        "init.defaultBranch=main",
        "-c",
        "commit.gpgsign=false",
    ]);
    command.args(words);
    command
}

fn commit(place: &TestDir, message: &str) -> String {
    succeed(&mut git(place, &["add", "-A"]));
    succeed(&mut git(place, &["commit", "-q", "--allow-empty", "-m", message]));
    succeed(&mut git(place, &["rev-parse", "HEAD"])).stdout.trim().to_owned()
}

/// A repository with files that move, change type and mode, a branch, a merge, and a submodule.
fn repository() -> TestDir {
    let place = TestDir::new();
    fs::create_dir(place.path("repository")).unwrap();
    succeed(&mut git(&place, &["init", "-q"]));
    place.write("repository/src/lib.rs", "pub fn one() {}\n");
    place.write("repository/docs/deep/er/page.md", "page\n");
    place.write("repository/run.sh", "#!/bin/sh\n");
    place.chmod("repository/run.sh", 0o755);
    std::os::unix::fs::symlink("docs/deep", place.path("repository/link")).unwrap();
    commit(&place, "first\n\nwith a body");
    succeed(&mut git(&place, &["checkout", "-q", "-b", "side"]));
    place.write("repository/side.txt", "side\n");
    commit(&place, "side");
    succeed(&mut git(&place, &["checkout", "-q", "main"]));
    fs::rename(place.path("repository/docs"), place.path("repository/manual")).unwrap();
    fs::remove_file(place.path("repository/link")).unwrap();
    place.write("repository/link/file", "a directory now\n");
    place.chmod("repository/run.sh", 0o644);
    commit(&place, "move");
    succeed(&mut git(&place, &["merge", "-q", "--no-ff", "-m", "merge", "side"]));
    // Back to where the directory was: its tree is known from the first commit.
    fs::rename(place.path("repository/manual"), place.path("repository/docs")).unwrap();
    commit(&place, "move back");
    place
}

#[test]
fn a_history_becomes_snapshots() {
    let place = repository();
    let tip = place.id(&["import-git", "repository", "main", "--ref", "main"]);
    assert_eq!(place.record(&["show", "main"])["id"], tip.as_str());
    insta::assert_snapshot!(place.transcript(&[
        &["log", "--ref", "main"],
        &["show", "main"],
        &["ls", "-R", "main"]
    ]));
    let log = place.json(&["log", "--ref", "main"]);
    assert_eq!(log.len(), 5);
    assert_eq!(log[1]["parents"].as_array().unwrap().len(), 2);
    assert_eq!(log[0]["time"], "2001-09-08T23:46:40.000000000Z");
    assert_eq!(log[0]["author"], "Ada Lovelace <ada@example.org>");
    let head = succeed(&mut git(&place, &["rev-parse", "HEAD"])).stdout;
    assert_eq!(log[0]["labels"]["git.commit"], head.trim());
}

#[test]
fn every_snapshot_has_the_files_of_its_commit() {
    let place = repository();
    place.ok(&["import-git", "repository", "main", "--ref", "main"]);
    for snapshot in place.json(&["log"]) {
        let commit = snapshot["labels"]["git.commit"].as_str().unwrap();
        succeed(&mut git(&place, &["checkout", "-q", "--detach", commit]));
        fs::rename(place.path("repository/.git"), place.path("hidden")).unwrap();
        let differences = place.ok(&["diff", snapshot["id"].as_str().unwrap(), "repository"]);
        fs::rename(place.path("hidden"), place.path("repository/.git")).unwrap();
        // The root directory's mode is not in git.
        let differences = differences.lines().filter(|line| !line.starts_with("mode changed ./"));
        assert_eq!(differences.collect::<Vec<_>>(), [""; 0], "{commit}");
    }
}

#[test]
fn earlier_imports_are_reused() {
    let place = repository();
    let first = place.record(&["import-git", "repository"]);
    assert_eq!((first["imported"].as_u64(), first["reused"].as_u64()), (Some(5), Some(0)));
    let again = place.record(&["import-git", "repository", "main", "side"]);
    assert_eq!((again["imported"].as_u64(), again["reused"].as_u64()), (Some(0), Some(5)));
    assert_eq!(again["revisions"][0]["snapshot"], first["revisions"][0]["snapshot"]);
    place.write("repository/later", "x");
    commit(&place, "later");
    let later = place.record(&["import-git", "repository"]);
    assert_eq!((later["imported"].as_u64(), later["reused"].as_u64()), (Some(1), Some(5)));
    assert_eq!(place.json(&["log"]).len(), 6);
}

#[test]
fn submodules_are_named_and_skipped() {
    let place = repository();
    let id = succeed(&mut git(&place, &["rev-parse", "HEAD"])).stdout;
    let entry = format!("160000,{},vendor/module", id.trim());
    succeed(&mut git(&place, &["update-index", "--add", "--cacheinfo", &entry]));
    succeed(&mut git(&place, &["commit", "-q", "-m", "submodule"]));
    succeed(&mut git(&place, &["rm", "-q", "--cached", "vendor/module"]));
    place.write("repository/vendor/module", "a file now\n");
    commit(&place, "no submodule");
    let ran = place.run(&["import-git", "repository", "--ref", "main"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(ran.stderr, "warning: skipped vendor/module: a submodule\n");
    assert_eq!(place.ok(&["cat", "main", "vendor/module"]), "a file now\n");
    let skipped = &place.record(&["import-git", "repository"])["skipped"];
    assert_eq!(*skipped, serde_json::json!([]), "nothing new was looked at");
}

#[test]
fn unusual_repositories_are_read_too() {
    let place = TestDir::new();
    fs::create_dir(place.path("repository")).unwrap();
    succeed(&mut git(&place, &["init", "-q", "--bare"]));
    let empty = place.run(&["import-git", "repository"]);
    assert_eq!(empty.status, 1);
    assert!(empty.stderr.contains("there is no commit `HEAD`"), "{}", empty.stderr);
    let place = repository();
    succeed(&mut git(&place, &["gc", "-q"]));
    let url = format!("file://{}", place.path("repository").display());
    succeed(place.program("git").args(["clone", "-q", "--bare", "--depth", "1", &url, "shallow"]));
    let report = place.record(&["import-git", "shallow"]);
    assert_eq!(report["imported"], 1);
}

#[test]
fn errors_of_git_imports_are_explained() {
    let place = repository();
    let mut transcript = place.transcript(&[
        &["import-git", "repository", "nothing"],
        &["import-git", "repository", "--", "--all"],
        &["import-git", "missing"],
        &["import-git", "repository", "main", "side", "--ref", "main"],
    ]);
    let without_git =
        place.workspace(&["import-git", "repository"]).env("PATH", "/nowhere").output().unwrap();
    transcript.push_str(&String::from_utf8_lossy(&without_git.stderr));
    insta::assert_snapshot!(place.redacted(&transcript));
    assert!(!place.path("store").exists());
}
