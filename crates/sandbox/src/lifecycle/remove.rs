//! Removing a sandbox.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use workspace_catalog::{Change, EventKind, PauseStep, Sandbox, State};
use workspace_state::{Cancel, NewSnapshot, SnapshotId};
use workspace_workspace::{KeptContent, WorkspaceError};

use crate::clock::now;
use crate::config::{Config, OnEnd};
use crate::disk::usage::remove_quota;
use crate::error::{Result, SandboxError, without_host_paths};
use crate::guest::handle::SandboxHandle;
use crate::hooks::{RemovalCause, Retain};
use crate::lifecycle::operation_lock::OperationLockGuard;
use crate::retry::{Backoff, retry_until_closed};
use crate::scope::Scope;
use crate::service::{Service, config_of, event, not_running, transition};

/// State reasons of a sandbox in `stopping` whose workspace is kept: as it is, and as a snapshot.
const KEPT: &str = "kept";
const KEPT_AS_SNAPSHOT: &str = "kept as a snapshot";
/// State reason of a sandbox in `stopping` that has expired.
const EXPIRED: &str = "expired";
/// Beginning of the state reason of a sandbox that was not removed because its changes could not be completed.
const NOT_COMPLETED: &str = "its changes could not be completed";
/// Beginning of the state reason of a sandbox that was not removed because its workspace could not be kept.
const NOT_KEPT: &str = "its workspace could not be kept";

/// Treatment of the workspace of a sandbox that is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// Deletes the workspace.
    Delete,
    /// Keeps the workspace: as a snapshot for an owner; for a caller with access to all sandboxes as a
    /// directory, unless it is spread over layers.
    Keep,
}

/// Request to remove a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveRequest {
    /// Treatment of the workspace.
    pub policy: ReclaimPolicy,
    /// Treatment of changes that are not completed; `None` for the one that was chosen at the creation.
    pub on_end: Option<OnEnd>,
}

impl RemoveRequest {
    /// Returns a request that discards changes which are not completed.
    pub(crate) fn discarding(policy: ReclaimPolicy) -> Self {
        Self { policy, on_end: Some(OnEnd::Discard) }
    }
}

impl From<ReclaimPolicy> for RemoveRequest {
    fn from(policy: ReclaimPolicy) -> Self {
        Self { policy, on_end: None }
    }
}

/// Result of the removal of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Form in which the workspace is kept.
    pub kept: KeptWorkspace,
    /// Completion that the removal recorded for changes of the sandbox; `None` if there were no new ones.
    pub completion: Option<EndCompletion>,
}

/// Completion of the changes of a removed sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndCompletion {
    /// Id of the completion.
    pub id: String,
    /// Id of the project.
    pub project: String,
}

/// Form in which the workspace of a removed sandbox is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptWorkspace {
    /// The workspace is deleted, or only one of the [`WorkspaceHooks`](crate::WorkspaceHooks) keeps it.
    None,
    /// The workspace itself, moved to this directory.
    Directory(PathBuf),
    /// A snapshot of the workspace.
    Snapshot(SnapshotId),
}

/// Maximum time that a delete request waits. The removal continues after that.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);
/// First and maximum delay before a removal is tried again, after one of the [`WorkspaceHooks`](crate::WorkspaceHooks)
/// did not answer.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Kind of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Deletes the workspace.
    All,
    /// Keeps the workspace: as a directory, or as a snapshot if it is spread over layers.
    KeepWorkspace,
    /// Keeps the workspace as a snapshot that belongs to the owner of the sandbox.
    KeepSnapshot,
    /// Deletes the workspace. Fails if the lifetime was extended meanwhile.
    Expired,
    /// Deletes the workspace of a sandbox that was stopped on a full disk.
    DiskFull,
}

