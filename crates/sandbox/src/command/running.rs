//! Commands of a sandbox that run, or whose exit is not recorded yet.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use workspace_agent_protocol::output::Writer;
use workspace_agent_protocol::v1::CommandProgress;

use crate::command::input::Input;
use crate::error::Result;
use crate::guest::connection::{AgentStream, ID_MAX};
use crate::leaf_mutex::{LeafGuard, LeafMutex};

/// Maximum number of commands that a guest agent may report: far more than can run at once.
const COMMANDS_MAX: usize = 100_000;
/// Maximum number of exits of commands of one sandbox that are recorded at the same time. A guest agent that
/// reports more waits.
const EXITS_AT_ONCE: usize = 64;

/// Command that has not exited, or whose exit is not recorded yet.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    /// Unique id, `cmd-` or `pty-` followed by a UUIDv7.
    pub(crate) id: String,
    /// Id of the gRPC stream on which this server told the guest agent to start the command; zero if another server
    /// did, or none yet.
    started_on: AtomicU64,
    /// Deadline for the guest agent to report its exit, if it has a timeout.
    exit_report_deadline: LeafMutex<Option<tokio::time::Instant>>,
    /// Progress that the guest agent reported last.
    progress: watch::Sender<Progress>,
    /// Exit that the guest agent reported, and that is not reported to clients before the command is traced.
    exit_to_trace: OnceLock<CommandExit>,
    /// PID of the program inside the sandbox; zero until the guest agent reports it.
    pid: AtomicU32,
    /// Standard input.
    pub(crate) input: Input,
    /// Maximum number of unread bytes of output; zero if the command does not wait for readers.
    output_window: AtomicU64,
    /// Offset up to which its output was read, as the guest agent was told.
    read_offset: AtomicU64,
    /// Writer of its output, if the guest agent sends the output instead of writing files; `None` until it is
    /// opened.
    pub(crate) writer: tokio::sync::Mutex<Option<Writer>>,
    /// True if it blocks when too much of its output is unread. Set before `output_window`, which the guest agent
    /// reports.
    blocks_on_unread_output: AtomicBool,
}

/// Progress of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of output so far.
    pub written: u64,
    /// Exit of the command; `None` while it runs.
    pub exit: Option<CommandExit>,
}

/// Exit of a command, or the reason why there was none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandExit {
    /// Exit code; 128 + n if signal n killed the program, 126 or 127 if it could not be executed. -1 if there is none,
    /// because the command was not started, or was lost.
    pub exit_code: i32,
    /// True if it timed out.
    pub timed_out: bool,
    /// Reason why it could not be run, or was lost.
    pub failure_reason: Option<String>,
    /// Outcome of tracing it.
    pub trace: TraceOutcome,
}

impl CommandExit {
    /// Creates the exit of a command that could not be run, or was lost.
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self { exit_code: -1, failure_reason: Some(reason.into()), ..Self::default() }
    }
}

/// Outcome of tracing a command (see [`Trace`](crate::Trace)).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TraceOutcome {
    /// The sandbox is not traced, or the command changed no file.
    #[default]
    None,
    /// Snapshot that was made after the command.
    Snapshot(String),
    /// The snapshot takes longer, and the record of the command will have it.
    Pending,
    /// Reason why there is no snapshot.
    Failed(String),
}

impl RunningCommand {
    pub(crate) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            started_on: AtomicU64::default(),
            exit_report_deadline: LeafMutex::default(),
            progress: watch::Sender::default(),
            exit_to_trace: OnceLock::new(),
            pid: AtomicU32::default(),
            input: Input::default(),
            output_window: AtomicU64::default(),
            read_offset: AtomicU64::default(),
            writer: tokio::sync::Mutex::default(),
            blocks_on_unread_output: AtomicBool::default(),
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Sets the deadline for the guest agent to report its exit, unless it is already set.
    pub(crate) fn set_exit_report_timeout(&self, timeout: Duration) {
        if let Some(deadline) = tokio::time::Instant::now().checked_add(timeout) {
            self.exit_report_deadline.lock().get_or_insert(deadline);
        }
    }

    /// Returns the deadline for the guest agent to report its exit; `None` if the command has no timeout.
    pub(crate) fn exit_report_deadline(&self) -> Option<tokio::time::Instant> {
        *self.exit_report_deadline.lock()
    }

