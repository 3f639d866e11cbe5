//! The connection to the guest agent of a sandbox, and the state that the agent reports beside its commands.
//!
//! All of it can be lost: the guest agent reports it again when it connects.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::time::{timeout, timeout_at};
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{
    Process, ProcessesRequest, ResourceUsage, ServerMessage, SuspendTimers, UsageRequest,
};

use crate::error::{Result, SandboxError};
use crate::leaf_mutex::{LeafGuard, LeafMutex};

/// Timeout for putting a request into the queue of a connection.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a guest agent to report its resource usage, or to list processes.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for a guest agent to suspend the timeouts of commands. A sandbox with little CPU time may need most of it.
const SUSPEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after a thaw in which a guest agent that sends nothing still counts as frozen.
const THAW_GRACE: Duration = Duration::from_secs(15);
/// Maximum number of processes that a guest agent may list, and length of the arguments of each in bytes.
const PROCESSES_MAX: usize = 4_096;
const ARGUMENTS_MAX: usize = 4_096;
/// Maximum length of the id of a command, in bytes.
pub(crate) const ID_MAX: usize = 64;
/// Maximum number of connects and disconnects of a guest agent that become events, and the period for which that
/// maximum holds.
const CONNECTION_EVENTS: (u32, Duration) = (20, Duration::from_secs(60));

/// State of the timeouts of all commands in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandTimers {
    Running,
    Suspended,
}

/// Id that no stream has.
const NO_STREAM: u64 = 0;

/// The connection to one guest agent. The agent may come and go; each time it has another [`AgentStream`].
#[derive(Debug)]
pub(crate) struct GuestConnection {
    sandbox_id: String,
    /// Stream to the connected agent; `None` without a connection.
    stream: watch::Sender<Option<AgentStream>>,
    /// Time until which requests wait for the guest agent to connect; not set if they do not wait.
    expected_until: OnceLock<tokio::time::Instant>,
    /// The reason why the guest agent was given up; `None` while it is connected or may come back.
    lost: watch::Sender<Option<String>>,
    /// Number of operations in progress during which the guest agent may be frozen, and the time at which the last such
    /// operation ended; `None` if none has.
    frozen: LeafMutex<(usize, Option<Instant>)>,
    /// Resource usage that the guest agent reported last.
    usage: watch::Sender<Option<ResourceUsage>>,
    /// Processes that the guest agent listed last.
    processes: watch::Sender<Vec<Process>>,
    /// True if the guest agent reported last that it suspended the timeouts of commands, false if it continued them.
    timers_suspended: watch::Sender<bool>,
    /// Id of the stream on which the guest agent did not respond to a request for its processes; [`NO_STREAM`] if
    /// it responded.
    stream_without_processes: AtomicU64,
    /// Start of the current period of [`CONNECTION_EVENTS`], and number of connects and disconnects since.
    events: LeafMutex<Option<(tokio::time::Instant, u32)>>,
}

/// One stream of messages to a guest agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentStream {
    /// Number of the stream: a later one is larger.
    pub(crate) id: u64,
    /// Abilities that the guest agent reported.
    pub(crate) capabilities: Capabilities,
    sender: mpsc::Sender<ServerMessage>,
}

/// Abilities that a guest agent reports when it connects.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Capabilities {
    /// True if the guest agent reports how many bytes of input each command has read. The server then limits the input
    /// that a command has not read yet.
    pub(crate) counts_input: bool,
    /// True if it reports how many bytes of input it has received as soon as they arrive. The server then sends again
    /// what was lost with a stream.
    pub(crate) confirms_input: bool,
    /// True if it has an I/O worker.
    pub(crate) serves_io: bool,
    /// True if it runs commands without a shell.
    pub(crate) runs_argv: bool,
    /// True if it runs commands as other users.
    pub(crate) switches_users: bool,
    /// True if it can suspend the timeouts of commands.
    pub(crate) suspends_timers: bool,
}

impl Capabilities {
    pub(crate) fn of(capabilities: &HashMap<String, String>) -> Self {
        Self {
            counts_input: capabilities.get("input").is_some_and(|value| value == "counted"),
            confirms_input: capabilities.contains_key("receipts"),
            serves_io: capabilities.contains_key("io"),
            runs_argv: capabilities.contains_key("argv"),
            switches_users: capabilities.contains_key("users"),
            suspends_timers: capabilities.contains_key("timers"),
        }
    }
}

#[cfg(test)]
impl AgentStream {
    /// Creates a stream that no guest agent reads.
    pub(crate) fn closed(id: u64) -> Self {
        Self { id, capabilities: Capabilities::default(), sender: mpsc::channel(1).0 }
    }
}

