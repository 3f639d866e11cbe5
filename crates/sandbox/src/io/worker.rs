//! The I/O worker of a sandbox: started by the first request, closed when it has been idle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};
use workspace_agent_protocol::v1::io_request::Operation;
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{IoLane, IoReply, ReleaseFiles, StartIo};

use crate::error::{Context as _, Result, SandboxError};
use crate::guest::connection::GuestConnection;
use crate::id::{self, Token};
use crate::io::channel::{Channel, ChannelLimits};
use crate::io::lane::{Lane, MessagesToWorker};
use crate::io::memory::{OwnerBudget, SharedReservation};
use crate::leaf_mutex::LeafMutex;

/// Maximum time for a worker to connect its lanes.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time for a worker to close its files.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time without requests after which a worker is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of requests, transfers, watches and TCP connections of a sandbox at a time.
const REQUESTS_MAX: usize = 64;
const TRANSFERS_MAX: usize = 16;
const WATCHES_MAX: usize = 16;
const CONNECTIONS_MAX: usize = 1_536;
/// Maximum time that a request waits for others to finish.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// Kind of a channel, the stream of content that belongs to one request. It decides the lane, the window and the limit
/// of the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelKind {
    /// Content of a file or tree.
    Transfer,
    /// Changes of files.
    Watch,
    /// TCP connection.
    Connection,
}

impl ChannelKind {
    /// Returns the number of bytes that each side may send ahead.
    fn window(self) -> usize {
        match self {
            Self::Transfer => 1 << 20,
            Self::Watch | Self::Connection => 64 << 10,
        }
    }
}

/// The I/O worker of one sandbox. Its leaf mutexes are held briefly: no other lock is taken while one is held.
#[derive(Debug)]
pub(crate) struct IoWorker {
    /// Lanes of the connected worker.
    lanes: watch::Sender<Lanes>,
    /// Hash of the ticket of the worker that is being started or runs.
    ticket_hash: LeafMutex<Option<String>>,
    /// Reason why the guest could not start the worker.
    start_failure: watch::Sender<Option<String>>,
    /// Held while a worker is started.
    starting: Mutex<()>,
    /// Time of the last request.
    last_use: LeafMutex<Option<Instant>>,
    /// Permits for requests without a channel.
    requests: Semaphore,
    /// Permits for transfers of files.
    transfers: Arc<Semaphore>,
    /// Permits for watches.
    watches: Arc<Semaphore>,
    /// Permits for TCP connections.
    connections: Arc<Semaphore>,
}

/// Lanes of the worker that is connected.
#[derive(Debug, Default, Clone)]
struct Lanes {
    /// Lane for requests, watches and TCP connections.
    interactive: Option<Arc<Lane>>,
    /// Lane for the content of files and trees.
    bulk: Option<Arc<Lane>>,
}

impl Lanes {
    /// Returns both lanes, if both are open.
    fn open(&self) -> Option<(Arc<Lane>, Arc<Lane>)> {
        let open = |lane: &Option<Arc<Lane>>| lane.clone().filter(|lane| !lane.is_closed());
        Some((open(&self.interactive)?, open(&self.bulk)?))
    }

    fn close(&self) {
        for lane in self.interactive.iter().chain(&self.bulk) {
            lane.close();
        }
    }
}

impl Default for IoWorker {
    fn default() -> Self {
        Self {
            lanes: watch::Sender::default(),
            ticket_hash: LeafMutex::default(),
            start_failure: watch::Sender::default(),
            starting: Mutex::default(),
            last_use: LeafMutex::default(),
            requests: Semaphore::new(REQUESTS_MAX),
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }
}

impl IoWorker {
    /// Returns true if a worker has this ticket. Takes the same time if there is no worker.
    pub(crate) fn has_ticket(&self, ticket: &[u8]) -> bool {
        let hash = self.ticket_hash.lock().clone();
        id::is_token_of(ticket, hash.as_deref().unwrap_or(id::NO_TOKEN_HASH))
    }

    /// Attaches a lane of the worker, and returns it with the messages to be sent to the worker. `None` if the worker
    /// has this lane already, or does not say which it is.
    pub(crate) fn attach(&self, sandbox: &str, kind: IoLane) -> Option<(Arc<Lane>, MessagesToWorker)> {
        let (lane, messages) = Lane::new(sandbox);
        let is_attached = self.lanes.send_if_modified(|lanes| {
            let slot = match kind {
                IoLane::Interactive => &mut lanes.interactive,
                IoLane::Bulk => &mut lanes.bulk,
                IoLane::Unspecified => return false,
            };
            if slot.as_ref().is_some_and(|lane| !lane.is_closed()) {
                return false;
            }
            *slot = Some(lane.clone());
            true
        });
        is_attached.then_some((lane, messages))
    }

    /// Records that the guest could not start the worker.
    pub(crate) fn set_start_failure(&self, message: &str) {
        self.start_failure.send_replace(Some(message.to_owned()));
    }

    /// Closes the lanes: requests in progress fail, and the worker exits.
    pub(crate) fn close(&self) {
        *self.ticket_hash.lock() = None;
        self.lanes.send_replace(Lanes::default()).close();
    }

    /// Closes the lanes if there was no request for a while.
    pub(crate) fn close_idle(&self) {
        let Some((interactive, bulk)) = self.lanes.borrow().open() else { return };
        let is_unused = self.last_use.lock().is_none_or(|last| last.elapsed() >= IDLE_TIMEOUT);
        if is_unused && interactive.is_idle() && bulk.is_idle() {
            self.close();
        }
    }

    /// Returns true while content of files is transferred. A commit or a trace must not count as undisturbed then: an
    /// upload changes files.
    pub(crate) fn is_transferring(&self) -> bool {
        self.lanes.borrow().open().is_some_and(|(_, bulk)| !bulk.is_idle())
    }

