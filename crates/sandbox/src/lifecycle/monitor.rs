//! Monitoring of sandboxes: guest agents that connect and disconnect, processes that exit, expiry, and disk
//! limits.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at};
use workspace_agent_protocol::IO_WORKER_ID;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::{CommandProgress, Heartbeat, OutputStored, RegisterRequest};
use workspace_catalog::{Change, EventKind, NewEvent, Sandbox, State};
use workspace_workspace::{Bounds, CancellableWorkspaces, UnusedLayers};

use crate::blocking::blocking;
use crate::clock::{milliseconds, now};
use crate::command::running::CommandExit;
use crate::config::OnTimeout;
use crate::disk::deleted_file_search::free_bytes;
use crate::error::{Result, SandboxError};
use crate::fair_semaphore::FairPermit;
use crate::guest::connection::{CommandTimers, reconnects_within};
use crate::guest::handle::SandboxHandle;
use crate::guest::listener::GuestHandler;
use crate::lifecycle::pause::PauseCause;
use crate::lifecycle::remove::Removal;
use crate::service::{Inner, Service, config_of, event, transition};

/// Time before the expiry of a sandbox at which an event is emitted.
const EXPIRY_WARNING: Duration = Duration::from_secs(300);
/// Retention of idempotency keys. An older request may be repeated as a new one.
const CLAIM_RETENTION: Duration = Duration::from_secs(86_400);
/// Interval at which the free space of the disk is checked.
const FREE_SPACE_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which unused I/O workers are closed.
const IO_IDLE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which old events are removed.
const RETENTION_INTERVAL: Duration = Duration::from_secs(3_600);
/// Pause after the scan of a workspace, as a multiple of the scan's duration.
const SCAN_PAUSE_FACTOR: u32 = 20;
/// Timeout for a scan of a workspace. A scan that did not finish counts as a lower bound.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that stopping a sandbox which writes too much waits for another operation on it.
const STOP_WAIT: Duration = Duration::from_millis(500);
/// Maximum number of expired sandboxes that are removed at the same time.
const REMOVALS_AT_ONCE: usize = 8;

#[tonic::async_trait]
impl GuestHandler for Service {
    fn sandbox(&self, id: &str) -> Option<Arc<SandboxHandle>> {
        self.handle(id)
    }

    async fn drop_unknown_commands(&self, handle: &Arc<SandboxHandle>, request: &mut RegisterRequest) {
        self.drop_unknown_commands(handle, request).await;
    }

    async fn stored_output(
        &self,
        handle: &Arc<SandboxHandle>,
        request: &RegisterRequest,
    ) -> Vec<OutputStored> {
        self.stored_outputs(handle, request).await
    }

    async fn on_registered(&self, handle: &Arc<SandboxHandle>, stream: u64, request: RegisterRequest) {
        // The server that suspended its timers, or should have continued them, may be gone.
        let timers = if handle.is_paused() { CommandTimers::Suspended } else { CommandTimers::Running };
        handle.guest.send_timers(timers).await;
        let reported: HashSet<&str> =
            request.commands.iter().map(|progress| progress.command_id.as_str()).collect();
        let unreported = handle
            .commands
            .started_before(stream)
            .into_iter()
            .filter(|one| !reported.contains(one.id.as_str()));
        for running in unreported {
            let reason = "the connection was lost before it could start";
            let exit = CommandExit::failed(reason);
            self.record_never_began(&handle.id, &running.id, &exit).await;
            self.advance_command(handle, &running.id, 0, Some(exit)).await;
        }
        self.fail_unsent_commands(handle, &reported).await;
        for progress in request.commands {
            let running = handle.commands.get_or_add(&progress.command_id);
            running.input.record_reconnect(progress.input_received, stream);
            handle.send_read_offset(&running).await;
            self.on_command_progress(handle, progress).await;
        }
        log_failure(handle, self.on_connected(handle).await);
    }

