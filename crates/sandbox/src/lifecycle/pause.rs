//! Pausing a sandbox: in memory, which freezes its processes, or to disk, which leaves only a snapshot of its
//! workspace.
//!
//! Every step is recorded in the catalog before it is taken, so that the next server undoes or continues it
//! ([`crate::lifecycle::pause_recovery`]). A pause to disk is undone until its snapshot is durable and recorded;
//! from then on it is continued. Both are cancelled with their request, and then the sandbox continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use workspace_catalog::{Change, EventKind, PauseStep, Sandbox, State};
use workspace_state::{Cancel, Durability, Expect, NewSnapshot, Snapshot};

use crate::blocking::blocking;
use crate::clock::{milliseconds, now};
use crate::error::{Context as _, Result, SandboxError};
use crate::gate::ExclusiveAccess;
use crate::guest::connection::CommandTimers;
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::operation_lock::OperationLockGuard;
use crate::lifecycle::pause_snapshots::new_reference;
use crate::lineage::origin_in;
use crate::lock_rank::LockRank;
use crate::sandbox_dir::SandboxDir;
use crate::scope::Scope;
use crate::service::{SandboxInfo, Service, config_of, not_running};
use crate::snapshot::operations::check_writable;

/// Label of the snapshot of a pause, whose value is the id of the sandbox.
const LABEL: &str = "pause";

/// Part of a sandbox that a pause keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseMode {
    /// Processes stay in memory, frozen.
    Memory,
    /// Only the workspace stays, as a snapshot.
    Disk,
}

/// Cause of a pause to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseCause {
    /// A request, with the maximum number of sandboxes of the owner that are paused on disk; `None` for no limit.
    Request { limit: Option<u32> },
    /// The lifetime of the sandbox is over.
    Expiry,
}

impl PauseCause {
    /// Fails if a sandbox cannot be paused for this cause.
    fn check(self, sandbox: &Sandbox) -> Result<()> {
        let applies = match self {
            Self::Request { .. } => sandbox.state == State::Running,
            // Its files are kept even if its processes have ended.
            Self::Expiry => sandbox.expires_at <= now() && has_files_to_pause(sandbox.state),
        };
        // In the step `committed`, the processes are being killed.
        let is_paused_or_committed = sandbox.is_paused() || sandbox.pause == Some(PauseStep::Committed);
        if applies && !is_paused_or_committed { Ok(()) } else { Err(not_running(sandbox)) }
    }

    /// Returns the reason that is shown for the state of the paused sandbox; `None` for a request.
    fn reason(self) -> Option<String> {
        (self == Self::Expiry).then(|| "its lifetime is over".to_owned())
    }
}

/// Returns true for states in which the files of a sandbox can be paused to disk.
fn has_files_to_pause(state: State) -> bool {
    matches!(state, State::Running | State::Error | State::Stopped)
}

/// A pause that may have to be undone.
pub(crate) struct PauseAttempt {
    id: String,
    /// Snapshot of the last pause to disk before this one.
    former_snapshot: Option<String>,
    /// Snapshot that was made for this one, and may be recorded.
    snapshot: Option<String>,
}

impl PauseAttempt {
    pub(crate) fn new(sandbox: &Sandbox) -> Self {
        Self { id: sandbox.id.clone(), former_snapshot: sandbox.pause_snapshot.clone(), snapshot: None }
    }

    /// Returns the change that undoes the attempt; `None` if there is nothing to undo, or another attempt succeeded
    /// since.
    fn undo(&self, sandbox: &Sandbox) -> Option<Change> {
        let is_own = match sandbox.pause? {
            PauseStep::Freezing | PauseStep::Pausing => true,
            PauseStep::Committed => self.snapshot.is_some() && self.snapshot == sandbox.pause_snapshot,
            PauseStep::Memory | PauseStep::Disk | PauseStep::Resuming => false,
        };
        is_own.then(|| Change {
            pause: Some(None),
            pause_snapshot: Some(self.former_snapshot.clone()),
            ..Change::default()
        })
    }
}

