//! A guest that runs what it is told, and the server's side of it.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use workspace_host::holder::Holder;
use workspace_host::launch::{Launch, SOCKETS, launch};
use workspace_host::{Process, Result};

const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const ID: &str = "sbx-test";

/// What the guest does: runs each command that comes over a connection, and answers with what it printed.
pub(crate) fn run() -> ExitCode {
    println!("the guest runs");
    while let Ok(mut stream) = UnixStream::connect(format!("{SOCKETS}/agent.sock")) {
        let mut text = String::new();
        if stream.read_to_string(&mut text).is_err() {
            return ExitCode::FAILURE;
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
pub(crate) struct Home {
    directory: TempDir,
    listener: UnixListener,
    pub(crate) holder: Holder,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["workspace", "sockets", "output"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let socket = directory.path().join("sockets/agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666)).unwrap();
        let holder = Holder::find_or_start(directory.path()).unwrap();
        Self { directory, listener, holder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn try_launch(&self, change: impl FnOnce(&mut Launch<'_>)) -> Result<Process> {
        launch_in(self.directory.path(), &self.holder, change)
    }

    #[track_caller]
    pub(crate) fn launch(&self, change: impl FnOnce(&mut Launch<'_>)) -> Sandbox<'_> {
        Sandbox { home: self, process: self.try_launch(change).unwrap() }
    }

    pub(crate) fn guest_ran(&self) -> bool {
        std::fs::read_to_string(self.path("log")).is_ok_and(|text| !text.is_empty())
    }
}

/// Launches the sandbox of a home, as `change` says.
pub(crate) fn launch_in(
    home: &Path,
    holder: &Holder,
    change: impl FnOnce(&mut Launch<'_>),
) -> Result<Process> {
    let agent = std::env::current_exe().unwrap();
    let mut order = Launch {
        holder,
        id: ID,
        agent: &agent,
        workspace: &home.join("workspace"),
        sockets: &home.join("sockets"),
        output: &home.join("output"),
        log: &home.join("log"),
        note: &home.join("process"),
        token: b"token",
    };
    change(&mut order);
    launch(&order)
}

impl Drop for Home {
    fn drop(&mut self) {
        self.holder.end();
    }
}

/// A sandbox that ends with the test.
pub(crate) struct Sandbox<'a> {
    home: &'a Home,
    pub(crate) process: Process,
}

impl Sandbox<'_> {
    /// What a command prints inside.
    #[track_caller]
    pub(crate) fn sh(&self, text: &str) -> String {
        let (mut stream, _) = self.home.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
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
        soon("the sandbox ends", || !self.process.is_running());
    }
}

/// Waits for something to become true.
#[track_caller]
pub(crate) fn soon(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
