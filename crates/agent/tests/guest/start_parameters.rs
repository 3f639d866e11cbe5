//! Tests of an agent that receives its token and directory on a socket, as in a container.
//!
//! The start parameters of an agent that connects to a Unix socket are the bytes of its token. `plain::command` returns
//! a request to run a shell command, `plain::Agent` kills an agent on drop, and `TestServer::run` waits for the result.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use libtest_mimic::Trial;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use workspace_agent_protocol::output::Stream;

use crate::plain::{Agent, command};
use crate::server::{Guest, SANDBOX, TestServer};

/// Path of the socket for start parameters, below the directory of a guest.
pub(crate) const START: &str = "sockets/start.sock";

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        start_parameters_arrive_on_a_socket,
        commands_cannot_find_the_start_parameters,
        agent_without_start_parameters_exits,
        descriptors_and_socket_are_mutually_exclusive,
    ]
}

/// Returns the command line of an agent that receives its parameters on the socket [`START`] in `home`.
fn agent(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_workspace-agent"));
    command.args(["--sandbox", SANDBOX, "--socket"]).arg(home.join("sockets/agent.sock"));
    command.arg("--start").arg(home.join(START)).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null());
    command
}

/// Listens on [`START`], and starts a thread that sends `bytes`, the encoded start parameters, and a
/// descriptor of the directory of output files to the first client. Then the thread closes the connection and ends.
pub(crate) fn send_parameters(home: &Path, bytes: &[u8]) -> JoinHandle<()> {
    let listener = UnixListener::bind(home.join(START)).unwrap();
    let output = File::open(home.join("output")).unwrap();
    let bytes = bytes.to_vec();
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [output.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
    })
}

/// Starts a server, and an agent that receives its token on a socket.
fn start() -> TestServer {
    TestServer::start_as(|home, token| -> Box<dyn Guest + Send> {
        // On a Unix socket, the parameters are the token alone.
        let parameters = token;
        let sending = send_parameters(home, parameters);
        let agent = agent(home).spawn().unwrap();
        sending.join().unwrap();
        std::fs::remove_file(home.join(START)).unwrap();
        Box::new(Agent(agent))
    })
}

fn start_parameters_arrive_on_a_socket() {
    let server = start();
    let result = server.run(command("echo out; exit 3"));
    assert_eq!((result.exit_code, result.output(Stream::Stdout)), (3, b"out\n".to_vec()));
}

fn commands_cannot_find_the_start_parameters() {
    let server = start();
    let script = "cat /proc/*/environ /proc/*/cmdline; ls -l /proc/self/fd/; ls -l /proc/$PPID/fd/";
    let out = server.run(command(script)).output(Stream::Stdout);
    let out = String::from_utf8_lossy(&out);
    assert!(!out.contains(&server.token_text()), "{out}");
    // The command has at most its own output files, never the directory.
    let directory = format!("{}\n", server.home().join("output").display());
    assert!(!out.contains(&directory), "{out}");
}

/// Waits until an agent has failed. Returns its standard error.
fn stderr_of_failed(agent: Child) -> String {
    let output = agent.wait_with_output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn agent_without_start_parameters_exits() {
    let home = tempfile::tempdir().unwrap();
    let agent = agent(home.path()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = stderr_of_failed(agent);
    assert!(stderr.contains("cannot receive start parameters at"), "{stderr}");
}

fn descriptors_and_socket_are_mutually_exclusive() {
    let home = tempfile::tempdir().unwrap();
    let mut agent = agent(home.path());
    let status = agent.args(["--token-fd", "3"]).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