    /// Extends the deadline, if there is one, by the time in which the command could not run.
    fn extend_exit_report_deadline(&self, by: Duration) {
        let mut deadline = self.exit_report_deadline.lock();
        *deadline = deadline.and_then(|deadline| deadline.checked_add(by));
    }

    /// Returns the id of the gRPC stream on which this server started the command; zero if another server did.
    pub(crate) fn started_on(&self) -> u64 {
        self.started_on.load(Ordering::Relaxed)
    }

    /// Returns the PID of the program inside the sandbox; `None` until the guest agent reports it.
    pub(crate) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }

    /// Sets the maximum number of unread bytes of output; with zero the command does not wait for readers.
    pub(crate) fn set_output_window(&self, window: u64) {
        self.output_window.store(window, Ordering::Relaxed);
        if window > 0 {
            self.set_blocks_on_unread_output();
        }
    }

    /// Records that it blocks when too much of its output is unread, before the guest agent reports its window.
    pub(crate) fn set_blocks_on_unread_output(&self) {
        self.blocks_on_unread_output.store(true, Ordering::Relaxed);
    }

    /// Returns true if the guest agent should be told that readers have read up to this offset, and records it as
    /// told: the command waits for readers, and they have advanced by an eighth of its window.
    pub(crate) fn advance_read_offset(&self, offset: u64) -> bool {
        let (window, sent) = (self.output_window.load(Ordering::Relaxed), self.read_offset());
        let is_due = window > 0 && offset > sent && offset - sent >= window / 8;
        is_due && self.read_offset.fetch_max(offset, Ordering::Relaxed) < offset
    }

    pub(crate) fn read_offset(&self) -> u64 {
        self.read_offset.load(Ordering::Relaxed)
    }

    /// Returns the offset up to which output need not be kept: everything, unless the command waits for
    /// readers.
    fn droppable_offset(&self) -> u64 {
        if self.blocks_on_unread_output.load(Ordering::Relaxed) { self.read_offset() } else { u64::MAX }
    }

    /// Returns true if this server started it, and so received all its reports.
    pub(crate) fn was_started_here(&self) -> bool {
        self.started_on() != 0
    }

    /// Returns true if the guest agent reported its exit.
    pub(crate) fn has_ended(&self) -> bool {
        self.exit_to_trace.get().is_some() || self.progress.borrow().exit.is_some()
    }

    /// Returns the exit that the guest agent, or the server, reported; `None` while it runs.
    pub(crate) fn known_exit(&self) -> Option<CommandExit> {
        self.progress.borrow().exit.clone().or_else(|| self.exit_to_trace.get().cloned())
    }

    /// Reports to clients that it ended with its sandbox; if the guest agent reported its exit before, that exit.
    pub(crate) fn end_with_sandbox(&self, reason: &str) {
        let exit = match self.exit_to_trace.get() {
            Some(exit) => CommandExit { trace: TraceOutcome::Failed(reason.to_owned()), ..exit.clone() },
            None => CommandExit::failed(reason),
        };
        self.advance(0, Some(&exit));
    }

    /// Records an exit that is to be traced before clients learn of it. Returns false if an exit was recorded before.
    pub(crate) fn set_exit_to_trace(&self, exit: &CommandExit) -> bool {
        let is_first = self.progress.borrow().exit.is_none() && self.exit_to_trace.set(exit.clone()).is_ok();
        if is_first {
            // Clients that write to its input, or close it, stop waiting.
            self.input.close();
        }
        is_first
    }

    pub(crate) fn written(&self) -> u64 {
        self.progress.borrow().written
    }

    /// Records its progress. Only the first exit is recorded; returns true for it.
    pub(crate) fn advance(&self, written: u64, exit: Option<&CommandExit>) -> bool {
        let mut is_first_exit = false;
        self.progress.send_if_modified(|progress| {
            is_first_exit = progress.exit.is_none() && exit.is_some();
            let has_more_output = written > progress.written;
            progress.written = progress.written.max(written);
            if is_first_exit {
                progress.exit = exit.cloned();
            }
            has_more_output || is_first_exit
        });
        if is_first_exit {
            // Clients that write to its input, or close it, stop waiting.
            self.input.close();
        }
        is_first_exit
    }
}

