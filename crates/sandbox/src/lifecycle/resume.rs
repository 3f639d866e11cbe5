//! Resuming a paused sandbox.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use workspace_catalog::{Change, EventKind, PauseStep, Sandbox, State};
use workspace_state::{Cancel, SnapshotId};
use workspace_workspace::WorkspaceInfo;

use crate::clock::{milliseconds, now};
use crate::config::{Config, NewSandbox};
use crate::error::{Context as _, Result, SandboxError, without_host_paths};
use crate::fair_semaphore::{FairPermit, FairSemaphore};
use crate::guest::connection::CommandTimers;
use crate::guest::handle::SandboxHandle;
use crate::id::Token;
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::create::Creator;
use crate::lifecycle::operation_lock::OperationLockGuard;
use crate::lock_rank::LockRank;
use crate::runtime::SandboxSpec;
use crate::scope::Scope;
use crate::service::{RECONNECT_TIMEOUT, SandboxInfo, Service, config_of, not_running};
use crate::snapshot::operations::network_of;

impl Service {
    /// Resumes a paused sandbox, and waits until it runs. Does nothing if it runs already. `lifetime` is the time until
    /// it expires; by default the time that was left at the pause, or if it had expired, the default of new sandboxes.
    /// One that was paused to disk is started for `creator`, within its quota.
    pub async fn resume(
        &self,
        scope: &Scope,
        id: &str,
        creator: Creator,
        lifetime: Option<Duration>,
    ) -> Result<SandboxInfo> {
        self.check_lifetime(lifetime)?;
        let sandbox = self.find_on_this_server(scope, id).await?;
        self.cancellable(|service, cancel| async move {
            let operation = service.lock_operation(&sandbox.id, &cancel).await?;
            let sandbox = service.read_row(&sandbox.id).await?;
            let resumed = match (sandbox.state, sandbox.pause) {
                (State::Running, Some(PauseStep::Memory)) => {
                    service.resume_in_memory(&sandbox, lifetime).await?
                }
                (State::Stopped, Some(PauseStep::Disk)) => {
                    let creator = Creator { owner: sandbox.owner.clone(), ..creator };
                    service.resume_from_disk(&sandbox, &creator, lifetime, &operation, &cancel).await?
                }
                // A repeated request.
                (State::Running, None | Some(PauseStep::Freezing | PauseStep::Pausing)) => sandbox,
                _ => return Err(not_running(&sandbox)),
            };
            service.info(resumed)
        })
        .await
    }

    fn check_lifetime(&self, lifetime: Option<Duration>) -> Result<()> {
        let (Some(lifetime), limit) = (lifetime, self.0.settings.max_lifetime) else { return Ok(()) };
        if lifetime.is_zero() {
            let message = "must be at least 1 second".to_owned();
            return Err(SandboxError::Invalid { field: "timeoutSeconds", message });
        }
        let (too_long, limit) = (lifetime > limit, limit.as_secs());
        if too_long { Err(SandboxError::Lifetime { limit, left: limit }) } else { Ok(()) }
    }

    /// Returns the change that records a resume. The maximum lifetime counts from now on.
    fn resumed_change(&self, sandbox: &Sandbox, lifetime: Option<Duration>, config: Config) -> Change {
        let (now, settings) = (now(), &self.0.settings);
        let left = sandbox.remaining_ms.filter(|left| *left > 0);
        let left = lifetime.map(|lifetime| milliseconds(lifetime.as_secs())).or(left);
        let left = left.unwrap_or(milliseconds(settings.default_lifetime.as_secs()));
        let config = Config { resumed_at: Some(now), ..config };
        Change {
            pause: Some(None),
            remaining_ms: Some(None),
            expires_at: Some(now + left.min(milliseconds(settings.max_lifetime.as_secs()))),
            config: serde_json::to_value(config).ok(),
            ..Change::default()
        }
    }

