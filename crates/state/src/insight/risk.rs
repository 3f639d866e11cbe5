//! Risks of a change that its path, mode or symlink target shows, without its content.

use crate::entry::{Entry, Node};
use crate::insight::RiskCode;
use crate::node::NodeKind;

/// Names of files that declare dependencies. This list and the following lists are in lower case.
const MANIFESTS: [&str; 31] = [
    "bower.json",
    "build.gradle",
    "build.gradle.kts",
    "build.sbt",
    "cargo.toml",
    "cartfile",
    "composer.json",
    "conanfile.py",
    "conanfile.txt",
    "deno.json",
    "deno.jsonc",
    "directory.packages.props",
    "environment.yaml",
    "environment.yml",
    "flake.nix",
    "gemfile",
    "go.mod",
    "go.work",
    "libs.versions.toml",
    "mix.exs",
    "package.json",
    "package.swift",
    "packages.config",
    "pipfile",
    "podfile",
    "pom.xml",
    "pubspec.yaml",
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "vcpkg.json",
];
/// Endings of the names of files that declare dependencies.
const MANIFEST_ENDINGS: [&str; 5] = [".csproj", ".fsproj", ".vbproj", ".gemspec", ".cabal"];

/// Names of files with exact versions of dependencies.
const LOCK_FILES: [&str; 26] = [
    "bun.lock",
    "bun.lockb",
    "cargo.lock",
    "cartfile.resolved",
    "composer.lock",
    "conan.lock",
    "deno.lock",
    "flake.lock",
    "gemfile.lock",
    "go.sum",
    "go.work.sum",
    "gradle.lockfile",
    "mix.lock",
    "npm-shrinkwrap.json",
    "package-lock.json",
    "package.resolved",
    "packages.lock.json",
    "pdm.lock",
    "pipfile.lock",
    "pixi.lock",
    "pnpm-lock.yaml",
    "podfile.lock",
    "poetry.lock",
    "pubspec.lock",
    "uv.lock",
    "yarn.lock",
];

/// Names of files that configure continuous integration.
const CI_FILES: [&str; 18] = [
    ".appveyor.yml",
    ".cirrus.yml",
    ".drone.yml",
    ".gitlab-ci.yaml",
    ".gitlab-ci.yml",
    ".pre-commit-config.yaml",
    ".travis.yml",
    ".woodpecker.yaml",
    ".woodpecker.yml",
    "appveyor.yml",
    "azure-pipelines.yaml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "buildspec.yml",
    "cloudbuild.yaml",
    "cloudbuild.yml",
    "jenkinsfile",
    "wercker.yml",
];
/// Directories with configuration of continuous integration, at any depth of the tree.
const CI_DIRECTORIES: [&str; 12] = [
    ".buildkite",
    ".ci",
    ".circleci",
    ".forgejo/workflows",
    ".gitea/workflows",
    ".github/actions",
    ".github/workflows",
    ".gitlab",
    ".husky",
    ".semaphore",
    ".teamcity",
    ".woodpecker",
];

/// Names of files that run when a project is built.
const BUILD_SCRIPTS: [&str; 40] = [
    "build.gradle",
    "build.gradle.kts",
    "build.ninja",
    "build.rs",
    "build.sh",
    "build.xml",
    "build.zig",
    "build.bazel",
    "cmakelists.txt",
    "compose.yaml",
    "compose.yml",
    "configure",
    "configure.ac",
    "containerfile",
    "docker-compose.yaml",
    "docker-compose.yml",
    "dockerfile",
    "earthfile",
    "gnumakefile",
    "gruntfile.js",
    "gulpfile.js",
    "justfile",
    "magefile.go",
    "makefile",
    "makefile.am",
    "makefile.in",
    "meson.build",
    "module.bazel",
    "noxfile.py",
    "rakefile",
    "sconscript",
    "sconstruct",
    "settings.gradle",
    "settings.gradle.kts",
    "setup.py",
    "taskfile.yaml",
    "taskfile.yml",
    "tox.ini",
    "workspace.bazel",
    "wscript",
];
/// Names of Bazel files, in exact case: in lower case, they are common names of other files.
const BUILD_SCRIPTS_EXACT: [&[u8]; 2] = [b"BUILD", b"WORKSPACE"];
/// Endings of the names of files that run when a project is built.
const BUILD_ENDINGS: [&str; 6] = [".bazel", ".bzl", ".cmake", ".dockerfile", ".mk", ".ninja"];

