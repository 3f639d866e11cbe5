//! Test fixture: a server directory with a runtime, and helpers to run commands.
//!
//! [`run`] runs a test with a new [`TestHome`]. `TestHome::start` starts the service, [`create`] creates a sandbox of
//! the owner `alice`, and [`sh`] runs a shell command in it.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sqlx::Connection as _;
use tempfile::TempDir;
use workspace_catalog::{Catalog, sqlite_url};
use workspace_host::NamespaceHolder;
use workspace_host::overlay;
use workspace_sandbox::{
    CommandExit, CommandHandle, CommandLine, Creator, NewSandbox, OutputPiece, RunRequest, SandboxDir,
    SandboxInfo, Scope, Service, Settings, Stream,
};

use crate::kind::RuntimeKind;

/// Maximum time to wait for a command or a condition.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Lifetime for [`Service::resume`]: the time that was left at the pause.
pub(crate) const DEFAULT_LIFETIME: Option<Duration> = None;
/// Tag for [`Service::commands`] that selects all commands.
pub(crate) const ANY_TAG: Option<&str> = None;
/// Length for [`Service::read_file`] that has no limit.
pub(crate) const TO_THE_END: Option<u64> = None;
/// Last argument of [`Service::stat_file`]: a symlink is followed.
pub(crate) const FOLLOW: bool = true;

/// Directory of a server with its catalog, and the runtime under test. Dropping it ends all sandboxes.
pub(crate) struct TestHome {
    /// Runtime under test.
    pub(crate) kind: RuntimeKind,
    directory: TempDir,
}

/// Runs a test on a runtime with a new home, and ends everything that it leaves.
pub(crate) fn run(
    kind: RuntimeKind,
    test: impl for<'a> FnOnce(&'a TestHome) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
) {
    let home = TestHome::new(kind);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test(&home));
    runtime.shutdown_timeout(Duration::from_secs(1));
}

impl Drop for TestHome {
    fn drop(&mut self) {
        self.kind.kill_leftovers(self.path());
        // Mounts of an unprivileged user end with the namespace holder.
        let mounted = overlay::mounted(&NamespaceHolder::None, self.path()).unwrap_or_default();
        for path in mounted.iter().rev() {
            drop(overlay::unmount(&NamespaceHolder::None, path));
        }
    }
}

/// Returns the path of the guest agent's program: `WORKSPACE_TEST_AGENT`, by default the one that cargo has built.
pub(crate) fn agent_program() -> PathBuf {
    let configured = std::env::var_os("WORKSPACE_TEST_AGENT").map(PathBuf::from);
    let program = configured.unwrap_or_else(|| {
        // Next to the directory of the tests.
        let tests = std::env::current_exe().unwrap();
        tests.parent().unwrap().parent().unwrap().join("workspace-agent")
    });
    assert!(program.is_file(), "build {} first: cargo build -p workspace-agent", program.display());
    program
}

impl TestHome {
    /// Creates an empty directory for a server with this runtime. Starts nothing.
    pub(crate) fn new(kind: RuntimeKind) -> Self {
        Self { kind, directory: tempfile::tempdir().unwrap() }
    }

    /// Returns the directory of the server.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Opens the catalog, and creates it first if it does not exist.
    pub(crate) async fn catalog(&self) -> Catalog {
        Catalog::open(&sqlite_url(&self.path().join("catalog.db"))).await.unwrap()
    }

    /// Returns the ids of all sandboxes that have events.
    pub(crate) async fn sandbox_ids(&self) -> Vec<String> {
        let (catalog, mut ids, mut last) = (self.catalog().await, std::collections::BTreeSet::new(), 0);
        loop {
            let events = catalog.events().after(last, 1_000).await.unwrap();
            let Some(newest) = events.last() else { return ids.into_iter().collect() };
            last = newest.number;
            ids.extend(events.into_iter().filter_map(|event| event.sandbox_id));
        }
    }

    /// Executes an SQL statement in the catalog, for which it has no method.
    pub(crate) async fn sql(&self, statement: &str) {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(self.path().join("catalog.db"));
        let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    }

    /// Starts the service with the settings for tests: the default ones, without a warm pool.
    pub(crate) async fn start(&self) -> Service {
        self.start_with(|_| {}).await
    }