/// Commands of one sandbox.
#[derive(Debug)]
pub(crate) struct RunningCommands {
    commands: LeafMutex<Commands>,
    /// Permits for recording exits in the catalog.
    exit_permits: Arc<Semaphore>,
    /// Number of further commands that may end before old commands are removed again.
    ends_until_cleanup: AtomicU32,
    /// Held while old commands are removed.
    cleanup_permit: Arc<Semaphore>,
}

/// Commands that run, and those that are about to.
#[derive(Debug, Default)]
struct Commands {
    /// Commands that run, by id.
    by_id: HashMap<String, Arc<RunningCommand>>,
    /// Ids of commands with a reserved slot. Their rows may be in the catalog before the guest agent is told to
    /// start them.
    reserved: HashSet<String>,
}

impl Default for RunningCommands {
    fn default() -> Self {
        Self {
            commands: LeafMutex::default(),
            exit_permits: Arc::new(Semaphore::new(EXITS_AT_ONCE)),
            ends_until_cleanup: AtomicU32::default(),
            cleanup_permit: Arc::new(Semaphore::new(1)),
        }
    }
}

impl RunningCommands {
    fn lock(&self) -> LeafGuard<'_, Commands> {
        self.commands.lock()
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<RunningCommand>> {
        self.lock().by_id.get(id).cloned()
    }

    pub(crate) fn remove(&self, id: &str) {
        self.lock().by_id.remove(id);
    }

