//! Listeners for guest agents, and the protocol after they connect. An agent must have the token of its
//! sandbox.
//!
//! Each sandbox has its own socket; over a network there is one port for all (`tcp.rs`). A sandbox that
//! floods its socket affects only itself: it has a few connections at most, and a connection that does not
//! register in time is closed.
//!
//! The I/O worker, a process of the guest agent that serves files and ports (`io.rs`), connects as well. It
//! authenticates with a ticket, a token that the server makes for each start of a worker, and opens two
//! connections, its lanes: one for interactive requests, one for bulk transfers.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::adapters::Map;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use workspace_agent_protocol::PROTOCOL_VERSION;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::agent_service_server::{AgentService, AgentServiceServer};
use workspace_agent_protocol::v1::io_from_guest::Payload as IoFromGuestPayload;
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{
    AgentMessage, IoFromGuest, IoHello, IoToGuest, OutputStored, RegisterRequest, RegisterResponse,
    ServerConfig, ServerMessage,
};

use crate::guest::connection::Capabilities;
use crate::guest::connection_limit::{ConnectionQuota, LimitedStream, Peer};
use crate::guest::handle::SandboxHandle;
use crate::id;
use crate::io::lane::Queued;
use crate::leaf_mutex::LeafMutex;

/// Maximum number of connections of a sandbox. A guest agent needs one, its I/O worker two, and each another while
/// the first is being lost.
const CONNECTIONS_MAX: usize = 16;
/// Timeout for a guest agent to register.
pub(crate) const REGISTER_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a guest agent sends a heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// Time without a message after which a guest agent is disconnected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(95);
/// Maximum size of a message of a guest agent, in bytes. The first is decoded before its sender is known. Agents
/// send output in smaller pieces, and list processes in fewer bytes.
pub(crate) const MESSAGE_MAX: usize = 512 << 10;
/// Maximum number of queued requests to a guest agent.
const REQUEST_QUEUE: usize = 256;
/// Minimum interval between two log lines about rejected guest agents.
const REJECTION_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Receiver of the messages of guest agents.
#[tonic::async_trait]
pub(crate) trait GuestHandler: Send + Sync + 'static {
    /// Finds the sandbox with this id; `None` if its guest agent may not connect.
    fn sandbox(&self, id: &str) -> Option<Arc<SandboxHandle>>;
    /// Removes from a registration the commands that no server started: a guest agent may report anything.
    async fn drop_unknown_commands(&self, handle: &Arc<SandboxHandle>, request: &mut RegisterRequest) {
        let _ = (handle, request);
    }
    /// Returns the offset up to which the output of each command that a guest agent reports is stored, if the agent
    /// sends output.
    async fn stored_output(
        &self,
        handle: &Arc<SandboxHandle>,
        request: &RegisterRequest,
    ) -> Vec<OutputStored> {
        let _ = (handle, request);
        Vec::new()
    }
    /// Handles a registration on a stream, with the commands that the guest agent runs. Not called for a sandbox
    /// that is being created, which has run nothing and may not be in the catalog.
    async fn on_registered(&self, handle: &Arc<SandboxHandle>, stream: u64, request: RegisterRequest);
    /// Handles a message of a guest agent.
    async fn on_message(&self, handle: &Arc<SandboxHandle>, message: AgentPayload);
    /// Handles the loss of a stream that no other one replaced.
    async fn on_disconnected(&self, handle: &Arc<SandboxHandle>);
}

/// Accepts connections of the guest agent of a sandbox, until the handle is closed.
pub(crate) fn open(socket: UnixListener, handle: &Arc<SandboxHandle>, handler: Arc<dyn GuestHandler>) {
    // The handle owns the task, so the task must not own the handle.
    let service = GuestService::new(Some(Arc::downgrade(handle)), handler).service();
    let id = handle.id.clone();
    handle.keep_task(tokio::spawn(async move {
        if let Err(error) =
            server().add_service(service).serve_with_incoming(accept_connections(socket)).await
        {
            tracing::error!(sandbox = id, %error, "guest socket failed");
        }
    }));
}

/// Creates a server for guest agents and their I/O workers. A connection needs one stream, and another while the first
/// is being lost.
pub(crate) fn server() -> Server {
    Server::builder().max_concurrent_streams(2).concurrency_limit_per_connection(2)
}

/// The gRPC service for guest agents, over a Unix socket or TCP.
pub(crate) struct GuestService {
    /// The only sandbox whose guest agent is accepted; `None` for all.
    only: Option<Weak<SandboxHandle>>,
    /// Handler of the messages of guest agents.
    handler: Arc<dyn GuestHandler>,
    /// Limits the connections of each sandbox.
    connections: Arc<ConnectionQuota<String>>,
    /// Count of rejected agents, so that they do not fill the log.
    rejections: Rejections,
}