    async fn on_message(&self, handle: &Arc<SandboxHandle>, message: AgentPayload) {
        match message {
            AgentPayload::CommandProgress(progress) => self.on_command_progress(handle, progress).await,
            // Requests to a command that runs or has exited may fail too; that changes nothing.
            AgentPayload::RequestFailed(failed)
                if failed.never_began && handle.commands.get(&failed.id).is_some() =>
            {
                let exit = CommandExit::failed(failed.message);
                self.record_never_began(&handle.id, &failed.id, &exit).await;
                self.advance_command(handle, &failed.id, 0, Some(exit)).await;
            }
            AgentPayload::RequestFailed(failed) if failed.id == IO_WORKER_ID => {
                handle.io.set_start_failure(&failed.message);
            }
            AgentPayload::CommandOutput(output) => self.store_command_output(handle, output).await,
            AgentPayload::PtyOutput(output) => self.store_terminal_output(handle, output).await,
            AgentPayload::Processes(listed) => handle.guest.set_processes(listed.processes),
            AgentPayload::TimersSuspended(report) => handle.guest.set_timers_suspended(report.on),
            AgentPayload::Heartbeat(Heartbeat { resource_usage: Some(usage), .. }) => {
                handle.guest.set_usage(usage);
            }
            _ => {}
        }
    }

    async fn on_disconnected(&self, handle: &Arc<SandboxHandle>) {
        // A sandbox that is being removed needs no event.
        if self.is_current(handle) {
            tracing::info!(sandbox = handle.id, "guest agent disconnected");
            self.emit_connection_event(handle, EventKind::AgentDisconnected).await;
            self.mark_lost_unless_reconnected(handle);
        }
    }
}

impl Service {
    /// Records that a guest agent connected. A sandbox in `error` is `running` again.
    async fn on_connected(&self, handle: &SandboxHandle) -> Result<()> {
        let found = self.0.catalog.sandboxes().get(&handle.id).await?;
        match found.map(|sandbox| sandbox.state) {
            None => {}
            // It stays in `error` until it is known whether its workspace was replaced.
            Some(State::Error) if self.has_unresolved_swap(&handle.id).await? => {
                self.emit_connection_event(handle, EventKind::AgentConnected).await;
            }
            Some(State::Error) => {
                let to_running = |sandbox: &Sandbox| {
                    (sandbox.state == State::Error)
                        .then(|| Change { state: Some(State::Running), ..Change::default() })
                };
                let events = [EventKind::AgentConnected, EventKind::SandboxRunning];
                self.change(&handle.id, to_running, &events).await?;
            }
            Some(_) => self.emit_connection_event(handle, EventKind::AgentConnected).await,
        }
        Ok(())
    }

    /// Records the progress of a command as the guest agent reports it. Commands that the server did not start are
    /// ignored.
    async fn on_command_progress(&self, handle: &Arc<SandboxHandle>, progress: CommandProgress) {
        if handle.commands.get(&progress.command_id).is_none() {
            return;
        }
        let written = progress.written;
        let (running, exit) = handle.commands.record_report(progress);
        self.advance_command(handle, &running.id, written, exit).await;
    }

    /// Records the progress of a command for its readers, and its exit in the catalog in the background.
    async fn advance_command(
        &self,
        handle: &Arc<SandboxHandle>,
        id: &str,
        written: u64,
        exit: Option<CommandExit>,
    ) {
        let running = handle.commands.get_or_add(id);
        if exit.is_some() {
            handle.record_activity();
        }
        handle.output.add(written.saturating_sub(running.written()));
        self.limit_output(handle);
        let exit = match exit {
            Some(exit) if handle.is_traced() && exit.failure_reason.is_none() => {
                running.advance(written, None);
                return self.trace_exit(handle, &running, exit).await;
            }
            exit => exit,
        };
        if running.advance(written, exit.as_ref())
            && let Some(exit) = exit
            && let Some(permit) = handle.commands.acquire_exit_permit(id).await
        {
            let (service, handle, id) = (self.clone(), handle.clone(), id.to_owned());
            // Clients that wait for the command need not wait for the catalog.
            tokio::spawn(async move {
                service.finish_command(&handle, &id, &exit).await;
                drop(permit);
            });
        }
    }

    /// Fails commands that are in the catalog and that the guest agent does not know: the former server was stopped
    /// before it sent them.
    async fn fail_unsent_commands(&self, handle: &Arc<SandboxHandle>, reported: &HashSet<&str>) {
        let running = match self.0.catalog.commands().running(&handle.id).await {
            Ok(running) => running,
            Err(error) => return log_failure(handle, Err::<(), _>(error.into())),
        };
        for command in running {
            // The row of a command that this server is about to start may be in the catalog.
            if !reported.contains(command.id.as_str()) && !handle.commands.contains(&command.id) {
                let exit = CommandExit::failed("the server stopped before it could start");
                self.record_never_began(&handle.id, &command.id, &exit).await;
            }
        }
    }

