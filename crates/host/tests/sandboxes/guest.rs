//! A guest that runs commands for the tests, and the server's side of it.
//!
//! [`Fixture`] has the directories of one sandbox, and launches it with this program as its agent. [`Sandbox::sh`] runs
//! a command in it: the agent connects to the listener of the fixture, receives the command, and sends the output.

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

/// Command that the guest handles itself, without a shell: it calls `kernel_limits::keep_descriptors_in_flight`, and
/// replies with the number.
pub(crate) const KEEP_DESCRIPTORS: &str = "keep descriptors in flight";
/// Maximum time until the output of a command arrives.
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
            let kept = crate::kernel_limits::keep_descriptors_in_flight();
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

/// Directories of a server with one sandbox. On drop, the cgroup of the sandbox is removed and the holder is killed.
pub(crate) struct Fixture {
    directory: TempDir,
    paths: SandboxPaths,
    /// Listener to which the guest connects.
    listener: UnixListener,
    /// Holder of the namespaces in which the sandbox is created.
    pub(crate) holder: NamespaceHolder,
}

impl Fixture {
    /// Creates the directories in a new temporary directory, and starts a namespace holder if the user needs one.
    pub(crate) fn new() -> Self {
        Self::in_directory(tempfile::tempdir().unwrap())
    }

    /// Like [`Self::new`] in an existing directory, which is removed on drop.
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

    /// Returns a path in the directory; that of the directory for an empty name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Launches the sandbox with the default parameters ([`SandboxPaths::launch`]), which `change` may change. The
    /// caller ends it.
    pub(crate) fn try_launch<'a>(&'a self, change: impl FnOnce(&mut Launch<'a>)) -> Result<Launched> {
        let mut parameters = self.paths.launch(&self.holder);
        change(&mut parameters);
        launch(&parameters)
    }

    /// Like [`Self::try_launch`]; panics on an error. The sandbox is killed on drop.
    #[track_caller]
    pub(crate) fn launch<'a>(&'a self, change: impl FnOnce(&mut Launch<'a>)) -> Sandbox<'a> {
        let Launched { process, missing } = self.try_launch(change).unwrap();
        // The limits that are not enforced can be read later, too.
        assert_eq!(workspace_host::launch::unenforced_limits(&self.path("process")).unwrap(), missing);
        Sandbox { home: self, process, missing }
    }

    /// Returns the sandbox of this fixture that another process has launched, from the record of its process. Its
    /// `missing` is empty.
    #[track_caller]
    pub(crate) fn found(&self) -> Sandbox<'_> {
        let process = Process::read(&self.path("process")).unwrap().unwrap();
        Sandbox { home: self, process, missing: Vec::new() }
    }

    /// Returns the id of the sandbox, which is unique on this host.
    pub(crate) fn id(&self) -> &str {
        &self.paths.id
    }

    /// Returns true if the guest has started: it has written to its log.
    pub(crate) fn guest_ran(&self) -> bool {
        std::fs::read_to_string(self.path("log")).is_ok_and(|text| !text.is_empty())
    }
}

/// Id and paths of a sandbox, by the directory (home) of its server.
pub(crate) struct SandboxPaths {
    id: String,
    /// Program of the guest.
    agent: PathBuf,
    workspace: PathBuf,
    /// Directory with the listener.
    sockets: PathBuf,
    /// Directory of output files.
    output: PathBuf,
    log: PathBuf,
    /// File in which the launch records the process.
    process_file: PathBuf,
}

impl SandboxPaths {
    /// Returns the id and the paths for a home. Creates nothing.
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

    /// Returns the id of the sandbox.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the default parameters of a launch: the base template, a workspace, default limits and no egress.
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
    /// First process of the sandbox.
    pub(crate) process: Process,
    /// Limits that this machine cannot enforce.
    pub(crate) missing: Vec<UnenforcedLimit>,
}

impl Sandbox<'_> {
    /// Runs a shell command inside, waits for its end, and returns its standard output and error.
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
