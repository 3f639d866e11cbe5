//! Servers for tests, on free ports and with their own data.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use workspace_test_support::{requires, stable_port};

use crate::support::{LONG, Ran, TestDir};

/// Running server. Dropping it removes its sandboxes.
pub(crate) struct Server {
    pub(crate) place: TestDir,
    port: u16,
    running: Option<Child>,
    variables: Vec<(String, String)>,
}

impl Server {
    /// Starts a server that can create sandboxes. Prints a message and returns `None` if the machine does not support
    /// them; fails in CI.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Like [`Self::start`], with these settings.
    pub(crate) fn start_with(variables: &[(&str, &str)]) -> Option<Self> {
        let server = Self::without_sandboxes(variables);
        let ran = server.run(&["run", "--", "true"]);
        assert!(ran.status == 0 || ran.stderr.contains("workspace status"), "{}", ran.stderr);
        requires(ran.status == 0, format_args!("a sandbox: {}", ran.stderr)).then_some(server)
    }

    /// Starts a server that need not support sandboxes, with these settings.
    pub(crate) fn without_sandboxes(variables: &[(&str, &str)]) -> Self {
        let port = stable_port();
        let variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut server = Self { place: TestDir::new(), port, running: None, variables };
        server.begin();
        server
    }

    /// Starts the server process, and waits until it accepts connections.
    pub(crate) fn begin(&mut self) {
        let mut command = self.place.program(program("workspace-server"));
        command
            .env("DATA_DIR", self.data())
            .env("API_PORT", self.port.to_string())
            .env("RATE_LIMIT", "off")
            .env("NFS_MODE", "off");
        // Sandboxes of the warm pool would outlive a server that is killed.
        command.env("POOL_SIZE", "0");
        command.env("AGENT_PROGRAM", program("workspace-agent")).env("RUST_LOG", "warn");
        command.envs(self.variables.iter().cloned()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(
                child.try_wait().unwrap().is_none() && began.elapsed() < LONG,
                "the server does not start"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        self.running = Some(child);
    }

    /// Kills the server process.
    pub(crate) fn kill(&mut self) {
        let mut child = self.running.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.variable("TLS_CERT").is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(set, _)| set == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.place.path("data")
    }

    /// Creates a command that uses this server.
    pub(crate) fn workspace(&self, words: &[&str]) -> Command {
        self.around(&[&[env!("CARGO_BIN_EXE_workspace")], words].concat())
    }

    /// Creates a command with the environment for this server.
    pub(crate) fn around(&self, words: &[&str]) -> Command {
        let mut command = self.place.program(words[0]);
        command.env("WORKSPACE_SERVER", self.url()).env("DATA_DIR", self.data()).args(&words[1..]);
        // Certificates for the server's clients, which it does not look at itself.
        command.envs(self.variable("SSL_CERT_FILE").map(|file| ("SSL_CERT_FILE", file)));
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        Ran::of(&self.workspace(words).output().unwrap())
    }

    /// Runs a command that must succeed, and returns its stdout.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.status, 0, "{words:?}: {}", ran.stderr);
        ran.stdout
    }

    /// Runs a command with `--json`, and returns its records.
    pub(crate) fn json(&self, words: &[&str]) -> Vec<serde_json::Value> {
        let out = self.ok(&[&["--json"], words].concat());
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Creates a sandbox with that name, and returns its id.
    pub(crate) fn sandbox(&self, name: &str) -> String {
        self.ok(&["sandbox", "create", "--name", name]).trim_end().to_owned()
    }

    /// Runs commands, and returns a transcript without parts that differ from run to run.
    pub(crate) fn transcript(&self, commands: &[&[&str]]) -> String {
        let mut text = String::new();
        for words in commands {
            let ran = self.run(words);
            text.push_str(&format!("$ workspace {}\n{}", words.join(" "), ran.stdout));
            text.extend(ran.stderr.lines().map(|line| format!("! {line}\n")));
            text.push_str(&if ran.status == 0 { "\n".to_owned() } else { format!("= {}\n\n", ran.status) });
        }
        self.place.redacted(&text.replace(&self.url(), "[server]"))
    }
}

impl Drop for Server {
    /// Removes all sandboxes, which would outlive the server.
    fn drop(&mut self) {
        if self.running.is_none() {
            self.begin();
        }
        let ids = self.run(&["ps", "-q"]).stdout;
        for id in ids.lines() {
            drop(self.run(&["sandbox", "rm", id]));
        }
        self.kill();
    }
}

/// Returns the path of a program of this repository, which is built beside this one.
fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_workspace")).with_file_name(name);
    assert!(path.exists(), "{name} is not built: cargo build -p workspace-server -p workspace-agent");
    path
}

/// Waits until a condition is true.
pub(crate) fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
