//! The program `workspace-server`: output, signals, limits.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{Answer, Call};

fn program(data: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_workspace-server"));
    command.env_clear().env("DATA_DIR", data.path()).env("API_PORT", "0");
    command
}

fn output(command: &mut Command) -> (bool, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

struct Running {
    child: Child,
    address: SocketAddr,
    announced: String,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let announced: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("runtime")).collect();
        let announced = announced.join("\n");
        let address = announced.lines().next().unwrap_or_default().rsplit('/').next().unwrap().parse();
        Self { child, address: address.unwrap(), announced }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it exits. Returns true for success, and its log.
    fn end(mut self) -> (bool, String) {
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().success(), log)
    }
}

#[test]
fn the_program_prints_its_address_and_exits_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let data = tempfile::tempdir().unwrap();
        let running = Running::start(&mut program(&data));
        let path = data.path().join("api-key");
        assert!(running.announced.contains(path.to_str().unwrap()), "{}", running.announced);
        assert!(running.announced.contains("SQLite"), "{}", running.announced);
        let key = std::fs::read_to_string(path).unwrap();
        let call = Call::new(running.address, "GET", "/api/v1/keys").key(key.trim());
        let answer = call.header("x-request-id", "the-request").send();
        assert_eq!(answer.status, 200);
        running.signal(signal);
        let (success, log) = running.end();
        assert!(success, "{log}");
        assert!(!log.contains(key.trim()));
        let line = log.lines().find(|line| line.contains("the-request")).unwrap();
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["endpoint"], &line["status"]), (&"GET /api/v1/keys".into(), &200.into()));
    }
}

#[test]
fn the_program_prints_the_workspace_provider_and_why_better_ones_are_unavailable() {
    let said = |provider: &str| {
        let data = tempfile::tempdir().unwrap();
        let running = Running::start(program(&data).env("WORKSPACE_PROVIDER", provider));
        let line = running.announced.lines().find_map(|line| line.strip_prefix("workspace  "));
        let line = line.unwrap_or_else(|| panic!("{}", running.announced)).to_owned();
        running.signal(Signal::TERM);
        assert!(running.end().0);
        line
    };
    let best = said("auto");
    let kind = best.split(';').next().unwrap();
    assert!(["overlay", "clone", "copy"].contains(&kind), "{best}");
    assert_eq!(best.contains("overlay cannot be used: "), kind != "overlay", "{best}");
    let copy = said("copy");
    assert!(copy.starts_with("copy, as set by WORKSPACE_PROVIDER"), "{copy}");
    // Better providers were not requested, so they are not reported as unavailable.
    assert_eq!(copy.contains("overlay cannot be used: "), kind != "overlay", "{copy}");
    let clone = said("clone");
    let wanted = clone.starts_with("clone, as set by WORKSPACE_PROVIDER");
    let fallen_back = clone.contains(", not as set by WORKSPACE_PROVIDER; ");
    assert!(wanted || fallen_back && clone.contains("clone cannot be used: "), "{clone}");
}

#[test]
fn a_request_in_progress_is_finished_after_the_signal() {
    let data = tempfile::tempdir().unwrap();
    let running = Running::start(program(&data).env("API_KEY", "a-key-of-the-test-0"));
    let mut stream = TcpStream::connect(running.address).unwrap();
    let body = r#"{"name":"a","owner":"a","role":"user"}"#;
    let head = format!(
        "POST /api/v1/keys HTTP/1.1\r\nhost: a\r\nx-api-key: a-key-of-the-test-0\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The server sends this when the handler reads the body.
    let mut go_on = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut go_on).unwrap();
    running.signal(Signal::TERM);
    let health = || Call::new(running.address, "GET", "/health").send();
    let refused = std::iter::repeat_with(health).find(|answer| answer.status != 200).unwrap();
    assert_eq!(refused.error(), "SHUTTING_DOWN");
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(Answer::parse(&answer).status, 201);
    assert!(running.end().0);
    let audit = std::fs::read_to_string(data.path().join("audit.log")).unwrap();
    assert!(audit.contains("key.created"), "{audit}");
}

