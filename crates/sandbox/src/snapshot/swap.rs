//! Swaps: moving a running sandbox to the new directory of its workspace.
//!
//! A *restore* (the request of a client) is a *reset* of the workspace, by which the crate `workspace` prepares a new
//! directory and keeps the old one, then a *swap*, and then the removal of the old directory.
//!
//! A helper process of the runtime swaps the directories, and may die or time out. Then the server checks which of the
//! two is mounted in the sandbox. If it cannot tell, it keeps both, and the sandbox is in `error` until it can tell.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use workspace_catalog::{Change, EventKind, Sandbox, State};

use crate::error::{Result, SandboxError, without_host_paths};
use crate::gate::ExclusiveAccess;
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::operation::{operation_error, with_runtime_timeout};
use crate::lifecycle::operation_lock::OperationLockGuard;
use crate::lifecycle::recover::recover_again;
use crate::runtime::RuntimeError;
use crate::sandbox_dir::SandboxDir;
use crate::service::Service;

const ACTION: &str = "replace the workspace";
/// Number of attempts to settle a swap.
const SETTLE_ATTEMPTS: u32 = 3;
/// Interval between these attempts.
const SETTLE_INTERVAL: Duration = Duration::from_millis(200);

/// Outcome of a swap.
pub(crate) enum Swap {
    /// The sandbox has the new directory.
    Done,
    /// The sandbox has the old directory.
    NotDone(RuntimeError),
    /// The server cannot tell which of the two directories the sandbox has.
    Unknown(RuntimeError),
}

/// Interrupted restore that was finished or rolled back.
struct FinishedRestore {
    /// Exclusive access, which keeps writers outside away.
    access: ExclusiveAccess,
    /// True if the workspace was replaced; false after a rollback.
    is_replaced: bool,
}

impl Service {
    /// Moves a sandbox to the new directory of its workspace.
    pub(crate) async fn swap(&self, id: &str, dir: &SandboxDir, path: &Path) -> Swap {
        match with_runtime_timeout(self.0.runtime.swap(id, dir, path)).await {
            Ok(()) => Swap::Done,
            Err(error) => self.swap_outcome(id, dir, error).await,
        }
    }

    /// Returns an error if the new directory of a workspace is no longer mounted: the holder of its mount
    /// may have died and left an empty directory.
    pub(crate) async fn mount_error(&self, id: &str) -> Option<RuntimeError> {
        let name = id.to_owned();
        match self.on_workspaces(move |workspaces| workspaces.is_available(&name)).await {
            Ok(true) => None,
            Ok(false) => Some(self.swap_failed("its new workspace is no longer mounted")),
            Err(error) => Some(self.swap_failed(&error.to_string())),
        }
    }

    fn swap_failed(&self, reason: &str) -> RuntimeError {
        RuntimeError::Failed { runtime: self.0.runtime.name(), action: ACTION, reason: reason.to_owned() }
    }

    /// Settles a swap that failed with `error`: determines its outcome, and finishes or reverts it.
    async fn swap_outcome(&self, id: &str, dir: &SandboxDir, error: RuntimeError) -> Swap {
        let mut attempts_left = SETTLE_ATTEMPTS;
        loop {
            attempts_left -= 1;
            let settle_error = match self.settle_swap(id, dir).await {
                Ok(true) => return Swap::Done,
                Ok(false) => return Swap::NotDone(error),
                Err(error) => error,
            };
            if let Ok(false) = with_runtime_timeout(self.0.runtime.is_running(id, dir)).await {
                // Nothing uses either directory of a sandbox that has exited.
                return Swap::NotDone(error);
            }
            if attempts_left == 0 {
                return Swap::Unknown(self.swap_failed(&format!("{error}; then {settle_error}")));
            }
            tracing::warn!(sandbox = id, error = %settle_error, "failed to settle a swap, trying again");
            sleep(SETTLE_INTERVAL).await;
        }
    }

    /// Finishes or reverts a swap whose outcome is unknown. Returns true if the sandbox now has the new directory of
    /// its workspace, and false if it has the old one.
    async fn settle_swap(&self, id: &str, dir: &SandboxDir) -> Result<bool> {
        let name = id.to_owned();
        let runtime = &self.0.runtime;
        // `None` is a directory that is not mounted. `Runtime::settle_swap` returns true if the directory that it gets
        // is the workspace of the sandbox now.
        match self.on_workspaces(move |workspaces| workspaces.reset_directories(&name)).await? {
            (Some(new), _) => Ok(with_runtime_timeout(runtime.settle_swap(id, dir, &new)).await?),
            (None, Some(old)) => Ok(!with_runtime_timeout(runtime.settle_swap(id, dir, &old)).await?),
            (None, None) => Err(self.swap_failed("neither of its workspaces is mounted").into()),
        }
    }

