//! A Docker daemon for the tests, which ends with them.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::home::agent_program;
use crate::kind::find;

const KEEPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/docker.sh");

/// Network of sandboxes with egress, for tests that create it.
pub(crate) const NETWORK: &str = "workspace-egress";

/// A running daemon. When this process ends, the script's standard input is closed, and the script ends the
/// daemon.
struct Daemon {
    keeper: Child,
    directory: PathBuf,
}

static DAEMON: Mutex<Option<Daemon>> = Mutex::new(None);

fn daemon() -> MutexGuard<'static, Option<Daemon>> {
    DAEMON.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Address of the daemon, which the first call starts.
pub(crate) fn host() -> String {
    let mut daemon = daemon();
    let daemon = daemon.get_or_insert_with(start);
    format!("unix://{}/docker.sock", daemon.directory.display())
}

fn start() -> Daemon {
    // The script removes it: after the death of this process nothing else could.
    let directory = tempfile::tempdir().unwrap().keep();
    let mut command = Command::new(KEEPER);
    command
        .arg(&directory)
        .arg(agent_program())
        .arg(std::env::current_exe().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut keeper = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "the Docker daemon did not start");
    Daemon { keeper, directory }
}

/// Ends the daemon, if one was started.
pub(crate) fn end() {
    if let Some(mut daemon) = daemon().take() {
        drop(daemon.keeper.stdin.take());
        drop(daemon.keeper.wait());
    }
}

/// Runs Docker's command line, and returns its output.
pub(crate) fn run(words: &[&str]) -> String {
    let output =
        Command::new(find("docker").unwrap()).args(["--host", &host()]).args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
