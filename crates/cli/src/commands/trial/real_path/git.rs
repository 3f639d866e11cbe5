//! Finds the git repository to which a directory belongs.
//!
//! A `.git` file is not trusted: it could name any directory, which the program would then see. It counts only if the
//! repository that it names refers back to this work tree.

use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of bytes that are read from a file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A repository around a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// Uppermost directory of the work tree.
    pub(super) top: PathBuf,
    /// Directory with objects and references: `.git`, or for a linked work tree or a submodule that of the main work
    /// tree.
    pub(super) git: PathBuf,
}

impl Repository {
    /// Returns the repository that contains `directory`, a path without symlinks.
    pub(super) fn around(directory: &Path) -> Option<Self> {
        let top = directory.ancestors().find(|path| fs::symlink_metadata(path.join(".git")).is_ok())?;
        let dot_git = top.join(".git");
        let metadata = fs::symlink_metadata(&dot_git).ok()?;
        let git = if metadata.is_dir() {
            is_repository(&dot_git).then_some(dot_git)
        } else if metadata.is_file() {
            linked(top, &dot_git)
        } else {
            None
        }?;
        Some(Self { top: top.to_owned(), git })
    }
}

/// Returns the repository of a linked work tree, or of a submodule, whose `.git` is the file `file`.
fn linked(top: &Path, file: &Path) -> Option<PathBuf> {
    let named = path_in(file, "gitdir:")?;
    let git_dir = fs::canonicalize(top.join(named)).ok()?;
    let worktrees = git_dir.parent()?;
    if worktrees.file_name()? == "worktrees" {
        // The repository must name this work tree, too.
        let back_link = path_in(&git_dir.join("gitdir"), "")?;
        let back_link = fs::canonicalize(git_dir.join(back_link)).ok()?;
        let common = worktrees.parent()?;
        return (back_link == fs::canonicalize(file).ok()? && is_repository(common))
            .then(|| common.to_owned());
    }
    // The repository of a submodule is inside the repository around it.
    let around = Repository::around(top.parent()?)?;
    (git_dir.starts_with(around.git.join("modules")) && is_repository(&git_dir)).then_some(around.git)
}

/// Returns true if git accepts the directory as a repository.
fn is_repository(path: &Path) -> bool {
    let metadata = |name: &str| fs::symlink_metadata(path.join(name)).ok();
    metadata("HEAD").is_some_and(|head| !head.is_dir())
        && metadata("objects").is_some_and(|objects| objects.is_dir())
        && metadata("refs").is_some_and(|refs| refs.is_dir())
}

/// Returns the path in the only line of a file, after `prefix`.
fn path_in(file: &Path, prefix: &str) -> Option<PathBuf> {
    if !fs::symlink_metadata(file).ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    fs::File::open(file).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    let line = text.strip_prefix(prefix.as_bytes())?.trim_ascii();
    (!line.is_empty() && !line.contains(&b'\n') && !line.contains(&0))
        .then(|| PathBuf::from(std::ffi::OsStr::from_bytes(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(path: &Path) {
        for name in ["objects", "refs"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    #[test]
    fn a_git_file_counts_only_if_its_repository_refers_back() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        repository(&root.join("main/.git"));
        let own = root.join("main/.git/worktrees/tree");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(root.join("tree/sub")).unwrap();
        fs::write(root.join("tree/.git"), format!("gitdir: {}\n", own.display())).unwrap();
        assert_eq!(Repository::around(&root.join("tree/sub")), None, "the repository does not refer back");
        fs::write(own.join("gitdir"), format!("{}\n", root.join("tree/.git").display())).unwrap();
        let found = Repository::around(&root.join("tree/sub")).unwrap();
        assert_eq!(found, Repository { top: root.join("tree"), git: root.join("main/.git") });
        fs::create_dir_all(root.join("evil")).unwrap();
        fs::write(root.join("evil/.git"), format!("gitdir: {}\n", own.display())).unwrap();
        assert_eq!(Repository::around(&root.join("evil")), None);
        repository(&root.join("secret"));
        fs::write(root.join("evil/.git"), format!("gitdir: {}\n", root.join("secret").display())).unwrap();
        assert_eq!(Repository::around(&root.join("evil")), None);
    }
}
