//! Traces: a snapshot after each command that changed files of the workspace.
//!
//! Clients learn of the exit of a command when its snapshot exists, so that the changes of the next command are not in
//! it; at most [`REPORT_DELAY_MAX`] later than without a trace. The exit, the owner of the snapshot and the link
//! between them are one transaction.
//!
//! The guest agent keeps the exit until it is recorded. If the server is killed before, the agent reports the exit to
//! the next server, which makes the snapshot, or finds the one that the former server made. If a snapshot cannot be
//! made, for example on a full disk, the command has the reason, and its changes are in the next snapshot, which says
//! so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::RwLockReadGuard;
use tokio::time::timeout;
use workspace_catalog::{CatalogError, CommandTrace, Sandbox, State};
use workspace_state::{Cancel, Durability, NewSnapshot, Snapshot, SnapshotId};
use workspace_workspace::{ConditionalCommit, Writers};

use crate::command::run::exit_row;
use crate::command::running::{CommandExit, RunningCommand, TraceOutcome};
use crate::command::tracer::QUOTA_CHECK_SNAPSHOTS;
use crate::error::{Result, SandboxError, without_host_paths};
use crate::gate::ExclusiveAccess;
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::operation_lock::{OPERATION_WAIT, OperationLockGuard};
use crate::lock_rank::Ranked;
use crate::scope::Scope;
use crate::service::{Service, config_of, not_running};

/// Label of an automatic snapshot: the id of its command.
pub const TRACE_COMMAND_LABEL: &str = "command";
/// Label of an automatic snapshot that may contain other changes than those of its command: their origins, separated by
/// commas.
pub const TRACE_SHARED_LABEL: &str = "shared";
/// Reason in a response or a record that is written before the snapshot exists.
pub const TRACE_PENDING: &str = "the snapshot is still being made; read the record of the command later";
/// Maximum time by which a trace delays the exit of its command for clients. After that it continues in the background.
const REPORT_DELAY_MAX: Duration = Duration::from_millis(250);
/// Maximum time of a trace. It is less than commands wait for it to start.
const TRACE_TIMEOUT: Duration = Duration::from_secs(30);
/// Old automatic snapshots are removed each time that [`Settings::max_kept_traces`](crate::Settings) divided by this
/// were made.
const CLEANUP_DIVISOR: u32 = 10;
/// Maximum number of snapshots that are removed at once.
const CLEANUP_BATCH: u32 = 1_000;

impl SandboxHandle {
    /// Waits until no trace or automatic completion reads files, and prevents that one begins before the guard is
    /// dropped. Fails with [`SandboxError::Busy`] after [`OPERATION_WAIT`].
    pub(crate) async fn block_traces(&self) -> Result<Ranked<RwLockReadGuard<'_, ()>>> {
        let busy = |_| SandboxError::Busy { id: self.id.clone(), seconds: OPERATION_WAIT.as_secs() };
        timeout(OPERATION_WAIT, self.tracer.block_reads()).await.map_err(busy)
    }
}

/// Snapshot that was made after a command, under the operation lock of the sandbox.
struct TraceCommit {
    snapshot: Snapshot,
    /// Id of the round of the workspace ([`ProjectBase::round_id`](crate::ProjectBase::round_id)); `None` without a
    /// project.
    round_id: Option<String>,
    /// Growth of the store in bytes.
    bytes: u64,
    _operation: OperationLockGuard,
}

/// A command that was traced.
struct Traced {
    outcome: TraceOutcome,
    /// True if the exit of the command is in the catalog.
    is_recorded: bool,
}

impl Traced {
    /// Returns the result for a command that changed no files.
    fn unchanged() -> Self {
        Self { outcome: TraceOutcome::None, is_recorded: false }
    }

    fn failed(error: &SandboxError) -> Self {
        Self { outcome: TraceOutcome::Failed(without_host_paths(&error.to_string())), is_recorded: false }
    }
}

/// Processes and clients other than a command that may have changed files.
struct OtherWriters {
    /// Values for [`TRACE_SHARED_LABEL`].
    origins: Vec<&'static str>,
    /// True if one of them may write now.
    are_running: bool,
}

