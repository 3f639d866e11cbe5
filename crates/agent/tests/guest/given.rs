//! An agent that is given its token and its directory on a socket, as in a container.

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
use crate::server::{Bench, Guest, SANDBOX};

pub(crate) const START: &str = "sockets/start.sock";

/// These tests.
pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_guest_is_given_its_token_and_directory_on_a_socket,
        nothing_inside_finds_what_was_given,
        a_guest_that_is_given_nothing_ends,
        descriptors_and_a_socket_at_once_are_refused,
    ]
}

fn agent(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_workspace-agent"));
    command.args(["--sandbox", SANDBOX, "--socket"]).arg(home.join("sockets/agent.sock"));
    command.arg("--start").arg(home.join(START)).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null());
    command
}

/// Gives what it has to who comes first, and is gone.
pub(crate) fn give(home: &Path, bytes: &[u8], with_directory: bool) -> JoinHandle<()> {
    let listener = UnixListener::bind(home.join(START)).unwrap();
    let output = File::open(home.join("output")).unwrap();
    let bytes = bytes.to_vec();
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [output.as_fd()];
        if with_directory {
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
    })
}

fn start() -> Bench {
    Bench::start_as(|home, token| -> Box<dyn Guest + Send> {
        let giving = give(home, token, true);
        let agent = agent(home).spawn().unwrap();
        giving.join().unwrap();
        std::fs::remove_file(home.join(START)).unwrap();
        Box::new(Agent(agent))
    })
}

fn a_guest_is_given_its_token_and_directory_on_a_socket() {
    let bench = start();
    let ended = bench.run(command("echo out; exit 3"));
    assert_eq!((ended.exit_code, ended.of(Stream::Stdout)), (3, b"out\n".to_vec()));
}

fn nothing_inside_finds_what_was_given() {
    let bench = start();
    let look = "cat /proc/*/environ /proc/*/cmdline; ls -l /proc/self/fd/; ls -l /proc/$PPID/fd/";
    let out = bench.run(command(look)).of(Stream::Stdout);
    let out = String::from_utf8_lossy(&out);
    assert!(!out.contains(&bench.token_text()), "{out}");
    // The command has files of its own output at most, never the directory.
    let directory = format!("{}\n", bench.home().join("output").display());
    assert!(!out.contains(&directory), "{out}");
}

fn ends(agent: Child) -> String {
    let output = agent.wait_with_output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn a_guest_that_is_given_nothing_ends() {
    let home = tempfile::tempdir().unwrap();
    let agent = agent(home.path()).stderr(Stdio::piped()).spawn().unwrap();
    let said = ends(agent);
    assert!(said.contains("nothing was given at"), "{said}");
}

fn descriptors_and_a_socket_at_once_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut agent = agent(home.path());
    let status = agent.args(["--token-fd", "3"]).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
