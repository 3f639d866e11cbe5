//! Sandboxes of this process, without a server.
//!
//! A [`LocalService`] creates sandboxes in a temporary directory, and `session` runs programs in them. When it is shut
//! down, it removes the sandboxes and the directory. `leftovers` finds the directories of killed processes.

mod error_mapping;
mod leftovers;
mod local_service;
mod session;

#[cfg(target_os = "linux")]
pub(crate) use leftovers::{DirLock, LOCK_FILE, find_and_lock as find_and_lock_leftovers};
pub(crate) use local_service::LocalService;
#[cfg(target_os = "linux")]
pub(crate) use local_service::new_directory;
#[cfg(target_os = "linux")]
pub(crate) use session::sandbox_ended;
pub(crate) use session::{CommandOptions, run, run_in_terminal};

use workspace_sandbox::Scope;

use crate::error::{CommandError, Result};

/// Owner of all sandboxes of a local service. The catalog needs one; here it has no other meaning.
const OWNER: &str = "try";
/// Scope of all calls to a local service, which has only one owner.
const ALL_OWNERS: Scope = Scope::All;

/// Runs a future that uses a sandbox, on several threads, because file access may block.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| {
        CommandError::failed(format!("cannot start the runtime: {error}"))
            .hint("the system may be out of file descriptors or processes")
    })?;
    let result = runtime.block_on(work);
    // Shutting down would wait for the thread that reads stdin until there is input.
    runtime.shutdown_background();
    result
}
