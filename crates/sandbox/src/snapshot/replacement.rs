//! Replacing the workspace of a running sandbox, for a restore or a rebase.
//!
//! Processes whose working directory is the workspace itself keep running, in the new files. Others that use it are
//! killed, or fail the operation ([`IfInUse`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use workspace_catalog::{Sandbox, State};
use workspace_state::{Cancel, SnapshotId};
use workspace_workspace::{CancellableWorkspaces, Materialize, PreparedReset, ResetMode, WorkspaceError};

use super::operations::{FreezeTime, IfInUse};
use super::swap::Swap;
use crate::error::{Result, SandboxError};
use crate::failpoint;
use crate::gate::ExclusiveAccess;
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::operation::with_runtime_timeout;
use crate::lifecycle::operation_lock::{OPERATION_WAIT, OperationLockGuard};
use crate::runtime::{ProcessScope, RuntimeError, WorkspaceProcess};
use crate::sandbox_dir::SandboxDir;
use crate::service::{Service, not_running};

/// Number of attempts to replace a workspace whose processes were killed, and the delay between them. The last attempt
/// kills all processes in the workspace.
const ATTEMPTS: (u32, Duration) = (4, Duration::from_millis(100));

/// Permission to replace a workspace. No writer outside has access to it, and the layers are not removed.
pub(super) struct PreparedReplacement {
    /// Exclusive access, which keeps writers outside away.
    pub(super) access: ExclusiveAccess,
    /// Guard of the layers.
    _layers: PreparedReset,
}

/// Result of [`Service::replace_unused`].
pub(super) struct Replaced<T> {
    /// Result of the replacement.
    pub(super) value: T,
    /// Processes that were killed.
    pub(super) killed: Vec<WorkspaceProcess>,
    /// Freeze of the sandbox, or the error of the thaw.
    pub(super) thawed: Result<FreezeTime>,
}

impl Service {
    /// Returns the handle of a sandbox whose workspace can be replaced: it runs, and is not paused.
    pub(super) fn replaceable_handle(&self, sandbox: &Sandbox) -> Result<Arc<SandboxHandle>> {
        let runs = sandbox.state == State::Running && !sandbox.is_paused();
        self.handle(&sandbox.id).filter(|_| runs).ok_or_else(|| not_running(sandbox))
    }

    /// Writes the layers of a snapshot, which is slow and may fail, before any process is killed or frozen. Then
    /// excludes writers outside the sandbox.
    pub(super) async fn prepare_replacement(
        &self,
        sandbox: &Sandbox,
        handle: &SandboxHandle,
        snapshot: SnapshotId,
        if_in_use: IfInUse,
        operation: &OperationLockGuard,
        cancel: &Cancel,
    ) -> Result<PreparedReplacement> {
        let id = sandbox.id.as_str();
        let check_unused = async || match if_in_use {
            IfInUse::KillProcesses => Ok(()),
            IfInUse::Fail => self.check_unused(handle).await,
        };
        handle.io.release_files().await;
        check_unused().await?;
        // Materialization needs a permit, as in a creation. The wait has a timeout, because a sandbox is not stopped on
        // a full disk while its operation lock is held.
        let permit =
            or_cancelled(cancel, timeout(OPERATION_WAIT, self.0.workspace_permits.acquire(&sandbox.owner)))
                .await?;
        let busy = |_| SandboxError::Busy { id: id.to_owned(), seconds: OPERATION_WAIT.as_secs() };
        let permit = permit.map_err(busy)?.map_err(|_| SandboxError::Cancelled)?;
        let name = id.to_owned();
        let prepare = move |workspaces: &CancellableWorkspaces<'_>| workspaces.prepare_reset(&name, snapshot);
        let layers = self.on_workspaces_until(cancel, prepare).await?;
        drop(permit);
        handle.io.release_files().await;
        check_unused().await?;
        // Also before any process is terminated, because this may fail.
        let access = self.exclusive_access(id, operation, cancel).await?;
        // Again, for transfers that began meanwhile.
        handle.io.release_files().await;
        Ok(PreparedReplacement { access, _layers: layers })
    }

    /// Runs `replace` while a sandbox is frozen. With [`IfInUse::KillProcesses`], first kills processes that use the
    /// workspace, and tries again if others use it by then.
    pub(super) async fn replace_unused<T, F>(
        &self,
        sandbox: &Sandbox,
        handle: &SandboxHandle,
        access: &ExclusiveAccess,
        if_in_use: IfInUse,
        cancel: &Cancel,
        mut replace: impl FnMut() -> F,
    ) -> Result<Replaced<T>>
    where
        F: Future<Output = Result<T>>,
    {
        let kills_processes = if_in_use == IfInUse::KillProcesses;
        let (mut killed, mut attempts_left) = (Vec::new(), ATTEMPTS.0);
        let mut scope = ProcessScope::Blocking;
        loop {
            attempts_left -= 1;
            cancel.check()?;
            if kills_processes {
                killed.extend(self.workspace_processes(handle, Some((scope, Duration::ZERO))).await?);
            }
            match self.while_frozen(sandbox, access, replace()).await {
                // Remaining processes may enter a directory before each attempt. The last attempt terminates
                // all of them.
                Err(SandboxError::WorkspaceUsed { .. }) if kills_processes && attempts_left > 0 => {
                    if attempts_left == 1 {
                        scope = ProcessScope::All;
                    }
                }
                // Files of terminated processes may still be open: a frozen process does not close them.
                Err(SandboxError::Workspace(WorkspaceError::Unusable { .. })) if attempts_left > 0 => {}
                done => {
                    if done.is_err() && self.has_unresolved_swap(&handle.id).await.unwrap_or(true) {
                        // A service might go on to change files that nobody sees any more.
                        self.notify_hooks_of_removal(&handle.id, access).await;
                    }
                    let (value, thawed) = done?;
                    return Ok(Replaced { value, killed, thawed });
                }
            }
            sleep(ATTEMPTS.1).await;
        }
    }

