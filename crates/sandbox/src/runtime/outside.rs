//! Actions on a running sandbox from outside, through its first process.

use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, geteuid};
use workspace_host::Holder;
use workspace_host::launch::SOCKETS;
use workspace_host::workspace_processes::{self, ProcessScope, WorkspaceProcess};
use workspace_host::{HostError, Process, settle_swap_without_chown, swap_without_chown};

use super::guest::User;
use crate::sandbox_dir::SandboxDir;

/// Lists the processes that use the workspace of a sandbox, and ends them if `end` is given.
pub(super) fn workspace_users(
    holder: &Holder,
    process: &Process,
    dir: &SandboxDir,
    end: Option<(ProcessScope, Duration)>,
) -> Result<Vec<WorkspaceProcess>, HostError> {
    match end {
        None => workspace_processes::list(holder, process),
        Some(_) if dir.frozen().exists() => {
            Err(HostError::other("the sandbox is frozen, and what is frozen does not end"))
        }
        Some((scope, grace)) => workspace_processes::terminate(holder, process, grace, scope),
    }
}

/// Bytes of a sandbox's workspace in deleted files that are still open.
pub(super) fn deleted(holder: &Holder, process: &Process) -> Result<u64, HostError> {
    workspace_processes::deleted_bytes(holder, process)
}

/// Returns true if this process may change the mounts of containers that others run.
pub(super) fn may_enter() -> bool {
    geteuid().is_root()
}

/// First process of a container that others run, by its PID; `None` if it is not on this machine. The PID may
/// be of another process here: a daemon may be on another machine. No other process has this sandbox's
/// sockets.
pub(super) fn first_process(pid: i32, dir: &SandboxDir) -> Result<Option<Process>, HostError> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
    let Ok(process) = Process::of(pid) else { return Ok(None) };
    let inside = PathBuf::from(format!("/proc/{pid}/root")).join(SOCKETS.trim_start_matches('/'));
    let which = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino()));
    let same = match (which(&inside), which(&dir.sockets())) {
        (Ok(inside), Ok(outside)) => inside == outside,
        _ => false,
    };
    // It was that one all the while.
    Ok((same && process.is_running()).then_some(process))
}

/// Replaces the workspace of a container.
pub(super) fn swap_container(process: &Process, workspace: &Path) -> Result<(), HostError> {
    let User { uid, gid } = User::of_sandboxes();
    let named =
        |error: io::Error| HostError::other(format!("cannot give the workspace to the sandbox: {error}"));
    chown(workspace, Some(uid), Some(gid)).map_err(named)?;
    swap_without_chown(&Holder::Machine, process, workspace)
}

/// Returns true if a directory is the workspace of a container.
pub(super) fn settle_swap_container(process: &Process, workspace: &Path) -> Result<bool, HostError> {
    settle_swap_without_chown(&Holder::Machine, process, workspace)
}
