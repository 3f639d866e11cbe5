//! Recovery of sandboxes after a restart, and removal of orphans.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use workspace_catalog::{Change, EventKind, Sandbox, State};
use workspace_state::{Cancel, GcOptions, NoProgress};
use workspace_workspace::{CancellableWorkspaces, LayerGcResult, UnusedLayers, Workspaces};

use crate::config::Config;
use crate::error::{Context as _, Result, SandboxError, without_host_paths};
use crate::guest::handle::SandboxHandle;
use crate::guest::listener;
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::operation_lock::OperationLockGuard;
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
    /// with the reason and retried in the background: no sandbox prevents the server from starting. One that was being
    /// created stays `starting` meanwhile.
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
        for (id, mut recovery) in recoveries.collect::<Vec<_>>() {
            if timeout_at(deadline, &mut recovery).await.is_err() {
                self.mark_not_recovered(&id, "it took longer than the start of the server waits").await;
                let service = Arc::downgrade(&self.0);
                tokio::spawn(async move {
                    // A recovery that failed is tried again by its own task.
                    drop(recovery.await);
                    end_recovery_error(&service, &id).await;
                });
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
            // After its result was returned above, the handle must not be polled again. One more recovery does nothing
            // if this one succeeded since.
            let recovered = if recovery.is_finished() { None } else { recovery.await.ok() };
            match recovered {
                Some(Ok(())) => end_recovery_error(&service, &id).await,
                _ => recover_again(&service, &id).await,
            }
        });
    }

    /// Puts a running sandbox that was not recovered in `error`. One that is being removed, and one that is paused,
    /// stays in that state. One that is being created stays `starting`, because its recovery finishes or undoes the
    /// creation.
    async fn mark_not_recovered(&self, id: &str, reason: &str) {
        tracing::error!(sandbox = id, reason, "failed to recover a sandbox, trying again in the background");
        let reason = without_host_paths(&format!("{NOT_RECOVERED}: {reason}"));
        // `None` keeps the state.
        let with_reason = |from: State, state: Option<State>| {
            let state_reason = Some(reason.clone());
            move |sandbox: &Sandbox| {
                let applies = sandbox.state == from && sandbox.pause.is_none();
                applies.then(|| Change { state, state_reason: state_reason.clone(), ..Change::default() })
            }
        };
        let in_error = with_reason(State::Running, Some(State::Error));
        let marked = match self.change(id, in_error, &[EventKind::SandboxError]).await {
            Ok(_) => self.change(id, with_reason(State::Starting, None), &[]).await,
            failed => failed,
        };
        if let Err(error) = marked {
            tracing::error!(sandbox = id, %error, "failed to mark a sandbox that was not recovered");
        }
    }

    /// Recovers one sandbox: continues or undoes an interrupted operation, and attaches to its processes, or records
    /// that they exited.
    async fn recover_one(&self, sandbox: Sandbox) -> Result<()> {
        // The state of a sandbox that is being removed.
        if sandbox.state == State::Stopping {
            let removal = Removal::of_reason(sandbox.state_reason.as_deref());
            return self.remove_interrupted(&sandbox.id, removal).await;
        }
        let id = &sandbox.id.clone();
        let operation = self.0.operation_locks.lock(id).await;
        let sandbox = self.read_row(id).await?;
        if let Some(handle) = self.handle(id) {
            // This server attached to it already. What may remain is a restore with an unknown outcome.
            self.resolve_restore(&handle, &sandbox, &operation).await?;
            self.notify_hooks_of_recovery(&sandbox).await;
            return Ok(());
        }
        if sandbox.state == State::Stopping {
            return Ok(());
        }
        self.recover_state(sandbox, &operation).await?;
        self.notify_hooks_of_recovery(&self.read_row(id).await?).await;
        Ok(())
    }

    /// Recovers a sandbox that this server has not attached to, and that is not being removed.
    async fn recover_state(&self, sandbox: Sandbox, operation: &OperationLockGuard) -> Result<()> {
        // `None` if it stays paused, or is paused to disk by now.
        let Some(sandbox) = self.recover_pause(sandbox, operation).await? else { return Ok(()) };
        let id = sandbox.id.as_str();
        if sandbox.state == State::Stopped {
            return Ok(());
        }
        let dir = self.dir(id);
        if self.0.runtime.is_running(id, &dir).await? {
            self.thaw_and_finish_restore(id, &dir, operation).await?;
            self.attach_follower_again(&sandbox, &dir).await?;
            return self.reattach(&sandbox);
        }
        self.kill_sandbox(id, &dir).await?;
        self.finish_root_restore(id).await?;
        let (state, reason) = match sandbox.state {
            State::Starting => (State::Error, "the server stopped while it was being created"),
            // No failure: its processes were killed, or exited.
            State::Running => (State::Stopped, "its processes exited while the server was down"),
            _ if was_not_recovered(&sandbox) => {
                (State::Error, "its processes exited while the server was down")
            }
            _ => return Ok(()),
        };
        if sandbox.state == State::Starting {
            // No client got a response, so the same request may create another.
            self.0.catalog.idempotency().release(id).await?;
        }
        self.set_state(id, state, reason).await?;
        let no_handle = None;
        self.fail_commands(id, no_handle, reason).await;
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
        self.clear_recovery_error(id).await?;
        tracing::info!(sandbox = id, "recovered a sandbox");
        Ok(())
    }

    /// Makes a recovered sandbox `running` again that [`Self::mark_not_recovered`] put in `error` after its guest agent
    /// had connected. A sandbox whose agent connects later becomes `running` then.
    async fn clear_recovery_error(&self, id: &str) -> Result<()> {
        let is_connected = self.handle(id).is_some_and(|handle| handle.guest.is_connected());
        if !is_connected || self.has_unresolved_swap(id).await? {
            return Ok(());
        }
        let to_running = |sandbox: &Sandbox| {
            (sandbox.state == State::Error && was_not_recovered(sandbox))
                .then(|| Change { state: Some(State::Running), ..Change::default() })
        };
        match self.change(id, to_running, &[EventKind::SandboxRunning]).await {
            Ok(_) | Err(SandboxError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Listens for the guest agent of a sandbox that is still running.
    pub(crate) fn reattach(&self, sandbox: &Sandbox) -> Result<()> {
        let config = config_of(sandbox)?;
        let handle = Arc::new(SandboxHandle::of(sandbox, self.dir(&sandbox.id), &config));
        let socket = handle.dir.listen().context(|| "listen for the guest agent".to_owned())?;
        // Sandboxes of earlier versions have no file for the measured resource usage.
        if let Err(error) = handle.dir.create_measurements_file() {
            tracing::warn!(sandbox = sandbox.id, %error, "failed to create the file of measured resource usage");
        }
        self.add_handle(&handle);
        listener::open(socket, &handle, Arc::new(self.clone()));
        if sandbox.state == State::Starting {
            self.spawn_continued_creation(handle, config);
        } else if sandbox.is_paused() {
            // Its guest agent may be frozen, and reconnects after a resume.
            self.watch_exit(&handle);
        } else {
            self.watch_exit(&handle);
            handle.guest.let_requests_wait(RECONNECT_TIMEOUT.min(self.0.settings.agent_grace));
            self.mark_lost_unless_reconnected(&handle);
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

    /// Waits for the guest agent of a sandbox that is being created, and sets it to `running`. Limits and isolation
    /// features that the runtime could not apply (`not_applied`) fail the creation if isolation is required.
    async fn continue_creation(&self, handle: &SandboxHandle, config: Config) -> Result<()> {
        self.wait_for_guest(handle).await?;
        let not_applied = self.0.runtime.not_applied(&handle.id, &handle.dir).await?;
        if let Err(error) = self.check_isolation(&not_applied) {
            self.kill_sandbox(&handle.id, &handle.dir).await?;
            return Err(error);
        }
        self.set_running(&handle.id, &Config { not_applied, ..config }).await.map(|_| ())
    }

    /// Sets the state of a sandbox to `error` or `stopped`, with a reason, unless the transition is not allowed. Emits
    /// `sandbox.error`, which also stands for an unexpected stop.
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
        let layers_of_kept_roots =
            self.on_kept_roots(move |roots| roots.collect_layers(unused)).await?.unwrap_or_default();
        let collect = move |workspaces: &CancellableWorkspaces<'_>| {
            let layers = workspaces.collect_layers(unused)?;
            let layers = LayerGcResult {
                layers: layers.layers + layers_of_kept_roots.layers,
                bytes: layers.bytes + layers_of_kept_roots.bytes,
                ..layers
            };
            let (mut freed, mut sizes) = (layers.bytes, Vec::new());
            for _ in 0..GC_ROUNDS_MAX {
                let report = workspaces.store().collect_garbage(&GcOptions::default(), &NoProgress)?;
                freed += report.freed_bytes;
                sizes = report.snapshots;
                // Running operations may have relied on some unreachable objects, and have ended by now.
                if report.condemned_bytes == 0 {
                    break;
                }
            }
            tracing::info!(layers = layers.layers, freed, "collected garbage");
            Ok((CollectionReport { layers: layers.layers, freed, ..CollectionReport::default() }, sizes))
        };
        let deleted = self.0.catalog.snapshots().deleted_bytes().await?;
        let (collected, sizes) = self.on_workspaces_until(cancel, collect).await?;
        let sizes: Vec<_> = sizes.into_iter().map(|(id, bytes)| (id.to_string(), bytes)).collect();
        self.0.catalog.snapshots().set_sizes(&sizes, deleted).await?;
        Ok(collected)
    }

    /// Removes processes, directories and workspaces that have no row in the catalog, as a sandbox or as the workspace
    /// of an AI agent, except workspaces whose files one of the hooks needs
    /// ([`WorkspaceHooks`](crate::WorkspaceHooks)). Keeps all workspaces if one of them does not answer.
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
        let roots = self.on_kept_roots(Workspaces::list).await?.unwrap_or_default();
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
        // Like those of sandboxes, rows are inserted before directories are made, and deleted after these are gone.
        let of_agents = self.0.catalog.agent_workspaces().existing(&orphans).await?;
        let orphans: Vec<String> = orphans.into_iter().filter(|id| !of_agents.contains(id)).collect();
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

/// Returns true if the last recovery of a sandbox failed or was late.
fn was_not_recovered(sandbox: &Sandbox) -> bool {
    sandbox.state_reason.as_ref().is_some_and(|reason| reason.starts_with(NOT_RECOVERED))
}

/// Ends the error of a sandbox whose recovery was late, with retries until the service is closed.
async fn end_recovery_error(service: &Weak<Inner>, id: &str) {
    let backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX);
    retry_until_closed(service, backoff, |service| async move {
        service.clear_recovery_error(id).await.inspect_err(|error| {
            tracing::error!(sandbox = id, %error, "failed to end the error of a recovered sandbox, trying again");
        })
    })
    .await;
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::guest::connection::Capabilities;

    /// Starts a service, and adds the row of a sandbox with a state to its catalog.
    async fn start(home: &tempfile::TempDir, state: State) -> (Service, Sandbox) {
        let service = Service::start_without_runtime(home.path()).await;
        let sandbox = service.insert_sandbox(state).await;
        (service, sandbox)
    }

    #[tokio::test]
    async fn a_sandbox_whose_creation_could_not_be_recovered_is_still_being_created() {
        for (state, expected) in [(State::Starting, State::Starting), (State::Running, State::Error)] {
            let home = tempfile::tempdir().unwrap();
            // The service has no runtime, so it cannot find out whether the sandbox runs.
            let (service, sandbox) = start(&home, state).await;
            service.recover_with_timeout(sandbox).await;
            let sandbox = service.read_row("sbx-1").await.unwrap();
            assert_eq!(sandbox.state, expected);
            let reason = sandbox.state_reason.unwrap();
            assert!(reason.starts_with(NOT_RECOVERED), "{reason}");
            service.close().await;
        }
    }

    #[tokio::test]
    async fn a_recovered_sandbox_that_is_marked_too_late_runs_again() {
        let home = tempfile::tempdir().unwrap();
        let (service, sandbox) = start(&home, State::Running).await;
        let handle = Arc::new(SandboxHandle::new(&sandbox.id, service.dir(&sandbox.id), ""));
        service.add_handle(&handle);
        let (sender, _messages) = tokio::sync::mpsc::channel(1);
        handle.guest.connect(sender, Capabilities::of(&HashMap::new()));
        // Its recovery ends, and its guest agent connects, after the timeout and before this.
        service.mark_not_recovered(&sandbox.id, "it took longer than 10 s").await;
        assert_eq!(service.read_row("sbx-1").await.unwrap().state, State::Error);
        end_recovery_error(&Arc::downgrade(&service.0), &sandbox.id).await;
        assert_eq!(service.read_row("sbx-1").await.unwrap().state, State::Running);
        // An error with another reason stays.
        service
            .set_state(&sandbox.id, State::Error, "its guest agent has been disconnected for 60 s")
            .await
            .unwrap();
        service.retry_recovery(&sandbox.id).await.unwrap();
        assert_eq!(service.read_row("sbx-1").await.unwrap().state, State::Error);
        service.close().await;
    }
}