    /// Resumes a sandbox whose processes are frozen. The row is changed first: if the server is killed after that, the
    /// next one thaws the sandbox.
    async fn resume_in_memory(&self, paused: &Sandbox, lifetime: Option<Duration>) -> Result<Sandbox> {
        let id = paused.id.as_str();
        let handle = self.handle(id).ok_or_else(|| SandboxError::AgentAway { id: id.to_owned() })?;
        let config = config_of(paused)?;
        let is_applicable = |sandbox: &Sandbox| sandbox.is_paused() && sandbox.state == State::Running;
        let running = |sandbox: &Sandbox| {
            is_applicable(sandbox).then(|| self.resumed_change(sandbox, lifetime, config.clone()))
        };
        let resumed = self.change(id, running, &[EventKind::SandboxResumed]).await?;
        if resumed.state != State::Running {
            return Err(not_running(&resumed));
        }
        if let Err(error) = self.thaw(id, &handle.dir).await {
            self.pause_again(paused).await;
            return Err(error);
        }
        handle.set_expires_at(resumed.expires_at);
        handle.guest.send_timers(CommandTimers::Running).await;
        handle.end_pause();
        self.wait_for_reconnect(&handle).await;
        Ok(resumed)
    }

    /// Records that a sandbox that could not be thawed is still paused, so that the request can be repeated.
    async fn pause_again(&self, paused: &Sandbox) {
        let change = |sandbox: &Sandbox| {
            (sandbox.state == State::Running).then(|| Change {
                pause: Some(paused.pause),
                remaining_ms: Some(paused.remaining_ms),
                expires_at: Some(paused.expires_at),
                ..Change::default()
            })
        };
        if let Err(error) = self.change(&paused.id, change, &[]).await {
            tracing::error!(sandbox = paused.id, %error, "failed to record that a sandbox is still paused");
        }
    }

    /// Waits for the guest agent of a sandbox that was thawed. Its connection may have been lost meanwhile.
    async fn wait_for_reconnect(&self, handle: &Arc<SandboxHandle>) {
        if handle.guest.is_connected() {
            return;
        }
        self.mark_lost_unless_reconnected(handle);
        let mut stream = handle.guest.subscribe();
        if timeout(RECONNECT_TIMEOUT, stream.wait_for(Option::is_some)).await.is_err() {
            tracing::warn!(sandbox = handle.id, "guest agent of a resumed sandbox did not connect in time");
        }
    }

    /// Resumes a sandbox that was paused to disk: a creation from the snapshot of the pause, with the same id.
    async fn resume_from_disk(
        &self,
        sandbox: &Sandbox,
        creator: &Creator,
        lifetime: Option<Duration>,
        operation: &OperationLockGuard,
        cancel: &Cancel,
    ) -> Result<Sandbox> {
        let _queue_slot = self.acquire_queue_slot(&sandbox.owner)?;
        // Prevents that the namespace holder is released meanwhile (`idle.rs`).
        let _creation_lock = self.0.creation_lock.read().await;
        *self.0.idle_since.lock() = None;
        let token = Token::new().context(|| "make a token".to_owned())?;
        let config = config_of(sandbox)?;
        let starting = self.reserve_resume(&sandbox.id, creator).await?;
        // The guest agent that is started has another token than the former one.
        let starting = Sandbox { token_hash: token.hash(), ..starting };
        let handle = Arc::new(SandboxHandle::of(&starting, self.dir(&starting.id), &config));
        self.add_handle(&handle);
        let started = self.start_paused(&starting, &handle, &token, config, operation, cancel).await;
        let resumed = match started {
            Ok(config) => self.record_resumed(&starting, lifetime, config).await,
            Err(error) => Err(error),
        };
        match resumed {
            Ok(resumed) => {
                handle.set_expires_at(resumed.expires_at);
                self.watch_started_sandbox(&handle);
                Ok(resumed)
            }
            Err(error) => {
                self.undo_resume_with_retries(&handle, &error, operation).await;
                Err(error)
            }
        }
    }

