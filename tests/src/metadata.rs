//! Output of `cargo metadata`, as far as the checks need it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// Packages of the repository, with or without external ones.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// All packages that were requested.
    pub packages: Vec<Package>,
}

/// Package as described by its manifest.
#[derive(Debug, Clone, Deserialize)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Version of the package.
    pub version: String,
    /// Registry or repository of an external package; `None` for a package of this repository.
    pub source: Option<String>,
    /// SPDX expression.
    pub license: Option<String>,
    /// Absolute path of its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// Dependencies of all kinds and for all platforms.
    pub dependencies: Vec<Dependency>,
}

/// Entry of a dependency table.
#[derive(Debug, Clone, Deserialize)]
pub struct Dependency {
    /// Real name of the package, even if the manifest renames it.
    pub name: String,
    /// Kind of the dependency; `None` for a normal one.
    pub kind: Option<DependencyKind>,
}

/// Kind of a dependency that is not a normal one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DependencyKind {
    /// Used by tests, examples and benchmarks only.
    Dev,
    /// Used by the build script.
    Build,
}

/// Error of running `cargo metadata`.
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
    /// Returns the packages of this repository, without access to the network or the registry cache.
    pub fn of_repository() -> Result<Self, MetadataError> {
        Self::load(&["--no-deps", "--offline"])
    }

    /// Returns the packages of this repository and all their dependencies on `targets`, as pinned by
    /// `Cargo.lock`.
    ///
    /// A package that only another platform needs may have to be downloaded first.
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

/// Returns the root directory of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