impl GuestConnection {
    pub(crate) fn new(sandbox_id: &str) -> Self {
        Self {
            sandbox_id: sandbox_id.to_owned(),
            stream: watch::Sender::default(),
            expected_until: OnceLock::new(),
            lost: watch::Sender::default(),
            frozen: LeafMutex::default(),
            usage: watch::Sender::default(),
            processes: watch::Sender::default(),
            timers_suspended: watch::Sender::default(),
            stream_without_processes: AtomicU64::new(NO_STREAM),
            events: LeafMutex::default(),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.stream.borrow().is_some()
    }

    /// Lets requests wait for the guest agent to connect, until `period` from now: it runs, and is about to reconnect
    /// to a server that was restarted.
    pub(crate) fn let_requests_wait(&self, period: Duration) {
        if let Some(until) = tokio::time::Instant::now().checked_add(period) {
            let _ = self.expected_until.set(until);
        }
    }

    /// Waits at most `max_wait` for a guest agent that is expected to connect. Returns true if it is connected.
    pub(crate) async fn wait_until_connected(&self, max_wait: Duration) -> bool {
        let Some(until) = self.expected_until.get() else { return self.is_connected() };
        let mut stream = self.stream.subscribe();
        let connected = timeout_at(*until, stream.wait_for(Option::is_some));
        matches!(timeout(max_wait, connected).await, Ok(Ok(Ok(_))))
    }

    /// Follows connects and disconnects; `None` while the guest agent is disconnected.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<AgentStream>> {
        self.stream.subscribe()
    }

    /// Sets the stream of a guest agent that connected, and returns its id. The previous stream is no longer used.
    pub(crate) fn connect(&self, sender: mpsc::Sender<ServerMessage>, capabilities: Capabilities) -> u64 {
        let id = next_stream();
        self.lost.send_replace(None);
        self.stream.send_replace(Some(AgentStream { id, capabilities, sender }));
        id
    }

    /// Removes a closed stream. Returns false if another one has replaced it.
    pub(crate) fn disconnect(&self, id: u64) -> bool {
        self.stream.send_if_modified(|stream| {
            let is_current = stream.as_ref().is_some_and(|stream| stream.id == id);
            if is_current {
                *stream = None;
            }
            is_current
        })
    }

    /// Closes the current stream, if there is one. The guest agent tries to reconnect.
    pub(crate) fn close(&self) {
        self.stream.send_if_modified(|stream| stream.take().is_some());
    }

    /// Returns the current stream. Fails if the guest agent is not connected.
    pub(crate) fn stream(&self) -> Result<AgentStream> {
        self.stream.borrow().clone().ok_or_else(|| self.away_error())
    }

    pub(crate) fn away_error(&self) -> SandboxError {
        SandboxError::AgentAway { id: self.sandbox_id.clone() }
    }

    /// Returns the error of a request that the guest agent is too old for.
    pub(crate) fn outdated_error(&self) -> SandboxError {
        SandboxError::GuestOutdated { id: self.sandbox_id.clone() }
    }

    /// Sends a request to the guest agent, on the current stream.
    pub(crate) async fn send(&self, request: ServerPayload) -> Result<()> {
        let stream = self.stream()?;
        self.send_on(&stream, request).await
    }

    pub(crate) async fn send_on(&self, stream: &AgentStream, request: ServerPayload) -> Result<()> {
        let sent = stream.sender.send_timeout(ServerMessage { payload: Some(request) }, SEND_TIMEOUT);
        sent.await.map_err(|_| self.away_error())
    }

    /// Reports to all that wait for the guest agent that it was given up.
    pub(crate) fn set_lost(&self, reason: &str) {
        self.lost.send_replace(Some(reason.to_owned()));
    }

    /// Waits until the guest agent is given up, and returns the error that says why.
    pub(crate) async fn wait_for_loss(&self) -> SandboxError {
        let mut lost = self.lost.subscribe();
        // An error only if `self` were dropped.
        let reason = lost.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        self.lost_error(&reason.unwrap_or_default())
    }

    pub(crate) fn lost_error(&self, reason: &str) -> SandboxError {
        SandboxError::AgentLost { id: self.sandbox_id.clone(), reason: reason.to_owned() }
    }

