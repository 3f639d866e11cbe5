//! A server for one guest.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};
use workspace_agent_protocol::output::{Item, Reader, Stream};
use workspace_agent_protocol::v1::agent_message::Payload as Said;
use workspace_agent_protocol::v1::agent_service_server::{AgentService, AgentServiceServer};
use workspace_agent_protocol::v1::server_message::Payload as Asked;
use workspace_agent_protocol::v1::{
    AgentMessage, CommandInput, CommandProgress, CreatePtyRequest, ForgetCommandRequest, KillCommandRequest,
    KillPtyRequest, PtyInput, RegisterRequest, RegisterResponse, ResizePtyRequest, RunCommandRequest,
    ServerMessage,
};

pub(crate) const SANDBOX: &str = "sbx-test";
pub(crate) const TOKEN: &[u8] = b"a token that nobody inside may see";
const SOCKET: &str = "sockets/agent.sock";
const PATIENCE: Duration = Duration::from_secs(30);

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) id: String,
    pub(crate) exit_code: i32,
    pub(crate) timed_out: bool,
    pub(crate) failed: String,
    items: Vec<Item>,
}

impl Ended {
    pub(crate) fn of(&self, wanted: Stream) -> Vec<u8> {
        let frames = self.items.iter().filter_map(|item| match item {
            Item::Frame(frame) if frame.stream == wanted => Some(&frame.data),
            _ => None,
        });
        frames.flatten().copied().collect()
    }
}

#[derive(Default)]
struct Heard {
    to_guest: Option<mpsc::Sender<Result<ServerMessage, Status>>>,
    progress: HashMap<String, CommandProgress>,
    failures: HashMap<String, String>,
    connections: usize,
    refusals: usize,
}

/// Listens to one guest.
#[derive(Clone, Default)]
pub(crate) struct Service {
    heard: Arc<(Mutex<Heard>, Condvar)>,
}

impl Service {
    fn with<T>(&self, change: impl FnOnce(&mut Heard) -> T) -> T {
        let changed = change(&mut self.heard.0.lock().unwrap());
        self.heard.1.notify_all();
        changed
    }