/// Returns the risks of a change of the file at `path`, if tools treat files with such a path specially. Ignores case,
/// because some tools do.
pub(crate) fn path_risks(path: &[u8]) -> Vec<RiskCode> {
    let exact_name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let path = String::from_utf8_lossy(path).to_ascii_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let mut risks = Vec::new();
    if MANIFESTS.contains(&name) || has_ending(name, &MANIFEST_ENDINGS) || is_requirements(name) {
        risks.push(RiskCode::DependencyManifest);
    }
    if LOCK_FILES.contains(&name) {
        risks.push(RiskCode::LockFile);
    }
    if CI_FILES.contains(&name) || CI_DIRECTORIES.iter().any(|directory| is_below(&path, directory)) {
        risks.push(RiskCode::CiConfig);
    }
    if BUILD_SCRIPTS.contains(&name)
        || BUILD_SCRIPTS_EXACT.contains(&exact_name)
        || has_ending(name, &BUILD_ENDINGS)
        || name.starts_with("dockerfile.")
        || name.starts_with("webpack.config.")
    {
        risks.push(RiskCode::BuildScript);
    }
    if is_git_code(&path) {
        risks.push(RiskCode::GitCode);
    }
    risks
}

/// Returns true if the name has one of these endings.
fn has_ending(name: &str, endings: &[&str]) -> bool {
    endings.iter().any(|ending| name.ends_with(ending))
}

/// Returns true for `requirements.txt`, `requirements-dev.txt`, `dev-requirements.in` and similar names.
fn is_requirements(name: &str) -> bool {
    let stem = name.strip_suffix(".txt").or_else(|| name.strip_suffix(".in"));
    stem.is_some_and(|stem| stem.starts_with("requirements") || stem.ends_with("requirements"))
}

/// Returns true for files that make git run code: hooks and configuration of a repository, a submodule or a
/// work tree.
fn is_git_code(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let Some(git) = parts.iter().position(|part| *part == ".git") else { return false };
    match parts[git + 1..] {
        ["config" | "config.worktree"] | ["hooks", _, ..] => true,
        // The name of a submodule can contain slashes, and a submodule can have further submodules.
        ["modules", _, .., "config" | "config.worktree"] | ["worktrees", _, .., "config.worktree"] => true,
        ["modules", _, ref inside @ ..] => {
            inside.iter().position(|part| *part == "hooks").is_some_and(|hooks| hooks + 1 < inside.len())
        }
        _ => false,
    }
}

/// Returns true if the path is below a directory with this path, at any depth of the tree.
fn is_below(path: &str, directory: &str) -> bool {
    let byte_at = |index: usize| path.as_bytes().get(index).copied();
    path.match_indices(directory).any(|(start, _)| {
        let is_component_start = start == 0 || byte_at(start - 1) == Some(b'/');
        is_component_start && byte_at(start + directory.len()) == Some(b'/')
    })
}

/// Execute bits of user, group and others.
const EXECUTE: u16 = 0o111;
/// Set-user-id and set-group-id bits.
const SET_ID: u16 = 0o6000;

/// Returns the risks in the mode or symlink target of the new entry at `path`. `old` is the entry before the change.
pub(crate) fn entry_risks(path: &[u8], old: Option<&Entry>, new: &Entry) -> Vec<RiskCode> {
    let mut risks = Vec::new();
    let mode = |entry: &Entry| match entry.node.kind() {
        NodeKind::Symlink => 0,
        NodeKind::File | NodeKind::Directory => entry.node.mode(),
    };
    let old_file_mode = match old {
        Some(Entry { node: Node::File(file), .. }) => file.mode,
        _ => 0,
    };
    if let Node::File(file) = &new.node
        && file.mode & EXECUTE != 0
        && old_file_mode & EXECUTE == 0
    {
        risks.push(RiskCode::BecameExecutable);
    }
    if mode(new) & SET_ID & !old.map_or(0, mode) != 0 {
        risks.push(RiskCode::SetIdBit);
    }
    if let Node::Symlink(link) = &new.node
        && leaves_tree(path, &link.target)
    {
        risks.push(RiskCode::SymlinkLeavesTree);
    }
    risks
}

