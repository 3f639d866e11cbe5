//! What happens to sandboxes by itself: guests come and go, processes end, time runs out, workspaces fill up.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, sleep};
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::{CommandProgress, Heartbeat, OutputStored, RegisterRequest};
use workspace_catalog::{Change, EventKind, NewEvent, Sandbox, State};
use workspace_workspace::Bounds;

use crate::blocking::blocking;
use crate::clock::{milliseconds, now};
use crate::command::running::End;
use crate::disk::fullness::free;
use crate::error::{Result, SandboxError};
use crate::fair_semaphore::FairPermit;
use crate::guest::handle::SandboxHandle;
use crate::guest::listener::GuestHandler;
use crate::lifecycle::remove::Removal;
use crate::service::{Inner, Service, event};

/// How long before its end a sandbox's owner is told.
const EXPIRING: Duration = Duration::from_secs(300);
/// Requests that came longer ago than this may come again as new ones.
const CLAIMS_KEPT: Duration = Duration::from_secs(86_400);
/// Between two looks at how much room the disk has.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);
/// Between two looks for events that are too old.
const RETENTION_INTERVAL: Duration = Duration::from_secs(3_600);
/// Looking at a workspace takes at most one part in so many of the time.
const DISK_SHARE: u32 = 20;
/// Time of a look at a workspace. What was found until then counts.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that the end of a sandbox which writes too much waits for another operation on it.
const STOP_WAIT: Duration = Duration::from_millis(500);
/// Expired sandboxes that are removed at the same time.
const REMOVALS_AT_ONCE: usize = 8;

#[tonic::async_trait]
impl GuestHandler for Service {
    fn sandbox(&self, id: &str) -> Option<Arc<SandboxHandle>> {
        self.handle(id)
    }

    async fn retain_started(&self, handle: &Arc<SandboxHandle>, request: &mut RegisterRequest) {
        self.retain_started(handle, request).await;
    }

    async fn stored(&self, handle: &Arc<SandboxHandle>, request: &RegisterRequest) -> Vec<OutputStored> {
        self.stored_outputs(handle, request).await
    }

    async fn registered(&self, handle: &Arc<SandboxHandle>, line: u64, request: RegisterRequest) {
        let told: HashSet<&str> =
            request.commands.iter().map(|progress| progress.command_id.as_str()).collect();
        let unheard =
            handle.commands.started_before(line).into_iter().filter(|one| !told.contains(one.id.as_str()));
        for running in unheard {
            let reason = "the connection was lost before it could begin";
            let end = End { failed: Some(reason.to_owned()), ..End::default() };
            self.never_began(&handle.id, &running.id, &end).await;
            self.advanced(handle, &running.id, 0, Some(end)).await;
        }
        self.lost_with_server(handle, &told).await;
        for progress in request.commands {
            let running = handle.commands.get_or_add(&progress.command_id);
            running.input.received(progress.input_received, line);
            handle.send_read_offset(&running).await;
            self.progressed(handle, progress).await;
        }
        log(handle, self.announce(handle).await);
    }

    async fn heard(&self, handle: &Arc<SandboxHandle>, said: AgentPayload) {
        match said {
            AgentPayload::CommandProgress(progress) => self.progressed(handle, progress).await,
            // Orders to a command that runs or has ended may fail too; they change nothing.
            AgentPayload::RequestFailed(failed)
                if failed.never_began && handle.commands.get(&failed.id).is_some() =>
            {
                let end = End { exit_code: -1, timed_out: false, failed: Some(failed.message) };
                self.never_began(&handle.id, &failed.id, &end).await;
                self.advanced(handle, &failed.id, 0, Some(end)).await;
            }
            AgentPayload::CommandOutput(output) => self.command_output(handle, output).await,
            AgentPayload::PtyOutput(output) => self.terminal_output(handle, output).await,
            AgentPayload::Processes(listed) => handle.guest.set_processes(listed.processes),
            AgentPayload::Heartbeat(Heartbeat { resource_usage: Some(usage), .. }) => {
                handle.guest.set_usage(usage)
            }
            _ => {}
        }
    }