impl GuestService {
    pub(crate) fn new(only: Option<Weak<SandboxHandle>>, handler: Arc<dyn GuestHandler>) -> Self {
        Self {
            only,
            handler,
            connections: ConnectionQuota::new(CONNECTIONS_MAX, usize::MAX),
            rejections: Rejections::default(),
        }
    }

    pub(crate) fn service(self) -> AgentServiceServer<Self> {
        AgentServiceServer::new(self).max_decoding_message_size(MESSAGE_MAX)
    }

    fn sandbox(&self, id: &str) -> Option<Arc<SandboxHandle>> {
        match &self.only {
            Some(only) => only.upgrade().filter(|handle| handle.id == id),
            None => self.handler.sandbox(id),
        }
    }

    /// Finds the sandbox of a guest agent, if it has its token. Takes the same time and returns the same error
    /// whether there is no such sandbox or the token is wrong.
    fn admit(&self, request: &RegisterRequest, peer: Option<&Peer>) -> Result<Arc<SandboxHandle>, Status> {
        let handle = self.sandbox(&request.sandbox_id);
        let hash = handle.as_ref().map_or(id::NO_TOKEN_HASH, |handle| handle.token_hash.as_str());
        let is_valid = id::is_token_of(&request.token, hash);
        if let Some(handle) = handle.filter(|_| is_valid) {
            return Ok(handle);
        }
        Err(self.reject(&request.sandbox_id, peer))
    }

    /// Finds the sandbox of an I/O worker, if it has the ticket of the sandbox's current worker.
    fn admit_worker(&self, hello: &IoHello, peer: Option<&Peer>) -> Result<Arc<SandboxHandle>, Status> {
        let handle = self.sandbox(&hello.sandbox_id);
        let is_valid = match &handle {
            Some(handle) => handle.io.has_ticket(&hello.ticket),
            None => id::is_token_of(&hello.ticket, id::NO_TOKEN_HASH),
        };
        handle.filter(|_| is_valid).ok_or_else(|| self.reject(&hello.sandbox_id, peer))
    }

    fn reject(&self, sandbox: &str, peer: Option<&Peer>) -> Status {
        if let Some(refused) = self.rejections.count() {
            let peer = peer.and_then(Peer::address);
            tracing::warn!(sandbox, ?peer, refused, "rejected guest agents with an invalid token");
        }
        Status::unauthenticated("the token does not belong to this sandbox")
    }

    /// Counts a connection for the limit of its sandbox.
    fn identify(&self, peer: Option<Peer>, handle: &SandboxHandle) -> Result<(), Status> {
        if let Some(peer) = peer {
            let permit = self.connections.acquire(handle.id.clone());
            peer.identify(
                permit.ok_or_else(|| Status::resource_exhausted("this sandbox has too many connections"))?,
            );
        }
        Ok(())
    }
}

/// Counts rejections, so that repeated ones do not fill the log.
#[derive(Debug, Default)]
struct Rejections(LeafMutex<(u64, Option<Instant>)>);

impl Rejections {
    /// Counts one more rejection, and returns the number to log, if a log line is due.
    fn count(&self) -> Option<u64> {
        let mut inner = self.0.lock();
        let (unlogged, last_logged) = &mut *inner;
        *unlogged += 1;
        if last_logged.is_some_and(|time| time.elapsed() < REJECTION_LOG_INTERVAL) {
            return None;
        }
        *last_logged = Some(Instant::now());
        Some(std::mem::take(unlogged))
    }
}

