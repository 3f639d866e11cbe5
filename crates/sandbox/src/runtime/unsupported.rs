//! Runtimes that need Linux, on other systems.

use std::path::Path;

use super::{RuntimeError, Unavailable};

/// The embedded runtime, which is not available here.
#[derive(Debug)]
pub struct Embedded;

impl Embedded {
    /// Fails, and names an alternative.
    pub async fn start(_directory: &Path, _agent: &Path) -> Result<Unavailable, RuntimeError> {
        Err(needs_linux("embedded"))
    }
}

/// The oci runtime, which is not available here.
#[derive(Debug)]
pub struct Oci;

impl Oci {
    /// Fails, and names an alternative.
    pub async fn start(
        _program: &str,
        _directory: &Path,
        _agent: &Path,
        _templates: &Path,
    ) -> Result<Unavailable, RuntimeError> {
        Err(needs_linux("oci"))
    }
}

fn needs_linux(runtime: &'static str) -> RuntimeError {
    let reason = "it needs Linux; on this system use the docker runtime (RUNTIME=docker)".to_owned();
    RuntimeError::Unavailable { runtime, reason }
}
