//! The Docker daemon of this process.

use parking_lot::{Mutex, MutexGuard};
use workspace_test_support::Docker;

use crate::home::agent_program;

/// Network of sandboxes with egress, for tests that create it.
pub(crate) const NETWORK: &str = "workspace-egress";

static DAEMON: Mutex<Option<Docker>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Docker>> {
    DAEMON.lock()
}

/// Starts a daemon for this process alone: the shared one is in another network namespace.
pub(crate) fn start_own() {
    *lock() = Some(Docker::start(&programs()));
}

/// Returns the address of the daemon. Without [`start_own`] it is the one that all tests share.
pub(crate) fn host() -> String {
    lock().get_or_insert_with(|| Docker::shared(&programs())).host()
}

/// Stops using the daemon.
pub(crate) fn end() {
    drop(lock().take());
}

/// Runs Docker's command line, and returns its output.
pub(crate) fn run(arguments: &[&str]) -> String {
    let mut command = lock().get_or_insert_with(|| Docker::shared(&programs())).command(arguments);
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}

fn programs() -> [std::path::PathBuf; 2] {
    [agent_program(), std::env::current_exe().unwrap()]
}