impl Removal {
    /// Returns the kind of a requested removal. Directories that are kept count towards no quota and are never
    /// collected, so only callers with access to all sandboxes keep directories.
    fn new(scope: &Scope, policy: ReclaimPolicy) -> Self {
        match (policy, scope) {
            (ReclaimPolicy::Delete, _) => Self::All,
            (ReclaimPolicy::Keep, Scope::All) => Self::KeepWorkspace,
            (ReclaimPolicy::Keep, Scope::Owner(_) | Scope::Sandbox { .. }) => Self::KeepSnapshot,
        }
    }

    /// Returns the kind of the removal of a sandbox in `stopping`, by its state reason: it says what the removal keeps.
    pub(crate) fn of_reason(reason: Option<&str>) -> Self {
        match reason {
            Some(KEPT) => Self::KeepWorkspace,
            Some(KEPT_AS_SNAPSHOT) => Self::KeepSnapshot,
            Some(EXPIRED) => Self::Expired,
            _ => Self::All,
        }
    }

    /// Returns the state reason that records the kind in `stopping`; `None` if there is none.
    fn reason(self) -> Option<&'static str> {
        match self {
            Self::KeepWorkspace => Some(KEPT),
            Self::KeepSnapshot => Some(KEPT_AS_SNAPSHOT),
            Self::Expired => Some(EXPIRED),
            // `All` needs no reason. A sandbox that was stopped on a full disk stays `stopped` until it is removed.
            Self::All | Self::DiskFull => None,
        }
    }

    fn cause(self) -> RemovalCause {
        match self {
            Self::All | Self::KeepWorkspace | Self::KeepSnapshot => RemovalCause::Deleted,
            Self::Expired => RemovalCause::Expired,
            Self::DiskFull => RemovalCause::DiskFull,
        }
    }

    fn keeps_workspace(self) -> bool {
        matches!(self, Self::KeepWorkspace | Self::KeepSnapshot)
    }

    /// Returns true if the removal applies to a sandbox: an expiry only if the sandbox has expired.
    fn applies_to(self, sandbox: &Sandbox) -> bool {
        self != Self::Expired || sandbox.expires_at <= now()
    }
}

impl Service {
    /// Kills all processes of a sandbox and deletes it. Returns when all have exited and the row is
    /// deleted; files are removed after that. The removal continues if this future is dropped.
    ///
    /// Before its files are removed, changes of a sandbox of a project are completed, unless they are discarded. If
    /// that fails, the sandbox stays, without processes.
    pub async fn remove(
        &self,
        scope: &Scope,
        id: &str,
        request: impl Into<RemoveRequest>,
    ) -> Result<Removed> {
        let sandbox = self.find_on_this_server(scope, id).await?;
        self.remove_found(scope, &sandbox.id, request.into()).await
    }

    /// Looks up several sandboxes, and returns them in the same order, with an error for each that does not
    /// exist or belongs to another server. An id that is named twice is not found the second time.
    pub async fn find_many(&self, scope: &Scope, ids: Vec<String>) -> Result<Vec<(String, Result<()>)>> {
        let mut seen = HashSet::new();
        // No sandbox has an id with a NUL.
        let can_exist = |id: &str| !id.contains('\0') && scope.covers_id(id);
        let names = ids.iter().filter(|id| can_exist(id) && seen.insert(id.as_str()));
        let names: Vec<String> = names.cloned().collect();
        let mut servers = self.0.catalog.sandboxes().servers(scope.owner(), &names).await?;
        let found = |id: String| {
            let found = match servers.remove(&id) {
                None => Err(SandboxError::NotFound { id: id.clone() }),
                Some(server) if server != self.0.settings.server => {
                    Err(SandboxError::Elsewhere { id: id.clone(), server })
                }
                Some(_) => Ok(()),
            };
            (id, found)
        };
        Ok(ids.into_iter().map(found).collect())
    }