    /// Records that the guest agent may be frozen until the guard is dropped, and is not expected to respond.
    pub(crate) fn expect_freeze(&self) -> FreezeGuard<'_> {
        self.begin_freeze();
        FreezeGuard(self)
    }

    /// Records that the guest agent may be frozen until [`Self::end_freeze`].
    pub(crate) fn begin_freeze(&self) {
        self.freezes().0 += 1;
    }

    pub(crate) fn end_freeze(&self) {
        let mut freezes = self.freezes();
        *freezes = (freezes.0.saturating_sub(1), Some(Instant::now()));
    }

    fn freezes(&self) -> LeafGuard<'_, (usize, Option<Instant>)> {
        self.frozen.lock()
    }

    /// Returns true while the guest agent may be frozen, or has just been thawed.
    pub(crate) fn may_be_frozen(&self) -> bool {
        let (count, last) = *self.freezes();
        count > 0 || last.is_some_and(|last| last.elapsed() < THAW_GRACE)
    }

    /// Returns true while the guest agent may be frozen.
    pub(crate) fn is_freeze_expected(&self) -> bool {
        self.freezes().0 > 0
    }

    /// Ends the grace period after the last freeze.
    #[cfg(test)]
    pub(crate) fn forget_freezes(&self) {
        *self.freezes() = (0, None);
    }

    /// Asks the guest agent for its resource usage. `None` if it is disconnected or too old to support this.
    pub(crate) async fn request_usage(&self) -> Option<ResourceUsage> {
        let mut usage = self.usage.subscribe();
        usage.mark_unchanged();
        self.send(ServerPayload::Usage(UsageRequest {})).await.ok()?;
        timeout(REPORT_TIMEOUT, usage.changed()).await.ok()?.ok()?;
        *usage.borrow()
    }

    pub(crate) fn set_usage(&self, usage: ResourceUsage) {
        self.usage.send_replace(Some(usage));
    }

    /// Suspends the timeouts of all commands. Until they continue ([`Self::send_timers`]), the guest agent starts no
    /// command. Fails if the agent does not confirm it, or is too old for it.
    pub(crate) async fn suspend_timers(&self) -> Result<()> {
        let stream = self.stream()?;
        if !stream.capabilities.suspends_timers {
            return Err(self.outdated_error());
        }
        let mut reported = self.timers_suspended.subscribe();
        reported.mark_unchanged();
        self.send_on(&stream, ServerPayload::SuspendTimers(SuspendTimers { on: true })).await?;
        let confirmed = async {
            while reported.changed().await.is_ok() {
                if *reported.borrow_and_update() {
                    return;
                }
            }
        };
        let late = |_| self.lost_error("it did not suspend the timeouts of its commands in time");
        timeout(SUSPEND_TIMEOUT, confirmed).await.map_err(late)
    }

    /// Suspends or continues the timeouts of commands in a guest agent that has just connected, or whose sandbox is no
    /// longer paused. Does not wait for a confirmation.
    pub(crate) async fn send_timers(&self, timers: CommandTimers) {
        if self.stream().is_ok_and(|stream| stream.capabilities.suspends_timers) {
            // A disconnected guest agent gets it when it reconnects.
            let on = timers == CommandTimers::Suspended;
            drop(self.send(ServerPayload::SuspendTimers(SuspendTimers { on })).await);
        }
    }

    /// Records what the guest agent reports.
    pub(crate) fn set_timers_suspended(&self, are_suspended: bool) {
        self.timers_suspended.send_replace(are_suspended);
    }

    /// Asks the guest agent for the processes of its commands. `None` if it is disconnected, does not respond in time,
    /// or is too old to support this.
    pub(crate) async fn request_processes(&self) -> Option<Vec<Process>> {
        let mut listed = self.processes.subscribe();
        listed.mark_unchanged();
        let stream = self.stream().ok()?;
        if self.stream_without_processes.load(Ordering::Relaxed) == stream.id {
            return None;
        }
        self.send_on(&stream, ServerPayload::Processes(ProcessesRequest {})).await.ok()?;
        if !matches!(timeout(REPORT_TIMEOUT, listed.changed()).await, Ok(Ok(()))) {
            // An older guest agent does not respond. Do not wait for it again until another one connects.
            self.stream_without_processes.store(stream.id, Ordering::Relaxed);
            return None;
        }
        let processes = listed.borrow().clone();
        Some(processes)
    }

    /// Sets the processes that the guest agent lists, up to the maximum. A malicious agent may report anything.
    pub(crate) fn set_processes(&self, mut processes: Vec<Process>) {
        processes.truncate(PROCESSES_MAX);
        processes.retain(|process| process.command_id.len() <= ID_MAX);
        for process in &mut processes {
            let cut = (0..=ARGUMENTS_MAX).rev().find(|end| process.arguments.is_char_boundary(*end));
            process.arguments.truncate(cut.unwrap_or(0));
            process.arguments.shrink_to_fit();
        }
        processes.shrink_to_fit();
        // A guest agent that responds late supports the request.
        self.stream_without_processes.store(NO_STREAM, Ordering::Relaxed);
        self.processes.send_replace(processes);
    }

    /// Counts a connect or disconnect, and returns whether it becomes an event: a guest agent that connects again
    /// and again does not fill the catalog.
    pub(crate) fn count_event(&self) -> bool {
        let mut period = self.events.lock();
        let now = tokio::time::Instant::now();
        let present = period.filter(|(began, _)| now.duration_since(*began) < CONNECTION_EVENTS.1);
        let (began, count) = present.unwrap_or((now, 0));
        *period = Some((began, count.saturating_add(1)));
        if count == CONNECTION_EVENTS.0 {
            tracing::warn!(
                sandbox = self.sandbox_id,
                "guest agent reconnects too often; further events are dropped"
            );
        }
        count < CONNECTION_EVENTS.0
    }
}

