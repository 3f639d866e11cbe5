//! Work that blocks a thread, such as access to files.

use tokio::task::spawn_blocking;

use crate::error::{Result, SandboxError};

/// Runs blocking work on its own thread, so that no other task waits for it.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.map_err(|error| SandboxError::task_failed("run a blocking task", error))
}