impl Service {
    /// Pauses a running sandbox until it is resumed, or for [`Settings::paused_retention`](crate::Settings). Does
    /// nothing if it is paused in that way already.
    pub async fn pause(&self, scope: &Scope, id: &str, mode: PauseMode) -> Result<SandboxInfo> {
        let sandbox = self.find_on_this_server(scope, id).await?;
        if mode == PauseMode::Disk && !sandbox.is_paused() {
            check_writable(&sandbox, "it has no files to keep; pause it in memory, or delete it")?;
            self.check_snapshot_quota(scope, 1).await?;
        }
        let limit = scope.owner().map(|_| self.0.settings.paused_per_owner);
        self.cancellable(|service, cancel| async move {
            let paused = match mode {
                PauseMode::Memory => service.pause_in_memory(&sandbox.id, &cancel).await?,
                PauseMode::Disk => {
                    let cause = PauseCause::Request { limit };
                    service.pause_to_disk(&sandbox.id, cause, &cancel).await?
                }
            };
            service.info(paused)
        })
        .await
    }

    /// Pauses a sandbox in memory.
    async fn pause_in_memory(&self, id: &str, cancel: &Cancel) -> Result<Sandbox> {
        let operation = self.lock_operation(id, cancel).await?;
        let sandbox = self.read_row(id).await?;
        if sandbox.is_paused() && sandbox.pause == Some(PauseStep::Memory) {
            return Ok(sandbox);
        }
        PauseCause::Request { limit: None }.check(&sandbox)?;
        let handle = self.handle(id).ok_or_else(|| SandboxError::AgentAway { id: id.to_owned() })?;
        let access = self.exclusive_access(id, &operation, cancel).await?;
        self.set_pause_step(id, PauseStep::Freezing).await?;
        handle.begin_pause();
        let paused = self.freeze_in_memory(&handle, &access).await;
        if paused.is_err() {
            self.undo_pause(PauseAttempt::new(&sandbox), Some(&handle)).await;
        }
        paused
    }

    /// Suspends the timeouts of commands, freezes all processes, and records that the sandbox is paused.
    async fn freeze_in_memory(&self, handle: &SandboxHandle, _access: &ExclusiveAccess) -> Result<Sandbox> {
        handle.guest.suspend_timers().await?;
        self.freeze(&handle.id, &handle.dir).await?;
        let paused = |sandbox: &Sandbox| {
            (sandbox.state == State::Running).then(|| self.paused_change(sandbox, PauseStep::Memory, None))
        };
        let paused = self.change(&handle.id, paused, &[EventKind::SandboxPaused]).await?;
        if !paused.is_paused() {
            return Err(not_running(&paused));
        }
        handle.set_expires_at(paused.expires_at);
        // Requests for files and ports that are in progress would wait until the resume.
        handle.io.close();
        Ok(paused)
    }

    /// Returns the change that records a pause.
    fn paused_change(&self, sandbox: &Sandbox, step: PauseStep, reason: Option<String>) -> Change {
        let now = now();
        Change {
            pause: Some(Some(step)),
            state_reason: reason,
            remaining_ms: Some(Some((sandbox.expires_at - now).max(0))),
            expires_at: Some(now + milliseconds(self.0.settings.paused_retention.as_secs())),
            ..Change::default()
        }
    }

    /// Records that a pause begins. Fails if the sandbox is paused, or being started or removed.
    async fn set_pause_step(&self, id: &str, step: PauseStep) -> Result<()> {
        let change = |sandbox: &Sandbox| {
            let is_allowed = has_files_to_pause(sandbox.state) && !sandbox.is_paused();
            is_allowed.then(|| Change { pause: Some(Some(step)), ..Change::default() })
        };
        let sandbox = self.change(id, change, &[]).await?;
        if sandbox.pause == Some(step) { Ok(()) } else { Err(not_running(&sandbox)) }
    }