    /// Records that a sandbox is being resumed, if the quota allows one more.
    async fn reserve_resume(&self, id: &str, creator: &Creator) -> Result<Sandbox> {
        // Held until the sandbox is counted.
        let _quota_lock = LockRank::Quota.wait(self.0.quota_lock.lock()).await;
        self.check_quota(creator, 1).await?;
        let resuming = |sandbox: &Sandbox| {
            sandbox.is_paused().then(|| Change {
                state: Some(State::Starting),
                pause: Some(Some(PauseStep::Resuming)),
                ..Change::default()
            })
        };
        let sandbox = self.change(id, resuming, &[]).await?;
        if sandbox.state == State::Starting { Ok(sandbox) } else { Err(not_running(&sandbox)) }
    }

    /// Starts a sandbox over a new workspace with its snapshot. Returns its new configuration.
    async fn start_paused(
        &self,
        sandbox: &Sandbox,
        handle: &Arc<SandboxHandle>,
        token: &Token,
        config: Config,
        operation: &OperationLockGuard,
        cancel: &Cancel,
    ) -> Result<Config> {
        let snapshot = snapshot_of(sandbox)?;
        let workspace =
            self.make_paused_workspace(sandbox, handle, &config, snapshot, operation, cancel).await?;
        let _permit = acquire(&self.0.start_permits, &sandbox.owner, cancel).await?;
        self.check_still_starting(sandbox).await?;
        handle.dir.make_again().context(|| "create the directory of a sandbox".to_owned())?;
        self.listen_for_guest(handle)?;
        let egress = self.egress(&network_of(sandbox, &config));
        let progress = self.publish_progress(&sandbox.id);
        let root = self.0.roots.path(&sandbox.id);
        let start = SandboxSpec {
            id: &sandbox.id,
            template: &sandbox.template,
            workspace: Some(&workspace.path),
            anchor: None,
            root: root.as_deref(),
            dir: &handle.dir,
            token: token.as_bytes(),
            limits: &config.limits,
            progress: &progress,
            egress: egress.as_ref(),
            endpoint: self.endpoint(),
        };
        // Requested limits and isolation that the runtime could not apply.
        let not_applied = self.0.runtime.start(&start).await?.not_applied;
        or_cancelled(cancel, self.wait_for_guest(handle)).await??;
        self.check_isolation(&not_applied)?;
        let (provider, snapshot) = (Some(workspace.provider), Some(snapshot));
        Ok(Config { not_applied, provider, snapshot, ..config })
    }

    /// Creates the workspace of a sandbox from the snapshot of its pause, and notifies the services that use workspaces
    /// (`hooks.rs`), such as NFS exports.
    async fn make_paused_workspace(
        &self,
        sandbox: &Sandbox,
        handle: &SandboxHandle,
        config: &Config,
        snapshot: SnapshotId,
        operation: &OperationLockGuard,
        cancel: &Cancel,
    ) -> Result<WorkspaceInfo> {
        let (id, owner) = (sandbox.id.as_str(), sandbox.owner.as_str());
        let permit = acquire(&self.0.workspace_permits, owner, cancel).await?;
        self.remove_leftover_workspace(id).await?;
        let _access = self.exclusive_access(id, operation, cancel).await?;
        // The provider of a workspace that was created empty is not kept: by default it is a plain directory, because
        // there were no files to share. Its snapshot may have some.
        let provider = config.provider.filter(|_| config.snapshot.is_some());
        let (template, root) = (sandbox.template.clone(), config.root);
        let (snapshot, read_only) = (Some(snapshot), config.read_only);
        let new = NewSandbox { snapshot, provider, template, root, read_only, ..NewSandbox::default() };
        let workspace = self.create_workspace(id, owner, &new, config.disk, cancel).await?;
        drop(permit);
        self.measure_new(handle, &new).await;
        handle.record_activity();
        self.notify_hooks_of_recovery(sandbox).await;
        Ok(workspace)
    }

