//! Test server for one guest: a gRPC service with the messages of `agent.proto`, on a Unix socket by default.
//!
//! [`TestServer`] runs commands and terminals in the guest, and talks to its I/O worker. It keeps what the guest has
//! reported, and its methods wait for reports for at most [`TIMEOUT`].

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};
use workspace_agent_protocol::output::{Item, Reader, Stream};
use workspace_agent_protocol::v1::agent_message::Payload as AgentPayload;
use workspace_agent_protocol::v1::agent_service_server::{AgentService, AgentServiceServer};
use workspace_agent_protocol::v1::io_from_guest::Payload as FromWorker;
use workspace_agent_protocol::v1::io_to_guest::Payload as ToWorker;
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{
    AgentMessage, CommandInput, CommandProgress, CreatePtyRequest, ForgetCommandRequest, IoFromGuest, IoLane,
    IoToGuest, IoWelcome, KillCommandRequest, KillPtyRequest, PtyInput, RegisterRequest, RegisterResponse,
    ResizePtyRequest, RunCommandRequest, ServerMessage, StartIo, SuspendTimers,
};

/// Id of the sandbox that agents are started with.
pub(crate) const SANDBOX: &str = "sbx-test";
/// Token with which the server accepts an agent.
pub(crate) const TOKEN: &[u8] = b"a token that nobody inside may see";
/// Ticket with which the server accepts the lanes of an I/O worker.
const TICKET: &[u8] = b"a ticket for one worker";
/// Path of the server's socket below the directory of a guest.
const SOCKET: &str = "sockets/agent.sock";
/// Maximum time to wait for a report of the guest.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Exit status and output of a command.
pub(crate) struct CommandResult {
    /// Id of the command.
    pub(crate) id: String,
    /// Exit code; 128 + n after death by signal n.
    pub(crate) exit_code: i32,
    /// True if the timeout of the command ended it.
    pub(crate) timed_out: bool,
    /// Reason why the command could not be run; empty if it ran.
    pub(crate) failed: String,
    /// Output, and gaps in it.
    items: Vec<Item>,
}

impl CommandResult {
    /// Returns the output on a stream, without its gaps.
    pub(crate) fn output(&self, stream: Stream) -> Vec<u8> {
        let frames = self.items.iter().filter_map(|item| match item {
            Item::Frame(frame) if frame.stream == stream => Some(&frame.data),
            _ => None,
        });
        frames.flatten().copied().collect()
    }
}

#[derive(Default)]
struct State {
    /// Sender to the connected guest; `None` without a connection.
    to_guest: Option<mpsc::Sender<Result<ServerMessage, Status>>>,
    /// Last progress of each command that was not forgotten, by id.
    progress: HashMap<String, CommandProgress>,
    /// Reasons of failed requests, by id of the command.
    failures: HashMap<String, String>,
    /// Last report that timers were suspended, or continue.
    timers_suspended: Option<bool>,
    /// Number of connections so far.
    connections: usize,
    /// Number of refused connections so far.
    refusals: usize,
    /// Lanes of the I/O worker by their kind, numbered in the order in which they were opened.
    lanes: HashMap<i32, (usize, mpsc::Sender<Result<IoToGuest, Status>>)>,
    lanes_opened: usize,
    /// Messages of the I/O worker that no test has taken, with their lanes.
    io_messages: Vec<(i32, IoFromGuest)>,
}

/// gRPC service for one guest.
#[derive(Clone, Default)]
pub(crate) struct Service {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Service {
    /// Changes the state, and wakes those that wait for it.
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.0.lock());
        self.state.1.notify_all();
        changed
    }

    /// Waits until `find` returns a value, and returns that. Panics with `timeout_message` after [`TIMEOUT`].
    #[track_caller]
    fn wait<T>(&self, timeout_message: &str, mut find: impl FnMut(&mut State) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        let mut state = self.state.0.lock();
        loop {
            if let Some(found) = find(&mut state) {
                return found;
            }
            assert!(Instant::now() < deadline, "{timeout_message}");
            self.state.1.wait_for(&mut state, Duration::from_millis(100));
        }
    }
}

