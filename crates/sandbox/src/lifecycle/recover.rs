//! Recovery of sandboxes after a restart, and removal of orphans.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use workspace_catalog::{Change, EventKind, Sandbox, State};
use workspace_state::{Cancel, GcOptions, Quiet};
use workspace_workspace::{CancellableWorkspaces, LayerGcResult, UnusedLayers, Workspaces};

use crate::config::Config;
use crate::error::{Context as _, Result, SandboxError, without_host_paths};
use crate::guest::handle::SandboxHandle;
use crate::guest::listener;
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::remove::Removal;
use crate::retry::{Backoff, retry_until_closed};
use crate::service::{Inner, RECONNECT_TIMEOUT, Service, config_of};

/// Result of a garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CollectionReport {
    /// Number of removed sandboxes: expired ones, and orphans.
    pub sandboxes: u64,
    /// Number of removed workspaces without a sandbox.
    pub workspaces: u64,
    /// Number of removed layers that no workspace used.
    pub layers: u64,
    /// Bytes that were freed.
    pub freed: u64,
}

/// Maximum number of sandboxes that are recovered at the same time.
const RECOVERIES_AT_ONCE: usize = 16;
/// Timeout for the recovery of one sandbox. A longer recovery continues in the background.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time that the start of the server waits for all recoveries.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The reason of a sandbox in `error` begins with this until it is recovered.
const NOT_RECOVERED: &str = "it could not be recovered yet";
/// Delay before the second attempt to recover a sandbox.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Maximum delay between two attempts to recover a sandbox.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Maximum number of collections of the store in a row.
const GC_ROUNDS_MAX: usize = 3;
/// Maximum time that a collection waits for the files of deleted sandboxes.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);

impl Service {
    /// Recovers the sandboxes of the last server. A sandbox that takes too long, or fails, is put in `error`
    /// with the reason and retried in the background: no sandbox prevents the server from starting.
    pub(crate) async fn recover(&self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        let semaphore = Arc::new(Semaphore::new(RECOVERIES_AT_ONCE));
        let sandboxes = self.0.catalog.sandboxes().all(&self.0.settings.server).await?;
        let recoveries = sandboxes.into_iter().map(|sandbox| {
            let (service, semaphore, id) = (self.clone(), Arc::clone(&semaphore), sandbox.id.clone());
            let recovery = tokio::spawn(async move {
                let _permit = semaphore.acquire().await;
                service.recover_with_timeout(sandbox).await;
            });
            (id, recovery)
        });
        for (id, recovery) in recoveries.collect::<Vec<_>>() {
            if timeout_at(deadline, recovery).await.is_err() {
                self.mark_not_recovered(&id, "its recovery did not start in time").await;
            }
        }
        let service = self.clone();
        let clearing = tokio::spawn(async move { service.clear_orphans(&service.0.cancel).await });
        match timeout_at(deadline.max(Instant::now() + RECOVERY_TIMEOUT), clearing).await {
            Ok(cleared) => {
                cleared.map_err(std::io::Error::other).context(|| "remove orphans".to_owned())??;
            }
            Err(_) => tracing::warn!("removing orphans takes long and continues in the background"),
        }
        Ok(())
    }