    #[track_caller]
    fn wait<T>(&self, what: &str, mut look: impl FnMut(&mut Heard) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut heard = self.heard.0.lock().unwrap();
        loop {
            if let Some(found) = look(&mut heard) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}");
            heard = self.heard.1.wait_timeout(heard, Duration::from_millis(100)).unwrap().0;
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
        let mut said = request.into_inner();
        let first = said.message().await?.and_then(|message| message.payload);
        let Some(Said::Register(RegisterRequest { token, commands, .. })) = first else {
            return Err(Status::invalid_argument("register first"));
        };
        if token != TOKEN {
            self.with(|heard| heard.refusals += 1);
            return Err(Status::unauthenticated("another token"));
        }
        let (sender, receiver) = mpsc::channel(1024);
        let welcome = RegisterResponse { success: true, ..RegisterResponse::default() };
        let welcome = ServerMessage { payload: Some(Asked::RegisterResponse(welcome)) };
        sender.send(Ok(welcome)).await.unwrap();
        self.with(|heard| {
            heard.connections += 1;
            heard.progress = commands.into_iter().map(|one| (one.command_id.clone(), one)).collect();
            heard.to_guest = Some(sender);
        });
        let service = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = said.message().await {
                service.with(|heard| match message.payload {
                    Some(Said::CommandProgress(progress)) => {
                        heard.progress.insert(progress.command_id.clone(), progress);
                    }
                    Some(Said::RequestFailed(failed)) => {
                        heard.failures.insert(failed.id, failed.message);
                    }
                    _ => {}
                });
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// A running guest, which ends when this is dropped.
pub(crate) trait Guest {
    fn pid(&self) -> u32;
}

/// Makes a server that listens to guests, and goes when it is dropped.
pub(crate) type Serve = Box<dyn Fn(&Service) -> Runtime>;

/// A guest, and a server it has dialled.
pub(crate) struct Bench {
    guest: Mutex<Option<Box<dyn Guest + Send>>>,
    service: Service,
    runtime: Option<Runtime>,
    serve: Serve,
    next: AtomicU64,
    home: TempDir,
}

impl Bench {
    /// With a guest that `start` makes of a directory and a token. It finds the server's socket in `sockets` and
    /// puts output into `output`.
    pub(crate) fn start_as(start: impl FnOnce(&Path, &[u8]) -> Box<dyn Guest + Send>) -> Self {
        let bench = Self::with_token(TOKEN, start);
        bench.wait_for_guest(0);
        bench
    }

    pub(crate) fn with_token(
        token: &[u8],
        start: impl FnOnce(&Path, &[u8]) -> Box<dyn Guest + Send>,
    ) -> Self {
        let home = home();
        let socket = home.path().join(SOCKET);
        Self::of(home, Box::new(move |service| serve(service, &socket)), |home| start(home, token))
    }

    /// With another server, and the guest that knows of it.
    pub(crate) fn of(
        home: TempDir,
        serve: Serve,
        start: impl FnOnce(&Path) -> Box<dyn Guest + Send>,
    ) -> Self {
        let service = Service::default();
        let runtime = Some(serve(&service));
        let guest = Mutex::new(Some(start(home.path())));
        Self { guest, service, runtime, serve, next: AtomicU64::new(1), home }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn end_guest(&self) {
        drop(self.guest.lock().unwrap().take());
    }

    pub(crate) fn wait_for_guest(&self, before: usize) {
        self.service.wait("the guest never connected", |heard| (heard.connections > before).then_some(()));
    }

    pub(crate) fn restart_server(&mut self, away: Duration) {
        let before = self.connections();
        drop(self.runtime.take());
        self.service.with(|heard| {
            heard.to_guest = None;
            heard.progress.clear();
        });
        std::thread::sleep(away);
        self.runtime = Some((self.serve)(&self.service));
        self.wait_for_guest(before);
    }

    fn ask(&self, payload: Asked) {
        let sender = self.service.wait("no guest", |heard| heard.to_guest.clone());
        sender.blocking_send(Ok(ServerMessage { payload: Some(payload) })).unwrap();
    }

    /// Starts a command; its id.
    pub(crate) fn begin(&self, mut request: RunCommandRequest) -> String {
        if request.command_id.is_empty() {
            request.command_id = format!("cmd-{}", self.next.fetch_add(1, Ordering::SeqCst));
        }
        let id = request.command_id.clone();
        self.ask(Asked::RunCommand(request));
        id
    }

    pub(crate) fn begin_terminal(&self, mut request: CreatePtyRequest) -> String {
        request.pty_id = format!("pty-{}", self.next.fetch_add(1, Ordering::SeqCst));
        let id = request.pty_id.clone();
        self.ask(Asked::CreatePty(request));
        id
    }

    pub(crate) fn type_in(&self, id: &str, text: &str) {
        self.ask(Asked::PtyInput(PtyInput { pty_id: id.to_owned(), data: text.as_bytes().to_vec() }));
    }

    pub(crate) fn resize(&self, id: &str, cols: i32, rows: i32) {
        self.ask(Asked::ResizePty(ResizePtyRequest { pty_id: id.to_owned(), cols, rows }));
    }

    pub(crate) fn kill_terminal(&self, id: &str) {
        self.ask(Asked::KillPty(KillPtyRequest { pty_id: id.to_owned() }));
    }

    pub(crate) fn refused(&self, request: RunCommandRequest) -> String {
        let id = request.command_id.clone();
        self.ask(Asked::RunCommand(request));
        self.service.wait("it was not refused", |heard| heard.failures.remove(&id))
    }

    pub(crate) fn run(&self, request: RunCommandRequest) -> Ended {
        let id = self.begin(request);
        self.wait(&id)
    }

    #[track_caller]
    pub(crate) fn wait(&self, id: &str) -> Ended {
        let end = self.service.wait("the command never ended", |heard| {
            heard.progress.get(id).and_then(|progress| progress.end.clone())
        });
        let items = self.items(id);
        let told = items.iter().find_map(|item| match item {
            Item::Frame(frame) => frame.end(),
            Item::Gap { .. } => None,
        });
        let told = told.expect("the files say how it ended");
        assert_eq!((told.exit_code, told.timed_out), (end.exit_code, end.timed_out));
        let (exit_code, timed_out, failed) = (end.exit_code, end.timed_out, end.failed);
        Ended { id: id.to_owned(), exit_code, timed_out, failed, items }
    }

    /// How a command ended whose output is no matter.
    #[track_caller]
    pub(crate) fn wait_for_end(&self, id: &str) -> i32 {
        self.service.wait("the command never ended", |heard| {
            heard.progress.get(id).and_then(|progress| progress.end.as_ref()).map(|end| end.exit_code)
        })
    }

    fn items(&self, id: &str) -> Vec<Item> {
        let directory = File::open(self.home.path().join("output")).unwrap();
        let mut reader = Reader::open(OwnedFd::from(directory), id, 0).unwrap();
        std::iter::from_fn(|| reader.next_item().unwrap()).collect()
    }

    /// What it has printed so far.
    pub(crate) fn output(&self, id: &str) -> Vec<u8> {
        let items = self.items(id);
        let ended = Ended { id: id.to_owned(), exit_code: 0, timed_out: false, failed: String::new(), items };
        ended.of(Stream::Stdout)
    }

    pub(crate) fn kill(&self, id: &str, signal: i32) {
        self.ask(Asked::KillCommand(KillCommandRequest { command_id: id.to_owned(), signal }));
    }

    pub(crate) fn input(&self, id: &str, data: &[u8], close: bool) {
        self.ask(Asked::CommandInput(CommandInput { command_id: id.to_owned(), data: data.to_vec(), close }));
    }

    pub(crate) fn forget(&self, id: &str) {
        self.ask(Asked::ForgetCommand(ForgetCommandRequest { command_id: id.to_owned() }));
        self.service.with(|heard| drop(heard.progress.remove(id)));
    }

    pub(crate) fn knows(&self, id: &str) -> bool {
        self.service.with(|heard| heard.progress.contains_key(id))
    }

    pub(crate) fn progress(&self, id: &str) -> Option<CommandProgress> {
        self.service.with(|heard| heard.progress.get(id).cloned())
    }

    pub(crate) fn connections(&self) -> usize {
        self.service.with(|heard| heard.connections)
    }

    pub(crate) fn refusals(&self) -> usize {
        self.service.with(|heard| heard.refusals)
    }

    pub(crate) fn token_text(&self) -> String {
        String::from_utf8_lossy(TOKEN).into_owned()
    }

    fn pid(&self) -> u32 {
        self.guest.lock().unwrap().as_ref().unwrap().pid()
    }

    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid()))
    }

    /// How many descriptors the agent has open.
    pub(crate) fn descriptors(&self) -> usize {
        self.proc("fd").read_dir().unwrap().count()
    }

    /// How many children it has.
    pub(crate) fn children(&self) -> usize {
        let id = self.pid();
        let list = std::fs::read_to_string(self.proc(&format!("task/{id}/children"))).unwrap();
        list.split_whitespace().count()
    }
}

/// A directory with what a guest needs in it.
pub(crate) fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for name in ["output", "sockets"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    home
}

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
