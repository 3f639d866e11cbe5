//! Moving a running sandbox to the new directory of its workspace, the last step of a restore.
//!
//! A helper process of the runtime does it, and may die or not answer. Then the sandbox itself is looked at: which of the
//! two directories does it have? Where that cannot be told, both stay, the workspace stays marked as switching, and the
//! sandbox is in `error` until it can.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use workspace_catalog::{Change, EventKind, Sandbox, State};
use workspace_workspace::WorkspaceError;

use crate::config::Config;
use crate::error::{Result, SandboxError, without_host_paths};
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::operation::{failed, limited};
use crate::lifecycle::recover::recover_again;
use crate::runtime::RuntimeError;
use crate::sandbox_dir::SandboxDir;
use crate::service::{Service, config_of};

const ACTION: &str = "replace the workspace";
/// Attempts to find out what came of a swap, and the pause between them.
const LOOK_ATTEMPTS: (u32, Duration) = (3, Duration::from_millis(200));

/// Outcome of a swap.
pub(crate) enum Swap {
    /// The sandbox has the new directory.
    Done,
    /// It has the former one.
    NotDone(RuntimeError),
    /// It has one of them.
    Unknown(RuntimeError),
}

impl Service {
    /// Moves a sandbox to the new directory of its workspace.
    pub(crate) async fn swap(&self, id: &str, dir: &SandboxDir, path: &Path) -> Swap {
        match limited(self.0.runtime.swap(id, dir, path)).await {
            Ok(()) => Swap::Done,
            Err(error) => self.outcome(id, dir, error).await,
        }
    }

    /// The reason why a sandbox cannot be moved to the new directory of its workspace, if that is none any more: whoever
    /// held its mount may have died, and an empty directory was left.
    pub(crate) async fn unmounted(&self, id: &str) -> Option<RuntimeError> {
        let name = id.to_owned();
        match self.on_workspaces(move |workspaces| workspaces.is_there(&name)).await {
            Ok(true) => None,
            Ok(false) => Some(self.swap_failed("its new workspace is not mounted any more")),
            Err(error) => Some(self.swap_failed(&error.to_string())),
        }
    }

    fn swap_failed(&self, reason: &str) -> RuntimeError {
        RuntimeError::Failed { runtime: self.0.runtime.name(), action: ACTION, reason: reason.to_owned() }
    }

    /// Finds out what came of a swap that failed with `error`.
    async fn outcome(&self, id: &str, dir: &SandboxDir, error: RuntimeError) -> Swap {
        let (mut left, pause) = LOOK_ATTEMPTS;
        loop {
            left -= 1;
            let more = match self.is_swapped(id, dir).await {
                Ok(true) => return Swap::Done,
                Ok(false) => return Swap::NotDone(error),
                Err(more) => more,
            };
            if let Ok(false) = limited(self.0.runtime.is_running(id, dir)).await {
                // Of one that has ended nobody uses either directory.
                return Swap::NotDone(error);
            }
            if left == 0 {
                return Swap::Unknown(self.swap_failed(&format!("{error}; then {more}")));
            }
            tracing::warn!(sandbox = id, error = %more, "failed to look at a workspace, trying again");
            sleep(pause).await;
        }
    }

    /// Returns true if a sandbox has the new directory of its workspace, and not the former one.
    async fn is_swapped(&self, id: &str, dir: &SandboxDir) -> Result<bool> {
        let name = id.to_owned();
        let runtime = &self.0.runtime;
        match self.on_workspaces(move |workspaces| workspaces.switching_between(&name)).await? {
            (Some(new), _) => Ok(limited(runtime.settle_swap(id, dir, &new)).await?),
            (None, Some(former)) => Ok(!limited(runtime.settle_swap(id, dir, &former)).await?),
            (None, None) => Err(self.swap_failed("neither of its workspaces is mounted any more").into()),
        }
    }