    /// Recovers one sandbox with a timeout. A recovery that takes longer, or fails, continues in the
    /// background.
    async fn recover_with_timeout(&self, sandbox: Sandbox) {
        let (service, id) = (self.clone(), sandbox.id.clone());
        let mut recovery = tokio::spawn(async move { service.recover_one(sandbox).await });
        let reason = match timeout(RECOVERY_TIMEOUT, &mut recovery).await {
            Ok(Ok(Ok(()))) => return,
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it took longer than {} s", RECOVERY_TIMEOUT.as_secs()),
        };
        self.mark_not_recovered(&id, &reason).await;
        let service = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let recovered = if recovery.is_finished() { None } else { recovery.await.ok() };
            if !matches!(recovered, Some(Ok(()))) {
                recover_again(&service, &id).await;
            }
        });
    }

    /// Puts a sandbox that was not recovered in `error`. One that is being removed stays in that state.
    async fn mark_not_recovered(&self, id: &str, reason: &str) {
        tracing::error!(sandbox = id, reason, "failed to recover a sandbox, trying again in the background");
        let reason = without_host_paths(&format!("{NOT_RECOVERED}: {reason}"));
        let in_error = |sandbox: &Sandbox| {
            // A paused one stays paused.
            let is_live = matches!(sandbox.state, State::Starting | State::Running);
            (is_live && sandbox.pause.is_none()).then(|| Change {
                state: Some(State::Error),
                state_reason: Some(reason.clone()),
                ..Change::default()
            })
        };
        if let Err(error) = self.change(id, in_error, &[EventKind::SandboxError]).await {
            tracing::error!(sandbox = id, %error, "failed to mark a sandbox that was not recovered");
        }
    }

    /// Recovers one sandbox: continues or undoes an interrupted operation, and attaches to its processes, or records
    /// that they exited.
    async fn recover_one(&self, sandbox: Sandbox) -> Result<()> {
        if sandbox.state == State::Stopping {
            let removal = Removal::of_stopping(sandbox.state_reason.as_deref());
            return self.remove_interrupted(&sandbox.id, removal).await;
        }
        let id = sandbox.id.as_str();
        let operation = self.0.operation_locks.lock(id).await;
        let sandbox = self.read_row(id).await?;
        if let Some(handle) = self.handle(id) {
            return self.resolve_restore(&handle, &sandbox, &operation).await;
        }
        if sandbox.state == State::Stopping {
            return Ok(());
        }
        let Some(sandbox) = self.recover_pause(sandbox, &operation).await? else { return Ok(()) };
        let id = sandbox.id.as_str();
        if sandbox.state == State::Stopped {
            return Ok(());
        }
        let dir = self.dir(id);
        if self.0.runtime.is_running(id, &dir).await? {
            self.finish_interrupted(id, &dir, &operation).await?;
            self.attach_follower_again(&sandbox, &dir).await?;
            return self.reattach(&sandbox);
        }
        self.kill_sandbox(id, &dir).await?;
        self.finish_root_restore(id).await?;
        let was_not_recovered = sandbox.state_reason.is_some_and(|reason| reason.starts_with(NOT_RECOVERED));
        let (state, reason) = match sandbox.state {
            State::Starting => (State::Error, "the server stopped while it was being created"),
            // No failure: its processes were killed, or exited.
            State::Running => (State::Stopped, "its processes exited while the server was down"),
            _ if was_not_recovered => (State::Error, "its processes exited while the server was down"),
            _ => return Ok(()),
        };
        if sandbox.state == State::Starting {
            // No client got a response, so the same request may create another.
            self.0.catalog.idempotency().release(id).await?;
        }
        self.set_state(id, state, reason).await?;
        self.fail_commands(id, None, reason).await;
        Ok(())
    }

    /// Recovers a sandbox once more. Does nothing if the sandbox was removed.
    async fn retry_recovery(&self, id: &str) -> Result<()> {
        let sandbox = match self.read_row(id).await {
            Err(SandboxError::NotFound { .. }) => return Ok(()),
            row => row.inspect_err(|error| {
                tracing::error!(sandbox = id, %error, "failed to read the row of a sandbox to recover");
            })?,
        };
        self.recover_one(sandbox).await.inspect_err(|error| {
            tracing::error!(sandbox = id, %error, "failed to recover a sandbox, trying again");
        })?;
        tracing::info!(sandbox = id, "recovered a sandbox");
        Ok(())
    }

    /// Listens for the guest agent of a sandbox that is still running.
    pub(crate) fn reattach(&self, sandbox: &Sandbox) -> Result<()> {
        let config = config_of(sandbox)?;
        let handle = Arc::new(SandboxHandle::of(sandbox, self.dir(&sandbox.id), &config));
        let socket = handle.dir.listen().context(|| "listen for the guest agent".to_owned())?;
        // Servers of earlier versions did not make it.
        if let Err(error) = handle.dir.make_measurements() {
            tracing::warn!(sandbox = sandbox.id, %error, "failed to create the file of measurements");
        }
        self.add_handle(&handle);
        listener::open(socket, &handle, Arc::new(self.clone()));
        if sandbox.state == State::Starting {
            self.spawn_continued_creation(handle, config);
        } else if sandbox.is_paused() {
            // Its agent may be frozen, and reconnects after a resume.
            self.watch_exit(&handle);
        } else {
            self.watch_exit(&handle);
            handle.guest.expect_within(RECONNECT_TIMEOUT.min(self.0.settings.agent_grace));
            self.expect_reconnect(&handle);
        }
        Ok(())
    }

    /// Continues a creation in which the last server was stopped.
    fn spawn_continued_creation(&self, handle: Arc<SandboxHandle>, config: Config) {
        let service = self.clone();
        tokio::spawn(async move {
            if let Err(error) = service.continue_creation(&handle, config).await {
                tracing::warn!(sandbox = handle.id, %error, "failed to finish the creation of a sandbox");
                let reason = without_host_paths(&error.to_string());
                if let Err(error) = service.set_state(&handle.id, State::Error, &reason).await {
                    tracing::error!(sandbox = handle.id, %error, "failed to mark a sandbox whose creation failed");
                }
            }
        });
    }

    async fn continue_creation(&self, handle: &SandboxHandle, config: Config) -> Result<()> {
        self.wait_for_guest(handle).await?;
        let not_applied = self.0.runtime.not_applied(&handle.id, &handle.dir).await?;
        if let Err(error) = self.check_isolation(&not_applied) {
            self.kill_sandbox(&handle.id, &handle.dir).await?;
            return Err(error);
        }
        self.set_running(&handle.id, &Config { not_applied, ..config }).await.map(|_| ())
    }

    /// Sets the state of a sandbox with a reason, unless the transition is not allowed.
    pub(crate) async fn set_state(&self, id: &str, state: State, reason: &str) -> Result<()> {
        let change = |sandbox: &Sandbox| {
            let new = sandbox.state.can_become(state).then_some(state);
            (new.is_some() || sandbox.state == state).then(|| Change {
                state: new,
                state_reason: Some(reason.to_owned()),
                ..Change::default()
            })
        };
        self.change(id, change, &[EventKind::SandboxError]).await.map(|_| ())
    }

    /// Removes expired sandboxes, orphans, and unreachable objects of the store.
    pub async fn collect(&self) -> Result<CollectionReport> {
        self.cancellable(|service, cancel| async move { service.collect_inner(&cancel).await }).await
    }

    async fn collect_inner(&self, cancel: &Cancel) -> Result<CollectionReport> {
        let expired = self.expire().await?;
        or_cancelled(cancel, self.wait_for_removed_files(REMOVAL_TIMEOUT)).await?;
        let orphans = self.clear_orphans(cancel).await?;
        let content = self.collect_content(UnusedLayers::All, cancel).await?;
        Ok(CollectionReport {
            sandboxes: orphans.sandboxes + expired,
            workspaces: orphans.workspaces,
            layers: content.layers,
            freed: orphans.freed + content.freed,
        })
    }

    /// Removes unused layers, and unreachable objects of the store.
    pub(crate) async fn collect_content(
        &self,
        unused: UnusedLayers,
        cancel: &Cancel,
    ) -> Result<CollectionReport> {
        self.prune_build_cache().await;
        let of_roots = self.on_roots(move |roots| roots.collect_layers(unused)).await?.unwrap_or_default();
        let collect = move |workspaces: &CancellableWorkspaces<'_>| {
            let layers = workspaces.collect_layers(unused)?;
            let layers = LayerGcResult {
                layers: layers.layers + of_roots.layers,
                bytes: layers.bytes + of_roots.bytes,
                ..layers
            };
            let (mut freed, mut sizes) = (layers.bytes, Vec::new());
            for _ in 0..GC_ROUNDS_MAX {
                let report = workspaces.store().collect_garbage(&GcOptions::default(), &Quiet)?;
                freed += report.freed_bytes;
                sizes = report.snapshots;
                // Objects that could not be deleted yet may be free by now.
                if report.condemned_bytes == 0 {
                    break;
                }
            }
            tracing::info!(layers = layers.layers, freed, "collected garbage");
            Ok((CollectionReport { layers: layers.layers, freed, ..CollectionReport::default() }, sizes))
        };
        let (collected, sizes) = self.on_workspaces_until(cancel, collect).await?;
        let sizes: Vec<_> = sizes.into_iter().map(|(id, bytes)| (id.to_string(), bytes)).collect();
        self.0.catalog.snapshots().set_sizes(&sizes).await?;
        Ok(collected)
    }

    /// Removes processes, directories and workspaces that have no row in the catalog, except workspaces that a service
    /// keeps ([`WorkspaceHooks`](crate::WorkspaceHooks)). Keeps all workspaces if a service does not answer.
    async fn clear_orphans(&self, cancel: &Cancel) -> Result<CollectionReport> {
        let mut collected = CollectionReport::default();
        // Files are listed before rows, so that a sandbox that is being created is no orphan: its row is
        // inserted before its directory is made, or its id is in the pool. A deleted sandbox whose files are
        // being removed is in the queue.
        let queued = self.0.cleanup_queue.ids();
        let directories =
            entry_names(&self.0.settings.sandboxes_dir).context(|| "look for sandboxes".to_owned())?;
        let workspaces = self.on_workspaces(Workspaces::list).await?;
        let workspaces: Vec<String> = workspaces.into_iter().map(|found| found.id).collect();
        let roots = self.on_roots(Workspaces::list).await?.unwrap_or_default();
        let runtime_ids = self.0.runtime.known_ids().await?;
        // A sandbox that is taken from the pool is in the catalog before it leaves the pool.
        let pooled = self.0.pool.ids();
        let known = self.0.catalog.sandboxes().all(&self.0.settings.server).await?;
        let queued_since = self.0.cleanup_queue.ids();
        let known: HashSet<&str> = known
            .iter()
            .map(|sandbox| sandbox.id.as_str())
            .chain(pooled.iter().chain(&queued).chain(&queued_since).map(String::as_str))
            .collect();
        let orphans = directories.iter().chain(&runtime_ids).filter(|id| !known.contains(id.as_str()));
        for id in orphans.collect::<HashSet<_>>() {
            cancel.check()?;
            match self.clear_orphan(id).await {
                Ok(()) => collected.sandboxes += 1,
                // One that cannot be removed does not stop the others; the next collection tries again.
                Err(error) => {
                    tracing::error!(sandbox = id, %error, "failed to remove an orphaned sandbox");
                }
            }
        }
        self.clear_orphaned_roots(roots.into_iter().map(|root| root.id), &known, cancel).await?;
        let orphans: Vec<String> = workspaces.into_iter().filter(|id| !known.contains(id.as_str())).collect();
        let retained = match or_cancelled(cancel, self.retained_workspaces(&orphans)).await? {
            Ok(retained) => retained,
            Err(error) => {
                tracing::error!(%error, "failed to find out which orphaned workspaces are in use, keeping all");
                return Ok(collected);
            }
        };
        for id in orphans.iter().filter(|id| !retained.contains(id.as_str())) {
            cancel.check()?;
            let freed = self.disk_usage(id).await;
            match self.remove_workspace(id).await {
                Ok(()) => {
                    collected.workspaces += 1;
                    collected.freed += freed;
                }
                Err(error) => {
                    tracing::error!(workspace = id, %error, "failed to remove an orphaned workspace");
                }
            }
        }
        Ok(collected)
    }

    /// Kills the processes of a sandbox without a row, and removes its directory.
    async fn clear_orphan(&self, id: &str) -> Result<()> {
        tracing::info!(sandbox = id, "removing an orphaned sandbox");
        let _operation = self.0.operation_locks.lock(id).await;
        self.kill_sandbox(id, &self.dir(id)).await?;
        self.remove_dir(id).await
    }
}

/// Retries the recovery of a sandbox until it succeeds, the sandbox is removed, or the service is closed.
pub(crate) async fn recover_again(service: &Weak<Inner>, id: &str) {
    let backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX);
    retry_until_closed(service, backoff, |service| async move { service.retry_recovery(id).await }).await;
}

fn entry_names(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