/// Waits for a disconnected guest agent, whose connects and disconnects `stream` follows. Returns false if it does not
/// connect within `grace`. A connection that is lost again counts: the later disconnect has a grace period of its
/// own.
pub(crate) async fn reconnects_within(
    mut stream: watch::Receiver<Option<AgentStream>>,
    grace: Duration,
) -> bool {
    if stream.borrow_and_update().is_some() {
        return true;
    }
    // Any change is a connect, even if it is disconnected again by now.
    timeout(grace, stream.changed()).await.is_ok()
}

/// A period in which a guest agent may be frozen.
#[derive(Debug)]
pub(crate) struct FreezeGuard<'a>(&'a GuestConnection);

impl Drop for FreezeGuard<'_> {
    fn drop(&mut self) {
        self.0.end_freeze();
    }
}

/// Streams are numbered in the order in which they were made, from one.
fn next_stream() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(NO_STREAM);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_lists_no_more_processes_than_a_sandbox_may_have() {
        let guest = GuestConnection::new("sbx-1");
        let long = |text: &str| Process { arguments: text.repeat(ARGUMENTS_MAX), ..Process::default() };
        let of_nobody = Process { command_id: "x".repeat(ID_MAX + 1), ..Process::default() };
        guest.set_processes(vec![long("x"), long("\u{e9}"), Process::default(), of_nobody]);
        let lengths: Vec<_> = guest.processes.borrow().iter().map(|one| one.arguments.len()).collect();
        assert_eq!(lengths, [ARGUMENTS_MAX, ARGUMENTS_MAX, 0]);
        guest.set_processes(vec![long("\u{20ac}")]);
        assert_eq!(guest.processes.borrow()[0].arguments.len(), ARGUMENTS_MAX / 3 * 3);
        guest.set_processes(vec![Process::default(); 10 * PROCESSES_MAX]);
        assert_eq!(guest.processes.borrow().len(), PROCESSES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_reconnects_all_the_time_makes_few_events() {
        let guest = GuestConnection::new("sbx-1");
        let count = || (0..1_000).filter(|_| guest.count_event()).count();
        assert_eq!(count(), CONNECTION_EVENTS.0 as usize);
        assert_eq!(count(), 0);
        tokio::time::advance(CONNECTION_EVENTS.1).await;
        assert_eq!(count(), CONNECTION_EVENTS.0 as usize);
    }

    const GRACE: Duration = Duration::from_secs(10);

    /// Connects a guest agent, and returns the id of the stream.
    fn connect(guest: &GuestConnection) -> u64 {
        guest.connect(mpsc::channel(1).0, Capabilities::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_disconnect_has_a_grace_period_of_its_own() {
        let guest = GuestConnection::new("sbx-1");
        let first = reconnects_within(guest.subscribe(), GRACE);
        let reconnect = async {
            tokio::time::sleep(GRACE / 2).await;
            guest.disconnect(connect(&guest));
        };
        let (reconnected, ()) = tokio::join!(first, reconnect);
        assert!(reconnected, "it is disconnected at the end of the first grace period, but has another");
        assert!(!reconnects_within(guest.subscribe(), GRACE).await);
        connect(&guest);
        assert!(reconnects_within(guest.subscribe(), GRACE).await, "it connected before it was waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_only_for_an_agent_that_is_expected() {
        let guest = GuestConnection::new("sbx-1");
        let connect_after = async |delay: Duration| {
            tokio::time::sleep(delay).await;
            connect(&guest)
        };
        let long = 10 * GRACE;
        assert!(!guest.wait_until_connected(long).await, "it is not expected");
        guest.let_requests_wait(GRACE);
        let (connected, stream) = tokio::join!(guest.wait_until_connected(long), connect_after(GRACE / 5));
        assert!(connected);
        guest.disconnect(stream);
        let (connected, stream) =
            tokio::join!(guest.wait_until_connected(GRACE / 10), connect_after(GRACE / 5));
        assert!(!connected, "the request waits no longer than it may");
        guest.disconnect(stream);
        let (connected, _) = tokio::join!(guest.wait_until_connected(long), connect_after(GRACE));
        assert!(!connected, "it is no longer expected");
        assert!(guest.wait_until_connected(long).await);
    }
}
