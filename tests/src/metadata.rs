//! The part of `cargo metadata`'s output that the checks read, and how to ask for it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// Packages of a workspace, with or without those from outside.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// Every package the request covers.
    pub packages: Vec<Package>,
}

/// One package.
#[derive(Debug, Clone, Deserialize)]
pub struct Package {
    /// As in its manifest.
    pub name: String,
    /// As in its manifest.
    pub version: String,
    /// Where it came from; a package of this repository has none.
    pub source: Option<String>,
    /// SPDX expression.
    pub license: Option<String>,
    /// Absolute path of its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// What its manifest names, of every kind and for every platform.
    pub dependencies: Vec<Dependency>,
}

/// One line of a manifest's dependency tables.
#[derive(Debug, Clone, Deserialize)]
pub struct Dependency {
    /// The package's real name, also when the manifest renames it.
    pub name: String,
    /// `None` is an ordinary dependency.
    pub kind: Option<DependencyKind>,
}

/// A dependency that is not ordinary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DependencyKind {
    /// Used by tests, examples and benchmarks only.
    Dev,
    /// Used by the build script.
    Build,
}

/// Why the metadata could not be had.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MetadataError {
    #[error("cannot run cargo")]
    Run { source: io::Error },
    #[error("cargo metadata failed: {stderr}")]
    Failed { stderr: String },
    #[error("cannot read what cargo metadata printed")]
    Parse { source: serde_json::Error },
}

impl Metadata {
    /// The packages of this repository alone; touches neither network nor registry cache.
    pub fn of_repository() -> Result<Self, MetadataError> {
        Self::load(&["--no-deps", "--offline"])
    }

    /// The packages of this repository and all they need on `targets`, as `Cargo.lock` pins them.
    ///
    /// A package that only another platform than this one needs may have to be downloaded first.
    pub fn with_dependencies(targets: &[String]) -> Result<Self, MetadataError> {
        let mut arguments = vec!["--all-features"];
        for target in targets {
            arguments.extend(["--filter-platform", target]);
        }
        Self::load(&arguments)
    }

    fn load(arguments: &[&str]) -> Result<Self, MetadataError> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(arguments)
            .current_dir(repository())
            .output()
            .map_err(|source| MetadataError::Run { source })?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(MetadataError::Failed { stderr });
        }
        serde_json::from_slice(&output.stdout).map_err(|source| MetadataError::Parse { source })
    }
}

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