impl OtherWriters {
    /// Finds out what else may have changed files since the last snapshot, or does so now. The caller has exclusive
    /// access, and no command starts.
    fn find(handle: &SandboxHandle, has_processes: bool) -> Self {
        let tracer = &handle.tracer;
        let has_commands = !handle.commands.running().is_empty();
        let is_transferring = handle.io.is_transferring();
        let has_outside = tracer.has_outside_changes.swap(false, Ordering::Relaxed) || is_transferring;
        let origins = [
            ("commands", has_commands),
            ("processes", has_processes && !has_commands),
            ("files", has_outside),
            ("earlier", tracer.has_untraced_changes.swap(false, Ordering::Relaxed)),
        ];
        let origins = origins.into_iter().filter(|(_, is_present)| *is_present).map(|(origin, _)| origin);
        let are_running = has_commands || has_processes || is_transferring;
        Self { origins: origins.collect(), are_running }
    }

    /// Returns the labels of the snapshot of a command.
    fn labels(&self, command: &str) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([(TRACE_COMMAND_LABEL.to_owned(), command.to_owned())]);
        if !self.origins.is_empty() {
            labels.insert(TRACE_SHARED_LABEL.to_owned(), self.origins.join(","));
        }
        labels
    }
}

/// Returns true if processes of commands run in a sandbox, also of commands that have ended. A guest agent that does
/// not answer may have any.
async fn has_processes(handle: &SandboxHandle) -> bool {
    if !handle.commands.running().is_empty() {
        return true;
    }
    handle.guest.request_processes().await.is_none_or(|listed| !listed.is_empty())
}

impl Service {
    /// Traces a command of which the guest agent reported the exit, in the background, and then reports the exit to
    /// clients.
    pub(crate) async fn trace_exit(
        &self,
        handle: &Arc<SandboxHandle>,
        running: &Arc<RunningCommand>,
        exit: CommandExit,
    ) {
        if !running.set_exit_to_trace(&exit) {
            return;
        }
        let Some(permit) = handle.commands.acquire_exit_permit(&running.id).await else {
            running.advance(0, Some(&exit));
            return;
        };
        let is_unchanged = self.is_known_unchanged(handle);
        if is_unchanged {
            // Most commands change nothing. Clients learn of it without waiting for other threads.
            running.advance(0, Some(&exit));
        }
        let (service, handle, running) = (self.clone(), handle.clone(), running.clone());
        tokio::spawn(async move {
            match is_unchanged {
                true => service.finish_traced(&handle, &running, exit, Traced::unchanged(), false).await,
                false => service.finish_after_trace(&handle, &running, exit).await,
            }
            drop(permit);
        });
    }

    /// Returns true if files have certainly not changed since the last trace. It does not wait; false can mean that it
    /// is not known.
    fn is_known_unchanged(&self, handle: &Arc<SandboxHandle>) -> bool {
        let Some(_operation) = self.0.operation_locks.try_lock(&handle.id) else { return false };
        let Some(_no_starts) = handle.tracer.try_block_starts() else { return false };
        self.is_current(handle) && self.0.workspaces.is_known_unchanged(&handle.id)
    }

    /// Traces a command, reports its exit to clients and records it.
    async fn finish_after_trace(
        &self,
        handle: &Arc<SandboxHandle>,
        running: &Arc<RunningCommand>,
        exit: CommandExit,
    ) {
        // The exit is recorded once: by the trace together with the snapshot, or, if that takes too long, by this
        // function without it. The one that sets this flag first does it.
        let is_exit_claimed = Arc::new(AtomicBool::default());
        let mut tracing = tokio::spawn({
            let (service, handle, running) = (self.clone(), handle.clone(), running.clone());
            let (exit, is_exit_claimed) = (exit.clone(), is_exit_claimed.clone());
            async move { service.trace_command(&handle, &running, &exit, &is_exit_claimed).await }
        });
        let (traced, is_recorded_as_pending) = match timeout(REPORT_DELAY_MAX, &mut tracing).await {
            Ok(traced) => (traced, false),
            Err(_) => {
                let pending = CommandExit { trace: TraceOutcome::Pending, ..exit.clone() };
                running.advance(0, Some(&pending));
                let is_ours = !is_exit_claimed.swap(true, Ordering::SeqCst);
                let is_recorded = is_ours && self.record_exit_until_done(handle, &running.id, &pending).await;
                (tracing.await, is_recorded)
            }
        };
        let failed = |error| Traced::failed(&SandboxError::task_failed("trace a command", error));
        self.finish_traced(handle, running, exit, traced.unwrap_or_else(failed), is_recorded_as_pending)
            .await;
    }

