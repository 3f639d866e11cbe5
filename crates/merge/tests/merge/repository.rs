//! Merges from the history of a real git repository: its merge commits, and merges that revert one of its commits.
//!
//! `WORKSPACE_TEST_REPOSITORY` is the path of the repository; the default is the repository of this source.
//! `WORKSPACE_TEST_REPOSITORY_MAX` is the maximum number of merges; 200 by default.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::Command;

use workspace_test_support::skip;

/// Commits of the base, ours and theirs.
pub(crate) type Commits = [String; 3];

/// Git repository whose history is merged.
pub(crate) struct Repository {
    pub(crate) path: PathBuf,
    /// Maximum number of merge commits to read, and of merges of files.
    max: usize,
}

impl Repository {
    /// Returns the repository; `None`, and the test is skipped, if the default one has no history.
    pub(crate) fn find() -> Option<Self> {
        let named = std::env::var_os("WORKSPACE_TEST_REPOSITORY").map(PathBuf::from);
        let max = std::env::var("WORKSPACE_TEST_REPOSITORY_MAX").ok().and_then(|max| max.parse().ok());
        let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let found = Self { path: named.clone().unwrap_or(own), max: max.unwrap_or(200) };
        if found.git(&["rev-parse", "--verify", "HEAD"]).is_empty() {
            assert!(named.is_none(), "{} has no history", found.path.display());
            skip("this source has no history to merge");
            return None;
        }
        Some(found)
    }

    /// Runs git, and returns its output as text; empty if git fails.
    fn git(&self, args: &[&str]) -> String {
        String::from_utf8_lossy(&self.output(args)).into_owned()
    }

    /// Runs git, and returns its output.
    fn output(&self, args: &[&str]) -> Vec<u8> {
        Command::new("git").arg("-C").arg(&self.path).args(args).output().unwrap().stdout
    }

    /// Returns the content of a file in a commit.
    pub(crate) fn read(&self, commit: &str, path: &str) -> Vec<u8> {
        self.output(&["show", &format!("{commit}:{path}")])
    }

    /// Returns merge commits with two parents and a merge base, newest first.
    fn merges(&self) -> Vec<Commits> {
        let mut found = Vec::new();
        for line in
            self.git(&["rev-list", "--merges", "--parents", "-n", &self.max.to_string(), "HEAD"]).lines()
        {
            let commits: Vec<&str> = line.split(' ').collect();
            let [_, ours, theirs] = commits.as_slice() else { continue };
            let base = self.git(&["merge-base", ours, theirs]);
            if !base.trim().is_empty() {
                found.push([base.trim(), ours, theirs].map(str::to_owned));
            }
        }
        found
    }

    /// Returns merges of files: files that both sides of a merge commit changed, and reverted changes of files.
    pub(crate) fn files(&self) -> Vec<(String, Commits)> {
        let mut found = Vec::new();
        for commits in self.merges() {
            let [base, ours, theirs] = &commits;
            let changed = |side: &str| {
                self.git(&["diff", "--name-only", "--no-renames", "--diff-filter=M", base, side])
            };
            let (by_ours, by_theirs) = (changed(ours), changed(theirs));
            let by_theirs: HashSet<&str> = by_theirs.lines().collect();
            let both = by_ours.lines().filter(|path| by_theirs.contains(path));
            found.extend(both.map(|path| (path.to_owned(), commits.clone())));
        }
        found.extend(self.reverted_files());
        found.truncate(self.max);
        found
    }

    /// Returns merges that revert a change of a file after the next change of the file. The base is the commit to
    /// revert, ours is the commit of the next change, and theirs is the parent of the commit to revert.
    fn reverted_files(&self) -> Vec<(String, Commits)> {
        let log = self.git(&[
            "log",
            "--no-merges",
            "--format=:%H %P",
            "--name-only",
            "--no-renames",
            "--diff-filter=M",
            "HEAD",
        ]);
        // The log starts with the newest commit. `next` has the next commit that changes each file.
        let (mut found, mut next) = (Vec::new(), HashMap::<&str, &str>::new());
        let (mut commit, mut parent) = ("", "");
        for line in log.lines().filter(|line| !line.is_empty()) {
            if let Some(ids) = line.strip_prefix(':') {
                (commit, parent) = ids.split_once(' ').unwrap_or((ids, ""));
                if found.len() >= self.max {
                    break;
                }
            } else if let Some(after) = next.insert(line, commit) {
                found.push((line.to_owned(), [commit, after, parent].map(str::to_owned)));
            }
        }
        found
    }

    /// Returns at most `max` merges of whole trees: merge commits, and merges that revert a commit on top of the newest
    /// one. In the latter, the base is the commit to revert, ours is the newest commit, and theirs is the parent of the
    /// commit to revert.
    pub(crate) fn trees(&self, max: usize) -> Vec<Commits> {
        let mut found = self.merges();
        let log = self.git(&["log", "--no-merges", "--format=%H %P", "HEAD"]);
        let commits: Vec<&str> = log.lines().collect();
        let head = commits.first().map_or("", |line| line.split(' ').next().unwrap_or_default());
        let step = (commits.len() / max).max(1);
        for line in commits.iter().skip(1).step_by(step) {
            if let Some((commit, parent)) = line.split_once(' ') {
                found.push([commit, head, parent].map(str::to_owned));
            }
        }
        found.truncate(max);
        found
    }
}
