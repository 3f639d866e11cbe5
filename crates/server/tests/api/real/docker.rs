//! Docker daemon for tests.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use workspace_test_support::{requires, skip};

/// Docker daemon. It ends when its stdin is closed.
pub(crate) struct Docker {
    child: Child,
    directory: PathBuf,
}

impl Docker {
    /// Starts a daemon with an image that can run these programs. `None` without Docker or root.
    pub(crate) fn start(programs: &[PathBuf]) -> Option<Self> {
        let found = ["dockerd", "docker", "busybox"].iter().all(|program| is_there(program));
        if !rustix::process::geteuid().is_root() {
            skip("Docker's daemon needs root");
            return None;
        }
        if !requires(found, "dockerd, docker and busybox") {
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sandbox/tests/service/docker.sh");
        let directory = tempfile::tempdir().unwrap().keep();
        let mut command = Command::new(script);
        command.arg(&directory).args(programs);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Self { child, directory })
    }

    pub(crate) fn host(&self) -> String {
        format!("unix://{}/docker.sock", self.directory.display())
    }

    /// Returns a command of the Docker client.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.args(["--host", &self.host()]).args(words);
        command
    }

    /// Runs the client and returns its output.
    pub(crate) fn say(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        for container in self.say(&["ps", "--all", "--quiet"]).lines() {
            self.say(&["rm", "--force", container]);
        }
        for network in self.say(&["network", "ls", "--quiet", "--filter", "type=custom"]).lines() {
            self.say(&["network", "rm", network]);
        }
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).any(|place| place.join(program).is_file())
}