#[tonic::async_trait]
impl AgentService for GuestService {
    type ConnectStream = ReceiverStream<Result<ServerMessage, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let mut messages = request.into_inner();
        let mut registration = receive_registration(&mut messages).await?;
        let handle = self.admit(&registration, peer.as_ref())?;
        // `generation` is the protocol version.
        check_protocol_version(registration.generation)?;
        self.identify(peer, &handle)?;
        let (requests, mut queued) = mpsc::channel::<ServerMessage>(REQUEST_QUEUE);
        let (sender, receiver) = mpsc::channel(REQUEST_QUEUE);
        self.handler.drop_unknown_commands(&handle, &mut registration).await;
        // The response to the registration is the first message of the stream, also if a request comes
        // meanwhile.
        let outputs = self.handler.stored_output(&handle, &registration).await;
        let welcome = Ok(ServerMessage { payload: Some(ServerPayload::RegisterResponse(welcome(outputs))) });
        sender.send(welcome).await.map_err(|_| Status::unavailable("the stream was closed"))?;
        tokio::spawn(async move {
            while let Some(request) = queued.recv().await {
                if sender.send(Ok(request)).await.is_err() {
                    return;
                }
            }
        });
        let capabilities = Capabilities::of(&registration.capabilities);
        // Running commands must count for the limit before another one is started.
        for progress in &registration.commands {
            handle.commands.get_or_add(&progress.command_id);
        }
        tracing::debug!(sandbox = handle.id, version = registration.agent_version, "guest agent connected");
        // Read first: the connection wakes the creation of the sandbox, and its first command may run before
        // the task below.
        let is_being_created = handle.is_being_created.load(Ordering::SeqCst);
        let stream = handle.guest.connect(requests, capabilities);
        let handler = self.handler.clone();
        tokio::spawn(async move {
            if !is_being_created {
                handler.on_registered(&handle, stream, registration).await;
            }
            while let Some(message) = next_message(&handle, &mut messages).await {
                if let Some(payload) = message.payload {
                    handler.on_message(&handle, payload).await;
                }
            }
            if handle.guest.disconnect(stream) {
                handler.on_disconnected(&handle).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    type IoStream = Map<ReceiverStream<Queued>, fn(Queued) -> Result<IoToGuest, Status>>;

    async fn io(&self, request: Request<Streaming<IoFromGuest>>) -> Result<Response<Self::IoStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let mut messages = request.into_inner();
        let hello = hello(&mut messages).await?;
        let handle = self.admit_worker(&hello, peer.as_ref())?;
        // `generation` is the protocol version.
        check_protocol_version(hello.generation)?;
        self.identify(peer, &handle)?;
        let attached = handle.io.attach(&handle.id, hello.lane());
        let (lane, receiver) = attached.ok_or_else(|| Status::already_exists("this lane is connected"))?;
        tokio::spawn(async move { lane.receive(messages).await });
        Ok(Response::new(ReceiverStream::new(receiver).map(Queued::into_message)))
    }
}

/// Waits for the next message of a guest agent. `None` if the stream is closed, or the agent sent nothing for
/// [`IDLE_TIMEOUT`].
async fn next_message(
    handle: &SandboxHandle,
    messages: &mut Streaming<AgentMessage>,
) -> Option<AgentMessage> {
    loop {
        match timeout(IDLE_TIMEOUT, messages.message()).await {
            Ok(message) => return message.ok().flatten(),
            // A frozen guest agent sends nothing.
            Err(_) if handle.guest.may_be_frozen() => {}
            Err(_) => return None,
        }
    }
}

/// Waits for the first message of a lane, which names its sandbox and the lane.
async fn hello(messages: &mut Streaming<IoFromGuest>) -> Result<IoHello, Status> {
    let first = timeout(REGISTER_TIMEOUT, messages.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("register in time"))??;
    match first.and_then(|message| message.payload) {
        Some(IoFromGuestPayload::Hello(hello)) => Ok(hello),
        _ => Err(Status::invalid_argument("register first")),
    }
}

/// Waits for the first message, which must be a registration.
async fn receive_registration(messages: &mut Streaming<AgentMessage>) -> Result<RegisterRequest, Status> {
    let first = timeout(REGISTER_TIMEOUT, messages.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("register in time"))??;
    match first.and_then(|message| message.payload) {
        Some(AgentPayload::Register(request)) => Ok(request),
        _ => Err(Status::invalid_argument("register first")),
    }
}

pub(crate) fn check_protocol_version(version: u32) -> Result<(), Status> {
    if (1..=PROTOCOL_VERSION).contains(&version) {
        return Ok(());
    }
    let message = format!("this server supports guest protocol versions 1 to {PROTOCOL_VERSION}");
    Err(Status::failed_precondition(message))
}

/// Returns the response to a registration.
fn welcome(outputs: Vec<OutputStored>) -> RegisterResponse {
    let heartbeat_interval_seconds = i32::try_from(HEARTBEAT_INTERVAL.as_secs()).unwrap_or(i32::MAX);
    let config = ServerConfig { heartbeat_interval_seconds, ..ServerConfig::default() };
    RegisterResponse { success: true, message: String::new(), config: Some(config), outputs }
}

/// Accepts the connections of a socket, a few at a time.
fn accept_connections(
    socket: UnixListener,
) -> impl tokio_stream::Stream<Item = io::Result<LimitedStream<UnixStream>>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let quota = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(permit) = quota.clone().acquire_owned().await else { return };
            let connection = tokio::select! {
                accepted = socket.accept() => accepted,
                () = sender.closed() => return,
            };
            match connection {
                Ok((stream, _)) => {
                    let deadline = Instant::now() + REGISTER_TIMEOUT;
                    let limited = LimitedStream::new(stream, Peer::default(), deadline, Some(permit));
                    if sender.send(Ok(limited)).await.is_err() {
                        return;
                    }
                }
                // Perhaps out of file descriptors; the guest agent retries.
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a guest agent");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeated_rejections_are_logged_from_time_to_time() {
        let rejections = Rejections::default();
        let logged: Vec<_> = (0..5).map(|_| rejections.count()).collect();
        assert_eq!(logged, [Some(1), None, None, None, None]);
        tokio::time::advance(REJECTION_LOG_INTERVAL).await;
        assert_eq!(rejections.count(), Some(5));
    }
}
