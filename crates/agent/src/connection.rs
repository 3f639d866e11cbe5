//! The connection to the server: made by the agent, and made anew whenever it is lost.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper_util::rt::TokioIo;
use rustix::process::Pid;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use workspace_agent_protocol::GENERATION;
use workspace_agent_protocol::output::Stream;
use workspace_agent_protocol::v1::agent_message::Payload as Said;
use workspace_agent_protocol::v1::agent_service_client::AgentServiceClient;
use workspace_agent_protocol::v1::server_message::Payload as Heard;
use workspace_agent_protocol::v1::{
    AgentMessage, CommandInput, CommandOutput, CommandProgress, Heartbeat, OutputStored, OutputTaken,
    OutputType, Process, Processes, PtyOutput, RegisterRequest, RequestFailed, ServerMessage, pty_output,
};

use crate::command::{self, CommandError};
use crate::guest::{Guest, Order};
use crate::output::Piece;
use crate::supervise::Size;
use crate::tree;
use crate::usage;
use crate::way::Way;

/// Between attempts to connect, at first and at last.
const WAIT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
const HEARTBEAT: Duration = Duration::from_secs(30);
/// How much is told of the arguments of a process.
const ARGUMENTS_MAX: usize = 1024;
/// Bytes of arguments of all listed processes together: the server takes no larger message than 512 KiB.
const ALL_ARGUMENTS_MAX: usize = 128 << 10;
/// Processes that are listed at most; together with their arguments they fit into a message.
const PROCESSES_MAX: usize = 4_096;
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
    let mut line = Line { waiting: VecDeque::new(), sandbox: server.sandbox.clone() };
    let register = line.message(Said::Register(registration(server, guest)));
    sender.send(register).await.map_err(|_| Lost::Closed)?;
    let mut heard = client.connect(ReceiverStream::new(receiver)).await?.into_inner();
    let stored = first_answer(&mut heard).await?;
    *registered = true;
    if guest.sends_output() {
        guest.resume(&stored);
    }
    let mut heartbeat = interval(HEARTBEAT);
    loop {
        tokio::select! {
            message = heard.message() => match message? {
                Some(message) => line.obey(guest, message).await,
                None => return Err(Lost::Closed),
            },
            // What the server says is heard also while it takes nothing.
            room = sender.reserve(), if !line.waiting.is_empty() => {
                let room = room.map_err(|_| Lost::Closed)?;
                if let Some(message) = line.waiting.pop_front() {
                    room.send(message);
                }
            }
            news = guest.news(), if line.waiting.is_empty() => for progress in news {
                line.tell(guest, progress);
            },
            _ = heartbeat.tick() => line.say(Said::Heartbeat(beat())),
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
        capabilities: [
            ("output", if guest.sends_output() { "stream" } else { "files" }),
            ("input", "counted"),
            ("receipts", "input"),
            ("processes", "listed"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        token: server.token.clone(),
        generation: GENERATION,
        commands: guest.all_progress(),
    }
}

/// How much is stored of the output of commands.
async fn first_answer(heard: &mut Streaming<ServerMessage>) -> Result<HashMap<String, u64>, Lost> {
    match heard.message().await?.and_then(|message| message.payload) {
        Some(Heard::RegisterResponse(response)) if response.success => {
            Ok(response.outputs.into_iter().map(|one| (one.command_id, one.stored)).collect())
        }
        Some(Heard::RegisterResponse(response)) => Err(Lost::Refused(response.message)),
        _ => Err(Lost::Closed),
    }
}

fn beat() -> Heartbeat {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    Heartbeat { timestamp, resource_usage: None }
}

/// Describes a process, with as many bytes of its arguments as are left for all.
fn process(owned: tree::Owned, left: &mut usize) -> Process {
    let number = |pid: Pid| u32::try_from(pid.as_raw_nonzero().get()).unwrap_or_default();
    let arguments = tree::arguments(owned.pid, ARGUMENTS_MAX.min(*left));
    *left = left.saturating_sub(arguments.len());
    Process { pid: number(owned.pid), parent: number(owned.parent), command_id: owned.command, arguments }
}

/// The way to the server.
struct Line {
    /// What is to be said. An answer for each order at most, and what was printed since everything was said.
    waiting: VecDeque<AgentMessage>,
    sandbox: String,
}

impl Line {
    fn message(&self, payload: Said) -> AgentMessage {
        AgentMessage { sandbox_id: self.sandbox.clone(), payload: Some(payload) }
    }

    fn say(&mut self, payload: Said) {
        let message = self.message(payload);
        self.waiting.push_back(message);
    }

    /// Says how far a command came; before that what it printed, if the server does not read that itself.
    fn tell(&mut self, guest: &Guest, progress: CommandProgress) {
        for piece in guest.unsent(&progress.command_id) {
            self.say(output_message(&progress.command_id, piece));
        }
        self.say(Said::CommandProgress(progress));
    }

    fn started(&mut self, id: String, started: Result<(), CommandError>) {
        if let Err(error) = started {
            let message = error.to_string();
            self.say(Said::RequestFailed(RequestFailed { id, message, never_began: true }));
        }
    }

    fn passed(&mut self, id: String, passed: bool) {
        if !passed {
            let message = "no such command takes orders now".to_owned();
            self.say(Said::RequestFailed(RequestFailed { id, message, never_began: false }));
        }
    }

    /// Does what the server asks for. What this guest does not know it leaves undone: the server is newer.
    async fn obey(&mut self, guest: &Guest, message: ServerMessage) {
        match message.payload {
            Some(Heard::RunCommand(request)) => {
                let id = request.command_id.clone();
                self.started(id, command::start(guest, request));
            }
            Some(Heard::CreatePty(request)) => {
                let id = request.pty_id.clone();
                self.started(id, command::start_terminal(guest, request));
            }
            Some(Heard::PtyInput(input)) => {
                let given = guest.order(&input.pty_id, Order::Input(input.data)).await;
                self.passed(input.pty_id, given);
            }
            Some(Heard::ResizePty(request)) => {
                let size = Size::of(request.cols, request.rows);
                let sent = guest.order(&request.pty_id, Order::Resize(size)).await;
                self.passed(request.pty_id, sent);
            }
            Some(Heard::KillPty(request)) => {
                // A shell that is asked to end does not; one whose terminal is gone would, in its own time.
                let killed = guest.order(&request.pty_id, Order::Signal(libc::SIGKILL)).await;
                self.passed(request.pty_id, killed);
            }
            Some(Heard::KillCommand(request)) => {
                let sent = guest.order(&request.command_id, Order::Signal(request.signal)).await;
                self.passed(request.command_id, sent);
            }
            Some(Heard::CommandInput(CommandInput { command_id, data, close })) => {
                let given = data.is_empty() || guest.order(&command_id, Order::Input(data)).await;
                let closed = !close || guest.order(&command_id, Order::CloseInput).await;
                self.passed(command_id, given && closed);
            }
            Some(Heard::OutputTaken(OutputTaken { command_id, taken })) => {
                // One that has ended waits for nobody.
                guest.order(&command_id, Order::OutputTaken(taken)).await;
            }
            Some(Heard::OutputStored(OutputStored { command_id, stored })) => {
                let is_waiting = guest.stored(&command_id, stored);
                if is_waiting {
                    guest.order(&command_id, Order::OutputStored).await;
                }
            }
            Some(Heard::ForgetCommand(request)) => guest.forget(&request.command_id),
            Some(Heard::Processes(_)) => {
                let mut left = ALL_ARGUMENTS_MAX;
                let listed = tree::owned(&guest.supervisors()).into_iter().take(PROCESSES_MAX);
                let processes = listed.map(|owned| process(owned, &mut left)).collect();
                self.say(Said::Processes(Processes { processes }));
            }
            Some(Heard::Usage(_)) => {
                let answer = Heartbeat { resource_usage: usage::read().ok(), ..beat() };
                self.say(Said::Heartbeat(answer));
            }
            _ => {}
        }
    }
}

/// A piece of output as it is sent: of a terminal, or of a command.
fn output_message(id: &str, piece: Piece) -> Said {
    let is_terminal = id.starts_with("pty-");
    match piece {
        Piece::Data(frame) if is_terminal => Said::PtyOutput(PtyOutput {
            pty_id: id.to_owned(),
            payload: Some(pty_output::Payload::Data(frame.data)),
            offset: frame.offset,
            timestamp: frame.time,
        }),
        Piece::End(time, end) if is_terminal => Said::PtyOutput(PtyOutput {
            pty_id: id.to_owned(),
            payload: Some(pty_output::Payload::ExitCode(end.exit_code)),
            offset: 0,
            timestamp: time,
        }),
        Piece::Data(frame) => {
            let kind = if frame.stream == Stream::Stderr { OutputType::Stderr } else { OutputType::Stdout };
            let (data, offset, timestamp) = (frame.data, frame.offset, frame.time);
            let command_id = id.to_owned();
            let output = CommandOutput { command_id, data, offset, timestamp, ..CommandOutput::default() };
            Said::CommandOutput(CommandOutput { r#type: kind.into(), ..output })
        }
        Piece::End(timestamp, end) => Said::CommandOutput(CommandOutput {
            command_id: id.to_owned(),
            r#type: OutputType::Exit.into(),
            exit_code: end.exit_code,
            timed_out: end.timed_out,
            timestamp,
            ..CommandOutput::default()
        }),
    }
}