    /// Reserves a slot for one more command, whose id begins with `prefix`. `None` if `limit` of them run, or
    /// are about to.
    pub(crate) fn reserve(&self, prefix: &str, id: &str, limit: u32) -> Option<CommandReservation<'_>> {
        let mut commands = self.lock();
        let Commands { by_id, reserved } = &mut *commands;
        let running = by_id.values().filter(|one| one.id.starts_with(prefix) && !one.has_ended()).count();
        let about_to_run = reserved.iter().filter(|id| id.starts_with(prefix) && !by_id.contains_key(*id));
        if running + about_to_run.count() >= limit as usize {
            return None;
        }
        reserved.insert(id.to_owned());
        Some(CommandReservation { commands: self, id: id.to_owned() })
    }

    /// Adds the command that a slot was reserved for, and returns it with the gRPC stream on which it is to be
    /// started. `stream` returns the current stream. It is called under the lock, so that a registration on a
    /// later stream finds the command in [`Self::started_before`].
    pub(crate) fn start(
        &self,
        reservation: CommandReservation<'_>,
        stream: impl FnOnce() -> Result<AgentStream>,
    ) -> Result<(Arc<RunningCommand>, AgentStream)> {
        let id = reservation.id.as_str();
        let mut commands = self.lock();
        let stream = stream()?;
        commands.reserved.remove(id);
        // The entry may exist: a repeated request with the same idempotency key looks the command up.
        let command =
            commands.by_id.entry(id.to_owned()).or_insert_with(|| Arc::new(RunningCommand::new(id)));
        command.started_on.store(stream.id, Ordering::Relaxed);
        let command = command.clone();
        // The lock first: the reservation takes it when it is dropped.
        drop(commands);
        drop(reservation);
        Ok((command, stream))
    }

    /// Returns true if this server runs the command, or is about to start it.
    pub(crate) fn contains(&self, id: &str) -> bool {
        let commands = self.lock();
        commands.by_id.contains_key(id) || commands.reserved.contains(id)
    }

    /// Returns the command of that id. A command that the guest agent reported is added, up to the maximum: a
    /// malicious agent may report anything.
    pub(crate) fn get_or_add(&self, id: &str) -> Arc<RunningCommand> {
        let mut commands = self.lock();
        if let Some(known) = commands.by_id.get(id) {
            return known.clone();
        }
        let command = Arc::new(RunningCommand::new(id));
        if commands.by_id.len() < COMMANDS_MAX && id.len() <= ID_MAX {
            commands.by_id.insert(id.to_owned(), command.clone());
        }
        command
    }

    /// Records the input counters, the output window and the PID that the guest agent reported. The caller records the
    /// bytes that were written, and the exit, which is returned; `None` while the command runs.
    pub(crate) fn record_report(
        &self,
        progress: CommandProgress,
    ) -> (Arc<RunningCommand>, Option<CommandExit>) {
        let exit = progress.end.map(|end| CommandExit {
            exit_code: end.exit_code,
            timed_out: end.timed_out,
            failure_reason: Some(end.failed).filter(|reason| !reason.is_empty()),
            trace: TraceOutcome::None,
        });
        let command = self.get_or_add(&progress.command_id);
        command.input.record_progress(progress.input_received, progress.input_taken, progress.input_closed);
        command.set_output_window(progress.output_window);
        if progress.pid > 0 {
            command.pid.store(progress.pid, Ordering::Relaxed);
        }
        (command, exit)
    }

    /// Waits for a permit to record the exit of one more command. Returns `None` for an unknown command.
    pub(crate) async fn acquire_exit_permit(&self, id: &str) -> Option<OwnedSemaphorePermit> {
        self.get(id)?;
        // Never closed.
        Arc::clone(&self.exit_permits).acquire_owned().await.ok()
    }

    /// Counts a command that has ended. Returns true if it is time to remove old ones: the first time, and then
    /// every `period` times.
    pub(crate) fn count_end(&self, period: u32) -> bool {
        let next = |left: u32| Some(left.checked_sub(1).unwrap_or(period.saturating_sub(1)));
        self.ends_until_cleanup.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) == Ok(0)
    }

    /// Begins a removal of old commands; `None` if another one is in progress.
    pub(crate) fn begin_cleanup(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.cleanup_permit).try_acquire_owned().ok()
    }

    /// Extends the deadlines by which the guest agent must report the exits of commands, by the time of a pause.
    pub(crate) fn extend_exit_report_deadlines(&self, by: Duration) {
        for command in self.running() {
            command.extend_exit_report_deadline(by);
        }
    }

    /// Returns the running commands.
    pub(crate) fn running(&self) -> Vec<Arc<RunningCommand>> {
        let commands = self.lock();
        commands.by_id.values().filter(|one| !one.has_ended()).cloned().collect()
    }

    /// Returns true if a command is about to start.
    pub(crate) fn has_reserved(&self) -> bool {
        let commands = self.lock();
        commands.reserved.iter().any(|id| !commands.by_id.contains_key(id))
    }

    /// Returns the commands whose exit was not reported to clients.
    pub(crate) fn unreported(&self) -> Vec<Arc<RunningCommand>> {
        let commands = self.lock();
        commands.by_id.values().filter(|one| one.progress.borrow().exit.is_none()).cloned().collect()
    }

    /// Returns the running commands, each with the offset up to which its output need not be kept.
    pub(crate) fn droppable_offsets(&self) -> HashMap<String, u64> {
        self.running().iter().map(|one| (one.id.clone(), one.droppable_offset())).collect()
    }

    /// Returns the running commands that were started before this gRPC stream, without those that are about to be
    /// started. Those that the guest agent does not report on this stream never reached it.
    pub(crate) fn started_before(&self, stream: u64) -> Vec<Arc<RunningCommand>> {
        let commands = self.lock();
        let is_lost = |one: &&Arc<RunningCommand>| {
            one.started_on() < stream && !one.has_ended() && !commands.reserved.contains(&one.id)
        };
        commands.by_id.values().filter(is_lost).cloned().collect()
    }
}

/// A slot for a command that is about to run. Dropping it releases the slot.
#[derive(Debug)]
pub(crate) struct CommandReservation<'a> {
    commands: &'a RunningCommands,
    id: String,
}

