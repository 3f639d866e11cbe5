//! Where guest agents come in: each sandbox has a socket of its own, and who connects there must have its token.
//!
//! A sandbox that floods its socket keeps nobody but itself waiting: each has a few connections at most, and one
//! that does not say who it is in time is closed.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Sleep, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};
use workspace_agent_protocol::GENERATION;
use workspace_agent_protocol::v1::agent_message::Payload as Said;
use workspace_agent_protocol::v1::agent_service_server::{AgentService, AgentServiceServer};
use workspace_agent_protocol::v1::server_message::Payload as Asked;
use workspace_agent_protocol::v1::{
    AgentMessage, RegisterRequest, RegisterResponse, ServerConfig, ServerMessage,
};

use crate::id;
use crate::live::Live;

/// How many connections a sandbox may have; a guest needs one, and another while the first is being lost.
const CONNECTIONS: usize = 16;
/// How long a guest may take to say who it is.
const REGISTER: Duration = Duration::from_secs(5);
/// A guest says something at least this often, or is taken for gone.
const HEARTBEAT: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(95);
/// Orders on their way to the guest.
const QUEUE: usize = 256;

/// Hears what guests say.
#[tonic::async_trait]
pub(crate) trait Listener: Send + Sync + 'static {
    /// A guest connected on the line of this number, and tells what it runs.
    async fn registered(&self, live: &Arc<Live>, line: u64, request: RegisterRequest);
    /// It says something.
    async fn heard(&self, live: &Arc<Live>, said: Said);
    /// Its line was lost and no other has taken its place.
    async fn lost(&self, live: &Arc<Live>);
}

/// Lets the guest of a sandbox in, until the task is ended.
pub(crate) fn open(socket: UnixListener, live: &Arc<Live>, listener: Arc<dyn Listener>) {
    // The task is kept by the sandbox, so it must not keep the sandbox.
    let door = AgentServiceServer::new(Door { live: Arc::downgrade(live), listener });
    let id = live.id.clone();
    live.keep(tokio::spawn(async move {
        let mut server = Server::builder().max_concurrent_streams(2).concurrency_limit_per_connection(2);
        if let Err(error) = server.add_service(door).serve_with_incoming(incoming(socket)).await {
            tracing::error!(sandbox = id, %error, "the guest's socket failed");
        }
    }));
}

struct Door {
    live: Weak<Live>,
    listener: Arc<dyn Listener>,
}

#[tonic::async_trait]
impl AgentService for Door {
    type ConnectStream = ReceiverStream<Result<ServerMessage, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let live = self.live.upgrade().ok_or_else(|| Status::unavailable("the sandbox is gone"))?;
        let known = request.extensions().get::<Known>().cloned();
        let mut said = request.into_inner();
        let registration = registration(&live, &mut said).await?;
        if let Some(known) = known {
            known.0.store(true, Ordering::Relaxed);
        }
        let (orders, mut ordered) = mpsc::channel::<ServerMessage>(QUEUE);
        let (sender, receiver) = mpsc::channel(QUEUE);
        // The welcome is the first message of the line, whatever is ordered meanwhile.
        let welcome = Ok(ServerMessage { payload: Some(Asked::RegisterResponse(welcome())) });
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
        let line = live.connect(orders, counts_input, confirms_input);
        let listener = self.listener.clone();
        tokio::spawn(async move {
            listener.registered(&live, line, registration).await;
            while let Ok(Ok(Some(message))) = timeout(SILENCE, said.message()).await {
                if let Some(payload) = message.payload {
                    listener.heard(&live, payload).await;
                }
            }
            if live.disconnect(line) {
                listener.lost(&live).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// The first message, if it comes from whom it should.
async fn registration(live: &Live, said: &mut Streaming<AgentMessage>) -> Result<RegisterRequest, Status> {
    let first = timeout(REGISTER, said.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("register in time"))??;
    let Some(Said::Register(request)) = first.and_then(|message| message.payload) else {
        return Err(Status::invalid_argument("register first"));
    };
    if request.sandbox_id != live.id || !id::is_token_of(&request.token, &live.token_hash) {
        tracing::warn!(sandbox = live.id, "a guest with another token was refused");
        return Err(Status::unauthenticated("this token is not of this sandbox"));
    }
    if request.generation == 0 || request.generation > GENERATION {
        let message = format!("this server speaks generations 1 to {GENERATION} of the guest's contract");
        return Err(Status::failed_precondition(message));
    }
    Ok(request)
}

fn welcome() -> RegisterResponse {
    let heartbeat_interval_seconds = i32::try_from(HEARTBEAT.as_secs()).unwrap_or(i32::MAX);
    let config = ServerConfig { heartbeat_interval_seconds, ..ServerConfig::default() };
    RegisterResponse { success: true, message: String::new(), config: Some(config) }
}

/// The connections of a socket, a few at a time.
fn incoming(socket: UnixListener) -> impl tokio_stream::Stream<Item = io::Result<Limited>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let connection = tokio::select! {
                accepted = socket.accept() => accepted,
                () = sender.closed() => return,
            };
            match connection {
                Ok((stream, _)) => {
                    if sender.send(Ok(Limited::new(stream, permit))).await.is_err() {
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

/// A connection that counts, and is closed when nobody says in time whose it is.
struct Limited {
    stream: UnixStream,
    _permit: OwnedSemaphorePermit,
    known: Known,
    deadline: Pin<Box<Sleep>>,
}

/// Whether it is known whose a connection is.
#[derive(Clone, Default)]
struct Known(Arc<AtomicBool>);

impl Limited {
    fn new(stream: UnixStream, permit: OwnedSemaphorePermit) -> Self {
        Self { stream, _permit: permit, known: Known::default(), deadline: Box::pin(sleep(REGISTER)) }
    }

    /// Whether it took too long. Wakes who reads when it does.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        !self.known.0.load(Ordering::Relaxed)
            && self.deadline.as_mut().poll(cx).is_ready()
            && !self.known.0.load(Ordering::Relaxed)
    }
}

impl Connected for Limited {
    type ConnectInfo = Known;

    fn connect_info(&self) -> Known {
        self.known.clone()
    }
}

impl AsyncRead for Limited {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_late(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Limited {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
