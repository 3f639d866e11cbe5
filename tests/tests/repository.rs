//! Checks of this repository.

use std::fmt::Display;
use std::fs;

use workspace_tests::cycles;
use workspace_tests::doc_comments::{DocComments, LIMIT};
use workspace_tests::layers::{self, PREFIX, RULES};
use workspace_tests::metadata::{Metadata, repository};
use workspace_tests::policy::Policy;

#[test]
fn dependencies_follow_the_layers() {
    let graph = layers::graph(&Metadata::of_repository().unwrap());
    assert!(graph.iter().any(|it| it.name == "state"), "no crates found: {graph:?}");
    assert_none(&layers::violations(&RULES, &graph));
}

#[test]
fn external_crates_have_allowed_licences_and_sources() {
    let policy = Policy::parse(&read("deny.toml")).unwrap();
    let metadata = Metadata::with_dependencies(policy.targets()).unwrap();
    assert!(metadata.packages.iter().any(|it| it.source.is_some()), "no outside crates found");
    assert_none(&policy.violations(&metadata.packages).unwrap());
}

#[test]
fn packages_are_named_after_their_directory() {
    for package in Metadata::of_repository().unwrap().packages {
        let directory = package.manifest_path.parent().and_then(|it| it.file_name()).unwrap();
        assert_eq!(package.name, format!("{PREFIX}{}", directory.display()));
    }
}

#[test]
fn crates_readme_mentions_every_crate() {
    let readme = read("crates/README.md");
    for package in Metadata::of_repository().unwrap().packages {
        let directory = package.manifest_path.parent().unwrap();
        if directory.parent().is_some_and(|it| it.ends_with("crates")) {
            let name = directory.file_name().unwrap().display();
            let sentence = format!("[`{name}`]({name})");
            assert!(readme.contains(&sentence), "crates/README.md does not mention {sentence}");
        }
    }
}

#[test]
fn files_depend_on_each_other_in_small_cycles_only() {
    let mut violations = Vec::new();
    for package in Metadata::of_repository().unwrap().packages {
        let directory = package.manifest_path.parent().unwrap();
        for cycle in cycles::large_cycles(directory).unwrap() {
            violations.push(format!("{}: {cycle}", package.name));
        }
    }
    assert_none(&violations);
}

#[test]
fn doc_comments_start_with_a_noun_or_a_verb() {
    let packages = Metadata::of_repository().unwrap().packages;
    let manifests = packages.into_iter().map(|package| package.manifest_path);
    // Workspaces of their own, because one needs another compiler and the other an installed Python.
    let others = ["fuzz", "sdk-python-state"].map(|name| repository().join(name).join("Cargo.toml"));
    let mut violations = Vec::new();
    for manifest in manifests.chain(others) {
        let directory = manifest.parent().unwrap();
        let name = directory.file_name().unwrap().display().to_string();
        let found = DocComments::of_directory(directory).unwrap();
        if found.exceeds(LIMIT) {
            let (count, total) = (found.questions.len(), found.total);
            violations
                .push(format!("{name}: {count} of {total} start with a question word, above {LIMIT} %"));
            violations.extend(found.questions.iter().map(ToString::to_string));
        }
    }
    assert_none(&violations);
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn assert_none(violations: &[impl Display]) {
    let lines: Vec<_> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}