    /// Makes the worker close all files, before they are replaced. If it does not within [`RELEASE_TIMEOUT`], its lanes
    /// are closed, and it exits.
    pub(crate) async fn release_files(&self) {
        let Some((interactive, bulk)) = self.lanes.borrow().open() else { return };
        let release = || Operation::Release(ReleaseFiles { path: b"/".to_vec() });
        let released = tokio::join!(
            timeout(RELEASE_TIMEOUT, interactive.call(release(), RELEASE_TIMEOUT, None)),
            timeout(RELEASE_TIMEOUT, bulk.call(release(), RELEASE_TIMEOUT, None)),
        );
        if !matches!(released, (Ok(Ok(_)), Ok(Ok(_)))) {
            self.close();
        }
    }

    /// Sends a small request without a channel.
    pub(crate) async fn call(
        &self,
        guest: &GuestConnection,
        operation: Operation,
        max_wait: Duration,
    ) -> Result<IoReply> {
        self.call_counted(guest, operation, max_wait, None).await
    }

    /// Sends a request with content and without a channel. `memory` is the reservation for the content.
    pub(crate) async fn call_counted(
        &self,
        guest: &GuestConnection,
        operation: Operation,
        max_wait: Duration,
        memory: SharedReservation,
    ) -> Result<IoReply> {
        let queued = timeout(QUEUE_TIMEOUT, self.requests.acquire()).await;
        let _permit = queued
            .ok()
            .and_then(std::result::Result::ok)
            .ok_or(SandboxError::TooManyTransfers { what: "file requests", limit: REQUESTS_MAX })?;
        let (interactive, _) = self.lanes(guest).await?;
        interactive.call(operation, max_wait, memory).await
    }

    /// Sends a request on the bulk lane that belongs to a channel there.
    pub(crate) async fn call_bulk(
        &self,
        guest: &GuestConnection,
        operation: Operation,
        max_wait: Duration,
    ) -> Result<IoReply> {
        let (_, bulk) = self.lanes(guest).await?;
        bulk.call(operation, max_wait, None).await
    }

    /// Sends a request that opens a channel. Its queues count for the budget.
    pub(crate) async fn open(
        &self,
        guest: &GuestConnection,
        budget: OwnerBudget<'_>,
        kind: ChannelKind,
        operation: Operation,
        max_wait: Duration,
    ) -> Result<Channel> {
        let permit = self.channel_permit(kind).await?;
        let memory = budget.reserve(2 * kind.window())?;
        let (interactive, bulk) = self.lanes(guest).await?;
        let lane = if kind == ChannelKind::Transfer { bulk } else { interactive };
        let mut started = lane.start(operation, max_wait, kind.window() as u64, None).await?;
        if started.reply.content.is_some() {
            // The reply has the whole content, and no frames follow.
            started.cancel_guard.disarm();
        }
        let limits = ChannelLimits { _permit: permit, queue_max: kind.window(), memory };
        Ok(Channel::new(lane, started, limits))
    }

    async fn channel_permit(&self, kind: ChannelKind) -> Result<OwnedSemaphorePermit> {
        let (semaphore, what, limit) = match kind {
            ChannelKind::Transfer => (&self.transfers, "transfers of files", TRANSFERS_MAX),
            ChannelKind::Watch => (&self.watches, "watches", WATCHES_MAX),
            ChannelKind::Connection => (&self.connections, "connections to ports", CONNECTIONS_MAX),
        };
        let wait = if kind == ChannelKind::Transfer { QUEUE_TIMEOUT } else { Duration::ZERO };
        let permit = timeout(wait, semaphore.clone().acquire_owned()).await;
        permit.ok().and_then(std::result::Result::ok).ok_or(SandboxError::TooManyTransfers { what, limit })
    }

    /// Returns the lanes of the worker, which is started if none runs.
    async fn lanes(&self, guest: &GuestConnection) -> Result<(Arc<Lane>, Arc<Lane>)> {
        *self.last_use.lock() = Some(Instant::now());
        if let Some(lanes) = self.lanes.borrow().open() {
            return Ok(lanes);
        }
        let _starting = self.starting.lock().await;
        if let Some(lanes) = self.lanes.borrow().open() {
            return Ok(lanes);
        }
        self.start(guest).await
    }

    /// Starts a worker. Returns its lanes: the interactive one, and that for bulk data.
    async fn start(&self, guest: &GuestConnection) -> Result<(Arc<Lane>, Arc<Lane>)> {
        if !guest.stream()?.capabilities.serves_io {
            return Err(guest.outdated_error());
        }
        self.close();
        let ticket = Token::new().context(|| "make a ticket".to_owned())?;
        *self.ticket_hash.lock() = Some(ticket.hash());
        self.start_failure.send_replace(None);
        let mut lanes = self.lanes.subscribe();
        let mut failure = self.start_failure.subscribe();
        guest.send(ServerPayload::StartIo(StartIo { ticket: ticket.as_bytes().to_vec() })).await?;
        let connected = async {
            tokio::select! {
                changed = lanes.wait_for(|lanes| lanes.open().is_some()) => {
                    changed.ok().and_then(|lanes| lanes.open()).ok_or_else(|| guest.away_error())
                }
                failed = failure.wait_for(Option::is_some) => {
                    let message = failed.ok().and_then(|message| message.clone()).unwrap_or_default();
                    Err(guest.lost_error(&message))
                }
                lost = guest.wait_for_loss() => Err(lost),
            }
        };
        let connected = timeout(START_TIMEOUT, connected).await;
        connected.unwrap_or_else(|_| Err(guest.lost_error("its I/O worker did not connect")))
    }
}