    async fn lost(&self, handle: &Arc<SandboxHandle>) {
        // A sandbox that is being removed need not be told of.
        if self.handle(&handle.id).is_some() {
            tracing::info!(sandbox = handle.id, "the guest agent is away");
            self.tell(handle, EventKind::AgentDisconnected).await;
            self.expect_back(handle);
        }
    }
}

impl Service {
    /// A guest is there again: a sandbox that was given up comes back.
    async fn announce(&self, handle: &SandboxHandle) -> Result<()> {
        let found = self.0.catalog.sandboxes().get(&handle.id).await?;
        match found.map(|sandbox| sandbox.state) {
            None => {}
            // It comes back when it is known which directory is its workspace.
            Some(State::Error) if self.is_undecided(&handle.id).await? => {
                self.tell(handle, EventKind::AgentConnected).await;
            }
            Some(State::Error) => {
                let back = |sandbox: &Sandbox| {
                    (sandbox.state == State::Error)
                        .then(|| Change { state: Some(State::Running), ..Change::default() })
                };
                let events = [EventKind::AgentConnected, EventKind::SandboxRunning];
                self.change(&handle.id, back, &events).await?;
            }
            Some(_) => self.tell(handle, EventKind::AgentConnected).await,
        }
        Ok(())
    }

    /// Takes note of what a guest tells of a command. One that the server did not start is none.
    async fn progressed(&self, handle: &Arc<SandboxHandle>, progress: CommandProgress) {
        if handle.commands.get(&progress.command_id).is_none() {
            return;
        }
        let written = progress.written;
        let (running, end) = handle.commands.report(progress);
        self.advanced(handle, &running.id, written, end).await;
    }

    async fn advanced(&self, handle: &Arc<SandboxHandle>, id: &str, written: u64, end: Option<End>) {
        let running = handle.commands.get_or_add(id);
        handle.output.add(written.saturating_sub(running.written()));
        self.bound_output(handle);
        if running.advance(written, end.as_ref())
            && let Some(end) = end
            && let Some(turn) = handle.commands.end_permit(id).await
        {
            let (service, handle, id) = (self.clone(), handle.clone(), id.to_owned());
            // Whoever waits for the command need not wait for the catalog.
            tokio::spawn(async move {
                service.ended(&handle, &id, &end).await;
                drop(turn);
            });
        }
    }

    /// Commands that were ordered by a server that was killed before the guest heard of them.
    async fn lost_with_server(&self, handle: &Arc<SandboxHandle>, told: &HashSet<&str>) {
        let running = match self.0.catalog.commands().running(&handle.id).await {
            Ok(running) => running,
            Err(error) => return log(handle, Err::<(), _>(error.into())),
        };
        for command in running {
            if !told.contains(command.id.as_str()) && handle.commands.get(&command.id).is_none() {
                let failed = Some("the server was stopped before it could begin".to_owned());
                self.never_began(&handle.id, &command.id, &End { failed, ..End::default() }).await;
            }
        }
    }

    /// Tells that a guest came or went, unless it does so all the time.
    async fn tell(&self, handle: &SandboxHandle, kind: EventKind) {
        if !handle.guest.count_event() {
            return;
        }
        let data = json!({ "sandboxId": handle.id, "owner": handle.owner() });
        let told = self.0.catalog.events().insert(Some(&handle.id), &NewEvent { kind, data }).await;
        log(handle, told.map_err(Into::into));
    }

    /// Gives a guest that is away some time.
    pub(crate) fn expect_back(&self, handle: &Arc<SandboxHandle>) {
        let (service, handle) = (Arc::downgrade(&self.0), Arc::downgrade(handle));
        tokio::spawn(async move {
            let Some(grace) = service.upgrade().map(|service| service.settings.agent_grace) else { return };
            sleep(grace).await;
            let (Some(inner), Some(handle)) = (service.upgrade(), handle.upgrade()) else { return };
            if !handle.guest.is_connected() {
                let reason = format!("its guest agent has been away for {} s", grace.as_secs());
                Service(inner).give_up(&handle, &reason).await;
                handle.guest.set_lost(&reason);
            }
        });
    }