    /// Removes the sandboxes that [`Self::find_many`] returned, a limited number at a time. Returns the
    /// outcomes in the same order.
    pub async fn remove_many(
        &self,
        scope: &Scope,
        found: Vec<(String, Result<()>)>,
        request: RemoveRequest,
    ) -> Vec<(String, Result<Removed>)> {
        let remove = |id: String| {
            let (service, scope) = (self.clone(), scope.clone());
            tokio::spawn(async move {
                let _permit = service.0.batch_removals.acquire(scope.owner().unwrap_or_default()).await;
                service.remove_found(&scope, &id, request).await
            })
        };
        let removals = found.into_iter().map(|(id, found)| (id.clone(), found.map(|()| remove(id))));
        let mut done = Vec::new();
        for (id, removal) in removals.collect::<Vec<_>>() {
            let removed = match removal {
                Ok(removal) => removal
                    .await
                    .unwrap_or_else(|error| Err(SandboxError::task_failed("remove a sandbox", error))),
                Err(error) => Err(error),
            };
            done.push((id, removed));
        }
        done
    }

    /// Removes a sandbox that is in scope and belongs to this server.
    async fn remove_found(&self, scope: &Scope, id: &str, request: RemoveRequest) -> Result<Removed> {
        let removal = Removal::new(scope, request.policy);
        if removal == Removal::KeepSnapshot {
            // Checked before anything is killed.
            self.check_snapshot_quota(scope, 1).await?;
        }
        self.remove_with_timeout(id, removal, request.on_end).await
    }

    /// Removes a sandbox. Fails with `Busy` after a timeout, and then continues in the background.
    pub(crate) async fn remove_with_timeout(
        &self,
        id: &str,
        removal: Removal,
        on_end: Option<OnEnd>,
    ) -> Result<Removed> {
        let (service, name) = (self.clone(), id.to_owned());
        let removing = tokio::spawn(async move {
            let removed = service.remove_inner(&name, removal, on_end).await;
            if let Err(SandboxError::RemovalHook { .. }) = removed {
                service.retry_removal(&name, removal);
            }
            removed
        });
        let removed = timeout(ANSWER_TIMEOUT, removing).await;
        let busy = |_| SandboxError::Busy { id: id.to_owned(), seconds: ANSWER_TIMEOUT.as_secs() };
        removed
            .map_err(busy)?
            .unwrap_or_else(|error| Err(SandboxError::task_failed("remove a sandbox", error)))
    }

    /// Tries a removal again in the background until all [`WorkspaceHooks`](crate::WorkspaceHooks) have answered. There
    /// is at most one such task for each sandbox.
    fn retry_removal(&self, id: &str, removal: Removal) {
        if !self.0.removal_retries.lock().insert(id.to_owned()) {
            return;
        }
        let (service, id) = (Arc::downgrade(&self.0), id.to_owned());
        tokio::spawn(async move {
            let (name, (first, max)) = (id.as_str(), RETRY_BACKOFF);
            let remove = |service: Self| async move { service.remove_again(name, removal).await };
            retry_until_closed(&service, Backoff::new(first, max), remove).await;
            if let Some(inner) = service.upgrade() {
                inner.removal_retries.lock().remove(&id);
            }
        });
    }

    /// Returns true if a removal is tried again in the background.
    pub(crate) fn is_removal_retried(&self, id: &str) -> bool {
        self.0.removal_retries.lock().contains(id)
    }

    /// Removes a sandbox once more. Fails only if one of the hooks still does not answer.
    async fn remove_again(&self, id: &str, removal: Removal) -> Result<()> {
        match self.remove_inner(id, removal, None).await {
            Err(error @ SandboxError::RemovalHook { .. }) => {
                tracing::warn!(sandbox = id, %error, "failed to remove a sandbox, trying again");
                return Err(error);
            }
            // Removed, or concurrently deleted.
            Ok(_)
            | Err(
                SandboxError::NotFound { .. } | SandboxError::NotRunning { .. } | SandboxError::Paused { .. },
            ) => {}
            Err(error) => tracing::error!(sandbox = id, %error, "failed to remove a sandbox"),
        }
        Ok(())
    }