    /// Records that a sandbox runs again. Fails if it was deleted meanwhile.
    async fn record_resumed(
        &self,
        starting: &Sandbox,
        lifetime: Option<Duration>,
        config: Config,
    ) -> Result<Sandbox> {
        let running = |sandbox: &Sandbox| {
            let is_applicable =
                sandbox.state == State::Starting && sandbox.pause == Some(PauseStep::Resuming);
            is_applicable.then(|| Change {
                state: Some(State::Running),
                token_hash: Some(starting.token_hash.clone()),
                ..self.resumed_change(sandbox, lifetime, config.clone())
            })
        };
        let events = [EventKind::AgentConnected, EventKind::SandboxRunning, EventKind::SandboxResumed];
        let resumed = self.change(&starting.id, running, &events).await?;
        if resumed.state == State::Running { Ok(resumed) } else { Err(not_running(&resumed)) }
    }

    async fn undo_resume_with_retries(
        &self,
        handle: &Arc<SandboxHandle>,
        error: &SandboxError,
        operation: &OperationLockGuard,
    ) {
        let reason = without_host_paths(&format!("the last attempt to resume it failed: {error}"));
        let Err(error) = self.undo_resume(&handle.id, Some(handle), &reason, operation).await else { return };
        tracing::error!(sandbox = handle.id, %error, "failed to undo a resume, trying again");
        let handle = Arc::clone(handle);
        self.retry(move |service| {
            let (handle, reason) = (Arc::clone(&handle), reason.clone());
            async move {
                let operation = service.0.operation_locks.lock(&handle.id).await;
                service.undo_resume(&handle.id, Some(&handle), &reason, &operation).await
            }
        });
    }

    /// Ends a sandbox that could not be resumed, and records that it is still paused, unless it was concurrently
    /// deleted. The caller holds the operation lock.
    pub(crate) async fn undo_resume(
        &self,
        id: &str,
        handle: Option<&Arc<SandboxHandle>>,
        reason: &str,
        operation: &OperationLockGuard,
    ) -> Result<()> {
        let sandbox = match self.read_row(id).await {
            Err(SandboxError::NotFound { .. }) => return Ok(()),
            row => row?,
        };
        if sandbox.state != State::Starting || sandbox.pause != Some(PauseStep::Resuming) {
            return Ok(());
        }
        if let Some(handle) = handle.filter(|handle| self.is_current(handle)) {
            self.remove_handle(id);
            handle.close();
        }
        self.kill_sandbox(id, &self.dir(id)).await?;
        let access = self.0.gates.exclusive(id, operation).await?;
        self.notify_hooks_of_removal(id, &access).await;
        self.remove_leftover_workspace(id).await?;
        let paused = |sandbox: &Sandbox| {
            (sandbox.state == State::Starting).then(|| Change {
                state: Some(State::Stopped),
                state_reason: Some(reason.to_owned()),
                pause: Some(Some(PauseStep::Disk)),
                ..Change::default()
            })
        };
        self.change(id, paused, &[]).await.map(|_| ())
    }
}

/// Waits for a permit of an owner.
async fn acquire(semaphore: &FairSemaphore, owner: &str, cancel: &Cancel) -> Result<FairPermit> {
    // The semaphore is closed with the service.
    or_cancelled(cancel, semaphore.acquire(owner)).await?.map_err(|_| SandboxError::Cancelled)
}

/// Returns the snapshot of the last pause of a sandbox.
fn snapshot_of(sandbox: &Sandbox) -> Result<SnapshotId> {
    let text = sandbox.pause_snapshot.as_deref().unwrap_or_default();
    text.parse()
        .map_err(|_| SandboxError::Refused { message: "the snapshot of its pause is not known".to_owned() })
}