#[test]
fn two_servers_do_not_share_data() {
    let data = tempfile::tempdir().unwrap();
    let running = Running::start(&mut program(&data));
    let (success, _, error) = output(&mut program(&data));
    assert!(!success && error.contains("another server uses"), "{error}");
    running.signal(Signal::KILL);
    running.end();
    let again = Running::start(&mut program(&data));
    again.signal(Signal::TERM);
    assert!(again.end().0);
}

#[test]
fn a_port_in_use_is_reported_with_a_hint() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = tempfile::tempdir().unwrap();
    let (success, _, error) = output(program(&data).env("API_PORT", &port));
    assert!(!success && error.contains(&port) && error.contains("API_PORT"), "{error}");
}

#[test]
fn the_program_refuses_to_start_with_invalid_settings() {
    let data = tempfile::tempdir().unwrap();
    let (success, out, error) = output(program(&data).env("RUNTIME", "podman").env("MAX_SANDBOXES", "-1"));
    assert!(!success && out.is_empty());
    assert!(error.contains("RUNTIME is `podman`") && error.contains("MAX_SANDBOXES is `-1`"), "{error}");
    let (success, _, error) = output(program(&data).args(["--config", "/no/such/file"]));
    assert!(!success && error.contains("/no/such/file"), "{error}");
    let (success, _, error) = output(program(&data).arg("--colour"));
    assert!(!success && error.contains("--colour") && error.contains("--help"), "{error}");
}

#[test]
fn the_program_prints_help_version_and_settings() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("settings.toml");
    std::fs::write(&file, "max_sandboxes = 7\napi_key = 'a-secret-in-the-file'\n").unwrap();
    let (success, out, _) = output(program(&data).arg("--config").arg(&file).arg("--print-config"));
    assert!(success && out.contains("max_sandboxes = \"7\"") && !out.contains("a-secret"), "{out}");
    let (success, out, _) = output(program(&data).arg("--print-config").env("WORKSPACE_CONFIG", &file));
    assert!(success && out.contains("max_sandboxes = \"7\""), "{out}");
    assert!(output(program(&data).arg("--help")).1.contains("usage: workspace-server"));
    assert!(output(program(&data).arg("--version")).1.starts_with("workspace-server "));
}

/// Command that starts the server with these limits of open files: soft, then hard.
fn with_files(data: &TempDir, soft: u32, hard: u32) -> Command {
    let mut command = Command::new("/bin/sh");
    let line = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\"");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_workspace-server")]);
    command.env_clear().env("DATA_DIR", data.path()).env("API_PORT", "0");
    command
}

#[test]
fn the_soft_limit_of_open_files_is_raised() {
    let data = tempfile::tempdir().unwrap();
    let running = Running::start(&mut with_files(&data, 200, 900));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("900"), "{files}");
    running.signal(Signal::TERM);
    assert!(running.end().0);
}

#[test]
fn idle_unauthenticated_connections_do_not_block_others() {
    let data = tempfile::tempdir().unwrap();
    let running = Running::start(&mut with_files(&data, 256, 256));
    let key = std::fs::read_to_string(data.path().join("api-key")).unwrap();
    let address = running.address;
    // An authenticated connection stays open.
    let mut known = TcpStream::connect(address).unwrap();
    known.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let get = format!("GET /api/v1/keys HTTP/1.1\r\nhost: a\r\nx-api-key: {}\r\n\r\n", key.trim());
    let mut ask = || {
        known.write_all(get.as_bytes()).unwrap();
        let mut answer = [0; 4096];
        let read = known.read(&mut answer).unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..read]));
    };
    ask();
    let idle: Vec<_> = (0..600).filter_map(|_| TcpStream::connect(address).ok()).collect();
    assert!(idle.len() > 500, "{}", idle.len());
    let began = std::time::Instant::now();
    for _ in 0..5 {
        assert_eq!(Call::new(address, "GET", "/health").send().status, 200);
    }
    // Less than the idle timeout: new connections do not wait for it.
    assert!(began.elapsed() < std::time::Duration::from_secs(9), "{:?}", began.elapsed());
    ask();
    let open = std::fs::read_dir(format!("/proc/{}/fd", running.child.id())).unwrap().count();
    assert!(open < 200, "{open} of 256 descriptors are open: none are in reserve");
    drop(idle);
    running.signal(Signal::TERM);
    assert!(running.end().0);
}
