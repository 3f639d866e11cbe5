//! Restoring a sandbox with its root filesystem.
//!
//! A root in use cannot be replaced, so all processes are killed, and the sandbox is started again over the restored
//! files. The root is reset first and the workspace second: if the server is killed in between, the next one undoes the
//! reset of the root. If it is killed after that, the next one finishes both. From the moment in which the processes
//! are killed, a restore is not cancelled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;
use workspace_catalog::{Change, EventKind, Sandbox, State};
use workspace_state::{Cancel, Snapshot, SnapshotId};
use workspace_workspace::{
    Bounds, CancellableWorkspaces, Materialize, ResetMode, WorkspaceError, Workspaces,
};

use super::roots::find_snapshot;
use crate::config::Config;
use crate::error::{Context as _, Result, SandboxError, without_host_paths};
use crate::gate::ExclusiveAccess;
use crate::guest::handle::SandboxHandle;
use crate::id::Token;
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::operation_lock::{OPERATION_WAIT, OperationLockGuard};
use crate::runtime::SandboxSpec;
use crate::service::{Service, config_of};
use crate::snapshot::bases::project_base_text;
use crate::snapshot::operations::{FreezeTime, IfInUse, RestoreResult, network_of};

/// Reason of the end of commands that a restore ended.
const RESTORED: &str = "the sandbox was restored";
/// Timeout of the scan of a restored workspace and root.
const SCAN_TIMEOUT: Duration = Duration::from_secs(1);

impl Service {
    /// Replaces workspace and root of a running sandbox by a snapshot, and starts it again.
    pub(crate) async fn restore_with_root(
        &self,
        sandbox: &Sandbox,
        handle: &Arc<SandboxHandle>,
        snapshot: &Snapshot,
        if_in_use: IfInUse,
        operation: OperationLockGuard,
        cancel: &Cancel,
    ) -> Result<RestoreResult> {
        let id = sandbox.id.as_str();
        self.check_template(sandbox, snapshot)?;
        let check_unused = || match handle.commands.running().len() {
            count if count > 0 && if_in_use == IfInUse::Fail => {
                Err(SandboxError::RootUsed { id: id.to_owned(), count })
            }
            _ => Ok(()),
        };
        check_unused()?;
        let prepared = self.prepare_layers(sandbox, snapshot.id, cancel).await?;
        let access = self.exclusive_access(id, &operation, cancel).await?;
        check_unused()?;
        cancel.check()?;
        let began = Instant::now();
        let restored = self.replace_and_start(sandbox, handle, snapshot.id, &access).await;
        drop(prepared);
        drop(access);
        self.remove_former_root(id);
        self.remove_former_workspace_directory(id);
        let info = self.info(restored?)?;
        Ok(RestoreResult {
            info,
            // All processes are killed, so none is listed. The "freeze" is the time without processes.
            killed: Vec::new(),
            freeze: FreezeTime { frozen: None, lasted: began.elapsed() },
        })
    }