    /// Emits an event that the guest agent connected or disconnected, unless there were too many of them.
    async fn emit_connection_event(&self, handle: &SandboxHandle, kind: EventKind) {
        if !handle.guest.count_event() {
            return;
        }
        let data = json!({ "sandboxId": handle.id, "owner": handle.owner() });
        let event = NewEvent { kind, data };
        let inserted = self.0.catalog.events().insert(handle.owner(), Some(&handle.id), &event).await;
        log_failure(handle, inserted.map_err(Into::into));
    }

    /// Waits for a disconnected guest agent in the background. If it is not connected after
    /// [`Settings::agent_grace`](crate::Settings), the sandbox is set to `error`, and clients that wait get an error.
    pub(crate) fn mark_lost_unless_reconnected(&self, handle: &Arc<SandboxHandle>) {
        let (service, grace) = (Arc::downgrade(&self.0), self.0.settings.agent_grace);
        let (stream, handle) = (handle.guest.subscribe(), Arc::downgrade(handle));
        tokio::spawn(async move {
            if reconnects_within(stream, grace).await {
                return;
            }
            let (Some(inner), Some(handle)) = (service.upgrade(), handle.upgrade()) else { return };
            let service = Service(inner);
            // A frozen guest agent does not reconnect. The resume waits for it.
            if !handle.guest.is_connected() && service.is_current(&handle) && !handle.is_paused() {
                let reason = format!("its guest agent has been disconnected for {} s", grace.as_secs());
                service.mark_lost(&handle, &reason).await;
                handle.guest.set_lost(&reason);
            }
        });
    }

    /// Sets a running sandbox to `error`.
    async fn mark_lost(&self, handle: &SandboxHandle, reason: &str) {
        let change = |sandbox: &Sandbox| {
            matches!(sandbox.state, State::Running).then(|| Change {
                state: Some(State::Error),
                state_reason: Some(reason.to_owned()),
                ..Change::default()
            })
        };
        log_failure(handle, self.change(&handle.id, change, &[EventKind::SandboxError]).await);
    }

    /// Waits in the background for the first process of a sandbox to exit.
    pub(crate) fn watch_exit(&self, handle: &Arc<SandboxHandle>) {
        let (inner, weak) = (Arc::downgrade(&self.0), Arc::downgrade(handle));
        let (runtime, id, dir) = (self.0.runtime.clone(), handle.id.clone(), handle.dir.clone());
        handle.keep_task(tokio::spawn(async move {
            let exited = runtime.wait_for_exit(&id, &dir).await;
            let (Some(inner), Some(handle)) = (inner.upgrade(), weak.upgrade()) else { return };
            match exited {
                // In its own task: this one ends with the handle.
                Ok(()) => {
                    drop(tokio::spawn(async move { Service(inner).on_processes_exited(&handle).await }));
                }
                Err(error) => log_failure(&handle, Err::<(), _>(error.into())),
            }
        }));
    }

    /// Handles the unexpected exit of all processes of a sandbox.
    pub(crate) async fn on_processes_exited(&self, handle: &Arc<SandboxHandle>) {
        let _operation = self.0.operation_locks.lock(&handle.id).await;
        if !self.is_current(handle) {
            return;
        }
        self.mark_lost(handle, "its processes exited: they were killed or ran out of memory").await;
        self.remove_handle(&handle.id);
        log_failure(handle, self.kill_sandbox(&handle.id, &handle.dir).await);
        self.fail_commands(&handle.id, Some(handle), "the sandbox ended").await;
    }

    /// Records the end of all commands of a sandbox in which nothing runs any more: the exit that the guest agent
    /// reported before, otherwise a failure with `reason`.
    pub(crate) async fn fail_commands(&self, id: &str, handle: Option<&Arc<SandboxHandle>>, reason: &str) {
        let exit = CommandExit::failed(reason);
        match self.0.catalog.commands().running(id).await {
            Ok(commands) => {
                for command in commands {
                    let running = handle.and_then(|handle| handle.commands.get(&command.id));
                    let pid = running.as_ref().and_then(|running| running.pid());
                    // It may have exited before, and not be recorded yet.
                    let known = running.and_then(|running| running.known_exit());
                    self.record_exit(id, &command.id, known.as_ref().unwrap_or(&exit), pid).await;
                }
            }
            Err(error) => {
                tracing::error!(sandbox = id, %error, "failed to list the commands of a sandbox that exited");
            }
        }
        for running in handle.map(|handle| handle.commands.unreported()).unwrap_or_default() {
            running.end_with_sandbox(reason);
        }
    }