    /// Puts a sandbox in `error` of which nobody knows which directory is its workspace, and goes on looking. Returns the
    /// error for whoever asked for the restore.
    pub(crate) async fn leave_undecided(&self, id: &str, error: RuntimeError) -> SandboxError {
        tracing::error!(sandbox = id, %error, "failed to find out whether a workspace was replaced");
        let reason = undecided(&error);
        if let Err(error) = self.mark(id, State::Error, &without_host_paths(&reason)).await {
            tracing::error!(sandbox = id, %error, "failed to mark a sandbox with an unknown workspace");
        }
        let (service, name) = (Arc::downgrade(&self.0), id.to_owned());
        tokio::spawn(async move { recover_again(&service, &name).await });
        failed(id, self.swap_failed(&reason))
    }

    /// Returns true if nobody knows which directory is the workspace of a sandbox.
    pub(crate) async fn is_undecided(&self, id: &str) -> Result<bool> {
        let name = id.to_owned();
        Ok(self.on_workspaces(move |workspaces| workspaces.switching(&name)).await?.is_some())
    }

    /// Lets a sandbox that was left undecided be used again, once it is known which directory is its workspace.
    pub(crate) async fn decide(&self, handle: &SandboxHandle, sandbox: &Sandbox) -> Result<()> {
        if sandbox.state != State::Error || !self.is_undecided(&handle.id).await? {
            return Ok(());
        }
        self.finish_interrupted(&handle.id, &handle.dir).await?;
        if !handle.guest.is_connected() {
            // It is running when its guest is back.
            return Ok(());
        }
        let running = |sandbox: &Sandbox| {
            (sandbox.state == State::Error)
                .then(|| Change { state: Some(State::Running), ..Change::default() })
        };
        self.change(&handle.id, running, &[EventKind::SandboxRunning]).await.map(|_| ())
    }

    /// Lets a sandbox go on that a server which is gone has stopped, and finishes what it was doing.
    pub(crate) async fn finish_interrupted(&self, id: &str, dir: &SandboxDir) -> Result<()> {
        let name = id.to_owned();
        let path = self.on_workspaces(move |workspaces| workspaces.switching(&name)).await?;
        if let Some(path) = path {
            let swapped = match self.unmounted(id).await {
                // One that went on has written to the directory it has.
                None if dir.frozen().exists() => self.swap(id, dir, &path).await,
                None => self.outcome(id, dir, self.swap_failed("it was interrupted")).await,
                Some(error) => self.outcome(id, dir, error).await,
            };
            let name = id.to_owned();
            match swapped {
                Swap::Done => {
                    tracing::info!(sandbox = id, "finished an interrupted restore");
                    self.on_workspaces(move |workspaces| workspaces.switched(&name)).await?;
                    self.forget_former(id);
                }
                Swap::NotDone(error) => {
                    tracing::warn!(sandbox = id, %error, "took back an interrupted restore");
                    self.on_workspaces(move |workspaces| workspaces.switch_back(&name)).await?;
                }
                Swap::Unknown(error) => {
                    // It must not stand still for ever because of that.
                    self.thaw(id, dir).await?;
                    return Err(failed(id, self.swap_failed(&undecided(&error))));
                }
            }
        }
        self.thaw(id, dir).await?;
        self.note_restored(id).await
    }

    /// Writes down what a workspace was restored to last. A server that was killed may have restored it and not noted that.
    async fn note_restored(&self, id: &str) -> Result<()> {
        let name = id.to_owned();
        let base = match self.on_workspaces(move |workspaces| workspaces.record(&name)).await {
            Ok(record) => record.current.base,
            Err(SandboxError::Workspace(WorkspaceError::NotFound { .. })) => return Ok(()),
            Err(error) => return Err(error),
        };
        let change = |sandbox: &Sandbox| {
            let config = config_of(sandbox).ok().filter(|config| config.snapshot != base)?;
            let config = serde_json::to_value(Config { snapshot: base, ..config }).ok()?;
            Some(Change { config: Some(config), ..Change::default() })
        };
        self.change(id, change, &[]).await.map(|_| ())
    }
}

fn undecided(error: &RuntimeError) -> String {
    format!(
        "a restore was interrupted, and it is not known whether the workspace was replaced ({error}); the server goes on \
         looking; if that does not help, delete the sandbox"
    )
}
