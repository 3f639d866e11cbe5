//! Server program in a temporary directory. Its sandboxes are removed with it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use workspace_host::NamespaceHolder;
use workspace_host::Process;
use workspace_host::overlay;

use crate::support::{Answer, Call, KEY};

/// Timeout of conditions that a test waits for.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// Server program in a directory of its own. It runs unless it was killed.
pub(crate) struct TestServer {
    directory: TempDir,
    variables: Vec<(String, String)>,
    /// Program with arguments that starts the server, whose path is appended; empty to start it directly.
    launcher: Vec<String>,
    running: Option<Running>,
}

struct Running {
    child: Child,
    address: SocketAddr,
    /// Stdout of the server. It is kept open, so that printing does not fail.
    _output: BufReader<ChildStdout>,
}

impl TestServer {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Starts a server with these variables.
    pub(crate) fn with(variables: &[(&str, &str)]) -> Self {
        Self::launched_by(Vec::new(), variables)
    }

    /// Starts a server with these variables by another program, which must become the server.
    pub(crate) fn launched_by(launcher: Vec<String>, variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let directory = tempfile::tempdir().unwrap();
        let mut server = Self { directory, variables, launcher, running: None };
        server.start();
        server
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn start(&mut self) {
        assert!(self.running.is_none(), "it runs already");
        let log = File::options().append(true).create(true).open(self.path().join("log")).unwrap();
        let mut command = match self.launcher.split_first() {
            None => Command::new(server_program()),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(server_program());
                command
            }
        };
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("DATA_DIR", self.path()).env("API_PORT", "0").env("API_KEY", KEY);
        command.env("AGENT_PROGRAM", agent_program()).env("RATE_LIMIT", "off");
        // Sandboxes of the warm pool would count as leaked.
        command.env("POOL_SIZE", "0");
        // These tests also run on machines that cannot enforce all limits.
        command.env("REQUIRE_ISOLATION", "best-effort");
        // Responses would have ports and secrets of each server.
        command.env("NFS_MODE", "off");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut announced = String::new();
        while !announced.lines().any(|line| line.starts_with("runtime")) {
            let read = output.read_line(&mut announced).unwrap();
            assert!(read > 0, "it did not start: {}", self.log());
        }
        let address = announced.lines().next().unwrap().rsplit('/').next().unwrap().parse().unwrap();
        self.running = Some(Running { child, address, _output: output });
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server runs")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running().address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running().child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until the server exits.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut running = self.running.take().expect("the server runs");
        running.child.wait().unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Sets a variable for the next start.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.retain(|(set, _)| set != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Starts a server that is killed at the first visit of a failpoint.
    pub(crate) fn restart_with_failpoint(&mut self, failpoint: &str) {
        self.kill();
        self.set("WORKSPACE_FAILPOINT", &format!("{failpoint}=kill"));
        self.start();
    }

    /// Waits until a failpoint has killed the server, and starts one without.
    #[track_caller]
    pub(crate) fn restart_after_failpoint(&mut self, failpoint: &str) {
        wait_until(failpoint, || {
            let running = self.running.as_mut().expect("the server was started");
            running.child.try_wait().unwrap().is_some()
        });
        assert_eq!(self.wait().signal(), Some(9), "{failpoint}");
        self.variables.retain(|(name, _)| name != "WORKSPACE_FAILPOINT");
        self.start();
    }

    /// Kills the server, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Creates a request with the admin key.
    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        Call::new(self.address(), method, path).key(KEY)
    }

    /// Creates a request with another key.
    pub(crate) fn call_as(&self, key: &str, method: &str, path: &str) -> Call {
        Call::new(self.address(), method, path).key(key)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.call("GET", path).send()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path).json(&body.to_string()).send()
    }

    /// Creates a key of that owner.
    pub(crate) fn key(&self, owner: &str, role: &str) -> String {
        self.limited_key(owner, role, &json!({}))
    }

