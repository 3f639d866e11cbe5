//! Operations that are cancelled when their request is dropped.
//!
//! An operation runs in its own task, so that it always thaws the sandbox and undoes partial work. It
//! polls a [`Cancel`], which is set when the future of its request is dropped and when the service is closed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use workspace_state::Cancel;
use workspace_workspace::{CancellableWorkspaces, Workspaces};

use crate::blocking::blocking;
use crate::error::{Result, SandboxError};
use crate::service::Service;

/// Interval at which an operation that waits for something else checks whether it is cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);

impl Service {
    /// Runs an operation to its end, and cancels it when the returned future is dropped.
    pub(crate) async fn cancellable<T, W>(&self, operation: impl FnOnce(Self, Cancel) -> W) -> Result<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let cancel = self.0.cancel.child();
        let cancel_guard = cancel.drop_guard();
        let operation_guard = self.0.operation_count.begin();
        let operation = operation(self.clone(), cancel);
        let done = tokio::spawn(async move {
            let done = operation.await;
            drop(operation_guard);
            done
        });
        let done = done.await.unwrap_or_else(|error| Err(SandboxError::task_failed("finish", error)));
        cancel_guard.disarm();
        done
    }

    /// Runs blocking work on the workspaces. Fails with [`SandboxError::Cancelled`] if `cancel` is set before
    /// the work is done.
    pub(crate) async fn on_workspaces_until<T: Send + 'static>(
        &self,
        cancel: &Cancel,
        work: impl FnOnce(&CancellableWorkspaces<'_>) -> workspace_workspace::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (workspaces, cancel) = (Arc::clone(&self.0.workspaces), cancel.clone());
        let work = move |workspaces: &Workspaces| work(&workspaces.cancellable(&cancel));
        match blocking(move || work(&workspaces)).await? {
            Err(error) if error.is_cancelled() => Err(SandboxError::Cancelled),
            done => Ok(done?),
        }
    }
}

/// Waits for a future, and drops it when `cancel` is set.
pub(crate) async fn or_cancelled<T>(cancel: &Cancel, awaited: impl Future<Output = T>) -> Result<T> {
    tokio::select! {
        biased;
        done = awaited => Ok(done),
        () = cancelled(cancel) => Err(SandboxError::Cancelled),
    }
}

async fn cancelled(cancel: &Cancel) {
    while !cancel.is_cancelled() {
        sleep(CANCEL_POLL).await;
    }
}
