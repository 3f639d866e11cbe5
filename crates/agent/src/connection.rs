//! Connection from the agent to the server, which is re-established whenever it is lost.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::mpsc;
use tokio::time::{interval, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use workspace_agent_protocol::output::Stream;
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::agent_service_client::AgentServiceClient;
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{
    AgentMessage, CommandInput, CommandOutput, CommandProgress, Heartbeat, OutputStored, OutputTaken,
    OutputType, Process, Processes, PtyOutput, RegisterRequest, RequestFailed, ServerMessage,
    TimersSuspended, pty_output,
};
use workspace_agent_protocol::{IO_WORKER_ID, PROTOCOL_VERSION};

use crate::agent_state::{AgentState, CommandMessage};
use crate::clock::now;
use crate::command::{self, CommandError};
use crate::output::OutputEvent;
use crate::process_tree;
use crate::program_start::TerminalSize;
use crate::server_connection::{ConnectionError, ConnectionParameters, connect};
use crate::usage;

/// First delay between attempts to connect; it doubles with each attempt.
const RETRY_BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Maximum delay between attempts to connect. It is short, because requests of users to a server that was restarted
/// wait for the next attempt.
const RETRY_BACKOFF_MAX: Duration = Duration::from_secs(1);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum size of the reported arguments of a process in bytes.
const ARGUMENTS_MAX: usize = 1024;
/// Maximum size of the arguments of all reported processes in bytes. The server accepts messages of up to
/// 512 KiB.
const ALL_ARGUMENTS_MAX: usize = 128 << 10;
/// Maximum number of reported processes. With their arguments they fit into one message.
const PROCESSES_MAX: usize = 4_096;
/// Maximum number of messages in flight to the server.
const QUEUE_CAPACITY: usize = 64;

/// Maintains the connection. Never returns: an unavailable server may come back.
pub(crate) async fn run(parameters: &ConnectionParameters, agent: &AgentState) -> io::Result<()> {
    let mut backoff = RETRY_BACKOFF_MIN;
    let mut last_error = String::new();
    loop {
        let mut registered = false;
        let result = run_connection(parameters, agent, &mut registered).await;
        if registered {
            backoff = RETRY_BACKOFF_MIN;
        }
        if let Err(error) = result {
            let error = error.to_string();
            // Attempts that fail alike are logged once: the server may be away for long.
            if registered || error != last_error {
                eprintln!("workspace-agent: connection failed: {error}; retrying");
            }
            last_error = error;
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(RETRY_BACKOFF_MAX);
    }
}

/// Connects, registers, and serves requests until the connection is lost. Sets `registered` when the server has
/// accepted the agent.
async fn run_connection(
    parameters: &ConnectionParameters,
    agent: &AgentState,
    registered: &mut bool,
) -> Result<(), ConnectionError> {
    let mut client = AgentServiceClient::new(connect(parameters).await?);
    let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
    let mut outbox = Outbox { queue: VecDeque::new(), parameters };
    let register = outbox.message(AgentPayload::Register(registration(parameters, agent)));
    sender.send(register).await.map_err(|_| ConnectionError::Closed)?;
    let mut incoming = client.connect(ReceiverStream::new(receiver)).await?.into_inner();
    let stored = registration_response(&mut incoming).await?;
    *registered = true;
    if agent.sends_output() {
        // Commands that blocked because the server was away may continue.
        for id in agent.resume_output(&stored) {
            agent.send(&id, CommandMessage::OutputStored).await;
        }
    }
    let mut heartbeat = interval(HEARTBEAT_INTERVAL);
    loop {
        tokio::select! {
            message = incoming.message() => match message? {
                Some(message) => outbox.handle(agent, message).await,
                None => return Err(ConnectionError::Closed),
            },
            // Waits for capacity here, so that messages are received even if the server is slow to accept
            // any.
            permit = sender.reserve(), if !outbox.queue.is_empty() => {
                let permit = permit.map_err(|_| ConnectionError::Closed)?;
                if let Some(message) = outbox.queue.pop_front() {
                    permit.send(message);
                }
            }
            changed = agent.wait_for_progress(), if outbox.queue.is_empty() => for progress in changed {
                outbox.push_progress(agent, progress);
            },
            _ = heartbeat.tick() => outbox.push(AgentPayload::Heartbeat(new_heartbeat())),
        }
    }
}

fn registration(parameters: &ConnectionParameters, agent: &AgentState) -> RegisterRequest {
    RegisterRequest {
        sandbox_id: parameters.sandbox.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: [
            // Sends output over the connection, or writes it to files that the server reads.
            ("output", if agent.sends_output() { "stream" } else { "files" }),
            // Its reports of progress have the numbers of bytes of input that it received and that the command has
            // read.
            ("input", "counted"),
            // Sends such a report as soon as input arrives, so that the server knows what it must not send again.
            ("receipts", "input"),
            // Lists the processes of the sandbox.
            ("processes", "listed"),
            // Has an I/O worker with these operations.
            ("io", crate::io::ANNOUNCED_OPERATIONS),
            // Runs commands without a shell.
            ("argv", "1"),
            // Suspends the timeouts of commands while the sandbox is paused.
            ("timers", "suspend"),
        ]
        .into_iter()
        // Runs commands as other users.
        .chain(agent.privileges().can_switch_users().then_some(("users", "1")))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect(),
        token: parameters.token.clone(),
        generation: PROTOCOL_VERSION,
        commands: agent.all_progress(),
    }
}

/// Waits for the response to the registration. Returns the stored offset of the output of each command.
async fn registration_response(
    incoming: &mut Streaming<ServerMessage>,
) -> Result<HashMap<String, u64>, ConnectionError> {
    match incoming.message().await?.and_then(|message| message.payload) {
        Some(ServerPayload::RegisterResponse(response)) if response.success => {
            Ok(response.outputs.into_iter().map(|output| (output.command_id, output.stored)).collect())
        }
        Some(ServerPayload::RegisterResponse(response)) => Err(ConnectionError::Rejected(response.message)),
        _ => Err(ConnectionError::Closed),
    }
}

fn new_heartbeat() -> Heartbeat {
    Heartbeat { timestamp: now(), resource_usage: None }
}

/// Describes a process. `remaining` is the number of bytes that are left for the arguments of all processes.
fn describe_process(process: process_tree::CommandProcess, remaining: &mut usize) -> Process {
    let to_u32 = |pid: Pid| u32::try_from(pid.as_raw_nonzero().get()).unwrap_or_default();
    let arguments = process_tree::arguments(process.pid, ARGUMENTS_MAX.min(*remaining));
    *remaining = remaining.saturating_sub(arguments.len());
    let (pid, parent) = (to_u32(process.pid), to_u32(process.parent));
    Process { pid, parent, command_id: process.command, arguments }
}

/// Queue of messages to the server.
struct Outbox<'a> {
    /// Messages to send. The queue stays short: a request of the server adds at most one response, and output of
    /// commands is added only when the queue is empty.
    queue: VecDeque<AgentMessage>,
    parameters: &'a ConnectionParameters,
}

impl Outbox<'_> {
    fn message(&self, payload: AgentPayload) -> AgentMessage {
        AgentMessage { sandbox_id: self.parameters.sandbox.clone(), payload: Some(payload) }
    }

    fn push(&mut self, payload: AgentPayload) {
        let message = self.message(payload);
        self.queue.push_back(message);
    }

    /// Queues the progress of a command, preceded by its output if the server does not read it from files.
    fn push_progress(&mut self, agent: &AgentState, progress: CommandProgress) {
        for event in agent.take_unsent(&progress.command_id) {
            self.push(output_message(&progress.command_id, event));
        }
        self.push(AgentPayload::CommandProgress(progress));
    }

    /// Queues the error of a command that could not be started.
    fn report_start(&mut self, id: String, started: Result<(), CommandError>) {
        if let Err(error) = started {
            let message = error.to_string();
            self.push(AgentPayload::RequestFailed(RequestFailed { id, message, never_began: true }));
        }
    }

    /// Queues an error if a message was not delivered, because its command is not running.
    fn report_delivery(&mut self, id: String, delivered: bool) {
        if !delivered {
            let message = "no command with this id is running".to_owned();
            self.push(AgentPayload::RequestFailed(RequestFailed { id, message, never_began: false }));
        }
    }

    /// Handles a request of the server. Unknown requests of a newer server are ignored.
    async fn handle(&mut self, agent: &AgentState, message: ServerMessage) {
        match message.payload {
            Some(ServerPayload::RunCommand(request)) => {
                let id = request.command_id.clone();
                self.report_start(id, command::start(agent, request));
            }
            Some(ServerPayload::CreatePty(request)) => {
                let id = request.pty_id.clone();
                self.report_start(id, command::start_terminal(agent, request));
            }
            Some(ServerPayload::PtyInput(input)) => {
                let delivered = agent.send(&input.pty_id, CommandMessage::Input(input.data)).await;
                self.report_delivery(input.pty_id, delivered);
            }
            Some(ServerPayload::ResizePty(request)) => {
                let size = TerminalSize::of(request.cols, request.rows);
                let delivered = agent.send(&request.pty_id, CommandMessage::Resize(size)).await;
                self.report_delivery(request.pty_id, delivered);
            }
            Some(ServerPayload::KillPty(request)) => {
                // Shells ignore SIGTERM, and may handle SIGHUP only after a while.
                let delivered = agent.send(&request.pty_id, CommandMessage::Signal(libc::SIGKILL)).await;
                self.report_delivery(request.pty_id, delivered);
            }
            Some(ServerPayload::KillCommand(request)) => {
                let delivered = agent.send(&request.command_id, CommandMessage::Signal(request.signal)).await;
                self.report_delivery(request.command_id, delivered);
            }
            Some(ServerPayload::CommandInput(CommandInput { command_id, data, close })) => {
                let delivered = data.is_empty() || agent.send(&command_id, CommandMessage::Input(data)).await;
                let closed = !close || agent.send(&command_id, CommandMessage::CloseInput).await;
                self.report_delivery(command_id, delivered && closed);
            }
            Some(ServerPayload::OutputTaken(OutputTaken { command_id, taken })) => {
                // The result does not matter: a command that is not running does not wait for readers.
                agent.send(&command_id, CommandMessage::OutputTaken(taken)).await;
            }
            Some(ServerPayload::OutputStored(OutputStored { command_id, stored })) => {
                let must_notify = agent.drop_stored(&command_id, stored);
                if must_notify {
                    agent.send(&command_id, CommandMessage::OutputStored).await;
                }
            }
            Some(ServerPayload::SuspendTimers(request)) => {
                agent.suspend_timers(request.on).await;
                self.push(AgentPayload::TimersSuspended(TimersSuspended { on: request.on }));
            }
            Some(ServerPayload::ForgetCommand(request)) => agent.forget(&request.command_id),
            Some(ServerPayload::StartIo(request)) => {
                if let Err(error) = start_io_worker(agent, self.parameters, request.ticket) {
                    let message = format!("cannot start the I/O worker: {error}");
                    self.push(AgentPayload::RequestFailed(RequestFailed {
                        id: IO_WORKER_ID.to_owned(),
                        message,
                        never_began: true,
                    }));
                }
            }
            Some(ServerPayload::Processes(_)) => {
                let mut remaining = ALL_ARGUMENTS_MAX;
                let listed =
                    process_tree::command_processes(&agent.supervisors()).into_iter().take(PROCESSES_MAX);
                let processes = listed.map(|process| describe_process(process, &mut remaining)).collect();
                self.push(AgentPayload::Processes(Processes { processes }));
            }
            // The response is a heartbeat with the usage. Idle supervisors belong to no command, and are not counted.
            Some(ServerPayload::Usage(_)) => {
                let resource_usage = usage::read(agent.idle_supervisor_count()).ok();
                let response = Heartbeat { resource_usage, ..new_heartbeat() };
                self.push(AgentPayload::Heartbeat(response));
            }
            _ => {}
        }
    }
}

