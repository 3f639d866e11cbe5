//! Common steps of operations on a sandbox, with their timeouts.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use workspace_catalog::{Sandbox, State};
use workspace_state::Cancel;

use crate::error::{Result, SandboxError};
use crate::gate::{ExclusiveAccess, SharedAccess};
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::operation_lock::{OPERATION_WAIT, OperationLockGuard};
use crate::runtime::{Frozen, RuntimeError};
use crate::sandbox_dir::SandboxDir;
use crate::service::{Service, not_running};

/// Maximum time of one call to the runtime. It applies when a Docker daemon or a helper process does not respond:
/// freezing, killing and swapping in helpers have shorter timeouts of their own, the Docker client a longer one.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(90);
/// Number of attempts to thaw a sandbox, and the delay between them.
const THAW_ATTEMPTS: (u32, Duration) = (5, Duration::from_millis(200));

impl Service {
    /// Waits for the operation lock of a sandbox
    /// ([`OperationLocks`](crate::lifecycle::operation_lock::OperationLocks)). Fails with [`SandboxError::Busy`] after
    /// [`OPERATION_WAIT`].
    pub(crate) async fn lock_operation(&self, id: &str, cancel: &Cancel) -> Result<OperationLockGuard> {
        let operation = or_cancelled(cancel, self.0.operation_locks.lock_within(id, OPERATION_WAIT)).await?;
        operation.ok_or_else(|| SandboxError::Busy { id: id.to_owned(), seconds: OPERATION_WAIT.as_secs() })
    }

    /// Lets a writer outside a sandbox change files of its workspace until the result is dropped. No commit or other
    /// operation on the workspace starts meanwhile, so the writer must not hold the result while it waits for a client
    /// or for such an operation. Fails with [`SandboxError::WorkspaceBusy`] after
    /// [`Settings::shared_access_timeout`](crate::Settings).
    ///
    /// `id` is the id of the workspace, which is also that of its sandbox. The sandbox may have been removed.
    pub async fn shared_access(&self, id: &str) -> Result<SharedAccess> {
        let access = self.0.gates.shared(id).await?;
        if let Some(handle) = self.handle(id) {
            // The automatic snapshot after the next command says that it may contain these changes.
            handle.record_outside_changes();
        }
        Ok(access)
    }

    /// Excludes writers outside a sandbox from its workspace. `operation` proves that the caller holds the operation
    /// lock.
    pub(crate) async fn exclusive_access(
        &self,
        id: &str,
        operation: &OperationLockGuard,
        cancel: &Cancel,
    ) -> Result<ExclusiveAccess> {
        or_cancelled(cancel, self.0.gates.exclusive(id, operation)).await?
    }

    /// Reads the row of a sandbox. Callers do so after they took the operation lock: it may have changed meanwhile.
    pub(crate) async fn read_row(&self, id: &str) -> Result<Sandbox> {
        let found = self.0.catalog.sandboxes().get(id).await?;
        found.ok_or_else(|| SandboxError::NotFound { id: id.to_owned() })
    }

    /// Freezes all processes of a sandbox. If the sandbox no longer runs, the error has its state.
    pub(crate) async fn freeze(&self, id: &str, dir: &SandboxDir) -> Result<Frozen> {
        let error = match with_runtime_timeout(self.0.runtime.freeze(id, dir)).await {
            Ok(frozen) => return Ok(frozen),
            Err(error) => error,
        };
        // The helper or daemon of a freeze that timed out may still be stopping processes. A thaw ends that, and
        // resumes the processes that are stopped.
        if let Err(error) = self.thaw(id, dir).await {
            tracing::error!(sandbox = id, %error, "failed to thaw a sandbox after a failed freeze");
        }
        Err(self.explain(id, dir, error).await)
    }

    /// Thaws all processes of a sandbox, with retries: it must not stay frozen.
    pub(crate) async fn thaw(&self, id: &str, dir: &SandboxDir) -> Result<()> {
        let (mut attempts_left, pause) = THAW_ATTEMPTS;
        loop {
            attempts_left -= 1;
            match with_runtime_timeout(self.0.runtime.thaw(id, dir)).await {
                Ok(()) => return Ok(()),
                Err(error) if attempts_left == 0 => return Err(self.explain(id, dir, error).await),
                Err(error) => tracing::warn!(sandbox = id, %error, "failed to thaw a sandbox, trying again"),
            }
            sleep(pause).await;
        }
    }

    /// Kills all processes of a sandbox, with a timeout.
    pub(crate) async fn kill_sandbox(&self, id: &str, dir: &SandboxDir) -> Result<()> {
        with_runtime_timeout(self.0.runtime.kill(id, dir)).await.map_err(|error| operation_error(id, error))
    }

    /// Returns the error for the client after a call to the runtime failed: if the sandbox was removed or no longer
    /// runs, the error says so; otherwise it is the error of the runtime.
    pub(crate) async fn explain(&self, id: &str, dir: &SandboxDir, error: RuntimeError) -> SandboxError {
        let sandbox = match self.read_row(id).await {
            Ok(sandbox) => sandbox,
            Err(gone @ SandboxError::NotFound { .. }) => return gone,
            Err(_) => return operation_error(id, error),
        };
        if !matches!(sandbox.state, State::Running) {
            return not_running(&sandbox);
        }
        match with_runtime_timeout(self.0.runtime.is_running(id, dir)).await {
            // The row is not updated yet, because the exit of the processes was not noticed yet.
            Ok(false) => not_running(&Sandbox {
                state: State::Error,
                state_reason: Some("its processes exited".to_owned()),
                ..sandbox
            }),
            _ => operation_error(id, error),
        }
    }
}

/// Waits for a call to the runtime, with a timeout.
pub(crate) async fn with_runtime_timeout<T>(
    call: impl Future<Output = std::result::Result<T, RuntimeError>>,
) -> std::result::Result<T, RuntimeError> {
    let seconds = RUNTIME_TIMEOUT.as_secs();
    timeout(RUNTIME_TIMEOUT, call).await.unwrap_or_else(|_| {
        let reason = format!("it did not respond within {seconds} s");
        Err(RuntimeError::Failed { runtime: "sandbox", action: "complete the operation", reason })
    })
}

/// Adds the id of a sandbox to an error of a call to the runtime.
pub(crate) fn operation_error(id: &str, error: RuntimeError) -> SandboxError {
    match error {
        RuntimeError::Failed { .. } => SandboxError::Operation { id: id.to_owned(), source: error },
        other => other.into(),
    }
}
