//! Recovery of sandboxes that were paused, or being paused or resumed, when the last server ended.
//!
//! Steps of a pause in memory: freezing, memory. Steps of a pause to disk: pausing (a snapshot is made), committed
//! (the snapshot is durable, the processes are killed), disk. A step before `committed` is undone, unless the
//! sandbox is paused in memory. A resume from disk is undone.

use workspace_catalog::{PauseStep, Sandbox, State};

use crate::error::Result;
use crate::lifecycle::operation_lock::OperationLockGuard;
use crate::lifecycle::pause::PauseAttempt;
use crate::service::Service;

impl Service {
    /// Undoes or continues the pause or resume of a sandbox. Returns the sandbox if it is to be recovered like one
    /// that was not paused. The caller holds the operation lock.
    pub(crate) async fn recover_pause(
        &self,
        sandbox: Sandbox,
        operation: &OperationLockGuard,
    ) -> Result<Option<Sandbox>> {
        let id = sandbox.id.as_str();
        // This server has not attached to the sandbox.
        let no_handle = None;
        match sandbox.pause {
            None => Ok(Some(sandbox)),
            Some(PauseStep::Freezing | PauseStep::Pausing) => {
                tracing::info!(sandbox = id, "found an interrupted pause, which is undone");
                self.undo_pause_steps(&PauseAttempt::new(&sandbox)).await.map(Some)
            }
            Some(PauseStep::Memory) => self.recover_paused_in_memory(sandbox).await,
            Some(PauseStep::Committed) => {
                tracing::info!(sandbox = id, "found an interrupted pause, which is continued");
                self.continue_pause(id, no_handle, operation).await?;
                Ok(None)
            }
            Some(PauseStep::Disk) => {
                // Only the snapshot is needed. The last server may have ended before it removed the workspace.
                self.remove_paused_files(&sandbox).await?;
                Ok(None)
            }
            Some(PauseStep::Resuming) => {
                tracing::info!(sandbox = id, "undoing an interrupted resume");
                self.undo_resume(id, no_handle, "the server stopped while it was being resumed", operation)
                    .await?;
                Ok(None)
            }
        }
    }

    /// Recovers a sandbox that is paused in memory, which stays frozen. Returns the sandbox if its processes have
    /// ended, so that it is recovered like one that was not paused.
    async fn recover_paused_in_memory(&self, sandbox: Sandbox) -> Result<Option<Sandbox>> {
        // A sandbox that is paused in memory is stored as running.
        let is_stored_as_running = sandbox.state == State::Running;
        if !is_stored_as_running || !self.0.runtime.is_running(&sandbox.id, &self.dir(&sandbox.id)).await? {
            // Its processes ended, for example with the machine, or it was being stopped.
            return Ok(Some(sandbox));
        }
        self.reattach(&sandbox)?;
        Ok(None)
    }
}