    async fn give_up(&self, handle: &SandboxHandle, reason: &str) {
        let change = |sandbox: &Sandbox| {
            matches!(sandbox.state, State::Running).then(|| Change {
                state: Some(State::Error),
                state_reason: Some(reason.to_owned()),
                ..Change::default()
            })
        };
        log(handle, self.change(&handle.id, change, &[EventKind::SandboxError]).await);
    }

    /// Takes notice when a sandbox's first process ends.
    pub(crate) fn watch_end(&self, handle: &Arc<SandboxHandle>) {
        let (inner, weak) = (Arc::downgrade(&self.0), Arc::downgrade(handle));
        let (runtime, id, dir) = (self.0.runtime.clone(), handle.id.clone(), handle.dir.clone());
        handle.keep_task(tokio::spawn(async move {
            let ended = runtime.ended(&id, &dir).await;
            let (Some(inner), Some(handle)) = (inner.upgrade(), weak.upgrade()) else { return };
            match ended {
                // In a task of its own: this one ends with the sandbox.
                Ok(()) => drop(tokio::spawn(async move { Service(inner).died(&handle).await })),
                Err(error) => log(&handle, Err::<(), _>(error.into())),
            }
        }));
    }

    /// Nothing runs in the sandbox any more, though nobody ended it.
    pub(crate) async fn died(&self, handle: &Arc<SandboxHandle>) {
        let _operation = self.0.operations.lock(&handle.id).await;
        if self.handle(&handle.id).is_none() {
            return;
        }
        self.give_up(handle, "its processes ended: they were killed, or ran out of memory").await;
        self.remove_handle(&handle.id);
        log(handle, self.end(&handle.id, &handle.dir).await);
        self.lose_commands(&handle.id, Some(handle), "the sandbox ended").await;
    }

    /// Commands of a sandbox in which nothing runs have ended, whatever was told of them.
    pub(crate) async fn lose_commands(&self, id: &str, handle: Option<&Arc<SandboxHandle>>, reason: &str) {
        let end = End { exit_code: -1, timed_out: false, failed: Some(reason.to_owned()) };
        match self.0.catalog.commands().running(id).await {
            Ok(commands) => {
                for command in commands {
                    self.write_end(id, &command.id, &end).await;
                }
            }
            Err(error) => tracing::error!(sandbox = id, %error, "its commands could not be written off"),
        }
        for running in handle.map(|handle| handle.commands.running("")).unwrap_or_default() {
            running.advance(0, Some(&end));
        }
    }

    /// Looks after all sandboxes from now on, for as long as the service is there.
    pub(crate) fn watch(&self) {
        let settings = &self.0.settings;
        let service = || Arc::downgrade(&self.0);
        every(settings.expiry_interval, service(), |service| async move { service.expire().await });
        every(settings.disk_interval, service(), |service| async move { service.check_disks().await });
        every(ROOM_INTERVAL, service(), |service| async move { service.check_free_space().await });
        every(settings.layers_interval, service(), |service| async move { service.collect_layers().await });
        let gc = |service: Service| async move {
            Ok(service.collect_content(false, &service.0.cancel).await?.freed)
        };
        every(self.rest_interval(), service(), |service| async move { service.rest_when_idle().await });
        // Not at once: a server that has just started has better things to do.
        later(settings.gc_interval, settings.gc_interval, service(), gc);
    }