    /// Reports the exit of a traced command to clients, and records it unless that is done: by the trace
    /// (`Traced::is_recorded`), or before the trace had ended (`is_recorded_as_pending`).
    async fn finish_traced(
        &self,
        handle: &Arc<SandboxHandle>,
        running: &Arc<RunningCommand>,
        exit: CommandExit,
        Traced { outcome, is_recorded }: Traced,
        is_recorded_as_pending: bool,
    ) {
        let exit = CommandExit { trace: outcome, ..exit };
        running.advance(0, Some(&exit));
        if self.0.cancel.is_cancelled() && !is_recorded && matches!(exit.trace, TraceOutcome::Failed(_)) {
            // The guest agent reports the exit to the next server, which traces the command.
            return;
        }
        let is_done = is_recorded
            || is_recorded_as_pending
            || self.record_exit_until_done(handle, &running.id, &exit).await;
        if is_done {
            // A former server, or this one, may have recorded that the snapshot is being made.
            if is_recorded_as_pending || !running.was_started_here() {
                self.record_no_snapshot(&handle.id, &running.id, &exit.trace).await;
            }
            self.forget_command(handle, &running.id).await;
        }
    }

    /// Records why a command has no snapshot, after its exit. Does nothing if it has one.
    async fn record_no_snapshot(&self, sandbox: &str, id: &str, outcome: &TraceOutcome) {
        let trace = match outcome {
            TraceOutcome::Failed(reason) => CommandTrace::Failed(reason.clone()),
            TraceOutcome::None => CommandTrace::Unchanged,
            TraceOutcome::Snapshot(_) | TraceOutcome::Pending => return,
        };
        if let Err(error) = self.0.catalog.commands().record_trace(sandbox, id, trace).await {
            tracing::warn!(command = id, %error, "failed to record why a command has no snapshot");
        }
    }

    async fn trace_command(
        &self,
        handle: &Arc<SandboxHandle>,
        running: &RunningCommand,
        exit: &CommandExit,
        is_exit_claimed: &AtomicBool,
    ) -> Traced {
        // Closing the service waits until the sandbox is thawed.
        let _operation_guard = self.0.operation_count.begin();
        let cancel = self.0.cancel.child();
        let traced = with_trace_timeout(&cancel, self.commit_trace(handle, running, &cancel)).await;
        let commit = match traced {
            Ok(Some(commit)) => commit,
            Ok(None) => return Traced::unchanged(),
            Err(error) => {
                handle.tracer.set_untraced_changes();
                tracing::warn!(sandbox = handle.id, command = running.id, %error, "failed to trace a command");
                return Traced::failed(&error);
            }
        };
        let is_recorded = self.record_trace(handle, running, exit, &commit, is_exit_claimed).await;
        match is_recorded {
            Ok(is_recorded) => {
                self.remove_old_traces(handle);
                Traced { outcome: TraceOutcome::Snapshot(commit.snapshot.id.to_string()), is_recorded }
            }
            Err(error) => {
                // Without an owner it could be neither seen nor removed.
                self.remove_snapshot_from_store(&handle.id, &commit.snapshot).await;
                handle.tracer.set_untraced_changes();
                tracing::warn!(sandbox = handle.id, command = running.id, %error, "failed to record a trace");
                Traced::failed(&error)
            }
        }
    }

    /// Records the snapshot of a command, together with its exit unless `is_exit_claimed` was set before. Returns true
    /// if this recorded the exit.
    async fn record_trace(
        &self,
        handle: &SandboxHandle,
        running: &RunningCommand,
        exit: &CommandExit,
        commit: &TraceCommit,
        is_exit_claimed: &AtomicBool,
    ) -> Result<bool> {
        let (commands, id) = (self.0.catalog.commands(), running.id.as_str());
        let owner = handle.owner().unwrap_or_default().to_owned();
        let (snapshot, round_id, bytes) =
            (commit.snapshot.id.to_string(), commit.round_id.clone(), commit.bytes);
        let trace = CommandTrace::Snapshot { id: snapshot, owner, round_id, bytes };
        if is_exit_claimed.swap(true, Ordering::SeqCst) {
            commands.record_trace(&handle.id, id, trace).await?;
            return Ok(false);
        }
        let end = exit_row(exit, running.pid());
        match commands.finish_traced(&handle.id, id, end, trace.clone()).await {
            // The former server recorded it, but was killed before it traced the command.
            Err(CatalogError::Ended { .. }) => commands.record_trace(&handle.id, id, trace).await?,
            recorded => recorded?,
        }
        Ok(true)
    }