    pub(crate) fn limited_key(&self, owner: &str, role: &str, limits: &Value) -> String {
        let body = json!({ "name": "a test", "owner": owner, "role": role, "limits": limits });
        let answer = self.post("/api/v1/keys", &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["key"].as_str().unwrap().to_owned()
    }

    /// Creates a sandbox of the template `base` and returns its id.
    pub(crate) fn create(&self) -> String {
        self.create_with(json!({}))
    }

    pub(crate) fn create_with(&self, mut body: Value) -> String {
        body["template"] = "base".into();
        let answer = self.post("/api/v1/sandboxes", &body);
        assert_eq!(answer.status, 201, "{}\n{}", answer.body, self.log());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn delete(&self, id: &str) {
        let answer = self.call("DELETE", &format!("/api/v1/sandboxes/{id}")).send();
        assert_eq!(answer.status, 204, "{}", answer.body);
    }

    pub(crate) fn sandbox(&self, id: &str) -> Value {
        let answer = self.get(&format!("/api/v1/sandboxes/{id}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, id: &str, command: &str) -> Value {
        self.run_with(id, &json!({ "command": command }))
    }

    pub(crate) fn run_with(&self, id: &str, body: &Value) -> Value {
        let answer = self.post(&format!("/api/v1/sandboxes/{id}/process/run"), body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// Runs a command that must succeed and returns its output.
    pub(crate) fn output_of(&self, id: &str, command: &str) -> String {
        let result = self.run(id, command);
        assert_eq!(result["exitCode"], 0, "{result}");
        result["stdout"].as_str().unwrap().to_owned()
    }

    /// Starts a background command and returns its id.
    pub(crate) fn start_background(&self, id: &str, mut body: Value) -> String {
        body["background"] = true.into();
        let answer = self.post(&format!("/api/v1/sandboxes/{id}/process/run"), &body);
        assert_eq!(answer.status, 202, "{}", answer.body);
        answer.json()["commandId"].as_str().unwrap().to_owned()
    }

    /// Starts a command in the background and waits until it runs. A killed server may not have sent a command to the
    /// guest agent yet: then the next one records it as failed.
    pub(crate) fn start_running(&self, id: &str, body: Value) -> String {
        let command = self.start_background(id, body);
        wait_until("it runs", || self.command(id, &command)["pid"].is_u64());
        command
    }

    /// Returns a command from the list.
    pub(crate) fn command(&self, id: &str, command: &str) -> Value {
        let list = self.get(&format!("/api/v1/sandboxes/{id}/process?limit=1000")).json();
        let found = list["items"].as_array().unwrap().iter().find(|one| one["commandId"] == command);
        found.unwrap_or_else(|| panic!("no {command} in {list}")).clone()
    }

    /// Returns the resident memory of the server in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Returns the names of the directories of sandboxes.
    pub(crate) fn sandbox_directories(&self) -> Vec<String> {
        names(&self.path().join("sandboxes"))
    }

    pub(crate) fn workspaces(&self) -> Vec<String> {
        let directory = self.path().join("workspaces");
        let mut found = names(&directory);
        // Workspaces that are being removed are in this directory.
        found.retain(|name| name != ".removed");
        found.extend(names(&directory.join(".removed")));
        found
    }

    /// Returns the first process of a sandbox; `None` if none is recorded.
    pub(crate) fn guest_process(&self, id: &str) -> Option<Process> {
        Process::read(&self.path().join("sandboxes").join(id).join("process")).unwrap()
    }
}

impl Drop for TestServer {
    /// Removes everything that the test left, also after a failure.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> =
                log.lines().filter(|line| !line.contains("\"request completed\"")).collect();
            eprintln!("the server's log:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
        }
        self.kill_all();
    }
}

impl TestServer {
    /// Kills all processes and removes all mounts, as a crash of the machine would.
    pub(crate) fn kill_all(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        for id in self.sandbox_directories() {
            if let Ok(Some(process)) = Process::read(&self.path().join("sandboxes").join(&id).join("process"))
            {
                process.kill();
                wait_until_gone(&process);
            }
            let _ = workspace_host::cgroup::remove(&id);
        }
        if let Ok(Some(holder)) = Process::read(&self.path().join("holder")) {
            holder.kill();
            // Wait until it has exited: the next server would recover a process that is still exiting.
            wait_until_gone(&holder);
        }
        // Mounts of an ordinary user end with the last process in their namespace.
        let mounted = overlay::mounted(&NamespaceHolder::None, self.path()).unwrap_or_default();
        for path in mounted.iter().rev() {
            let _ = overlay::unmount(&NamespaceHolder::None, path);
        }
        for process in processes_naming(self.path()) {
            process.kill();
            wait_until_gone(&process);
        }
    }
}

/// Returns the processes with a path below a directory in their arguments, such as the daemon of the lazy mount.
pub(super) fn processes_naming(directory: &Path) -> Vec<Process> {
    let is_named = |pid: &String| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut paths = arguments.split(|byte| *byte == 0).map(|one| Path::new(OsStr::from_bytes(one)));
        paths.any(|path| path.starts_with(directory))
    };
    let pids = names(Path::new("/proc")).into_iter().filter(is_named);
    let pids = pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
    pids.filter_map(|pid| Process::of(pid).ok()).collect()
}

fn wait_until_gone(process: &Process) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while process.is_running() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

pub(crate) fn server_program() -> PathBuf {
    let set = std::env::var_os("WORKSPACE_TEST_SERVER").map(PathBuf::from);
    set.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_workspace-server")))
}

pub(crate) fn agent_program() -> PathBuf {
    let set = std::env::var_os("WORKSPACE_TEST_AGENT").map(PathBuf::from);
    let program = set.unwrap_or_else(|| server_program().with_file_name("workspace-agent"));
    assert!(program.is_file(), "build {} first: cargo build -p workspace-agent", program.display());
    program
}

/// Returns true if slow tests are enabled.
pub(crate) fn runs_slow_tests() -> bool {
    std::env::var_os("WORKSPACE_TEST_FULL").is_some()
}

/// Waits until a condition is true. Panics with `what` after [`TIMEOUT`].
#[track_caller]
pub(crate) fn wait_until(what: &str, check: impl FnMut() -> bool) {
    wait_until_within(TIMEOUT, what, check);
}

#[track_caller]
pub(crate) fn wait_until_within(limit: Duration, what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !check() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