/// Starts an I/O worker. The server requests one only if none is connected, so an earlier one that still runs is of no
/// use and is killed. The worker authenticates by `ticket`, which admits only its two connections, and does not get the
/// agent's token: until a new process protects its memory, commands of the same user can read it.
fn start_io_worker(agent: &AgentState, parameters: &ConnectionParameters, ticket: Vec<u8>) -> io::Result<()> {
    if let Some(worker) = agent.replace_io_worker(None) {
        process_tree::signal_process(worker, Signal::KILL);
    }
    agent.replace_io_worker(Some(crate::io::start(parameters, ticket)?));
    Ok(())
}

/// Converts output of a command or terminal to a message.
fn output_message(id: &str, event: OutputEvent) -> AgentPayload {
    // The server gives terminals ids with this prefix.
    let is_terminal = id.starts_with("pty-");
    match event {
        OutputEvent::Data(frame) if is_terminal => AgentPayload::PtyOutput(PtyOutput {
            pty_id: id.to_owned(),
            payload: Some(pty_output::Payload::Data(frame.data)),
            offset: frame.offset,
            timestamp: frame.time,
        }),
        OutputEvent::Exit(time, status) if is_terminal => AgentPayload::PtyOutput(PtyOutput {
            pty_id: id.to_owned(),
            payload: Some(pty_output::Payload::ExitCode(status.exit_code)),
            offset: 0,
            timestamp: time,
        }),
        OutputEvent::Data(frame) => {
            let kind = if frame.stream == Stream::Stderr { OutputType::Stderr } else { OutputType::Stdout };
            let (data, offset, timestamp) = (frame.data, frame.offset, frame.time);
            let command_id = id.to_owned();
            let output = CommandOutput { command_id, data, offset, timestamp, ..CommandOutput::default() };
            AgentPayload::CommandOutput(CommandOutput { r#type: kind.into(), ..output })
        }
        OutputEvent::Exit(timestamp, status) => AgentPayload::CommandOutput(CommandOutput {
            command_id: id.to_owned(),
            r#type: OutputType::Exit.into(),
            exit_code: status.exit_code,
            timed_out: status.timed_out,
            timestamp,
            ..CommandOutput::default()
        }),
    }
}
