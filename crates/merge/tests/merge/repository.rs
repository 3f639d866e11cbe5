//! Merges from the history of a real repository: existing merge commits, and merges that reverting each
//! change would need.
//!
//! `WORKSPACE_TEST_REPOSITORY` is the path of the repository; by default it is this one.
//! `WORKSPACE_TEST_REPOSITORY_MAX` is the maximum number of merges; 200 by default.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::Command;

use workspace_test_support::skip;

/// Commits of the base and both sides.
pub(crate) type Commits = [String; 3];

pub(crate) struct Repository {
    pub(crate) path: PathBuf,
    max: usize,
}

impl Repository {
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

    fn git(&self, args: &[&str]) -> String {
        String::from_utf8_lossy(&self.output(args)).into_owned()
    }

    fn output(&self, args: &[&str]) -> Vec<u8> {
        Command::new("git").arg("-C").arg(&self.path).args(args).output().unwrap().stdout
    }

    /// Returns the content of a file in a commit.
    pub(crate) fn read(&self, commit: &str, path: &str) -> Vec<u8> {
        self.output(&["show", &format!("{commit}:{path}")])
    }

    /// Returns the merge commits.
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

    /// Returns files that both sides changed.
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

    /// Returns files whose change is reverted after the next one: base is the change, ours the next one,
    /// theirs the version before.
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
        let (mut found, mut next) = (Vec::new(), HashMap::<&str, &str>::new());
        let (mut commit, mut before) = ("", "");
        for line in log.lines().filter(|line| !line.is_empty()) {
            if let Some(ids) = line.strip_prefix(':') {
                (commit, before) = ids.split_once(' ').unwrap_or((ids, ""));
                if found.len() >= self.max {
                    break;
                }
            } else if let Some(after) = next.insert(line, commit) {
                found.push((line.to_owned(), [commit, after, before].map(str::to_owned)));
            }
        }
        found
    }

    /// Returns merges of whole trees: merge commits, and reverts of some commits onto the head.
    pub(crate) fn trees(&self, max: usize) -> Vec<Commits> {
        let mut found = self.merges();
        let log = self.git(&["log", "--no-merges", "--format=%H %P", "HEAD"]);
        let commits: Vec<&str> = log.lines().collect();
        let head = commits.first().map_or("", |line| line.split(' ').next().unwrap_or_default());
        let step = (commits.len() / max).max(1);
        for line in commits.iter().skip(1).step_by(step) {
            if let Some((commit, before)) = line.split_once(' ') {
                found.push([commit, head, before].map(str::to_owned));
            }
        }
        found.truncate(max);
        found
    }
}