impl Drop for CommandReservation<'_> {
    fn drop(&mut self) {
        self.commands.lock().reserved.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SandboxError;

    #[test]
    fn an_agent_that_makes_up_commands_does_not_fill_the_memory() {
        let commands = RunningCommands::default();
        for number in 0..COMMANDS_MAX + 10 {
            assert_eq!(commands.get_or_add(&number.to_string()).id, number.to_string());
        }
        assert_eq!(commands.lock().by_id.len(), COMMANDS_MAX);
        assert!(commands.get("0").is_some());
        let commands = RunningCommands::default();
        commands.get_or_add(&"x".repeat(ID_MAX + 1));
        assert_eq!(commands.lock().by_id.len(), 0);
    }

    #[test]
    fn a_command_with_a_reserved_slot_is_known_and_not_lost() {
        let commands = RunningCommands::default();
        let reservation = commands.reserve("cmd", "cmd-1", 1).unwrap();
        assert!(commands.contains("cmd-1") && commands.get("cmd-1").is_none());
        // A repeated request looks it up, and the guest agent registers, before it is started.
        commands.get_or_add("cmd-1");
        assert!(commands.started_before(7).is_empty());
        assert!(commands.reserve("cmd", "cmd-2", 1).is_none(), "it counts for the limit");
        assert!(commands.reserve("cmd", "cmd-2", 2).is_some(), "it counts once");
        assert!(commands.reserve("pty", "pty-1", 1).is_some(), "terminals have a limit of their own");
        let (command, _) = commands.start(reservation, || Ok(AgentStream::closed(6))).unwrap();
        assert!(commands.contains("cmd-1"));
        assert!(commands.started_before(6).is_empty());
        assert_eq!(commands.started_before(7)[0].id, command.id);
    }

    #[test]
    fn a_command_that_is_being_traced_keeps_its_exit() {
        let commands = RunningCommands::default();
        let (exited, running) = (commands.get_or_add("cmd-1"), commands.get_or_add("cmd-2"));
        let exit = CommandExit { exit_code: 3, ..CommandExit::default() };
        assert!(exited.set_exit_to_trace(&exit) && !exited.set_exit_to_trace(&CommandExit::default()));
        assert!(exited.has_ended() && exited.subscribe().borrow().exit.is_none());
        assert_eq!(commands.running().iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["cmd-2"]);
        assert_eq!(commands.unreported().len(), 2);
        commands.unreported().iter().for_each(|one| one.end_with_sandbox("removed"));
        let reported = exited.subscribe().borrow().exit.clone().unwrap();
        assert_eq!((reported.exit_code, reported.failure_reason), (3, None));
        assert_eq!(reported.trace, TraceOutcome::Failed("removed".to_owned()));
        let reported = running.subscribe().borrow().exit.clone().unwrap();
        assert_eq!((reported.exit_code, reported.failure_reason.as_deref()), (-1, Some("removed")));
        assert!(commands.unreported().is_empty() && !running.set_exit_to_trace(&exit));
    }

    #[test]
    fn a_pid_is_known_from_the_report_that_has_it() {
        let commands = RunningCommands::default();
        let report = |pid| CommandProgress { command_id: "cmd-1".into(), pid, ..CommandProgress::default() };
        assert_eq!(commands.record_report(report(0)).0.pid(), None);
        assert_eq!(commands.record_report(report(7)).0.pid(), Some(7));
        assert_eq!(commands.record_report(report(0)).0.pid(), Some(7));
    }

    #[test]
    fn a_slot_is_released_when_its_command_is_not_started() {
        let commands = RunningCommands::default();
        drop(commands.reserve("cmd", "cmd-1", 1).unwrap());
        assert!(!commands.contains("cmd-1"));
        let reservation = commands.reserve("cmd", "cmd-2", 1).unwrap();
        let away = || Err(SandboxError::AgentAway { id: "sbx-1".to_owned() });
        assert!(commands.start(reservation, away).is_err());
        assert!(!commands.contains("cmd-2"));
        assert!(commands.reserve("cmd", "cmd-3", 1).is_some());
    }

    #[test]
    fn old_commands_are_removed_by_one_task_at_a_time() {
        let commands = RunningCommands::default();
        let permit = commands.begin_cleanup().unwrap();
        assert!(commands.begin_cleanup().is_none());
        drop(permit);
        assert!(commands.begin_cleanup().is_some());
    }

    #[tokio::test]
    async fn few_exits_are_recorded_at_once() {
        let commands = RunningCommands::default();
        let known = commands.get_or_add("cmd-1").id.clone();
        let permit =
            async |id: &str| tokio::time::timeout(Duration::ZERO, commands.acquire_exit_permit(id)).await;
        let mut permits = Vec::new();
        while let Ok(permit) = permit(&known).await {
            permits.push(permit.unwrap());
        }
        assert_eq!(permits.len(), EXITS_AT_ONCE);
        // Nothing is done for a command that is not known.
        assert!(permit("cmd-2").await.unwrap().is_none());
        permits.pop();
        assert!(permit(&known).await.unwrap().is_some());
    }
}
