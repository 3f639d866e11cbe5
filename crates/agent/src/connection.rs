//! The connection to the server: made by the agent, and made anew whenever it is lost.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use workspace_agent_protocol::GENERATION;
use workspace_agent_protocol::v1::agent_message::Payload as Said;
use workspace_agent_protocol::v1::agent_service_client::AgentServiceClient;
use workspace_agent_protocol::v1::server_message::Payload as Heard;
use workspace_agent_protocol::v1::{
    AgentMessage, CommandInput, Heartbeat, OutputTaken, RegisterRequest, RequestFailed, ServerMessage,
};

use crate::command::{self, CommandError};
use crate::guest::{Guest, Order};
use crate::supervise::Size;
use crate::usage;
use crate::way::Way;

/// Between attempts to connect, at first and at last.
const WAIT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Messages on their way to the server.
const QUEUE: usize = 64;

/// How to reach the server, and as whom.
pub(crate) struct Server {
    pub(crate) way: Way,
    pub(crate) sandbox: String,
    pub(crate) token: Vec<u8>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("cannot connect: {}", innermost(.0))]
    Connect(#[from] tonic::transport::Error),
    #[error("{0}")]
    Status(#[from] Status),
    #[error("the server refuses this guest: {0}")]
    Refused(String),
    #[error("the server closed the connection")]
    Closed,
}

/// What really happened, below what passed it on.
fn innermost(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map_or_else(String::new, ToString::to_string)
}

/// Keeps a connection. Never ends: a server that is away may come back.
pub(crate) async fn keep(server: &Server, guest: &Guest) -> io::Result<()> {
    let mut wait = WAIT.0;
    loop {
        let mut registered = false;
        let lost = talk(server, guest, &mut registered).await;
        if registered {
            wait = WAIT.0;
        }
        if let Err(lost) = lost {
            eprintln!("workspace-agent: {lost}; next attempt in {wait:?}");
        }
        sleep(wait).await;
        wait = (wait * 2).min(WAIT.1);
    }
}

async fn talk(server: &Server, guest: &Guest, registered: &mut bool) -> Result<(), Lost> {
    let mut client = AgentServiceClient::new(connect(server).await?);
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut line = Line { sender, sandbox: server.sandbox.clone() };
    line.say(Said::Register(registration(server, guest))).await?;
    let mut heard = client.connect(ReceiverStream::new(receiver)).await?.into_inner();
    first_answer(&mut heard).await?;
    *registered = true;
    let mut heartbeat = interval(HEARTBEAT);
    loop {
        tokio::select! {
            message = heard.message() => match message? {
                Some(message) => line.obey(guest, message).await?,
                None => return Err(Lost::Closed),
            },
            news = guest.news() => for progress in news {
                line.say(Said::CommandProgress(progress)).await?;
            },
            _ = heartbeat.tick() => line.say(Said::Heartbeat(beat())).await?,
        }
    }
}

async fn connect(server: &Server) -> Result<Channel, Lost> {
    let way = server.way.clone();
    let connector = tower::service_fn(move |_| {
        let way = way.clone();
        async move { Ok::<_, io::Error>(TokioIo::new(way.connect().await?)) }
    });
    Ok(server.way.endpoint().connect_with_connector(connector).await?)
}

fn registration(server: &Server, guest: &Guest) -> RegisterRequest {
    RegisterRequest {
        sandbox_id: server.sandbox.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: [("output", "files"), ("input", "counted"), ("receipts", "input")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        token: server.token.clone(),
        generation: GENERATION,
        commands: guest.all_progress(),
    }
}

async fn first_answer(heard: &mut Streaming<ServerMessage>) -> Result<(), Lost> {
    match heard.message().await?.and_then(|message| message.payload) {
        Some(Heard::RegisterResponse(response)) if response.success => Ok(()),
        Some(Heard::RegisterResponse(response)) => Err(Lost::Refused(response.message)),
        _ => Err(Lost::Closed),
    }
}

fn beat() -> Heartbeat {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    Heartbeat { timestamp, resource_usage: None }
}

/// The way to the server.
struct Line {
    sender: mpsc::Sender<AgentMessage>,
    sandbox: String,
}

impl Line {
    async fn say(&mut self, payload: Said) -> Result<(), Lost> {
        let message = AgentMessage { sandbox_id: self.sandbox.clone(), payload: Some(payload) };
        self.sender.send(message).await.map_err(|_| Lost::Closed)
    }

    async fn started(&mut self, id: String, started: Result<(), CommandError>) -> Result<(), Lost> {
        match started {
            Ok(()) => Ok(()),
            Err(error) => {
                let message = error.to_string();
                self.say(Said::RequestFailed(RequestFailed { id, message, never_began: true })).await
            }
        }
    }

    async fn passed(&mut self, id: String, passed: bool) -> Result<(), Lost> {
        if passed {
            return Ok(());
        }
        let message = "no such command takes orders now".to_owned();
        self.say(Said::RequestFailed(RequestFailed { id, message, never_began: false })).await
    }

    /// Does what the server asks for. What this guest does not know it leaves undone: the server is newer.
    async fn obey(&mut self, guest: &Guest, message: ServerMessage) -> Result<(), Lost> {
        match message.payload {
            Some(Heard::RunCommand(request)) => {
                let id = request.command_id.clone();
                self.started(id, command::start(guest, request)).await?;
            }
            Some(Heard::CreatePty(request)) => {
                let id = request.pty_id.clone();
                self.started(id, command::start_terminal(guest, request)).await?;
            }
            Some(Heard::PtyInput(input)) => {
                let given = guest.order(&input.pty_id, Order::Input(input.data)).await;
                self.passed(input.pty_id, given).await?;
            }
            Some(Heard::ResizePty(request)) => {
                let size = Size::of(request.cols, request.rows);
                let sent = guest.order(&request.pty_id, Order::Resize(size)).await;
                self.passed(request.pty_id, sent).await?;
            }
            Some(Heard::KillPty(request)) => {
                // A shell that is asked to end does not; one whose terminal is gone would, in its own time.
                let killed = guest.order(&request.pty_id, Order::Signal(libc::SIGKILL)).await;
                self.passed(request.pty_id, killed).await?;
            }
            Some(Heard::KillCommand(request)) => {
                let sent = guest.order(&request.command_id, Order::Signal(request.signal)).await;
                self.passed(request.command_id, sent).await?;
            }
            Some(Heard::CommandInput(CommandInput { command_id, data, close })) => {
                let given = data.is_empty() || guest.order(&command_id, Order::Input(data)).await;
                let closed = !close || guest.order(&command_id, Order::CloseInput).await;
                self.passed(command_id, given && closed).await?;
            }
            Some(Heard::OutputTaken(OutputTaken { command_id, taken })) => {
                // One that has ended waits for nobody.
                guest.order(&command_id, Order::OutputTaken(taken)).await;
            }
            Some(Heard::ForgetCommand(request)) => guest.forget(&request.command_id),
            Some(Heard::Usage(_)) => {
                let answer = Heartbeat { resource_usage: usage::read().ok(), ..beat() };
                self.say(Said::Heartbeat(answer)).await?;
            }
            _ => {}
        }
        Ok(())
    }
}
