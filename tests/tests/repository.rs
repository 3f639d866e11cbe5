//! What this repository promises about itself.

use std::fmt::Display;
use std::fs;

use workspace_tests::layers::{self, PREFIX, RULES};
use workspace_tests::metadata::{Metadata, repository};
use workspace_tests::policy::Policy;

#[test]
fn dependencies_point_one_way() {
    let graph = layers::graph(&Metadata::of_repository().unwrap());
    assert!(graph.iter().any(|it| it.name == "state"), "no crates found: {graph:?}");
    assert_none(&layers::violations(&RULES, &graph));
}

#[test]
fn outside_crates_have_allowed_licences_and_sources() {
    let policy = Policy::parse(&read("deny.toml")).unwrap();
    let metadata = Metadata::with_dependencies(policy.targets()).unwrap();
    assert!(metadata.packages.iter().any(|it| it.source.is_some()), "no outside crates found");
    assert_none(&policy.violations(&metadata.packages).unwrap());
}

#[test]
fn a_package_is_named_for_its_directory() {
    for package in Metadata::of_repository().unwrap().packages {
        let directory = package.manifest_path.parent().and_then(|it| it.file_name()).unwrap();
        assert_eq!(package.name, format!("{PREFIX}{}", directory.display()));
    }
}

#[test]
fn every_crate_has_its_sentence() {
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

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn assert_none(violations: &[impl Display]) {
    let lines: Vec<_> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}
