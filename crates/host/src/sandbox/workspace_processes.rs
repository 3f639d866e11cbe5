//! Processes that use the workspace of a sandbox: they have an open file, a working directory or a running
//! executable in it. They would keep the old workspace if it were replaced. Processes whose working directory
//! is the root of the workspace are moved to the new one, see [`swap_workspace`](crate::swap_workspace).
//!
//! A helper inspects them from the mount namespace of the sandbox, whose `/proc` lists only the processes
//! inside. Uses are identified by mount, not by path, except for memory mappings: only root can see the mount
//! of a mapping.

mod scan;

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::mount::attach::enter_mount_namespace;
use crate::namespace::holder::NamespaceHolder;
use crate::process::Process;
pub use crate::sandbox::workspace_process::{ProcessScope, WorkspaceProcess, WorkspaceUse};
use scan::FoundProcess;

/// Timeout for killed processes to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for killed processes to exit with [`ProcessScope::Blocking`]. It is shorter, because new processes
/// may keep appearing, and the caller scans again while the sandbox is frozen.
const BLOCKING_KILL_TIMEOUT: Duration = Duration::from_millis(500);
/// First interval between two scans; it doubles up to [`POLL_INTERVAL_MAX`].
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Maximum interval between two scans.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(20);

/// Lists the processes that use a workspace, or terminates them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WorkspaceProcessesTask {
    holder: NamespaceHolder,
    /// First process of the sandbox.
    process: Process,
    /// Time between SIGTERM and SIGKILL; `None` to list the processes only.
    grace: Option<Duration>,
    /// Processes that count as users of the workspace.
    scope: ProcessScope,
}

/// Lists the processes that would keep the old workspace of a sandbox if it were replaced
/// ([`ProcessScope::Blocking`]). `process` is its first process, which is never listed, nor are the processes
/// that supervise commands.
pub fn list(holder: &NamespaceHolder, process: &Process) -> Result<Vec<WorkspaceProcess>> {
    request(holder, process, None, ProcessScope::Blocking)
}

/// Terminates the processes that use a workspace, including new ones: by `SIGTERM`, and after `grace` by
/// `SIGKILL`. Returns the terminated processes. With [`ProcessScope::Blocking`] some may be left, if new ones
/// appeared as fast as others exited; with [`ProcessScope::All`] that is an error. The sandbox must not be
/// frozen, because a frozen process does not exit.
pub fn terminate(
    holder: &NamespaceHolder,
    process: &Process,
    grace: Duration,
    scope: ProcessScope,
) -> Result<Vec<WorkspaceProcess>> {
    request(holder, process, Some(grace), scope)
}

/// Lists the processes that use the workspace; with `grace`, terminates them, and kills them after this time.
fn request(
    holder: &NamespaceHolder,
    process: &Process,
    grace: Option<Duration>,
    scope: ProcessScope,
) -> Result<Vec<WorkspaceProcess>> {
    let task = WorkspaceProcessesTask { holder: holder.clone(), process: process.clone(), grace, scope };
    helper::client::call(&task, &[])
}

/// Returns the disk usage, in bytes, of deleted files of the workspace that are still open.
pub fn deleted_bytes(holder: &NamespaceHolder, process: &Process) -> Result<u64> {
    let task = MeasureDeletedFilesTask { holder: holder.clone(), process: process.clone() };
    helper::client::call(&task, &[])
}

/// Measures deleted files of a workspace that are still open.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MeasureDeletedFilesTask {
    holder: NamespaceHolder,
    process: Process,
}

impl Task for MeasureDeletedFilesTask {
    const NAME: &'static str = "deleted-files";
    type Reply = u64;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<u64> {
        enter_sandbox(&self.holder, &self.process)?;
        scan::deleted_bytes()
    }
}

impl Task for WorkspaceProcessesTask {
    const NAME: &'static str = "workspace-processes";
    type Reply = Vec<WorkspaceProcess>;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<Vec<WorkspaceProcess>> {
        enter_sandbox(&self.holder, &self.process)?;
        match self.grace {
            None => Ok(scan::scan(self.scope)?.into_iter().map(|found| found.process).collect()),
            Some(grace) => terminate_all(grace, self.scope),
        }
    }
}

fn enter_sandbox(holder: &NamespaceHolder, process: &Process) -> Result<()> {
    let process = process.pidfd().ok_or_else(HostError::sandbox_ended)?;
    holder.join()?;
    enter_mount_namespace(process.as_fd())
}

fn terminate_all(grace: Duration, scope: ProcessScope) -> Result<Vec<WorkspaceProcess>> {
    let kill_time = Instant::now() + grace;
    let deadline =
        kill_time + if scope == ProcessScope::Blocking { BLOCKING_KILL_TIMEOUT } else { KILL_TIMEOUT };
    let mut terminated: Vec<(WorkspaceProcess, u64)> = Vec::new();
    let mut interval = POLL_INTERVAL_MIN;
    loop {
        let remaining = scan::scan(scope)?;
        let is_overdue = Instant::now() > deadline;
        if remaining.is_empty() || (is_overdue && scope == ProcessScope::Blocking) {
            return Ok(terminated.into_iter().map(|(process, _)| process).collect());
        }
        if is_overdue {
            let pids: Vec<_> = remaining.iter().map(|found| found.process.pid.to_string()).collect();
            let text = format!("processes that use the workspace did not exit: {}", pids.join(", "));
            return Err(HostError::of_kind(HostErrorKind::TimedOut, text));
        }
        for found in &remaining {
            let is_known =
                terminated.iter().any(|(process, started)| (process.pid, *started) == found.identity());
            if !is_known {
                terminated.push((found.process.clone(), found.start_time));
            }
            if Instant::now() >= kill_time {
                send(found, Signal::KILL)?;
            } else if !is_known {
                send(found, Signal::TERM)?;
                // A stopped process would not handle the signal.
                send(found, Signal::CONT)?;
            }
        }
        std::thread::sleep(interval);
        interval = (interval * 2).min(POLL_INTERVAL_MAX);
    }
}

/// Sends a signal to a process, which may have exited. The kernel accepts its directory in `/proc` as a PID
/// file descriptor.
fn send(found: &FoundProcess, signal: Signal) -> Result<()> {
    match pidfd_send_signal(&found.directory, signal) {
        Err(Errno::SRCH) => Ok(()),
        sent => sent.context("send a signal to a process of the sandbox"),
    }
}
