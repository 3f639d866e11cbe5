//! Where guest agents come in, and what they say there. Who comes in must have the token of its sandbox.
//!
//! Each sandbox has a socket of its own; over a network there is one port for all (`port.rs`). A sandbox that floods
//! its socket keeps nobody but itself waiting: each has a few connections at most, and one that does not say who it is
//! in time is closed.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use workspace_agent_protocol::GENERATION;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::agent_service_server::{AgentService, AgentServiceServer};
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{
    AgentMessage, OutputStored, RegisterRequest, RegisterResponse, ServerConfig, ServerMessage,
};

use crate::guest::connection_limit::{ConnectionQuota, Identified, LimitedStream};
use crate::guest::handle::SandboxHandle;
use crate::id;

/// How many connections a sandbox may have; a guest needs one, and another while the first is being lost.
const CONNECTIONS: usize = 16;
/// How long a guest may take to say who it is.
pub(crate) const REGISTER: Duration = Duration::from_secs(5);
/// A guest says something at least this often, or is taken for gone.
const HEARTBEAT: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(95);
/// Largest message of a guest, in bytes. The first is decoded before its sender is known. Guests send output in smaller
/// pieces, and list processes in fewer bytes.
pub(crate) const MESSAGE_MAX: usize = 512 << 10;
/// Orders on their way to the guest.
const QUEUE: usize = 256;
/// Who is refused again and again is told of so often.
const TELL: Duration = Duration::from_secs(10);

/// Hears what guests say.
#[tonic::async_trait]
pub(crate) trait GuestHandler: Send + Sync + 'static {
    /// The sandbox of that id.
    fn sandbox(&self, id: &str) -> Option<Arc<SandboxHandle>>;
    /// Takes out of a registration the commands that the server did not start: a guest may say anything.
    async fn retain_started(&self, handle: &Arc<SandboxHandle>, request: &mut RegisterRequest) {
        let _ = (handle, request);
    }
    /// How much is stored of the output that a guest sends, for each command that it tells of.
    async fn stored(&self, handle: &Arc<SandboxHandle>, request: &RegisterRequest) -> Vec<OutputStored> {
        let _ = (handle, request);
        Vec::new()
    }
    /// A guest connected on the line of this number, and tells what it runs. Not called for a sandbox that is being made,
    /// which has run nothing and may not be in the catalog.
    async fn registered(&self, handle: &Arc<SandboxHandle>, line: u64, request: RegisterRequest);
    /// It says something.
    async fn heard(&self, handle: &Arc<SandboxHandle>, said: AgentPayload);
    /// Its line was lost and no other has taken its place.
    async fn lost(&self, handle: &Arc<SandboxHandle>);
}

/// Lets the guest of a sandbox in, until the task is ended.
pub(crate) fn open(socket: UnixListener, handle: &Arc<SandboxHandle>, listener: Arc<dyn GuestHandler>) {
    // The task is kept by the sandbox, so it must not keep the sandbox.
    let service = GuestService::new(Some(Arc::downgrade(handle)), listener).service();
    let id = handle.id.clone();
    handle.keep_task(tokio::spawn(async move {
        if let Err(error) = server().add_service(service).serve_with_incoming(incoming(socket)).await {
            tracing::error!(sandbox = id, %error, "the guest's socket failed");
        }
    }));
}

/// A server for guests, each of which needs one stream, and another while the first is being lost.
pub(crate) fn server() -> Server {
    Server::builder().max_concurrent_streams(2).concurrency_limit_per_connection(2)
}

/// What listens to guests, by whichever way they came.
pub(crate) struct GuestService {
    /// Whose guest comes in; none where everybody's does.
    only: Option<Weak<SandboxHandle>>,
    listener: Arc<dyn GuestHandler>,
    /// The connections of each sandbox.
    lines: Arc<ConnectionQuota<String>>,
    refusals: Refusals,
}

impl GuestService {
    pub(crate) fn new(only: Option<Weak<SandboxHandle>>, listener: Arc<dyn GuestHandler>) -> Self {
        Self {
            only,
            listener,
            lines: ConnectionQuota::new(CONNECTIONS, usize::MAX),
            refusals: Refusals::default(),
        }
    }

    pub(crate) fn service(self) -> AgentServiceServer<Self> {
        AgentServiceServer::new(self).max_decoding_message_size(MESSAGE_MAX)
    }

    fn sandbox(&self, id: &str) -> Option<Arc<SandboxHandle>> {
        match &self.only {
            Some(only) => only.upgrade().filter(|handle| handle.id == id),
            None => self.listener.sandbox(id),
        }
    }

    /// The sandbox that a guest speaks for, if it has its token. Takes as long and says the same whether there is no
    /// such sandbox or the token is another's.
    fn admit(
        &self,
        request: &RegisterRequest,
        identified: Option<&Identified>,
    ) -> Result<Arc<SandboxHandle>, Status> {
        let handle = self.sandbox(&request.sandbox_id);
        let hash = handle.as_ref().map_or(id::NOBODYS, |handle| handle.token_hash.as_str());
        let fits = id::is_token_of(&request.token, hash);
        if let Some(handle) = handle.filter(|_| fits) {
            return Ok(handle);
        }
        if let Some(refused) = self.refusals.count() {
            let (sandbox, peer) = (&request.sandbox_id, identified.and_then(Identified::peer));
            tracing::warn!(sandbox, ?peer, refused, "guests with another token were refused");
        }
        Err(Status::unauthenticated("this token is not of this sandbox"))
    }
}