    /// Makes a snapshot after a command, if files have changed.
    async fn commit_trace(
        &self,
        handle: &Arc<SandboxHandle>,
        running: &RunningCommand,
        cancel: &Cancel,
    ) -> Result<Option<TraceCommit>> {
        let operation = self.lock_operation(&handle.id, cancel).await?;
        let _no_starts = or_cancelled(cancel, handle.tracer.block_starts()).await?;
        if !self.is_current(handle) || !self.may_have_changed(&handle.id, cancel).await? {
            return Ok(None);
        }
        self.check_trace_quota(handle).await?;
        let commands = self.0.catalog.commands();
        let (sandbox, command, has_processes) =
            tokio::join!(self.read_row(&handle.id), commands.get(&running.id), has_processes(handle),);
        let (sandbox, command) = (self.with_recorded_base(sandbox?).await?, command?);
        match sandbox.state {
            State::Running => {}
            // Its guest agent has just come back, unless it is unknown which directory is its workspace.
            State::Error if !self.has_unresolved_swap(&sandbox.id).await? => {}
            _ => return Err(not_running(&sandbox)),
        }
        let access = self.exclusive_access(&handle.id, &operation, cancel).await?;
        let writers = OtherWriters::find(handle, has_processes);
        let bytes = Arc::<AtomicU64>::default();
        let new = NewSnapshot {
            author: sandbox.owner.clone(),
            // The record of the command may be deleted earlier.
            message: command.map(|command| command.command).unwrap_or_default(),
            labels: writers.labels(&running.id),
            durability: Durability::Buffered,
            stored_bytes: Some(Arc::clone(&bytes)),
            ..NewSnapshot::default()
        };
        let snapshot = match self.commit_changes(&sandbox, &access, &writers, new, cancel).await? {
            ConditionalCommit::Committed(committed) => Some(committed.snapshot),
            ConditionalCommit::Unchanged(last) => self.unrecorded_trace(running, last).await?,
        };
        let bytes = bytes.load(Ordering::Relaxed);
        let round_id = config_of(&sandbox)?.lineage.project_base.map(|base| base.round_id(&sandbox.id));
        Ok(snapshot.map(|snapshot| TraceCommit { snapshot, round_id, bytes, _operation: operation }))
    }

    async fn may_have_changed(&self, id: &str, cancel: &Cancel) -> Result<bool> {
        let id = id.to_owned();
        self.on_workspaces_until(cancel, move |workspaces| workspaces.may_have_changed(&id)).await
    }

    /// Commits the workspace if it has changed. Freezes the sandbox only if something in it may be writing.
    async fn commit_changes(
        &self,
        sandbox: &Sandbox,
        access: &ExclusiveAccess,
        writers: &OtherWriters,
        new: NewSnapshot,
        cancel: &Cancel,
    ) -> Result<ConditionalCommit> {
        let id = sandbox.id.clone();
        let commit = self.on_workspaces_until(cancel, move |workspaces| {
            workspaces.commit_if_changed(&id, new, Writers::Stopped)
        });
        if !writers.are_running {
            return commit.await;
        }
        let (committed, thawed) = self.while_frozen(sandbox, access, commit).await?;
        if let (ConditionalCommit::Committed(committed), Err(_)) = (&committed, &thawed) {
            self.remove_snapshot_from_store(&sandbox.id, &committed.snapshot).await;
        }
        thawed?;
        Ok(committed)
    }

    /// Returns the last snapshot of a workspace if it is that of this command, and a former server was killed before it
    /// recorded it.
    async fn unrecorded_trace(
        &self,
        running: &RunningCommand,
        last: Option<SnapshotId>,
    ) -> Result<Option<Snapshot>> {
        let Some(last) = last.filter(|_| !running.was_started_here()) else { return Ok(None) };
        let found =
            self.on_workspaces(move |workspaces| Ok(workspaces.store().find_snapshot(&last)?)).await?;
        Ok(found.filter(|snapshot| snapshot.labels.get(TRACE_COMMAND_LABEL) == Some(&running.id)))
    }

    /// Fails if the owner may have no further snapshot. One check holds for some snapshots, because it is expensive: it
    /// counts all snapshots of the owner.
    pub(crate) async fn check_trace_quota(&self, handle: &SandboxHandle) -> Result<()> {
        if handle.tracer.use_checked_quota() {
            return Ok(());
        }
        let scope = Scope::Owner(handle.owner().unwrap_or_default().to_owned());
        self.check_snapshot_quota(&scope, 1).await?;
        if self.check_snapshot_quota(&scope, QUOTA_CHECK_SNAPSHOTS.into()).await.is_ok() {
            handle.tracer.set_checked_quota();
        }
        Ok(())
    }

