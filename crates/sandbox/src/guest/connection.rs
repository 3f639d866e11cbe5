//! The connection to the guest agent of a sandbox, and the state that the agent reports beside its commands.
//!
//! All of it can be lost: the agent reports it again when it connects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{Process, ProcessesRequest, ResourceUsage, ServerMessage, UsageRequest};

use crate::error::{Result, SandboxError};
use crate::leaf_mutex::{LeafGuard, LeafMutex};

/// Timeout for putting a request into the queue of a connection.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for an agent to report its resource usage, or to list processes.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for a thawed agent to send a message.
const THAW_GRACE: Duration = Duration::from_secs(15);
/// Maximum number of processes that an agent may list, and length of the arguments of each in bytes.
const PROCESSES_MAX: usize = 4_096;
const ARGUMENTS_MAX: usize = 4_096;
/// Maximum length of the id of a command, in bytes.
pub(crate) const ID_MAX: usize = 64;
/// Maximum number of connects and disconnects of an agent that become events, and the period for which that
/// maximum holds.
const CONNECTION_EVENTS: (u32, Duration) = (20, Duration::from_secs(60));
/// Id that no stream has.
const NO_STREAM: u64 = 0;

/// The connection to one guest agent. The agent may come and go; each time it has another [`AgentStream`].
#[derive(Debug)]
pub(crate) struct GuestConnection {
    sandbox_id: String,
    stream: watch::Sender<Option<AgentStream>>,
    /// The reason why the agent was given up; `None` while it is connected or may come back.
    lost: watch::Sender<Option<String>>,
    /// Number of operations during which the agent may be frozen, and the end of the last one.
    frozen: LeafMutex<(usize, Option<Instant>)>,
    /// Resource usage that the agent reported last.
    usage: watch::Sender<Option<ResourceUsage>>,
    /// Processes that the agent listed last.
    processes: watch::Sender<Vec<Process>>,
    /// Id of the stream on which the agent did not respond to a request for its processes; [`NO_STREAM`] if
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
    /// True if the agent counts the input of commands.
    pub(crate) counts_input: bool,
    /// True if it confirms input as soon as it arrives.
    pub(crate) confirms_input: bool,
    sender: mpsc::Sender<ServerMessage>,
}

impl GuestConnection {
    pub(crate) fn new(sandbox_id: &str) -> Self {
        Self {
            sandbox_id: sandbox_id.to_owned(),
            stream: watch::Sender::default(),
            lost: watch::Sender::default(),
            frozen: LeafMutex::default(),
            usage: watch::Sender::default(),
            processes: watch::Sender::default(),
            stream_without_processes: AtomicU64::new(NO_STREAM),
            events: LeafMutex::default(),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.stream.borrow().is_some()
    }

    /// Follows connects and disconnects.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<AgentStream>> {
        self.stream.subscribe()
    }

    /// Sets the stream of an agent that connected, and returns its id. The previous stream is no longer used.
    pub(crate) fn connect(
        &self,
        sender: mpsc::Sender<ServerMessage>,
        counts_input: bool,
        confirms_input: bool,
    ) -> u64 {
        let id = next_stream();
        self.lost.send_replace(None);
        self.stream.send_replace(Some(AgentStream { id, counts_input, confirms_input, sender }));
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

    /// Closes the current stream. The agent tries to reconnect.
    pub(crate) fn close(&self) {
        self.stream.send_replace(None);
    }

    /// Returns the current stream. Fails if the agent is not connected.
    pub(crate) fn stream(&self) -> Result<AgentStream> {
        self.stream.borrow().clone().ok_or_else(|| self.away_error())
    }

    pub(crate) fn away_error(&self) -> SandboxError {
        SandboxError::AgentAway { id: self.sandbox_id.clone() }
    }

    /// Sends a request to the agent, on the current stream.
    pub(crate) async fn send(&self, request: ServerPayload) -> Result<()> {
        let stream = self.stream()?;
        self.send_on(&stream, request).await
    }

    pub(crate) async fn send_on(&self, stream: &AgentStream, request: ServerPayload) -> Result<()> {
        let sent = stream.sender.send_timeout(ServerMessage { payload: Some(request) }, SEND_TIMEOUT);
        sent.await.map_err(|_| self.away_error())
    }

    /// Reports to all that wait for the agent that it was given up.
    pub(crate) fn set_lost(&self, reason: &str) {
        self.lost.send_replace(Some(reason.to_owned()));
    }

    /// Waits until the agent is given up, and returns the error that says why.
    pub(crate) async fn wait_for_loss(&self) -> SandboxError {
        let mut lost = self.lost.subscribe();
        // An error only if `self` were dropped.
        let reason = lost.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        self.lost_error(&reason.unwrap_or_default())
    }

    pub(crate) fn lost_error(&self, reason: &str) -> SandboxError {
        SandboxError::AgentLost { id: self.sandbox_id.clone(), reason: reason.to_owned() }
    }

    /// Records that the agent may be frozen until the guard is dropped, and is not expected to respond.
    pub(crate) fn expect_freeze(&self) -> FreezeGuard<'_> {
        self.freezes().0 += 1;
        FreezeGuard(self)
    }

