//! Docker daemons for tests, with one image, `workspace-base`.
//!
//! A daemon takes seconds to start and to stop. Tests that run in processes of their own share one, which the
//! first of them starts and which ends after the last.

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::shared_server::{SharedServer, new_directory, start_and_wait};
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
    /// Daemon that ends after the last test that uses it.
    Shared { _server: SharedServer },
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
        let is_running = |directory: &Path| UnixStream::connect(socket(directory)).is_ok();
        let server = SharedServer::start("docker", SCRIPT, programs, is_running);
        Self { directory: server.directory.clone(), lifetime: Lifetime::Shared { _server: server } }
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

fn socket(directory: &Path) -> PathBuf {
    directory.join("docker.sock")
}