    /// Starts the periodic tasks, which run for as long as the service exists.
    pub(crate) fn start_periodic_tasks(&self) {
        let settings = &self.0.settings;
        let service = || Arc::downgrade(&self.0);
        spawn_periodic(settings.expiry_interval, service(), |service| async move { service.expire().await });
        spawn_periodic(
            settings.disk_interval,
            service(),
            |service| async move { service.check_disks().await },
        );
        spawn_periodic(
            FREE_SPACE_INTERVAL,
            service(),
            |service| async move { service.check_free_space().await },
        );
        spawn_periodic(settings.layers_interval, service(), |service| async move {
            service.collect_layers().await
        });
        let gc = |service: Service| async move {
            Ok(service.collect_content(UnusedLayers::Expired, &service.0.cancel).await?.freed)
        };
        spawn_periodic(self.idle_check_interval(), service(), |service| async move {
            service.release_when_idle().await
        });
        spawn_periodic(IO_IDLE_INTERVAL, service(), |service| async move {
            for handle in service.handles() {
                handle.io.close_idle();
            }
            Ok(0)
        });
        spawn_periodic(settings.measurement_interval, service(), |service| async move {
            service.begin_measurements();
            Ok(0)
        });
        // Not at once: a server that has just started is busy.
        spawn_periodic_after(settings.gc_interval, settings.gc_interval, service(), gc);
    }

    /// Removes or pauses expired sandboxes, emits events for those that expire soon, and removes old idempotency keys
    /// and events. Returns the number of removed sandboxes.
    pub(crate) async fn expire(&self) -> Result<u64> {
        let (catalog, server) = (&self.0.catalog, &self.0.settings.server);
        let time = now();
        let mut removed = 0;
        let mut removals = JoinSet::new();
        for sandbox in catalog.sandboxes().expired(server, time).await? {
            // The lifetime of a sandbox begins when it runs.
            if sandbox.state == State::Starting || self.is_removal_retried(&sandbox.id) {
                continue;
            }
            let is_to_be_paused = self.pauses_on_timeout(&sandbox, time);
            let is_first_attempt =
                sandbox.state != State::Stopping && !Self::is_kept_for_its_changes(&sandbox);
            if is_first_attempt && !is_to_be_paused {
                let expiry = event(EventKind::SandboxExpired, &sandbox, &Change::default());
                catalog.events().insert(Some(&sandbox.owner), Some(&sandbox.id), &expiry).await?;
            }
            // A slow removal does not delay the others.
            while removals.len() >= REMOVALS_AT_ONCE {
                removed += u64::from(removals.join_next().await.is_some_and(|done| done.unwrap_or(false)));
            }
            let service = self.clone();
            removals.spawn(async move {
                match is_to_be_paused {
                    true => service.pause_expired(&sandbox).await,
                    false => service.remove_expired(&sandbox).await,
                }
            });
        }
        while let Some(done) = removals.join_next().await {
            removed += u64::from(done.unwrap_or(false));
        }
        let soon = time + milliseconds(EXPIRY_WARNING.as_secs());
        for sandbox in catalog.sandboxes().expired(server, soon).await? {
            // Emitted once: in the first round in which the sandbox expires within `EXPIRY_WARNING`.
            let interval = i64::try_from(self.0.settings.expiry_interval.as_millis()).unwrap_or(i64::MAX);
            if sandbox.expires_at > soon - interval {
                let expiry = event(EventKind::SandboxExpiring, &sandbox, &Change::default());
                catalog.events().insert(Some(&sandbox.owner), Some(&sandbox.id), &expiry).await?;
            }
        }
        let kept_since = time - milliseconds(CLAIM_RETENTION.as_secs());
        catalog.idempotency().delete_before(kept_since).await?;
        catalog.command_claims().delete_before(kept_since).await?;
        if self.begin_retention_if_due() {
            catalog
                .events()
                .delete_before(time - milliseconds(self.0.settings.event_retention.as_secs()))
                .await?;
        }
        Ok(removed)
    }