    /// Like [`Self::start`], with settings that `change` changes.
    pub(crate) async fn start_with(&self, change: impl FnOnce(&mut Settings)) -> Service {
        let mut settings = Settings::new(self.path());
        // The warm pool has tests of its own.
        settings.max_pool_size = 0;
        change(&mut settings);
        let runtime = self.kind.runtime(self.path()).await;
        Service::start(settings, self.catalog().await, runtime).await.unwrap()
    }

    /// Returns the first process of the sandbox with this id.
    pub(crate) fn process(&self, id: &str) -> Process {
        Process(self.kind.pid(self.path(), id))
    }

    /// Returns the directory in which the server keeps the files of a sandbox, except its workspace.
    pub(crate) fn dir(&self, info: &SandboxInfo) -> SandboxDir {
        SandboxDir::new(self.path().join("sandboxes").join(&info.sandbox.id))
    }

    /// Returns the directory of the workspace of a sandbox that was never restored.
    pub(crate) fn workspace(&self, info: &SandboxInfo) -> PathBuf {
        self.path().join("workspaces").join(&info.sandbox.id).join("1/tree")
    }
}

/// A process of a sandbox, by its PID on the host.
pub(crate) struct Process(i32);

impl Process {
    /// Sends a signal to the process, which must exist.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0).unwrap(), signal).unwrap();
    }

    /// Returns true if the process exists and has not ended.
    pub(crate) fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        !state.is_empty() && !state.starts_with(['Z', 'X'])
    }
}

/// Returns the scope of the owner `alice`.
pub(crate) fn alice() -> Scope {
    Scope::Owner("alice".to_owned())
}

/// Returns `alice` as the creator of a sandbox, without an idempotency key.
pub(crate) fn creator() -> Creator {
    Creator { owner: "alice".to_owned(), unlimited: false, max_sandboxes: None, idempotency_key: None }
}

/// Returns the parameters of a sandbox with the template `base`.
pub(crate) fn base() -> NewSandbox {
    NewSandbox { template: "base".to_owned(), ..NewSandbox::default() }
}

/// Creates a sandbox of alice with the template `base`, and waits until it runs.
pub(crate) async fn create(service: &Service) -> SandboxInfo {
    service.create(creator(), base()).await.unwrap()
}

/// Returns the request to run a shell command.
pub(crate) fn request(command: &str) -> RunRequest {
    RunRequest { command: CommandLine::Shell(command.to_owned()), ..RunRequest::default() }
}

/// Output and exit of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    /// Standard output, decoded as UTF-8.
    pub(crate) stdout: String,
    /// Standard error, decoded as UTF-8.
    pub(crate) stderr: String,
    /// Exit code, or the reason why there is none.
    pub(crate) exit: CommandExit,
    /// Ranges of offsets whose output was not kept.
    pub(crate) gaps: Vec<(u64, u64)>,
}

/// Reads the output of a command from an offset until its exit.
pub(crate) async fn read(handle: &CommandHandle, from: u64) -> CommandResult {
    let mut ran = CommandResult {
        stdout: String::new(),
        stderr: String::new(),
        exit: CommandExit::default(),
        gaps: Vec::new(),
    };
    let mut output = handle.output(from).await.unwrap();
    let reading = async {
        while let Some(pieces) = output.next().await.unwrap() {
            for piece in pieces {
                match piece {
                    OutputPiece::Data { stream: Stream::Stderr, data, .. } => {
                        ran.stderr.push_str(&String::from_utf8_lossy(&data));
                    }
                    OutputPiece::Data { data, .. } => ran.stdout.push_str(&String::from_utf8_lossy(&data)),
                    OutputPiece::Gap { from, to } => ran.gaps.push((from, to)),
                    OutputPiece::Exit(exit) => ran.exit = exit,
                }
            }
        }
    };
    tokio::time::timeout(TIMEOUT, reading).await.expect("the command never exited");
    ran
}

/// Runs a shell command in a sandbox of alice until its exit. Returns its output, whatever its exit code is.
pub(crate) async fn sh(service: &Service, info: &SandboxInfo, command: &str) -> CommandResult {
    let handle = service.run(&alice(), &info.sandbox.id, request(command)).await.unwrap();
    read(&handle, 0).await
}

/// Waits until a condition is true. Panics with `what` after [`TIMEOUT`].
pub(crate) async fn wait_until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !check().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
