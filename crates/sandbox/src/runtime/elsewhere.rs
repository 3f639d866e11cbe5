//! What is said on systems other than Linux by the runtimes that need it.

use std::path::Path;

use super::{RuntimeError, Unavailable};

/// Runs nothing here.
#[derive(Debug)]
pub struct Embedded;

impl Embedded {
    /// Says what to use instead.
    pub async fn start(_directory: &Path, _agent: &Path) -> Result<Unavailable, RuntimeError> {
        Err(needs_linux("embedded"))
    }
}

/// Runs nothing here.
#[derive(Debug)]
pub struct Oci;

impl Oci {
    /// Says what to use instead.
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
