//! Operations on a running sandbox from outside, through the namespaces of its first process.

use std::fmt;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, geteuid};
use workspace_host::NamespaceHolder;
use workspace_host::launch::SOCKETS;
use workspace_host::workspace_processes::{self, ProcessScope, WorkspaceProcess};
use workspace_host::{HostError, Process, settle_workspace_swap_without_chown, swap_workspace_without_chown};

use super::actions::{FIND_PROCESSES, SWAP};
use super::guest::User;
use super::{RuntimeError, blocking};
use crate::sandbox_dir::SandboxDir;

/// Lists the processes that use the workspace of a sandbox, and terminates them if `terminate` is given.
pub(super) fn workspace_processes(
    holder: &NamespaceHolder,
    process: &Process,
    dir: &SandboxDir,
    terminate: Option<(ProcessScope, Duration)>,
) -> Result<Vec<WorkspaceProcess>, HostError> {
    match terminate {
        None => workspace_processes::list(holder, process),
        Some(_) if dir.freeze_record().exists() => {
            Err(HostError::other("the sandbox is frozen, and frozen processes do not exit"))
        }
        Some((scope, grace)) => workspace_processes::terminate(holder, process, grace, scope),
    }
}

/// Returns the disk usage, in bytes, of deleted files of the workspace that are still open.
pub(super) fn deleted_open_bytes(holder: &NamespaceHolder, process: &Process) -> Result<u64, HostError> {
    workspace_processes::deleted_bytes(holder, process)
}

/// Returns whether this process may enter the mount namespaces of containers of another runtime.
pub(super) fn can_enter() -> bool {
    geteuid().is_root()
}

/// Finds the first process of a container by its PID; `None` if it is not on this host. The daemon may be on
/// another host, where the PID belongs to another process, so the process must have this sandbox's sockets.
pub(super) fn local_process(pid: i32, dir: &SandboxDir) -> Result<Option<Process>, HostError> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
    let Ok(process) = Process::of(pid) else { return Ok(None) };
    let inside = PathBuf::from(format!("/proc/{pid}/root")).join(SOCKETS.trim_start_matches('/'));
    let inode = |path: &Path| path.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
    let is_same = match (inode(&inside), inode(&dir.sockets())) {
        (Ok(inside), Ok(outside)) => inside == outside,
        _ => false,
    };
    // If the process is still running, its PID was not reused between these checks.
    Ok((is_same && process.is_running()).then_some(process))
}

/// Wraps an error of the action that it names.
type WrapError = dyn Fn(&'static str, &dyn fmt::Display) -> RuntimeError + Send + Sync;

/// Running container of another program. Its methods act on the container from outside, each on its own
/// thread.
pub(super) struct Container {
    process: Process,
    dir: SandboxDir,
    /// Makes the error of the runtime from a failed action.
    failed: Box<WrapError>,
}

impl Container {
    /// Creates the handle of a container from its first process, as [`local_process`] returns it.
    pub(super) fn new(process: Process, dir: &SandboxDir, failed: Box<WrapError>) -> Self {
        Self { process, dir: dir.clone(), failed }
    }

    pub(super) async fn workspace_processes(
        self,
        terminate: Option<(ProcessScope, Duration)>,
    ) -> Result<Vec<WorkspaceProcess>, RuntimeError> {
        self.act(FIND_PROCESSES, move |process, dir| {
            workspace_processes(&NamespaceHolder::None, process, dir, terminate)
        })
        .await
    }

    pub(super) async fn deleted_open_bytes(self) -> Result<u64, RuntimeError> {
        self.act(FIND_PROCESSES, |process, _| deleted_open_bytes(&NamespaceHolder::None, process)).await
    }

    /// Replaces the workspace. [`swap_container`] sets the owner of the new one, so the swap itself, and a settlement
    /// after an interruption, do not change it.
    pub(super) async fn swap(self, workspace: &Path) -> Result<(), RuntimeError> {
        let workspace = workspace.to_owned();
        self.act(SWAP, move |process, _| swap_container(process, &workspace)).await
    }

    /// Finishes or reverts an interrupted swap. Returns true if `workspace` is now the workspace.
    pub(super) async fn settle_swap(self, workspace: &Path) -> Result<bool, RuntimeError> {
        let workspace = workspace.to_owned();
        self.act(SWAP, move |process, _| {
            settle_workspace_swap_without_chown(&NamespaceHolder::None, process, &workspace)
        })
        .await
    }

    /// Performs an action on its own thread, and converts its error to one of the runtime.
    async fn act<T: Send + 'static>(
        self,
        action: &'static str,
        work: impl FnOnce(&Process, &SandboxDir) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let Self { process, dir, failed } = self;
        blocking(move || work(&process, &dir), move |error| failed(action, error)).await
    }
}

/// Makes the user of containers the owner of `workspace`, and makes it the workspace of a container. `swap_workspace`
/// would set an owner that only sandboxes of the embedded runtime have: their ids are mapped to other ids of the host.
fn swap_container(process: &Process, workspace: &Path) -> Result<(), HostError> {
    let User { uid, gid } = User::of_sandboxes();
    let chown_error =
        |error: io::Error| HostError::other(format!("cannot change the owner of the workspace: {error}"));
    chown(workspace, Some(uid), Some(gid)).map_err(chown_error)?;
    swap_workspace_without_chown(&NamespaceHolder::None, process, workspace)
}