    /// Counts an automatic snapshot, and from time to time removes the oldest ones in the background.
    fn remove_old_traces(&self, handle: &SandboxHandle) {
        let keep = self.settings().max_kept_traces.max(1);
        if !handle.tracer.count_snapshot(keep / CLEANUP_DIVISOR) {
            return;
        }
        let (service, id) = (self.clone(), handle.id.clone());
        let owner = handle.owner().unwrap_or_default().to_owned();
        tokio::spawn(async move {
            if let Err(error) = service.keep_newest_traces(&id, &owner, keep).await {
                tracing::warn!(sandbox = id, %error, "failed to remove old automatic snapshots");
            }
        });
    }

    /// Removes all automatic snapshots of a sandbox but the newest `keep`. Those that a reference, a workspace or a
    /// mount uses are kept until their owner deletes them.
    async fn keep_newest_traces(&self, sandbox: &str, owner: &str, keep: u32) -> Result<()> {
        let snapshots = self.0.catalog.snapshots();
        let old = snapshots.old_traces(sandbox, keep, CLEANUP_BATCH).await?;
        let ids: Vec<SnapshotId> = old.iter().filter_map(|id| id.parse().ok()).collect();
        // From the store first, which refuses to remove one with a reference. A record without a snapshot is removed
        // the next time.
        let (removed, used) = self
            .on_workspaces(move |workspaces| Ok(retention::remove_unused(workspaces.store(), ids)?))
            .await?;
        for id in used {
            snapshots.keep(&id.to_string()).await?;
        }
        for id in removed {
            snapshots.remove_owner(Some(owner), &id.to_string()).await?;
        }
        Ok(())
    }
}

/// Waits for a trace, and cancels it after [`TRACE_TIMEOUT`]. A cancelled trace ends soon, and then the sandbox is
/// thawed.
async fn with_trace_timeout<T>(cancel: &Cancel, trace: impl Future<Output = Result<T>>) -> Result<T> {
    let mut trace = std::pin::pin!(trace);
    if let Ok(traced) = timeout(TRACE_TIMEOUT, &mut trace).await {
        return traced;
    }
    cancel.cancel();
    match trace.await {
        Err(SandboxError::Cancelled) => Err(SandboxError::TraceTimeout { seconds: TRACE_TIMEOUT.as_secs() }),
        traced => traced,
    }
}

/// Removal of snapshots that nothing uses.
mod retention {
    use std::collections::HashSet;

    use workspace_state::{Result, SnapshotId, Store, StoreError};

    /// Removes snapshots that no reference or pin protects. Returns those that do not exist any more, and the others.
    pub(super) fn remove_unused(
        store: &Store,
        ids: Vec<SnapshotId>,
    ) -> Result<(Vec<SnapshotId>, Vec<SnapshotId>)> {
        if ids.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        store.remove_dead_pins()?;
        let pinned: HashSet<SnapshotId> = store.pins()?.into_iter().map(|pin| pin.snapshot).collect();
        let (mut free, mut used) = (Vec::new(), Vec::new());
        for id in ids {
            let is_free = !pinned.contains(&id) && store.first_reference_to(&id, "")?.is_none();
            if is_free { free.push(id) } else { used.push(id) }
        }
        // One removal, which is synced, instead of many.
        if !free.is_empty() && store.remove_snapshots(&free).is_ok() {
            return Ok((free, used));
        }
        let mut removed = Vec::new();
        for id in free {
            match store.remove_snapshots(&[id]) {
                Ok(()) | Err(StoreError::UnknownSnapshot(_)) => removed.push(id),
                // It has got a reference.
                Err(StoreError::Refused(_)) => used.push(id),
                Err(error) => return Err(error),
            }
        }
        Ok((removed, used))
    }
}

#[cfg(test)]
mod tests {
    use workspace_state::{Expect, NewSnapshot, Store};

    use super::*;

    #[test]
    fn snapshots_with_a_reference_or_a_pin_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let snapshot = || store.empty_tree().unwrap().commit(NewSnapshot::default()).unwrap();
        let (free, named, pinned, gone) = (snapshot(), snapshot(), snapshot(), snapshot());
        store.set_reference("main", Expect::Absent, named.id, Durability::Synced).unwrap();
        store.pin_as(workspace_state::PinId::generate(), &pinned, "a test", Durability::Synced).unwrap();
        store.remove_snapshots(&[gone.id]).unwrap();
        let ids = vec![free.id, named.id, pinned.id, gone.id];
        let (removed, used) = retention::remove_unused(&store, ids).unwrap();
        assert_eq!((removed, used), (vec![free.id, gone.id], vec![named.id, pinned.id]));
        assert!(store.find_snapshot(&free.id).unwrap().is_none());
        assert!(store.find_snapshot(&named.id).unwrap().is_some());
    }
}