    fn freezes(&self) -> LeafGuard<'_, (usize, Option<Instant>)> {
        self.frozen.lock()
    }

    /// Returns true while the agent may be frozen, or has just been thawed.
    pub(crate) fn may_be_frozen(&self) -> bool {
        let (count, last) = *self.freezes();
        count > 0 || last.is_some_and(|last| last.elapsed() < THAW_GRACE)
    }

    /// Returns true while the agent may be frozen.
    pub(crate) fn is_freeze_expected(&self) -> bool {
        self.freezes().0 > 0
    }

    /// Ends the grace period after the last freeze.
    #[cfg(test)]
    pub(crate) fn forget_freezes(&self) {
        *self.freezes() = (0, None);
    }

    /// Asks the agent for its resource usage. `None` if it is disconnected or too old to support this.
    pub(crate) async fn request_usage(&self) -> Option<ResourceUsage> {
        let mut usage = self.usage.subscribe();
        usage.mark_unchanged();
        self.send(ServerPayload::Usage(UsageRequest {})).await.ok()?;
        tokio::time::timeout(REPORT_TIMEOUT, usage.changed()).await.ok()?.ok()?;
        *usage.borrow()
    }

    pub(crate) fn set_usage(&self, usage: ResourceUsage) {
        self.usage.send_replace(Some(usage));
    }

    /// Asks the agent for its processes. `None` if it is disconnected or too old to support this.
    pub(crate) async fn request_processes(&self) -> Option<Vec<Process>> {
        let mut listed = self.processes.subscribe();
        listed.mark_unchanged();
        let stream = self.stream().ok()?;
        if self.stream_without_processes.load(Ordering::Relaxed) == stream.id {
            return None;
        }
        self.send_on(&stream, ServerPayload::Processes(ProcessesRequest {})).await.ok()?;
        if !matches!(tokio::time::timeout(REPORT_TIMEOUT, listed.changed()).await, Ok(Ok(()))) {
            // An older agent does not respond. Do not wait for it again until another one connects.
            self.stream_without_processes.store(stream.id, Ordering::Relaxed);
            return None;
        }
        let processes = listed.borrow().clone();
        Some(processes)
    }

    /// Sets the processes that the agent lists, up to the maximum. A malicious agent may report anything.
    pub(crate) fn set_processes(&self, mut processes: Vec<Process>) {
        processes.truncate(PROCESSES_MAX);
        processes.retain(|process| process.command_id.len() <= ID_MAX);
        for process in &mut processes {
            let cut = (0..=ARGUMENTS_MAX).rev().find(|end| process.arguments.is_char_boundary(*end));
            process.arguments.truncate(cut.unwrap_or(0));
            process.arguments.shrink_to_fit();
        }
        processes.shrink_to_fit();
        // An agent that responds late supports the request.
        self.stream_without_processes.store(NO_STREAM, Ordering::Relaxed);
        self.processes.send_replace(processes);
    }

    /// Counts a connect or disconnect, and returns whether it becomes an event: an agent that connects again
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

/// A period in which a guest agent may be frozen.
#[derive(Debug)]
pub(crate) struct FreezeGuard<'a>(&'a GuestConnection);

impl Drop for FreezeGuard<'_> {
    fn drop(&mut self) {
        let mut freezes = self.0.freezes();
        *freezes = (freezes.0 - 1, Some(Instant::now()));
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
}