    /// Removes an expired sandbox. Returns true if it is removed.
    async fn remove_expired(&self, sandbox: &Sandbox) -> bool {
        match self.remove_with_timeout(&sandbox.id, Removal::Expired, None).await {
            Ok(_) => true,
            // Concurrently deleted, extended or paused.
            Err(
                SandboxError::NotFound { .. } | SandboxError::NotRunning { .. } | SandboxError::Paused { .. },
            ) => false,
            Err(error) => {
                tracing::error!(sandbox = sandbox.id, %error, "failed to remove an expired sandbox");
                false
            }
        }
    }

    /// Returns whether an expired sandbox is to be paused. If that has not succeeded for as long as a sandbox may be
    /// paused, it is removed.
    fn pauses_on_timeout(&self, sandbox: &Sandbox, time: i64) -> bool {
        let pauses = config_of(sandbox).is_ok_and(|config| config.on_timeout == OnTimeout::Pause);
        let can_be_paused = sandbox.state != State::Stopping && !sandbox.is_paused();
        let paused_retention = milliseconds(self.0.settings.paused_retention.as_secs());
        pauses && can_be_paused && time < sandbox.expires_at.saturating_add(paused_retention)
    }

    /// Pauses an expired sandbox to disk. A failure is tried again in the next round. Returns false, since it is not
    /// removed.
    async fn pause_expired(&self, sandbox: &Sandbox) -> bool {
        let _operation_guard = self.0.operation_count.begin();
        match self.pause_to_disk(&sandbox.id, PauseCause::Expiry, &self.0.cancel).await {
            Ok(_) => {}
            // Concurrently deleted, extended or resumed, or the service is closed.
            Err(
                SandboxError::NotFound { .. } | SandboxError::NotRunning { .. } | SandboxError::Cancelled,
            ) => {}
            Err(error) => {
                tracing::error!(sandbox = sandbox.id, %error, "failed to pause an expired sandbox, trying again");
            }
        }
        false
    }

    /// Scans the workspaces that are due, and stops sandboxes that exceed their disk limit.
    async fn check_disks(&self) -> Result<u64> {
        let path = self.0.settings.workspaces_dir.clone();
        let free = blocking(move || free_bytes(&path)).await?;
        let is_search_due = free.is_some_and(|free| self.0.deleted_file_search.is_due(free));
        let handles = self.handles();
        self.measure_outputs(&handles).await?;
        for handle in handles {
            self.limit_output(&handle);
            let is_deleted_search_due = is_search_due || handle.usage.deleted_open_bytes() > 0;
            let is_scan_due = handle.disk().is_some() && handle.usage.is_scan_due();
            if is_deleted_search_due || is_scan_due {
                let (service, scanned) = (self.clone(), handle.clone());
                self.0.scans.begin(&handle, move |permit| async move {
                    if is_deleted_search_due {
                        service.measure_deleted(&scanned).await;
                    }
                    log_failure(&scanned, service.check_disk(&scanned, permit).await);
                });
            }
        }
        self.update_counts().await?;
        Ok(0)
    }

    /// Scans the workspace of a sandbox if that is due, and stops the sandbox if it exceeds its disk limit.
    async fn check_disk(&self, handle: &Arc<SandboxHandle>, permit: FairPermit) -> Result<()> {
        let Some(limit) = handle.disk().filter(|_| handle.usage.is_scan_due()) else { return Ok(()) };
        let began = Instant::now();
        let time = handle.usage.scan_timeout(SCAN_TIMEOUT);
        let measured = self.measure(&handle.id, Bounds { time, bytes: limit }).await;
        handle.usage.record_scan_result(!measured.is_lower_bound);
        handle.usage.schedule_scan(began.elapsed() * SCAN_PAUSE_FACTOR);
        handle.usage.record(measured);
        drop(permit);
        let used = measured.bytes;
        if used > limit {
            let prefix = if measured.is_lower_bound { "at least " } else { "" };
            let reason = format!("its workspace has {prefix}{used} bytes; {limit} are allowed");
            tracing::warn!(
                sandbox = handle.id,
                used,
                limit,
                "stopping a sandbox that exceeds its disk limit"
            );
            self.stop(handle, &reason).await?;
        }
        Ok(())
    }