    /// Removes sandboxes whose time is up, and tells of those whose time will be up soon.
    pub(crate) async fn expire(&self) -> Result<u64> {
        let (catalog, node) = (&self.0.catalog, &self.0.settings.node);
        let time = now();
        let mut removed = 0;
        let mut removals = JoinSet::new();
        for sandbox in catalog.sandboxes().expired(node, time).await? {
            // One that is being made lives from when it is there.
            if sandbox.state == State::Starting {
                continue;
            }
            if sandbox.state != State::Stopping {
                let told = event(EventKind::SandboxExpired, &sandbox, &Change::default());
                catalog.events().insert(Some(&sandbox.id), &told).await?;
            }
            // One that takes long does not keep the others.
            while removals.len() >= REMOVALS_AT_ONCE {
                removed += u64::from(removals.join_next().await.is_some_and(|done| done.unwrap_or(false)));
            }
            let service = self.clone();
            removals.spawn(async move { service.remove_expired(&sandbox).await });
        }
        while let Some(done) = removals.join_next().await {
            removed += u64::from(done.unwrap_or(false));
        }
        let soon = time + milliseconds(EXPIRING.as_secs());
        for sandbox in catalog.sandboxes().expired(node, soon).await? {
            // Told once: when the end came near since the last look.
            let interval = i64::try_from(self.0.settings.expiry_interval.as_millis()).unwrap_or(i64::MAX);
            if sandbox.expires_at > soon - interval {
                let told = event(EventKind::SandboxExpiring, &sandbox, &Change::default());
                catalog.events().insert(Some(&sandbox.id), &told).await?;
            }
        }
        let kept_since = time - milliseconds(CLAIMS_KEPT.as_secs());
        catalog.idempotency().forget_before(kept_since).await?;
        catalog.command_claims().forget_before(kept_since).await?;
        if self.is_retention_due() {
            catalog
                .events()
                .forget_before(time - milliseconds(self.0.settings.events_kept.as_secs()))
                .await?;
        }
        Ok(removed)
    }

    /// Whether an expired sandbox is gone.
    async fn remove_expired(&self, sandbox: &Sandbox) -> bool {
        match self.remove_in_time(&sandbox.id, Removal::Expired).await {
            Ok(_) => true,
            // Deleted or extended meanwhile.
            Err(SandboxError::NotFound { .. } | SandboxError::NotRunning { .. }) => false,
            Err(error) => {
                tracing::error!(sandbox = sandbox.id, %error, "failed to remove an expired sandbox");
                false
            }
        }
    }

    /// Ends sandboxes that keep more in their workspaces than they may.
    async fn check_disks(&self) -> Result<u64> {
        let path = self.0.settings.workspaces.clone();
        let free = blocking(move || free(&path)).await?;
        let is_fuller = free.is_some_and(|free| self.0.fullness.is_search_due(free));
        let handles = self.handles();
        self.measure_outputs(&handles).await?;
        for handle in handles {
            self.bound_output(&handle);
            let deleted = is_fuller || handle.usage.deleted() > 0;
            let is_due = handle.disk().is_some() && handle.usage.is_scan_due();
            if deleted || is_due {
                let (service, looked_at) = (self.clone(), handle.clone());
                self.0.scans.begin(&handle, move |turn| async move {
                    log(&looked_at, service.check_disk(&looked_at, deleted, turn).await);
                });
            }
        }
        self.count().await?;
        Ok(0)
    }

    /// Looks at the workspace of a sandbox, and ends the sandbox if there is more than it may have.
    async fn check_disk(&self, handle: &Arc<SandboxHandle>, deleted: bool, turn: FairPermit) -> Result<()> {
        if deleted {
            self.measure_deleted(handle).await;
        }
        let Some(limit) = handle.disk().filter(|_| handle.usage.is_scan_due()) else { return Ok(()) };
        let began = Instant::now();
        let time = handle.usage.scan_timeout(SCAN_TIMEOUT);
        let seen = self.measure(&handle.id, Bounds { time, bytes: limit }).await;
        handle.usage.set_finished(!seen.at_least);
        handle.usage.schedule_scan(began.elapsed() * DISK_SHARE);
        handle.usage.record(seen);
        drop(turn);
        let used = seen.bytes;
        if used > limit {
            let words = if seen.at_least { "at least " } else { "" };
            let reason = format!("its workspace has {words}{used} bytes; {limit} are allowed");
            tracing::warn!(sandbox = handle.id, used, limit, "a sandbox is ended: its workspace is full");
            self.stop(handle, &reason).await?;
        }
        Ok(())
    }