    /// Fails if the root of a snapshot was made from another template than the sandbox.
    fn check_template(&self, sandbox: &Sandbox, snapshot: &Snapshot) -> Result<()> {
        match &snapshot.root {
            Some(root) if root.template != sandbox.template => Err(SandboxError::RootUnavailable {
                reason: format!(
                    "the root of the snapshot was made from template `{}`, and the sandbox from `{}`",
                    root.template, sandbox.template
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Writes the layers that the restore needs, which is slow and may fail, before any process is killed. They are not
    /// removed as unused before the result is dropped.
    async fn prepare_layers(
        &self,
        sandbox: &Sandbox,
        snapshot: SnapshotId,
        cancel: &Cancel,
    ) -> Result<impl Send + use<>> {
        let id = sandbox.id.as_str();
        let permit = timeout(OPERATION_WAIT, self.0.workspace_permits.acquire(&sandbox.owner));
        let busy = |_| SandboxError::Busy { id: id.to_owned(), seconds: OPERATION_WAIT.as_secs() };
        let permit = or_cancelled(cancel, permit).await?;
        let _permit = permit.map_err(busy)?.map_err(|_| SandboxError::Cancelled)?;
        self.update_holder().await;
        let (name, roots, flag) =
            (id.to_owned(), Arc::clone(self.0.roots.available().await?), cancel.clone());
        let prepare = move |workspaces: &CancellableWorkspaces<'_>| {
            let root = roots.cancellable(&flag).prepare_reset(&name, snapshot)?;
            Ok((root, workspaces.prepare_reset(&name, snapshot)?))
        };
        self.on_workspaces_until(cancel, prepare).await
    }

    /// Kills all processes, resets workspace and root, and starts the sandbox again. If the reset fails, the
    /// sandbox is started with its former files, and this fails.
    async fn replace_and_start(
        &self,
        sandbox: &Sandbox,
        former: &Arc<SandboxHandle>,
        snapshot: SnapshotId,
        access: &ExclusiveAccess,
    ) -> Result<Sandbox> {
        let id = sandbox.id.as_str();
        let token = Token::new().context(|| "create a token".to_owned())?;
        let row = Sandbox { token_hash: token.hash(), ..sandbox.clone() };
        let config = config_of(sandbox)?;
        let restored_config = self.restored_config(sandbox, snapshot).await?;
        let handle = Arc::new(SandboxHandle::of(&row, self.dir(id), &config));
        // Requests wait for the new guest agent.
        handle.guest.let_requests_wait(self.0.settings.start_timeout);
        self.add_handle(&handle);
        former.close();
        // The base is stored in the same write as the new files, so that the next server knows it if this one is killed
        // before it writes the row.
        let base_text = project_base_text(&restored_config);
        let replaced = self.kill_and_reset(id, former, snapshot, base_text).await;
        let config = match &replaced {
            Ok(()) => restored_config,
            Err(_) => config,
        };
        let started = match self.record_restart(&row, &config, replaced.is_ok()).await {
            Ok(row) => self.start_again(&row, &config, &handle, &token).await.map(|()| row),
            Err(error) => Err(error),
        };
        // Services that hold the directory of the workspace open get the new one, also after a failed reset.
        self.notify_hooks_of_replacement(id, access).await;
        match (replaced, started) {
            (Ok(()), Ok(row)) => Ok(row),
            (Err(error), Ok(_)) => Err(error),
            (replaced, Err(error)) => {
                self.mark_not_started(&handle, &error).await;
                Err(replaced.err().unwrap_or(error))
            }
        }
    }

    async fn kill_and_reset(
        &self,
        id: &str,
        former: &Arc<SandboxHandle>,
        snapshot: SnapshotId,
        base_text: Option<String>,
    ) -> Result<()> {
        self.kill_sandbox(id, &former.dir).await?;
        self.fail_commands(id, Some(former), RESTORED).await;
        self.reset_both(id, snapshot, base_text).await
    }

    /// Resets root and workspace of a sandbox in which nothing runs: both or none. `base_text` is the base of the
    /// project as text ([`project_base_text`]), which is stored with the workspace.
    async fn reset_both(&self, id: &str, snapshot: SnapshotId, base_text: Option<String>) -> Result<()> {
        let (name, roots) = (id.to_owned(), Arc::clone(self.0.roots.available().await?));
        self.on_workspaces(move |workspaces| {
            let marker = reset_marker(workspaces, &name)?;
            reset(&roots, &name, snapshot, Some(marker))?;
            if let Err(error) = reset(workspaces, &name, snapshot, base_text) {
                roots.undo_reset(&name)?;
                return Err(error);
            }
            // Both have the new files, and the sandbox is started with them. If this fails, only the records are
            // unfinished, and recovery finishes them.
            if let Err(error) = finish(workspaces, &roots, &name) {
                tracing::error!(sandbox = name, %error, "failed to record that a restore is complete");
            }
            Ok(())
        })
        .await
    }

    /// Records the token of the guest agent that is about to be started, and the snapshot.
    async fn record_restart(&self, row: &Sandbox, config: &Config, is_restored: bool) -> Result<Sandbox> {
        let config = serde_json::to_value(config).unwrap_or_default();
        let change = |sandbox: &Sandbox| {
            (sandbox.state == State::Running).then(|| Change {
                token_hash: Some(row.token_hash.clone()),
                config: Some(config.clone()),
                ..Change::default()
            })
        };
        let events: &[EventKind] = if is_restored { &[EventKind::SandboxRestored] } else { &[] };
        let changed = self.change(&row.id, change, events).await?;
        match changed.state {
            State::Running => Ok(changed),
            // It is being removed.
            _ => Err(crate::service::not_running(&changed)),
        }
    }

    /// Starts the sandbox over its workspace and root, and waits for its guest agent.
    async fn start_again(
        &self,
        sandbox: &Sandbox,
        config: &Config,
        handle: &Arc<SandboxHandle>,
        token: &Token,
    ) -> Result<()> {
        let id = sandbox.id.as_str();
        let (workspace, root) = (self.workspace_path(id).await?, self.0.roots.path(id));
        self.listen_for_guest(handle)?;
        let egress = self.egress(&network_of(sandbox, config));
        let start = SandboxSpec {
            id,
            template: &sandbox.template,
            workspace: Some(&workspace),
            anchor: None,
            root: root.as_deref(),
            dir: &handle.dir,
            token: token.as_bytes(),
            limits: &config.limits,
            progress: &watch::Sender::default(),
            egress: egress.as_ref(),
            endpoint: self.endpoint(),
        };
        self.0.runtime.start(&start).await?;
        self.wait_for_guest(handle).await?;
        let used = self.measure(id, Bounds { time: SCAN_TIMEOUT, ..Bounds::NONE }).await;
        handle.usage.record_first(used);
        self.watch_started_sandbox(handle);
        Ok(())
    }

    /// Returns the path of the workspace of a sandbox. Fails if its files would have another owner than the
    /// sandbox that is about to be started, because another sandbox has got its dedicated UID meanwhile.
    async fn workspace_path(&self, id: &str) -> Result<std::path::PathBuf> {
        let uid = self.0.runtime.dedicated_uid(id, &self.dir(id)).await?;
        let name = id.to_owned();
        self.on_workspaces(move |workspaces| {
            if workspaces.record(&name)?.current.idmap_uid != uid {
                let reason = "another sandbox uses its former user id; \
                    fork or commit this sandbox, and continue in the fork";
                let reason = reason.to_owned();
                return Err(WorkspaceError::Unusable { id: name, reason });
            }
            workspaces.path(&name)
        })
        .await
    }

    /// Puts a sandbox whose processes ended, and could not be started again, in `error`.
    async fn mark_not_started(&self, handle: &Arc<SandboxHandle>, error: &SandboxError) {
        let id = handle.id.as_str();
        tracing::error!(sandbox = id, %error, "failed to start a sandbox again after a restore");
        self.remove_handle(id);
        handle.close();
        if let Err(error) = self.kill_sandbox(id, &handle.dir).await {
            tracing::error!(sandbox = id, %error, "failed to kill a sandbox that could not be started again");
        }
        let reason = without_host_paths(&format!("it could not be started again after a restore: {error}"));
        if let Err(error) = self.set_state(id, State::Error, &reason).await {
            tracing::error!(sandbox = id, %error, "failed to mark a sandbox that could not be started again");
        }
    }

    /// Finishes or undoes a restore with a root during which the last server was killed. Nothing runs in the sandbox.
    pub(crate) async fn finish_root_restore(&self, id: &str) -> Result<()> {
        let Some(roots) = self.0.roots.get().cloned() else { return Ok(()) };
        let name = id.to_owned();
        let finish = move |workspaces: &Workspaces| {
            if roots.pending_reset(&name)?.is_none() {
                return Ok(false);
            }
            let root = roots.record(&name)?.current;
            let is_workspace_reset = match root.base_info {
                Some(marker) => reset_marker(workspaces, &name)? != marker,
                // Reset by an earlier version of the server.
                None => workspaces.record(&name)?.current.base == root.base,
            };
            if is_workspace_reset {
                finish(workspaces, &roots, &name)?;
                return Ok(true);
            }
            roots.undo_reset(&name)?;
            Ok(false)
        };
        if self.on_workspaces(finish).await? {
            tracing::info!(sandbox = id, "finished an interrupted restore");
            self.sync_base_to_catalog(id).await?;
        }
        Ok(())
    }

    /// Removes the former files of a restored root in the background.
    fn remove_former_root(&self, id: &str) {
        let (service, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            let name = id.clone();
            if let Err(error) = service.on_kept_roots(move |roots| roots.remove_former(&name)).await {
                // The next restore, or the removal of the sandbox, tries again.
                tracing::warn!(sandbox = id, %error, "failed to remove the former files of a restored root");
            }
        });
    }
}

/// Resets a workspace or a root to a snapshot, and keeps the former files until the reset is finished or undone. The
/// same write of the record stores `info`: for a workspace the text of the project base, for a root a [`reset_marker`].
/// Roots have no lazy mount, so their files are always written at once.
fn reset(
    workspaces: &Workspaces,
    id: &str,
    snapshot: SnapshotId,
    info: Option<String>,
) -> workspace_workspace::Result<()> {
    find_snapshot(workspaces.store(), snapshot)?;
    // May get a new directory: no process uses the present one.
    let mode = ResetMode::MayMove;
    let Some(info) = info else {
        return workspaces.reset(id, Some(snapshot), Materialize::Auto, mode).map(|_| ());
    };
    let never = Cancel::default();
    workspaces.cancellable(&never).reset_with_info(id, snapshot, info, mode).map(|_| ())
}

/// Returns a text that every reset of a workspace changes, also one to the same snapshot: the id of the pin of its
/// base. The record of a root that is reset has the marker of before the restore. If it still is the marker of the
/// workspace, the workspace was not reset.
fn reset_marker(workspaces: &Workspaces, id: &str) -> workspace_workspace::Result<String> {
    let pin = workspaces.record(id)?.current.pin;
    Ok(pin.map_or_else(|| "none".to_owned(), |pin| pin.to_string()))
}

/// Finishes the resets of workspace and root, which can no longer be undone then.
fn finish(workspaces: &Workspaces, roots: &Workspaces, id: &str) -> workspace_workspace::Result<()> {
    workspaces.finish_reset(id)?;
    roots.finish_reset(id)
}