    /// Continues a removal that the last server began. If the changes of the sandbox cannot be completed, it stays, and
    /// its state has the reason.
    pub(crate) async fn remove_interrupted(&self, id: &str, removal: Removal) -> Result<()> {
        match self.remove_inner(id, removal, None).await {
            Err(SandboxError::NotCompleted { .. }) => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// Removes a sandbox. Every step can be repeated: the next server continues an interrupted removal. `on_end` is
    /// stored with the sandbox.
    pub(crate) async fn remove_inner(
        &self,
        id: &str,
        removal: Removal,
        on_end: Option<OnEnd>,
    ) -> Result<Removed> {
        // Before the locks, because operations that wait for them are rejected in this state.
        self.set_stopping(id, removal, on_end).await?;
        let _work = self.lock_work(id).await;
        let operation = self.0.operation_locks.lock(id).await;
        let sandbox = self.read_row(id).await?;
        if !removal.applies_to(&sandbox) {
            return Err(not_running(&sandbox));
        }
        let handle = self.handle(id);
        // From here on, its guest agent is no longer expected to respond.
        self.remove_handle(id);
        let dir = self.dir(id);
        self.kill_sandbox(id, &dir).await?;
        let reason = "the sandbox was removed";
        fail_waiting_commands(handle.as_ref(), reason);
        let retain = match self.ask_before_removal(id, removal.cause()).await {
            Err(error) => {
                self.fail_commands(id, handle.as_ref(), reason).await;
                return Err(error);
            }
            Ok(retain) => retain,
        };
        let completion = match self.complete_before_removal(&sandbox, removal, on_end, &operation).await {
            Err(error) => {
                self.fail_commands(id, handle.as_ref(), reason).await;
                self.mark_not_removed(id, NOT_COMPLETED, &error).await;
                return Err(error);
            }
            Ok(completion) => completion,
        };
        if !removal.keeps_workspace() {
            self.delete(&sandbox, handle.as_ref(), retain).await?;
            return Ok(Removed { kept: KeptWorkspace::None, completion });
        }
        let kept = match self.keep_workspace(&sandbox, removal, retain, &operation).await {
            // The workspace still exists: it can be removed again, or committed when the cause is fixed.
            Err(error) => {
                self.fail_commands(id, handle.as_ref(), reason).await;
                self.mark_not_removed(id, NOT_KEPT, &error).await;
                return Err(error);
            }
            Ok(kept) => kept,
        };
        self.remove_root(id).await?;
        self.remove_dir(id).await?;
        self.delete_row(&sandbox, retain).await?;
        Ok(Removed { kept, completion })
    }

    /// Completes the changes of a sandbox before its removal. Those of a sandbox that filled the disk are not: they
    /// would need the space that the removal frees.
    async fn complete_before_removal(
        &self,
        sandbox: &Sandbox,
        removal: Removal,
        on_end: Option<OnEnd>,
        operation: &OperationLockGuard,
    ) -> Result<Option<EndCompletion>> {
        match removal {
            Removal::DiskFull => Ok(None),
            Removal::All | Removal::KeepWorkspace | Removal::KeepSnapshot | Removal::Expired => {
                self.complete_at_end(sandbox, on_end, operation).await
            }
        }
    }

    /// Returns true if a sandbox has expired and stays because its changes could not be completed. Each check for
    /// expired sandboxes tries again.
    pub(crate) fn is_kept_for_its_changes(sandbox: &Sandbox) -> bool {
        let reason = sandbox.state_reason.as_deref();
        sandbox.state == State::Stopped && reason.is_some_and(|reason| reason.starts_with(NOT_COMPLETED))
    }

    /// Deletes a sandbox in which nothing runs, and its files unless one of the hooks keeps the workspace.
    async fn delete(
        &self,
        sandbox: &Sandbox,
        handle: Option<&Arc<SandboxHandle>>,
        retain: Retain,
    ) -> Result<()> {
        let id = sandbox.id.as_str();
        if retain == Retain::Keep {
            self.remove_root(id).await?;
            self.remove_dir(id).await?;
            return self.delete_row(sandbox, retain).await;
        }
        self.delete_row(sandbox, retain).await?;
        let bytes = handle.map_or_else(|| self.0.full_disk.known_usage(id), |handle| handle.usage.bytes());
        self.queue_cleanup(id, &sandbox.owner, bytes).await;
        Ok(())
    }

    /// Sets the state of a sandbox to `stopping`. One that has stopped stays `stopped`, unless it is paused.
    /// `on_end` is stored with the sandbox, for the case that the removal is interrupted.
    async fn set_stopping(&self, id: &str, removal: Removal, on_end: Option<OnEnd>) -> Result<()> {
        let stopping = |sandbox: &Sandbox| {
            let config = on_end.and_then(|on_end| config_with(sandbox, on_end));
            let is_applicable = removal.applies_to(sandbox) && sandbox.can_become(State::Stopping);
            match is_applicable {
                true => Some(Change {
                    state: Some(State::Stopping),
                    state_reason: removal.reason().map(str::to_owned),
                    config,
                    ..Change::default()
                }),
                false => config.map(|config| Change { config: Some(config), ..Change::default() }),
            }
        };
        let sandbox = match self.change(id, stopping, &[]).await {
            // Its files may fill the disk, and are to be deleted anyway.
            Err(SandboxError::Catalog(error)) if error.is_full() && !removal.keeps_workspace() => {
                let _work = self.lock_work(id).await;
                let operation = self.0.operation_locks.lock(id).await;
                self.kill_sandbox(id, &self.dir(id)).await?;
                let retain = self.ask_before_removal(id, removal.cause()).await?;
                let sandbox = self.read_row(id).await?;
                // It fails if there are changes, because completions are in the catalog, too.
                self.complete_before_removal(&sandbox, removal, on_end, &operation).await?;
                if retain == Retain::Release {
                    self.remove_workspace(id).await?;
                }
                self.change(id, stopping, &[]).await?
            }
            changed => changed?,
        };
        if removal.applies_to(&sandbox) { Ok(()) } else { Err(not_running(&sandbox)) }
    }

    /// Deletes the row of a sandbox in which nothing runs.
    async fn delete_row(&self, sandbox: &Sandbox, retain: Retain) -> Result<()> {
        let id = sandbox.id.as_str();
        let deleted = || [event(EventKind::SandboxDeleted, sandbox, &Change::default())];
        match self.0.catalog.sandboxes().delete(id, &deleted()).await {
            // Its files may fill the disk.
            Err(error) if error.is_full() => {
                match retain {
                    Retain::Release => self.remove_files(id).await?,
                    Retain::Keep => self.remove_dir(id).await?,
                }
                self.0.catalog.sandboxes().delete(id, &deleted()).await?;
            }
            done => drop(done?),
        }
        Ok(())
    }

    /// Sets the state of a sandbox to `stopped` because its workspace is still needed. The reason begins with `prefix`.
    async fn mark_not_removed(&self, id: &str, prefix: &str, error: &SandboxError) {
        tracing::error!(sandbox = id, reason = prefix, %error, "failed to remove a sandbox, which stays without processes");
        if error.is_full() {
            self.0.full_disk.record_stopped(id);
        }
        let cause = match error {
            SandboxError::NotCompleted { source, .. } => source.as_ref(),
            error => error,
        };
        let reason = without_host_paths(&format!("{prefix}: {cause}"));
        let stopped = transition(State::Stopped, &reason);
        match self.change(id, stopped, &[EventKind::SandboxError]).await {
            // The hooks were told that it is removed.
            Ok(sandbox) => self.notify_hooks_of_recovery(&sandbox).await,
            Err(error) => tracing::error!(sandbox = id, %error, "failed to mark a sandbox as stopped"),
        }
    }

    /// Keeps the content of a workspace as a directory; as a snapshot if that is requested, if the workspace is spread
    /// over layers, or if one of the hooks keeps the workspace itself.
    async fn keep_workspace(
        &self,
        sandbox: &Sandbox,
        removal: Removal,
        retain: Retain,
        operation: &OperationLockGuard,
    ) -> Result<KeptWorkspace> {
        let (id, owner) = (sandbox.id.as_str(), sandbox.owner.as_str());
        if let Some(snapshot) = paused_content(sandbox) {
            self.keep_pause_snapshots(id).await?;
            return Ok(KeptWorkspace::Snapshot(snapshot));
        }
        let _access = self.0.gates.exclusive(id, operation).await?;
        // A restore may have been interrupted between the root filesystem and the workspace.
        self.finish_root_restore(id).await?;
        self.settle_restore_of_ended(id).await?;
        // Only a snapshot can contain both the workspace and a kept root filesystem.
        if removal != Removal::KeepSnapshot && retain == Retain::Release && !self.has_root(id) {
            match self.keep_directory(id).await? {
                KeptContent::Directory(path) => return Ok(KeptWorkspace::Directory(path)),
                // An earlier removal, which was interrupted, has kept it already.
                KeptContent::Missing => return Ok(KeptWorkspace::None),
                KeptContent::InLayers => {}
            }
        }
        let message = format!("workspace of deleted sandbox {id}");
        let stored = Arc::default();
        let new = NewSnapshot {
            author: owner.to_owned(),
            pending: true,
            stored_bytes: Some(Arc::clone(&stored)),
            ..NewSnapshot::with_message(message)
        };
        let committed = match self.commit_workspace(id, new, &Cancel::new()).await {
            // An earlier removal, which was interrupted, has kept it already.
            Err(SandboxError::Workspace(WorkspaceError::NotFound { .. })) => return Ok(KeptWorkspace::None),
            committed => committed?,
        };
        self.record_snapshot(owner, &committed.snapshot, (id, None), &stored).await?;
        if retain == Retain::Release {
            self.remove_workspace(id).await?;
        }
        Ok(KeptWorkspace::Snapshot(committed.snapshot.id))
    }

    /// Moves a workspace to the directory of kept workspaces, unless it is spread over layers.
    async fn keep_directory(&self, id: &str) -> Result<KeptContent> {
        let id = id.to_owned();
        self.on_workspaces(move |workspaces| {
            remove_quota(&workspaces.directory_of(&id));
            workspaces.keep_content(&id)
        })
        .await
    }
}

/// Returns the snapshot of a sandbox that is paused on disk, which is its only content; `None` for another sandbox.
pub(crate) fn paused_content(sandbox: &Sandbox) -> Option<SnapshotId> {
    let is_on_disk = matches!(sandbox.pause, Some(PauseStep::Disk | PauseStep::Resuming));
    sandbox.pause_snapshot.as_ref().filter(|_| is_on_disk)?.parse().ok()
}

/// Returns the configuration of a sandbox with another choice for its end; `None` if it has that, or no changes.
fn config_with(sandbox: &Sandbox, on_end: OnEnd) -> Option<serde_json::Value> {
    let config = config_of(sandbox).ok()?;
    let differs = config.on_end != on_end && config.completion_base().is_some();
    differs.then(|| serde_json::to_value(Config { on_end, ..config }).ok()).flatten()
}

/// Reports the commands of a sandbox as failed, to the clients that wait for them.
fn fail_waiting_commands(handle: Option<&Arc<SandboxHandle>>, reason: &str) {
    for running in handle.map(|handle| handle.commands.unreported()).unwrap_or_default() {
        running.end_with_sandbox(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_removal_keeps_its_kind() {
        let owner = Scope::Owner("alice".to_owned());
        assert_eq!(Removal::new(&owner, ReclaimPolicy::Keep), Removal::KeepSnapshot);
        assert_eq!(Removal::new(&Scope::All, ReclaimPolicy::Keep), Removal::KeepWorkspace);
        assert_eq!(Removal::new(&Scope::All, ReclaimPolicy::Delete), Removal::All);
        for removal in [Removal::All, Removal::KeepWorkspace, Removal::KeepSnapshot, Removal::Expired] {
            assert_eq!(Removal::of_reason(removal.reason()), removal);
        }
        assert_eq!(Removal::of_reason(Some("its time is over")), Removal::All);
    }
}
