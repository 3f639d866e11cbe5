//! A guest that runs commands for the tests, and the server's side of it.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use tempfile::TempDir;
use workspace_host::NamespaceHolder;
use workspace_host::launch::{Launch, Launched, Template, launch};
use workspace_host::limits::{Limits, UnenforcedLimit};
use workspace_host::{Process, Result, cgroup};
use workspace_test_support::wait_until;

/// Command that the guest handles itself.
pub(crate) const KEEP_DESCRIPTORS: &str = "keep descriptors in flight";
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs as the guest: executes each command that arrives over a connection, and replies with its output.
pub(crate) fn run() -> ExitCode {
    println!("the guest runs");
    let socket = std::env::args().skip_while(|word| word != "--socket").nth(1).unwrap();
    while let Ok(mut stream) = UnixStream::connect(&socket) {
        let mut text = String::new();
        if stream.read_to_string(&mut text).is_err() {
            return ExitCode::FAILURE;
        }
        if text == KEEP_DESCRIPTORS {
            let kept = crate::bounds::keep_descriptors_in_flight();
            if stream.write_all(kept.to_string().as_bytes()).is_err() {
                return ExitCode::FAILURE;
            }
            continue;
        }
        let printed = Command::new("/bin/sh").arg("-c").arg(format!("exec 2>&1; {text}")).output();
        let printed = printed.map_or_else(|error| error.to_string().into_bytes(), |output| output.stdout);
        if stream.write_all(&printed).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::FAILURE
}

/// Directories of a server with one sandbox.
pub(crate) struct Fixture {
    directory: TempDir,
    paths: SandboxPaths,
    listener: UnixListener,
    pub(crate) holder: NamespaceHolder,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::in_directory(tempfile::tempdir().unwrap())
    }

    pub(crate) fn in_directory(directory: TempDir) -> Self {
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["workspace", "sockets", "output"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let socket = directory.path().join("sockets/agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666)).unwrap();
        let holder = NamespaceHolder::find_or_start(directory.path()).unwrap();
        let paths = SandboxPaths::of(directory.path());
        Self { directory, paths, listener, holder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Launches the sandbox with changed parameters.
    pub(crate) fn try_launch<'a>(&'a self, change: impl FnOnce(&mut Launch<'a>)) -> Result<Launched> {
        let mut parameters = self.paths.launch(&self.holder);
        change(&mut parameters);
        launch(&parameters)
    }

    #[track_caller]
    pub(crate) fn launch<'a>(&'a self, change: impl FnOnce(&mut Launch<'a>)) -> Sandbox<'a> {
        let Launched { process, missing } = self.try_launch(change).unwrap();
        // The limits that are not enforced can be read later, too.
        assert_eq!(workspace_host::launch::unenforced_limits(&self.path("process")).unwrap(), missing);
        Sandbox { home: self, process, missing }
    }

    /// Returns the sandbox that another process launched.
    #[track_caller]
    pub(crate) fn found(&self) -> Sandbox<'_> {
        let process = Process::read(&self.path("process")).unwrap().unwrap();
        Sandbox { home: self, process, missing: Vec::new() }
    }

    /// Returns the id of the sandbox.
    pub(crate) fn id(&self) -> &str {
        &self.paths.id
    }

    pub(crate) fn guest_ran(&self) -> bool {
        std::fs::read_to_string(self.path("log")).is_ok_and(|text| !text.is_empty())
    }
}

/// Paths of a sandbox.
pub(crate) struct SandboxPaths {
    id: String,
    agent: PathBuf,
    workspace: PathBuf,
    sockets: PathBuf,
    output: PathBuf,
    log: PathBuf,
    process_file: PathBuf,
}

impl SandboxPaths {
    pub(crate) fn of(home: &Path) -> Self {
        let name = home.file_name().unwrap().to_string_lossy();
        Self {
            // Unique on this host.
            id: format!("sbx-{}", name.trim_start_matches('.')),
            agent: std::env::current_exe().unwrap(),
            workspace: home.join("workspace"),
            sockets: home.join("sockets"),
            output: home.join("output"),
            log: home.join("log"),
            process_file: home.join("process"),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the default parameters.
    pub(crate) fn launch<'a>(&'a self, holder: &'a NamespaceHolder) -> Launch<'a> {
        Launch {
            holder,
            id: &self.id,
            dedicated_uid: None,
            agent: &self.agent,
            template: Template::Base,
            workspace: Some(&self.workspace),
            sockets: &self.sockets,
            output: &self.output,
            log: &self.log,
            process_file: &self.process_file,
            limits: Limits::default(),
            egress: None,
            token: b"token",
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = cgroup::remove(self.id());
        self.holder.kill();
    }
}

/// Sandbox that is killed at the end of the test.
pub(crate) struct Sandbox<'a> {
    home: &'a Fixture,
    pub(crate) process: Process,
    pub(crate) missing: Vec<UnenforcedLimit>,
}

impl Sandbox<'_> {
    /// Runs a command inside, and returns its output.
    #[track_caller]
    pub(crate) fn sh(&self, text: &str) -> String {
        let (mut stream, _) = self.home.listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut printed = String::new();
        stream.read_to_string(&mut printed).unwrap();
        printed
    }
}

impl Drop for Sandbox<'_> {
    fn drop(&mut self) {
        self.process.kill();
        // A test that failed may have left it frozen: a second panic would hide the first, and end all other tests.
        if !std::thread::panicking() {
            wait_until("the sandbox ends", || !self.process.is_running());
        }
    }
}