/// Returns the risks that an entry gained or lost because a directory above it was renamed, so that its path changed
/// from `old_path` to `new_path`. Returns none for a directory.
pub(crate) fn moved_risks(old_path: &[u8], new_path: &[u8], entry: &Entry) -> Vec<RiskCode> {
    if matches!(entry.node, Node::Directory(_)) {
        return Vec::new();
    }
    let (before, after) = (path_risks(old_path), path_risks(new_path));
    let lost = before.iter().filter(|code| !after.contains(code));
    let gained = after.iter().filter(|code| !before.contains(code));
    let mut risks: Vec<RiskCode> = gained.chain(lost).copied().collect();
    if let Node::Symlink(link) = &entry.node
        && leaves_tree(new_path, &link.target)
        && !leaves_tree(old_path, &link.target)
    {
        risks.push(RiskCode::SymlinkLeavesTree);
    }
    risks
}

/// Returns true if the text of a symlink at `path` leads outside of the tree. Does not resolve other symlinks in the
/// target, so it does not detect all such symlinks. A program that follows symlinks must check them itself.
fn leaves_tree(path: &[u8], target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return true;
    }
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_a_risk_are_recognised() {
        use RiskCode::{BuildScript, CiConfig, DependencyManifest, GitCode, LockFile};
        for (path, risks) in [
            ("Cargo.toml", &[DependencyManifest][..]),
            ("crates/a/Cargo.lock", &[LockFile]),
            ("requirements-dev.txt", &[DependencyManifest]),
            ("setup.py", &[DependencyManifest, BuildScript]),
            (".github/workflows/ci.yml", &[CiConfig]),
            ("sub/.github/workflows/x/ci.yml", &[CiConfig]),
            (".ci/Makefile", &[CiConfig, BuildScript]),
            ("images/Dockerfile.agent", &[BuildScript]),
            ("rules.mk", &[BuildScript]),
            ("lib/BUILD", &[BuildScript]),
            ("lib/build", &[]),
            ("x.github/workflows/ci.yml", &[]),
            ("x.ci.ci/f", &[]),
            ("x.ci/.ci/f", &[CiConfig]),
            (".github/workflowsx/ci.yml", &[]),
            (".github/workflows", &[]),
            ("src/cargo.toml.rs", &[]),
            ("notes.txt", &[]),
            (".git/config", &[GitCode]),
            (".git/config.worktree", &[GitCode]),
            (".git/hooks/pre-commit", &[GitCode]),
            ("sub/.git/hooks/lib/run", &[GitCode]),
            (".git/modules/a/b/config", &[GitCode]),
            (".git/modules/a/hooks/post-checkout", &[GitCode]),
            (".git/worktrees/w/config.worktree", &[GitCode]),
            (".git/hooks", &[]),
            (".git/modules/a/hooks", &[]),
            (".git/modules/config", &[]),
            (".git/HEAD", &[]),
            (".git/refs/heads/config", &[]),
            ("git/config", &[]),
        ] {
            assert_eq!(path_risks(path.as_bytes()), risks, "{path}");
        }
    }

    #[test]
    fn lists_have_no_repetition() {
        fn distinct(list: &[&str]) -> bool {
            list.iter().collect::<std::collections::BTreeSet<_>>().len() == list.len()
                && list.iter().all(|name| name.to_ascii_lowercase() == *name)
        }
        assert!(distinct(&MANIFESTS) && distinct(&LOCK_FILES) && distinct(&CI_FILES));
        assert!(distinct(&BUILD_SCRIPTS) && distinct(&CI_DIRECTORIES));
    }

    #[test]
    fn a_symlink_that_leads_above_the_root_leaves_the_tree() {
        for (path, target, leaves) in [
            ("link", "/etc/passwd", true),
            ("link", "..", true),
            ("link", "a/../..", true),
            ("a/link", "..", false),
            ("a/link", "../..", true),
            ("a/b/link", "../../c/./d//e", false),
            ("a/b/link", "../../../a/b", true),
            ("link", "..a/...", false),
        ] {
            assert_eq!(leaves_tree(path.as_bytes(), target.as_bytes()), leaves, "{path} -> {target}");
        }
    }
}