    /// Fails if processes use the workspace of a sandbox.
    pub(super) async fn check_unused(&self, handle: &SandboxHandle) -> Result<()> {
        let processes = self.workspace_processes(handle, None).await?;
        match processes.is_empty() {
            true => Ok(()),
            false => Err(SandboxError::WorkspaceUsed { id: handle.id.clone(), processes }),
        }
    }

    /// Replaces the workspace of a frozen sandbox. If that fails, or is cancelled before the workspace is replaced, the
    /// sandbox keeps the former one. `base_info` is the base as JSON, which is recorded with the new files; `None`
    /// without a project.
    pub(super) async fn replace(
        &self,
        handle: &SandboxHandle,
        snapshot: SnapshotId,
        base_info: Option<String>,
        cancel: &Cancel,
    ) -> Result<()> {
        let (id, dir) = (handle.id.as_str(), &handle.dir);
        // A process may have started to use it before the freeze.
        self.check_unused(handle).await?;
        let mode = match self.0.runtime.can_swap_workspace() {
            true => ResetMode::MayMove,
            false => ResetMode::InPlaceOnly,
        };
        let name = id.to_owned();
        let reset = self
            .on_workspaces_until(cancel, move |workspaces| match base_info {
                Some(info) => workspaces.reset_with_info(&name, snapshot, info, mode),
                None => workspaces.reset(&name, Some(snapshot), Materialize::Auto, mode),
            })
            .await?;
        failpoint::hit("workspace-reset")?;
        if !reset.moved {
            return Ok(());
        }
        if cancel.is_cancelled() {
            let name = id.to_owned();
            self.on_workspaces(move |workspaces| workspaces.undo_reset(&name)).await?;
            return Err(SandboxError::Cancelled);
        }
        let swapped = match self.mount_error(id).await {
            // Nothing was changed yet.
            Some(error) => Swap::NotDone(error),
            None => self.swap(id, dir, &reset.workspace.path).await,
        };
        failpoint::hit("workspace-swapped")?;
        let name = id.to_owned();
        match swapped {
            Swap::Done => self.on_workspaces(move |workspaces| workspaces.finish_reset(&name)).await,
            Swap::NotDone(error) => {
                self.on_workspaces(move |workspaces| workspaces.undo_reset(&name)).await?;
                Err(self.explain_unswapped(id, dir, error).await)
            }
            Swap::Unknown(error) => Err(self.mark_unresolved(id, error).await),
        }
    }

    /// Lists the processes that use the workspace of a sandbox, and terminates them if `terminate` is given.
    async fn workspace_processes(
        &self,
        handle: &SandboxHandle,
        terminate: Option<(ProcessScope, Duration)>,
    ) -> Result<Vec<WorkspaceProcess>> {
        let processes = self.0.runtime.workspace_processes(&handle.id, &handle.dir, terminate);
        match with_runtime_timeout(processes).await {
            Ok(processes) => Ok(processes),
            Err(error) => Err(self.explain_unswapped(&handle.id, &handle.dir, error).await),
        }
    }

    /// Explains why the workspace of a sandbox cannot be replaced: its state, or the runtime, for example if
    /// the namespace holder has died.
    async fn explain_unswapped(&self, id: &str, dir: &SandboxDir, error: RuntimeError) -> SandboxError {
        match self.explain(id, dir, error).await {
            SandboxError::Operation { source, .. } | SandboxError::Runtime(source) => {
                let reason = format!(
                    "it cannot be replaced in place ({source}); fork or commit the sandbox, and continue there"
                );
                WorkspaceError::Unusable { id: id.to_owned(), reason }.into()
            }
            state => state,
        }
    }

    /// Removes the old directory of a replaced workspace in the background.
    pub(crate) fn remove_former_workspace_directory(&self, id: &str) {
        let no_snapshot = None;
        self.remove_former_files(id, no_snapshot);
    }

    /// Removes the old directory of a replaced workspace in the background, and then `unused`: a snapshot that only
    /// this directory needed, with its owner.
    pub(super) fn remove_former_files(&self, id: &str, unused: Option<(String, SnapshotId)>) {
        let (service, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            let name = id.clone();
            let removed = service.on_workspaces(move |workspaces| workspaces.remove_former(&name)).await;
            if let Err(error) = removed {
                // The next restore, or the removal of the sandbox, tries again.
                tracing::warn!(sandbox = id, %error, "failed to remove the former files of a restored workspace");
                return;
            }
            let Some((owner, snapshot)) = unused else { return };
            let removed = service.remove_unless_used(&owner, snapshot).await;
            let forgotten = match removed {
                Ok(()) => service.forget_base(&id, snapshot).await,
                error => error,
            };
            if let Err(error) = forgotten {
                // A reference may name it. It counts towards the quota of the owner, who can delete it.
                tracing::debug!(sandbox = id, %snapshot, %error, "failed to remove the snapshot of a former rebase");
            }
        });
    }

    /// Removes a snapshot of an owner, unless a reference, a workspace or a mount uses it.
    async fn remove_unless_used(&self, owner: &str, snapshot: SnapshotId) -> Result<()> {
        // From the store first, which refuses to remove one that is used.
        self.on_workspaces(move |workspaces| {
            workspaces.store().remove_dead_pins()?;
            Ok(workspaces.store().remove_snapshots(&[snapshot])?)
        })
        .await?;
        self.0.catalog.snapshots().remove_owner(Some(owner), &snapshot.to_string()).await?;
        Ok(())
    }
}
