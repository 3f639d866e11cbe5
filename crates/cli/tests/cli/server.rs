//! A server of a test's own: the real program, on a free port, with its own data.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use workspace_test_support::{requires, stable_port};

use crate::support::{LONG, Ran, TestDir};

/// A place with a server, and sandboxes that go with it.
pub(crate) struct Server {
    pub(crate) place: TestDir,
    port: u16,
    running: Option<Child>,
    variables: Vec<(String, String)>,
}

impl Server {
    /// A server that can make sandboxes. None where the machine lets nobody isolate, which is said; in CI that fails.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same, with these settings.
    pub(crate) fn start_with(variables: &[(&str, &str)]) -> Option<Self> {
        let server = Self::without_sandboxes(variables);
        let ran = server.run(&["run", "--", "true"]);
        assert!(ran.status == 0 || ran.stderr.contains("workspace status"), "{}", ran.stderr);
        requires(ran.status == 0, format_args!("a sandbox: {}", ran.stderr)).then_some(server)
    }

    /// One that need not be able to, with these settings.
    pub(crate) fn without_sandboxes(variables: &[(&str, &str)]) -> Self {
        let port = stable_port();
        let variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut server = Self { place: TestDir::new(), port, running: None, variables };
        server.begin();
        server
    }

    /// Starts the program, and waits until it answers.
    pub(crate) fn begin(&mut self) {
        let mut command = self.place.program(program("workspace-server"));
        command.env("DATA_DIR", self.data()).env("API_PORT", self.port.to_string()).env("RATE_LIMIT", "off");
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

    /// Ends it as nothing can be prepared for.
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

    /// A command that talks to this server.
    pub(crate) fn workspace(&self, words: &[&str]) -> Command {
        self.around(&[&[env!("CARGO_BIN_EXE_workspace")], words].concat())
    }

    /// Any command, in these surroundings.
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

    /// Stdout of a command that must succeed.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.status, 0, "{words:?}: {}", ran.stderr);
        ran.stdout
    }

    /// The records that a command prints.
    pub(crate) fn json(&self, words: &[&str]) -> Vec<serde_json::Value> {
        let out = self.ok(&[&["--json"], words].concat());
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A sandbox of that name.
    pub(crate) fn sandbox(&self, name: &str) -> String {
        self.ok(&["sandbox", "create", "--name", name]).trim_end().to_owned()
    }

    /// Returns the output without parts that differ from run to run.
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
    /// Sandboxes outlive their server; these shall not.
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

/// A program of this repository, which is built beside this one.
fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_workspace")).with_file_name(name);
    assert!(path.exists(), "{name} is not built: cargo build -p workspace-server -p workspace-agent");
    path
}

/// Waits until it is so.
pub(crate) fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