/// Counts refusals, so that who is refused all the time does not fill the log.
#[derive(Debug, Default)]
struct Refusals(Mutex<(u64, Option<Instant>)>);

impl Refusals {
    /// One more; how many to tell of, if it is time.
    fn count(&self) -> Option<u64> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (untold, told) = &mut *inner;
        *untold += 1;
        if told.is_some_and(|told| told.elapsed() < TELL) {
            return None;
        }
        *told = Some(Instant::now());
        Some(std::mem::take(untold))
    }
}

#[tonic::async_trait]
impl AgentService for GuestService {
    type ConnectStream = ReceiverStream<Result<ServerMessage, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let identified = request.extensions().get::<Identified>().cloned();
        let mut said = request.into_inner();
        let mut registration = registration(&mut said).await?;
        let handle = self.admit(&registration, identified.as_ref())?;
        check_generation(registration.generation)?;
        if let Some(identified) = identified {
            let permit = self.lines.enter(handle.id.clone());
            identified.set(
                permit.ok_or_else(|| Status::resource_exhausted("this sandbox has too many connections"))?,
            );
        }
        let (orders, mut ordered) = mpsc::channel::<ServerMessage>(QUEUE);
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.listener.retain_started(&handle, &mut registration).await;
        // The welcome is the first message of the line, whatever is ordered meanwhile.
        let outputs = self.listener.stored(&handle, &registration).await;
        let welcome = Ok(ServerMessage { payload: Some(ServerPayload::RegisterResponse(welcome(outputs))) });
        sender.send(welcome).await.map_err(|_| Status::unavailable("the line is lost"))?;
        tokio::spawn(async move {
            while let Some(order) = ordered.recv().await {
                if sender.send(Ok(order)).await.is_err() {
                    return;
                }
            }
        });
        let counts_input = registration.capabilities.get("input").is_some_and(|how| how == "counted");
        let confirms_input = registration.capabilities.contains_key("receipts");
        // Whoever counts commands before he orders another knows of those that run.
        for told in &registration.commands {
            handle.commands.get_or_add(&told.command_id);
        }
        tracing::debug!(
            sandbox = handle.id,
            version = registration.agent_version,
            "the guest agent connected"
        );
        // Read first: the connection wakes whoever makes the sandbox, and its first command may run before the task below.
        let is_being_made = handle.is_being_made.load(Ordering::SeqCst);
        let line = handle.guest.connect(orders, counts_input, confirms_input);
        let listener = self.listener.clone();
        tokio::spawn(async move {
            if !is_being_made {
                listener.registered(&handle, line, registration).await;
            }
            while let Ok(Ok(Some(message))) = timeout(SILENCE, said.message()).await {
                if let Some(payload) = message.payload {
                    listener.heard(&handle, payload).await;
                }
            }
            if handle.guest.disconnect(line) {
                listener.lost(&handle).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// The first message, in which a guest says who it is.
async fn registration(said: &mut Streaming<AgentMessage>) -> Result<RegisterRequest, Status> {
    let first = timeout(REGISTER, said.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("register in time"))??;
    match first.and_then(|message| message.payload) {
        Some(AgentPayload::Register(request)) => Ok(request),
        _ => Err(Status::invalid_argument("register first")),
    }
}

pub(crate) fn check_generation(generation: u32) -> Result<(), Status> {
    if (1..=GENERATION).contains(&generation) {
        return Ok(());
    }
    let message = format!("this server speaks generations 1 to {GENERATION} of the guest's contract");
    Err(Status::failed_precondition(message))
}

fn welcome(outputs: Vec<OutputStored>) -> RegisterResponse {
    let heartbeat_interval_seconds = i32::try_from(HEARTBEAT.as_secs()).unwrap_or(i32::MAX);
    let config = ServerConfig { heartbeat_interval_seconds, ..ServerConfig::default() };
    RegisterResponse { success: true, message: String::new(), config: Some(config), outputs }
}

/// The connections of a socket, a few at a time.
fn incoming(socket: UnixListener) -> impl tokio_stream::Stream<Item = io::Result<LimitedStream<UnixStream>>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let quota = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(permit) = quota.clone().acquire_owned().await else { return };
            let connection = tokio::select! {
                accepted = socket.accept() => accepted,
                () = sender.closed() => return,
            };
            match connection {
                Ok((stream, _)) => {
                    let deadline = Instant::now() + REGISTER;
                    let limited = LimitedStream::new(stream, Identified::default(), deadline, Some(permit));
                    if sender.send(Ok(limited)).await.is_err() {
                        return;
                    }
                }
                // Out of descriptors, perhaps; whoever dials tries again.
                Err(error) => {
                    tracing::warn!(%error, "a guest could not be let in");
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
    async fn who_is_refused_all_the_time_is_told_of_from_time_to_time() {
        let refusals = Refusals::default();
        let told: Vec<_> = (0..5).map(|_| refusals.count()).collect();
        assert_eq!(told, [Some(1), None, None, None, None]);
        tokio::time::advance(TELL).await;
        assert_eq!(refusals.count(), Some(5));
    }
}