    /// Whether it is time to look for events that are too old.
    fn is_retention_due(&self) -> bool {
        let mut last = self.0.retained.lock();
        let due = last.is_none_or(|time| time.elapsed() >= RETENTION_INTERVAL);
        if due {
            *last = Some(Instant::now());
        }
        due
    }

    async fn collect_layers(&self) -> Result<u64> {
        let collected =
            self.on_workspaces_until(&self.0.cancel, |workspaces| workspaces.collect(false)).await?;
        Ok(collected.layers)
    }

    /// Ends what runs in a sandbox because of the disk; the sandbox and its workspace stay. False when it is left to the next look, because
    /// another operation is under way, or it is gone.
    pub(crate) async fn stop(&self, handle: &Arc<SandboxHandle>, reason: &str) -> Result<bool> {
        // A commit may take long. Its sandbox is frozen meanwhile, and the others are looked at.
        let operation = self.0.operations.lock_within(&handle.id, STOP_WAIT).await;
        if operation.is_none() || self.handle(&handle.id).is_none() {
            return Ok(false);
        }
        self.remove_handle(&handle.id);
        self.0.full_disk.note_stopped(&handle.id);
        let done = self.end_stopped(handle, reason).await;
        if done.is_err() {
            // Nobody else does: it is not among those that are looked after any more.
            let (handle, reason) = (handle.clone(), reason.to_owned());
            self.retry(move |service| {
                let (handle, reason) = (handle.clone(), reason.clone());
                async move {
                    let _operation = service.0.operations.lock(&handle.id).await;
                    service.end_stopped(&handle, &reason).await
                }
            });
        }
        done.map(|()| true)
    }

    /// Ends what runs in a sandbox and writes down that it is stopped, unless it was deleted meanwhile. The caller holds the
    /// sandbox's operation lock.
    async fn end_stopped(&self, handle: &Arc<SandboxHandle>, reason: &str) -> Result<()> {
        let found = self.0.catalog.sandboxes().get(&handle.id).await?;
        if !found.is_some_and(|sandbox| sandbox.state.can_become(State::Stopped)) {
            return Ok(());
        }
        let stopped = |sandbox: &Sandbox| {
            sandbox.state.can_become(State::Stopped).then(|| Change {
                state: Some(State::Stopped),
                state_reason: Some(reason.to_owned()),
                ..Change::default()
            })
        };
        self.end(&handle.id, &handle.dir).await?;
        self.change(&handle.id, stopped, &[EventKind::SandboxError]).await?;
        self.lose_commands(&handle.id, Some(handle), reason).await;
        Ok(())
    }
}

fn every<F, W>(period: Duration, service: Weak<Inner>, work: F)
where
    F: Fn(Service) -> W + Send + 'static,
    W: Future<Output = Result<u64>> + Send + 'static,
{
    later(Duration::ZERO, period, service, work);
}

/// The same, but for the first time after a while.
fn later<F, W>(first: Duration, period: Duration, service: Weak<Inner>, work: F)
where
    F: Fn(Service) -> W + Send + 'static,
    W: Future<Output = Result<u64>> + Send,
{
    tokio::spawn(async move {
        let mut ticks = interval_at(tokio::time::Instant::now() + first, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(inner) = service.upgrade() else { return };
            match work(Service(inner)).await {
                // The service closes.
                Ok(_) | Err(SandboxError::Cancelled) => {}
                Err(error) => {
                    tracing::error!(%error, "looking after the sandboxes failed; it is tried again");
                }
            }
        }
    });
}

fn log<T>(handle: &SandboxHandle, done: Result<T>) {
    if let Err(error) = done {
        tracing::error!(sandbox = handle.id, %error, "looking after a sandbox failed");
    }
}