    /// Puts a sandbox in `error` because it is unknown which directory is its workspace, and keeps checking
    /// in the background. Returns the error for the client of the restore.
    pub(crate) async fn mark_unresolved(&self, id: &str, error: RuntimeError) -> SandboxError {
        tracing::error!(sandbox = id, %error, "failed to determine whether a workspace was replaced");
        let reason = unresolved_reason(&error);
        if let Err(error) = self.set_state(id, State::Error, &without_host_paths(&reason)).await {
            tracing::error!(sandbox = id, %error, "failed to mark a sandbox with an unknown workspace");
        }
        let (service, name) = (Arc::downgrade(&self.0), id.to_owned());
        tokio::spawn(async move { recover_again(&service, &name).await });
        operation_error(id, self.swap_failed(&reason))
    }

    /// Returns true if the outcome of a swap is unknown: the workspace may be either directory.
    pub(crate) async fn has_unresolved_swap(&self, id: &str) -> Result<bool> {
        let name = id.to_owned();
        Ok(self.on_workspaces(move |workspaces| workspaces.pending_reset(&name)).await?.is_some())
    }

    /// Ends a restore whose outcome was never determined, of a sandbox in which nothing runs any more: the directory that
    /// its processes have written to is its workspace. The caller has exclusive access to it.
    pub(crate) async fn settle_restore_of_ended(&self, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.on_workspaces(move |workspaces| workspaces.settle_reset_of_unused(&id)).await
    }

    /// Finishes or rolls back an unresolved restore. Then the sandbox becomes `running`, or stays in `error` until its
    /// guest agent reconnects. Does nothing if no restore is unresolved.
    pub(crate) async fn resolve_restore(
        &self,
        handle: &SandboxHandle,
        sandbox: &Sandbox,
        operation: &OperationLockGuard,
    ) -> Result<()> {
        if sandbox.state != State::Error || !self.has_unresolved_swap(&handle.id).await? {
            return Ok(());
        }
        self.thaw_and_finish_restore(&handle.id, &handle.dir, operation).await?;
        if !handle.guest.is_connected() {
            // It is set to `running` when its guest agent reconnects.
            return Ok(());
        }
        let running = |sandbox: &Sandbox| {
            (sandbox.state == State::Error)
                .then(|| Change { state: Some(State::Running), ..Change::default() })
        };
        self.change(&handle.id, running, &[EventKind::SandboxRunning]).await.map(|_| ())
    }

    /// Finishes or rolls back the interrupted restore of a sandbox, if there is one, and thaws the sandbox if an
    /// earlier server froze it. If the restore cannot be finished, the sandbox is thawed all the same.
    pub(crate) async fn thaw_and_finish_restore(
        &self,
        id: &str,
        dir: &SandboxDir,
        operation: &OperationLockGuard,
    ) -> Result<()> {
        let finished = self.finish_restore(id, dir, operation).await;
        // Thaw even if the restore could not be finished: a writer outside may be waiting for a process in the sandbox, or
        // only such a process can free space on a full disk. Thawing removes the freeze record, so the next attempt does
        // not swap; it only checks which directory is mounted.
        let thawed = self.thaw(id, dir).await;
        if let (Err(_), Err(error)) = (&finished, &thawed) {
            tracing::error!(sandbox = id, %error, "failed to thaw a sandbox whose restore could not be finished");
        }
        if let Some(FinishedRestore { access, is_replaced }) = finished? {
            // Also after a rollback: as long as the outcome was unknown, no service could use the workspace.
            self.notify_hooks_of_replacement(id, &access).await;
            if is_replaced {
                self.remove_former_workspace_directory(id);
            }
        }
        thawed?;
        self.sync_base_to_catalog(id).await
    }

    /// Finishes or rolls back the interrupted restore of a workspace. Returns `None` if there was none.
    async fn finish_restore(
        &self,
        id: &str,
        dir: &SandboxDir,
        operation: &OperationLockGuard,
    ) -> Result<Option<FinishedRestore>> {
        let name = id.to_owned();
        let pending = self.on_workspaces(move |workspaces| workspaces.pending_reset(&name)).await?;
        let Some(path) = pending else { return Ok(None) };
        let access = self.0.gates.exclusive(id, operation).await?;
        let swapped = match self.mount_error(id).await {
            // Only a frozen sandbox is swapped: a thawed one may have written to its current directory.
            None if dir.freeze_record().exists() => self.swap(id, dir, &path).await,
            None => self.swap_outcome(id, dir, self.swap_failed("it was interrupted")).await,
            Some(error) => self.swap_outcome(id, dir, error).await,
        };
        let name = id.to_owned();
        match swapped {
            Swap::Done => {
                tracing::info!(sandbox = id, "finished an interrupted restore");
                self.on_workspaces(move |workspaces| workspaces.finish_reset(&name)).await?;
                Ok(Some(FinishedRestore { access, is_replaced: true }))
            }
            Swap::NotDone(error) => {
                tracing::warn!(sandbox = id, %error, "rolled back an interrupted restore");
                self.on_workspaces(move |workspaces| workspaces.undo_reset(&name)).await?;
                Ok(Some(FinishedRestore { access, is_replaced: false }))
            }
            Swap::Unknown(error) => Err(operation_error(id, self.swap_failed(&unresolved_reason(&error)))),
        }
    }
}

fn unresolved_reason(error: &RuntimeError) -> String {
    format!(
        "a restore was interrupted, and it is not known whether the workspace was replaced ({error}); the server keeps \
         checking; if the sandbox does not recover, delete it"
    )
}