#[tonic::async_trait]
impl AgentService for Service {
    type ConnectStream = ReceiverStream<Result<ServerMessage, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let mut incoming = request.into_inner();
        let first = incoming.message().await?.and_then(|message| message.payload);
        let Some(AgentPayload::Register(RegisterRequest { token, commands, .. })) = first else {
            return Err(Status::invalid_argument("register first"));
        };
        if token != TOKEN {
            self.with(|state| state.refusals += 1);
            return Err(Status::unauthenticated("another token"));
        }
        let (sender, receiver) = mpsc::channel(1024);
        let response = RegisterResponse { success: true, ..RegisterResponse::default() };
        let response = ServerMessage { payload: Some(ServerPayload::RegisterResponse(response)) };
        sender.send(Ok(response)).await.unwrap();
        self.with(|state| {
            state.connections += 1;
            state.progress =
                commands.into_iter().map(|progress| (progress.command_id.clone(), progress)).collect();
            state.to_guest = Some(sender);
        });
        let service = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = incoming.message().await {
                service.with(|state| match message.payload {
                    Some(AgentPayload::CommandProgress(progress)) => {
                        state.progress.insert(progress.command_id.clone(), progress);
                    }
                    Some(AgentPayload::RequestFailed(failed)) => {
                        state.failures.insert(failed.id, failed.message);
                    }
                    Some(AgentPayload::TimersSuspended(report)) => state.timers_suspended = Some(report.on),
                    _ => {}
                });
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    type IoStream = ReceiverStream<Result<IoToGuest, Status>>;

    async fn io(&self, request: Request<Streaming<IoFromGuest>>) -> Result<Response<Self::IoStream>, Status> {
        let mut incoming = request.into_inner();
        let first = incoming.message().await?.and_then(|message| message.payload);
        let Some(FromWorker::Hello(hello)) = first else {
            return Err(Status::invalid_argument("greet first"));
        };
        if hello.ticket != TICKET {
            return Err(Status::unauthenticated("another ticket"));
        }
        let (sender, receiver) = mpsc::channel(1024);
        let welcome = IoToGuest { payload: Some(ToWorker::Welcome(IoWelcome {})) };
        sender.send(Ok(welcome)).await.unwrap();
        let lane = hello.lane;
        let number = self.with(|state| {
            state.lanes_opened += 1;
            state.lanes.insert(lane, (state.lanes_opened, sender));
            state.lanes_opened
        });
        let service = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = incoming.message().await {
                service.with(|state| state.io_messages.push((lane, message)));
            }
            service.with(|state| {
                // Unless a newer worker has the lane.
                if state.lanes.get(&lane).is_some_and(|(other, _)| *other == number) {
                    state.lanes.remove(&lane);
                }
            });
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Running guest, which is killed on drop.
pub(crate) trait Guest {
    /// Returns the PID of the agent.
    fn pid(&self) -> u32;
}

/// Starts a server for guests, which stops when the runtime is dropped.
pub(crate) type Serve = Box<dyn Fn(&Service) -> Runtime>;

/// Server with a connected guest.
pub(crate) struct TestServer {
    guest: Mutex<Option<Box<dyn Guest + Send>>>,
    service: Service,
    runtime: Option<Runtime>,
    /// Function that starts a server for guests.
    serve: Serve,
    /// Number in the next id.
    next: AtomicU64,
    home: TempDir,
}

impl TestServer {
    /// Starts a server and a guest, and waits until the guest is connected. `start` starts the guest, from a new
    /// directory ([`home`]) and the token. The guest finds the server's socket in `sockets` and writes output to
    /// `output`.
    pub(crate) fn start_as(start: impl FnOnce(&Path, &[u8]) -> Box<dyn Guest + Send>) -> Self {
        let server = Self::with_token(TOKEN, start);
        server.wait_for_connections(1);
        server
    }

    /// Like [`Self::start_as`] with another token for the guest. Does not wait until the guest is connected: with a
    /// wrong token, it never is.
    pub(crate) fn with_token(
        token: &[u8],
        start: impl FnOnce(&Path, &[u8]) -> Box<dyn Guest + Send>,
    ) -> Self {
        let home = home();
        let socket = home.path().join(SOCKET);
        Self::start_custom(home, Box::new(move |service| serve(service, &socket)), |home| start(home, token))
    }

    /// Starts a custom server and guest in the directory `home`, and does not wait until the guest is connected.
    /// `serve` is called again when the server is restarted.
    pub(crate) fn start_custom(
        home: TempDir,
        serve: Serve,
        start: impl FnOnce(&Path) -> Box<dyn Guest + Send>,
    ) -> Self {
        let service = Service::default();
        let runtime = Some(serve(&service));
        let guest = Mutex::new(Some(start(home.path())));
        Self { guest, service, runtime, serve, next: AtomicU64::new(1), home }
    }

    /// Returns the directory of the guest: its output and the sockets.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Kills the agent, and its sandbox if it has one. No other one is started.
    pub(crate) fn kill_guest(&self) {
        drop(self.guest.lock().take());
    }

    /// Waits until guests have connected `count` times since the server was created.
    pub(crate) fn wait_for_connections(&self, count: usize) {
        self.service.wait("the guest never connected", |state| (state.connections >= count).then_some(()));
    }

    /// Stops the server, starts it again after `downtime`, and waits until the guest has connected again. The server
    /// forgets all progress; the guest reports it again.
    pub(crate) fn restart_server(&mut self, downtime: Duration) {
        let before = self.connections();
        drop(self.runtime.take());
        self.service.with(|state| {
            state.to_guest = None;
            state.progress.clear();
        });
        std::thread::sleep(downtime);
        self.runtime = Some((self.serve)(&self.service));
        self.wait_for_connections(before + 1);
    }

    fn send(&self, payload: ServerPayload) {
        let sender = self.service.wait("no guest", |state| state.to_guest.clone());
        sender.blocking_send(Ok(ServerMessage { payload: Some(payload) })).unwrap();
    }

    /// Starts a command. Returns its id: that of the request, or a new one if the request has none.
    pub(crate) fn begin(&self, mut request: RunCommandRequest) -> String {
        if request.command_id.is_empty() {
            request.command_id = format!("cmd-{}", self.next.fetch_add(1, Ordering::SeqCst));
        }
        let id = request.command_id.clone();
        self.send(ServerPayload::RunCommand(request));
        id
    }

    /// Starts a terminal. Returns its id, which is new: that of the request is replaced.
    pub(crate) fn begin_terminal(&self, mut request: CreatePtyRequest) -> String {
        request.pty_id = format!("pty-{}", self.next.fetch_add(1, Ordering::SeqCst));
        let id = request.pty_id.clone();
        self.send(ServerPayload::CreatePty(request));
        id
    }

    /// Sends text to the input of a terminal.
    pub(crate) fn type_in(&self, id: &str, text: &str) {
        self.send(ServerPayload::PtyInput(PtyInput {
            pty_id: id.to_owned(),
            data: text.as_bytes().to_vec(),
        }));
    }

    /// Changes the size of a terminal, in characters.
    pub(crate) fn resize(&self, id: &str, cols: i32, rows: i32) {
        self.send(ServerPayload::ResizePty(ResizePtyRequest { pty_id: id.to_owned(), cols, rows }));
    }

    /// Kills the command of a terminal.
    pub(crate) fn kill_terminal(&self, id: &str) {
        self.send(ServerPayload::KillPty(KillPtyRequest { pty_id: id.to_owned() }));
    }

    /// Suspends the timeouts of commands (`on`), or continues them, and waits until the guest has confirmed it.
    pub(crate) fn suspend_timers(&self, on: bool) {
        self.service.with(|state| state.timers_suspended = None);
        self.send(ServerPayload::SuspendTimers(SuspendTimers { on }));
        let reported = self.service.wait("timers were not suspended", |state| state.timers_suspended);
        assert_eq!(reported, on);
    }

    /// Sends a command that the agent refuses, with the id in the request. Returns the reason.
    pub(crate) fn refused(&self, request: RunCommandRequest) -> String {
        let id = request.command_id.clone();
        self.send(ServerPayload::RunCommand(request));
        self.service.wait("the request was not refused", |state| state.failures.remove(&id))
    }

    /// Starts a command, and waits for its exit.
    pub(crate) fn run(&self, request: RunCommandRequest) -> CommandResult {
        let id = self.begin(request);
        self.wait(&id)
    }

    /// Waits for the exit of a command or terminal. Returns its result, with all output.
    #[track_caller]
    pub(crate) fn wait(&self, id: &str) -> CommandResult {
        let end = self.service.wait("the command never exited", |state| {
            state.progress.get(id).and_then(|progress| progress.end.clone())
        });
        let items = self.items(id);
        let recorded = items.iter().find_map(|item| match item {
            Item::Frame(frame) => frame.exit_status(),
            Item::Gap { .. } => None,
        });
        let recorded = recorded.expect("the exit status is in the files");
        assert_eq!((recorded.exit_code, recorded.timed_out), (end.exit_code, end.timed_out));
        let (exit_code, timed_out, failed) = (end.exit_code, end.timed_out, end.failed);
        CommandResult { id: id.to_owned(), exit_code, timed_out, failed, items }
    }

    /// Waits for the exit of a command. Returns its exit code. Unlike [`Self::wait`], reads no output.
    #[track_caller]
    pub(crate) fn wait_for_exit(&self, id: &str) -> i32 {
        self.service.wait("the command never exited", |state| {
            state.progress.get(id).and_then(|progress| progress.end.as_ref()).map(|end| end.exit_code)
        })
    }

    /// Returns the output of a command so far, from its files.
    fn items(&self, id: &str) -> Vec<Item> {
        let directory = File::open(self.home.path().join("output")).unwrap();
        let mut reader = Reader::open(OwnedFd::from(directory), id, 0).unwrap();
        std::iter::from_fn(|| reader.next_item().unwrap()).collect()
    }

    /// Returns the standard output of a command so far.
    pub(crate) fn output(&self, id: &str) -> Vec<u8> {
        let items = self.items(id);
        let result =
            CommandResult { id: id.to_owned(), exit_code: 0, timed_out: false, failed: String::new(), items };
        result.output(Stream::Stdout)
    }

    /// Sends a signal to the processes of a command. Does not wait for their exit.
    pub(crate) fn kill(&self, id: &str, signal: i32) {
        self.send(ServerPayload::KillCommand(KillCommandRequest { command_id: id.to_owned(), signal }));
    }

    /// Sends data, which may be empty, to the standard input of a command; with `close`, closes the input after it.
    pub(crate) fn input(&self, id: &str, data: &[u8], close: bool) {
        self.send(ServerPayload::CommandInput(CommandInput {
            command_id: id.to_owned(),
            data: data.to_vec(),
            close,
        }));
    }

    /// Acknowledges the exit of a command: the agent and this server forget the command.
    pub(crate) fn forget(&self, id: &str) {
        self.send(ServerPayload::ForgetCommand(ForgetCommandRequest { command_id: id.to_owned() }));
        self.service.with(|state| drop(state.progress.remove(id)));
    }

    /// Returns true if the guest has reported a command, and it was not forgotten.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.service.with(|state| state.progress.contains_key(id))
    }

    /// Returns the last reported progress of a command; `None` before the first report, or once it is forgotten.
    pub(crate) fn progress(&self, id: &str) -> Option<CommandProgress> {
        self.service.with(|state| state.progress.get(id).cloned())
    }

    /// Starts an I/O worker, and waits for its lanes.
    pub(crate) fn start_io(&self) {
        let before = self.service.with(|state| state.lanes_opened);
        self.send(ServerPayload::StartIo(StartIo { ticket: TICKET.to_vec() }));
        self.service.wait("the worker did not connect its lanes", |state| {
            (state.lanes_opened >= before + 2 && state.lanes.len() == 2).then_some(())
        });
    }

    /// Waits until the I/O worker has disconnected its lanes.
    pub(crate) fn wait_for_io_end(&self) {
        self.service.wait("the worker kept its lanes", |state| state.lanes.is_empty().then_some(()));
    }

    /// Closes the lanes of the I/O worker, so that it exits.
    pub(crate) fn close_io(&self) {
        self.service.with(|state| state.lanes.clear());
    }

    /// Sends a message to the I/O worker on a lane, and waits for the lane if it is not connected.
    pub(crate) fn send_io(&self, lane: IoLane, payload: ToWorker) {
        let find = |state: &mut State| state.lanes.get(&i32::from(lane)).map(|(_, sender)| sender.clone());
        let sender = self.service.wait("there is no lane", find);
        sender.blocking_send(Ok(IoToGuest { payload: Some(payload) })).unwrap();
    }

    /// Waits for a message of the I/O worker that `find` accepts, and takes it.
    #[track_caller]
    pub(crate) fn take_io<T>(&self, find: impl Fn(&FromWorker) -> Option<T>) -> T {
        self.service.wait("the worker did not send the message", |state| {
            let found = state
                .io_messages
                .iter()
                .enumerate()
                .find_map(|(index, (_, message))| Some((index, find(message.payload.as_ref()?)?)));
            let (index, found) = found?;
            state.io_messages.remove(index);
            Some(found)
        })
    }

    /// Sends a message to the I/O worker, unless it has exited.
    pub(crate) fn send_io_unless_lost(&self, lane: IoLane, payload: ToWorker) {
        let sender =
            self.service.with(|state| state.lanes.get(&i32::from(lane)).map(|(_, sender)| sender.clone()));
        if let Some(sender) = sender {
            // An error means that the worker has exited.
            drop(sender.blocking_send(Ok(IoToGuest { payload: Some(payload) })));
        }
    }

    /// Waits for a message of the I/O worker that `find` accepts, and keeps it, unlike [`TestServer::take_io`]. Returns
    /// `None` if the worker exited without sending such a message.
    #[track_caller]
    pub(crate) fn find_io_unless_lost<T>(&self, find: impl Fn(&FromWorker) -> Option<T>) -> Option<T> {
        self.service.wait("the worker neither sent the message nor exited", |state| {
            let found = state.io_messages.iter().find_map(|(_, message)| find(message.payload.as_ref()?));
            match found {
                Some(found) => Some(Some(found)),
                None => state.lanes.is_empty().then_some(None),
            }
        })
    }

    /// Returns a new id for a request to the I/O worker.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the number of accepted connections of agents so far.
    pub(crate) fn connections(&self) -> usize {
        self.service.with(|state| state.connections)
    }

    /// Returns the number of connections so far that were refused for their token.
    pub(crate) fn refusals(&self) -> usize {
        self.service.with(|state| state.refusals)
    }

    /// Returns the token as text, to search for it in output.
    pub(crate) fn token_text(&self) -> String {
        String::from_utf8_lossy(TOKEN).into_owned()
    }

    /// Returns the PID of the agent. Panics after [`Self::kill_guest`].
    fn pid(&self) -> u32 {
        self.guest.lock().as_ref().unwrap().pid()
    }

    /// Returns the path of a file of the agent in `/proc`.
    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid()))
    }

    /// Returns the number of open file descriptors of the agent.
    pub(crate) fn descriptors(&self) -> usize {
        self.proc("fd").read_dir().unwrap().count()
    }

    /// Returns the PIDs of the children of the agent: supervisors of commands, and the I/O worker.
    pub(crate) fn children(&self) -> Vec<i32> {
        let id = self.pid();
        let list = std::fs::read_to_string(self.proc(&format!("task/{id}/children"))).unwrap();
        list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }
}

/// Creates a temporary directory with the subdirectories that a guest needs: `output` and `sockets`.
pub(crate) fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for name in ["output", "sockets"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    home
}

/// Starts a server on a Unix socket, which replaces one that was left at the path.
fn serve(service: &Service, socket: &Path) -> Runtime {
    drop(std::fs::remove_file(socket));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(socket).unwrap()
    };
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let service = AgentServiceServer::new(service.clone());
    let router = tonic::transport::Server::builder().add_service(service);
    runtime.spawn(router.serve_with_incoming(UnixListenerStream::new(listener)));
    runtime
}
