//! Docker daemons for tests, with one image, `workspace-base`.
//!
//! A daemon takes seconds to start and to stop. Tests that run in processes of their own share one, which the
//! first of them starts and which ends after the last.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use crate::{find_program, requires, skip};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docker.sh");

/// A Docker daemon.
pub struct Docker {
    directory: PathBuf,
    lifetime: Lifetime,
}

/// Value that keeps the daemon running as long as it lives.
enum Lifetime {
    /// Script that stops the daemon when its standard input ends: on drop, or when this process dies.
    Own(Child),
    /// Shared lock on a file. The daemon ends when no process holds such a lock any more.
    Shared { _lock: File },
}

impl Docker {
    /// Returns true if a daemon can be started. Otherwise records the test as skipped; for a missing program, panics if
    /// `CI=true`.
    pub fn is_available() -> bool {
        if !rustix::process::geteuid().is_root() {
            skip("Docker's daemon needs root");
            return false;
        }
        let missing = ["dockerd", "docker", "busybox"].into_iter().find(|name| find_program(name).is_none());
        missing.is_none_or(|program| requires(false, format_args!("`{program}`")))
    }

    /// Starts a daemon in the network namespace of this process. Its image has the shared libraries of `programs`, but
    /// not the programs themselves: the tests mount them into containers.
    pub fn start(programs: &[PathBuf]) -> Self {
        let directory = new_directory();
        let mut script = Command::new(SCRIPT);
        script.arg(&directory).args(programs).stdin(Stdio::piped());
        let child = start_and_wait(&mut script);
        Self { directory, lifetime: Lifetime::Own(child) }
    }

    /// Returns the daemon that all test processes of this build share. Starts it if there is none, as
    /// [`Docker::start`] does: only then are `programs` used, so all processes must pass the same.
    pub fn shared(programs: &[PathBuf]) -> Self {
        let build = env::current_exe().unwrap().ancestors().nth(2).unwrap().join("test-docker");
        fs::create_dir_all(&build).unwrap();
        let (users, current) = (build.join("users.lock"), build.join("directory"));
        let lock = File::create(&users).unwrap();
        lock.lock_shared().unwrap();
        let start = File::create(build.join("start.lock")).unwrap();
        start.lock().unwrap();
        let directory = running_daemon(&current).unwrap_or_else(|| {
            let directory = new_directory();
            // Its own session: signals to the process group of this test must not reach it.
            let mut script = Command::new("setsid");
            script.arg(SCRIPT).arg(&directory).args(programs).env("SHARED_LOCK", &users);
            // A test whose output stays open after its end is reported as leaky.
            let log = File::create(build.join("log")).unwrap();
            drop(start_and_wait(script.stdin(Stdio::null()).stderr(log)));
            fs::write(&current, directory.as_os_str().as_encoded_bytes()).unwrap();
            directory
        });
        Self { directory, lifetime: Lifetime::Shared { _lock: lock } }
    }

    /// Returns the URL of the daemon's socket, for `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", socket(&self.directory).display())
    }

    /// Returns a command of the Docker client.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new("docker");
        command.args(["--host", &self.host()]).args(arguments);
        command
    }

    /// Runs the client and returns its standard output, also if it fails.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        if let Lifetime::Own(script) = &mut self.lifetime {
            drop(script.stdin.take());
            let _ = script.wait();
        }
    }
}

/// Creates a directory for a daemon. The script removes it: after the death of this process nothing else could.
fn new_directory() -> PathBuf {
    tempfile::tempdir().unwrap().keep()
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("docker.sock")
}

/// Returns the directory of the running shared daemon, whose path is in the file `current`; `None` if that daemon does
/// not accept connections.
fn running_daemon(current: &Path) -> Option<PathBuf> {
    let directory = PathBuf::from(fs::read_to_string(current).ok()?);
    UnixStream::connect(socket(&directory)).ok().map(|_| directory)
}

/// Starts the script, and waits until it reports that the daemon is ready.
fn start_and_wait(script: &mut Command) -> Child {
    let mut child = script.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "the Docker daemon did not start");
    child
}