    /// Returns true if old events are to be removed now: once per interval, which begins with this call.
    fn begin_retention_if_due(&self) -> bool {
        let mut last = self.0.last_retention.lock();
        let due = last.is_none_or(|time| time.elapsed() >= RETENTION_INTERVAL);
        if due {
            *last = Some(Instant::now());
        }
        due
    }

    /// Removes layers that have been unused for a while. Returns their number.
    async fn collect_layers(&self) -> Result<u64> {
        let collect =
            |workspaces: &CancellableWorkspaces<'_>| workspaces.collect_layers(UnusedLayers::Expired);
        let collected = self.on_workspaces_until(&self.0.cancel, collect).await?;
        self.on_kept_roots(|roots| roots.collect_layers(UnusedLayers::Expired)).await?;
        Ok(collected.layers)
    }

    /// Kills all processes of a sandbox because of the disk; the sandbox and its workspace stay.
    /// Returns false if the sandbox was removed or another operation is in progress: then the next check
    /// tries again.
    pub(crate) async fn stop(&self, handle: &Arc<SandboxHandle>, reason: &str) -> Result<bool> {
        // A commit may hold the lock for long, but its sandbox is frozen and does not write. So the wait is
        // short, and the caller continues with other sandboxes.
        let operation = self.0.operation_locks.lock_within(&handle.id, STOP_WAIT).await;
        if operation.is_none() || !self.is_current(handle) {
            return Ok(false);
        }
        self.remove_handle(&handle.id);
        self.0.full_disk.record_stopped(&handle.id);
        let done = self.kill_and_set_stopped(handle, reason).await;
        if done.is_err() {
            // No later check stops the sandbox, because its handle is removed.
            let (handle, reason) = (handle.clone(), reason.to_owned());
            self.retry(move |service| {
                let (handle, reason) = (handle.clone(), reason.clone());
                async move {
                    let _operation = service.0.operation_locks.lock(&handle.id).await;
                    service.kill_and_set_stopped(&handle, &reason).await
                }
            });
        }
        done.map(|()| true)
    }

    /// Kills all processes of a sandbox and sets its state to `stopped`, unless it was concurrently deleted.
    /// The caller holds the sandbox's operation lock.
    async fn kill_and_set_stopped(&self, handle: &Arc<SandboxHandle>, reason: &str) -> Result<()> {
        let found = self.0.catalog.sandboxes().get(&handle.id).await?;
        if !found.is_some_and(|sandbox| sandbox.can_become(State::Stopped)) {
            return Ok(());
        }
        let stopped = transition(State::Stopped, reason);
        self.kill_sandbox(&handle.id, &handle.dir).await?;
        self.change(&handle.id, stopped, &[EventKind::SandboxError]).await?;
        self.fail_commands(&handle.id, Some(handle), reason).await;
        Ok(())
    }
}

/// Runs `work` periodically, starting immediately, until the service is dropped. The number that `work` returns is
/// ignored.
fn spawn_periodic<F, W>(period: Duration, service: Weak<Inner>, work: F)
where
    F: Fn(Service) -> W + Send + 'static,
    W: Future<Output = Result<u64>> + Send + 'static,
{
    spawn_periodic_after(Duration::ZERO, period, service, work);
}

/// Runs `work` like [`spawn_periodic`], starting after a delay.
fn spawn_periodic_after<F, W>(delay: Duration, period: Duration, service: Weak<Inner>, work: F)
where
    F: Fn(Service) -> W + Send + 'static,
    W: Future<Output = Result<u64>> + Send,
{
    tokio::spawn(async move {
        let mut ticks = interval_at(tokio::time::Instant::now() + delay, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(inner) = service.upgrade() else { return };
            match work(Service(inner)).await {
                // The service is being closed.
                Ok(_) | Err(SandboxError::Cancelled) => {}
                Err(error) => {
                    tracing::error!(%error, "periodic task failed, trying again");
                }
            }
        }
    });
}

fn log_failure<T>(handle: &SandboxHandle, done: Result<T>) {
    if let Err(error) = done {
        tracing::error!(sandbox = handle.id, %error, "failed to monitor a sandbox");
    }
}