    /// Continues a sandbox whose pause failed.
    async fn undo_pause(&self, attempt: PauseAttempt, handle: Option<&SandboxHandle>) {
        let id = attempt.id.as_str();
        if let Err(error) = self.thaw(id, &self.dir(id)).await {
            tracing::error!(sandbox = id, %error, "failed to thaw a sandbox after a failed pause");
        }
        if let Some(handle) = handle {
            handle.guest.send_timers(CommandTimers::Running).await;
            handle.end_pause();
        }
        let Err(error) = self.undo_pause_steps(&attempt).await else { return };
        tracing::error!(sandbox = id, %error, "failed to undo the steps of a pause, trying again");
        let attempt = Arc::new(attempt);
        self.retry(move |service| {
            let attempt = Arc::clone(&attempt);
            async move {
                let _operation = service.0.operation_locks.lock(&attempt.id).await;
                match service.undo_pause_steps(&attempt).await {
                    // The removal of a sandbox removes its snapshots.
                    Ok(_) | Err(SandboxError::NotFound { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        });
    }

    /// Clears the step of a pause that did not succeed, and removes its snapshot. The caller holds the operation lock.
    pub(crate) async fn undo_pause_steps(&self, attempt: &PauseAttempt) -> Result<Sandbox> {
        let id = attempt.id.as_str();
        let sandbox = self.change(id, |sandbox| attempt.undo(sandbox), &[]).await?;
        self.release_pause_snapshots(id, sandbox.pause_snapshot.as_deref()).await?;
        Ok(sandbox)
    }

    /// Pauses a sandbox to disk. Returns when it is paused; the files of its workspace are removed after that.
    pub(crate) async fn pause_to_disk(
        &self,
        id: &str,
        cause: PauseCause,
        cancel: &Cancel,
    ) -> Result<Sandbox> {
        let operation = self.lock_operation(id, cancel).await?;
        // The record of the workspace, which has the base of its files, goes with it.
        let sandbox = self.with_recorded_base(self.read_row(id).await?).await?;
        if sandbox.is_paused() && sandbox.pause == Some(PauseStep::Disk) {
            return Ok(sandbox);
        }
        cause.check(&sandbox)?;
        self.reserve_pause(&sandbox, cause).await?;
        let (handle, mut attempt) = (self.handle(id), PauseAttempt::new(&sandbox));
        match self.commit_pause(&sandbox, handle.as_deref(), &operation, &mut attempt, cancel).await {
            Ok((committed, access)) => {
                self.finish_pause_to_disk(&committed, cause.reason(), operation, access).await
            }
            Err(error) => {
                self.undo_pause(attempt, handle.as_deref()).await;
                Err(error)
            }
        }
    }

    /// Records that a pause to disk begins, if the owner may have one more sandbox paused on disk.
    async fn reserve_pause(&self, sandbox: &Sandbox, cause: PauseCause) -> Result<()> {
        let limit = match cause {
            PauseCause::Request { limit } => limit,
            PauseCause::Expiry => Some(self.0.settings.paused_per_owner),
        };
        // Held until the sandbox is counted.
        let _quota_lock = LockRank::Quota.wait(self.0.quota_lock.lock()).await;
        if let Some(limit) = limit
            && self.0.catalog.sandboxes().count_on_disk(&sandbox.owner).await? >= u64::from(limit)
        {
            return Err(SandboxError::TooManyPaused { owner: sandbox.owner.clone(), limit });
        }
        self.set_pause_step(&sandbox.id, PauseStep::Pausing).await
    }

    /// Freezes a sandbox and makes the snapshot of its pause. The sandbox stays frozen.
    async fn commit_pause(
        &self,
        sandbox: &Sandbox,
        handle: Option<&SandboxHandle>,
        operation: &OperationLockGuard,
        attempt: &mut PauseAttempt,
        cancel: &Cancel,
    ) -> Result<(Sandbox, ExclusiveAccess)> {
        let id = sandbox.id.as_str();
        let access = self.exclusive_access(id, operation, cancel).await?;
        let runs = self.has_processes(sandbox).await?;
        let expected_freeze = handle.map(|handle| handle.guest.expect_freeze());
        if runs {
            // A guest agent that is not frozen must not run a command to its end whose changes are in no snapshot.
            if let Some(handle) = handle
                && let Err(error) = handle.guest.suspend_timers().await
            {
                tracing::debug!(sandbox = id, %error, "failed to suspend commands before a pause");
            }
            self.freeze(id, &self.dir(id)).await?;
        }
        let committed = self.make_pause_snapshot(sandbox, attempt, cancel).await?;
        drop(expected_freeze);
        Ok((committed, access))
    }

    /// Commits the workspace of a sandbox, and records the snapshot as that of the pause.
    async fn make_pause_snapshot(
        &self,
        sandbox: &Sandbox,
        attempt: &mut PauseAttempt,
        cancel: &Cancel,
    ) -> Result<Sandbox> {
        let (id, stored) = (sandbox.id.as_str(), Arc::default());
        let new = NewSnapshot {
            author: sandbox.owner.clone(),
            message: format!("paused sandbox {id}"),
            labels: [(LABEL.to_owned(), id.to_owned())].into(),
            references: vec![(new_reference(id), Expect::Absent)],
            durability: Durability::Buffered,
            stored_bytes: Some(Arc::clone(&stored)),
            ..NewSnapshot::default()
        };
        let snapshot = self.commit_workspace(id, new, cancel).await?.snapshot;
        attempt.snapshot = Some(snapshot.id.to_string());
        let recorded = self.record_pause_snapshot(sandbox, &snapshot, &stored, cancel).await;
        if recorded.is_err() {
            self.restore_parent(id, snapshot).await;
        }
        recorded
    }

    /// Makes a snapshot durable, and records that the sandbox is to be paused with it.
    async fn record_pause_snapshot(
        &self,
        sandbox: &Sandbox,
        snapshot: &Snapshot,
        stored: &AtomicU64,
        cancel: &Cancel,
    ) -> Result<Sandbox> {
        let (id, name) = (sandbox.id.as_str(), snapshot.id.to_string());
        self.on_workspaces(|workspaces| Ok(workspaces.store().sync()?)).await?;
        cancel.check()?;
        let (owner, bytes) = (sandbox.owner.as_str(), stored.load(Ordering::Relaxed));
        let origin = origin_in(id, config_of(sandbox)?.lineage.project_base.as_ref());
        self.0.catalog.snapshots().add_of_origin(owner, &name, &origin, bytes).await?;
        let committed = |sandbox: &Sandbox| {
            has_files_to_pause(sandbox.state).then(|| Change {
                pause: Some(Some(PauseStep::Committed)),
                pause_snapshot: Some(Some(name.clone())),
                ..Change::default()
            })
        };
        let sandbox = self.change(id, committed, &[]).await?;
        let is_recorded = sandbox.pause_snapshot.as_deref() == Some(&name);
        if is_recorded { Ok(sandbox) } else { Err(not_running(&sandbox)) }
    }

    /// Makes the parent of a snapshot that is about to be removed the parent of the next one of its workspace.
    async fn restore_parent(&self, id: &str, snapshot: Snapshot) {
        let name = id.to_owned();
        if let Err(error) =
            self.on_workspaces(move |workspaces| workspaces.forget_commit(&name, &snapshot)).await
        {
            tracing::warn!(sandbox = id, %error, "failed to forget the snapshot of a failed pause");
        }
    }

    /// Finishes a pause to disk whose snapshot is recorded. If that fails, it is tried again in the background, because
    /// the pause can no longer be undone.
    async fn finish_pause_to_disk(
        &self,
        sandbox: &Sandbox,
        reason: Option<String>,
        operation: OperationLockGuard,
        access: ExclusiveAccess,
    ) -> Result<Sandbox> {
        let id = sandbox.id.clone();
        // From here on, its guest agent is no longer expected to respond.
        let handle = self.remove_handle(&id);
        let ended = self.end_processes(&id, handle.as_ref(), reason, &access).await;
        drop(access);
        match &ended {
            Ok(paused) => self.spawn_removal_of_paused(paused, operation),
            Err(SandboxError::NotFound { .. } | SandboxError::NotRunning { .. }) => {}
            Err(error) => {
                tracing::error!(sandbox = id, %error, "failed to end the processes of a paused sandbox, trying again");
                self.retry(move |service| {
                    let (id, handle) = (id.clone(), handle.clone());
                    async move {
                        let operation = service.0.operation_locks.lock(&id).await;
                        service.continue_pause(&id, handle.as_ref(), &operation).await
                    }
                });
            }
        }
        ended
    }

    /// Continues a pause to disk whose snapshot is recorded. The caller holds the operation lock.
    pub(crate) async fn continue_pause(
        &self,
        id: &str,
        handle: Option<&Arc<SandboxHandle>>,
        operation: &OperationLockGuard,
    ) -> Result<()> {
        let access = self.0.gates.exclusive(id, operation).await?;
        match self.end_processes(id, handle, None, &access).await {
            Ok(paused) => self.remove_paused_files(&paused).await,
            // Another operation removed the sandbox, or is about to.
            Err(SandboxError::NotFound { .. } | SandboxError::NotRunning { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Kills all processes of a sandbox whose snapshot is recorded, and records that it is paused on disk.
    async fn end_processes(
        &self,
        id: &str,
        handle: Option<&Arc<SandboxHandle>>,
        reason: Option<String>,
        access: &ExclusiveAccess,
    ) -> Result<Sandbox> {
        let dir = self.dir(id);
        // Before anything that can fail: a retry does not commit what is written meanwhile.
        self.notify_hooks_of_removal(id, access).await;
        self.kill_sandbox(id, &dir).await?;
        remove_freeze_record(dir).await?;
        self.fail_commands(id, handle, "the sandbox was paused").await;
        if let Some(handle) = handle {
            handle.close();
        }
        let on_disk = |sandbox: &Sandbox| {
            let is_applicable =
                has_files_to_pause(sandbox.state) && sandbox.pause == Some(PauseStep::Committed);
            is_applicable.then(|| Change {
                state: Some(State::Stopped).filter(|state| *state != sandbox.state),
                ..self.paused_change(sandbox, PauseStep::Disk, reason.clone())
            })
        };
        let paused = self.change(id, on_disk, &[EventKind::SandboxPaused]).await?;
        if !paused.is_paused() {
            return Err(not_running(&paused));
        }
        Ok(paused)
    }

    /// Removes the files of a sandbox that was paused to disk, in the background, with the operation lock.
    fn spawn_removal_of_paused(&self, paused: &Sandbox, operation: OperationLockGuard) {
        let (service, paused) = (self.clone(), paused.clone());
        let (operation, guard) = (operation.into_other_task(), self.0.operation_count.begin());
        tokio::spawn(async move {
            if let Err(error) = service.remove_paused_files(&paused).await {
                // The resume, the removal, or the next server tries again.
                tracing::warn!(sandbox = paused.id, %error, "failed to remove the files of a paused sandbox");
            }
            drop((operation, guard));
        });
    }

    /// Removes the workspace that a pause or an interrupted resume left, if there is one.
    pub(crate) async fn remove_leftover_workspace(&self, id: &str) -> Result<()> {
        // Without a workspace, nothing is asked of a namespace holder, which may have ended with the machine.
        if self.0.workspaces.directory_of(id).exists() { self.remove_workspace(id).await } else { Ok(()) }
    }

    /// Removes the workspace of a sandbox that is paused on disk, and snapshots of its earlier pauses.
    pub(crate) async fn remove_paused_files(&self, paused: &Sandbox) -> Result<()> {
        self.remove_leftover_workspace(&paused.id).await?;
        self.release_pause_snapshots(&paused.id, paused.pause_snapshot.as_deref()).await
    }
}

/// Removes the record of a freeze, which some runtimes leave when they kill a sandbox.
async fn remove_freeze_record(dir: SandboxDir) -> Result<()> {
    blocking(move || dir.remove_freeze_record()).await?.context(|| "remove the record of a freeze".to_owned())
}
