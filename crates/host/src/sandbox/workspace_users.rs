//! Processes that use the workspace of a sandbox: with an open file, a working directory or a program in it.
//! They would keep the old workspace if it were replaced. Processes whose working directory is the root of
//! the workspace are moved with it, see [`swap`](crate::swap()).
//!
//! A helper inspects them from the mount namespace of the sandbox, whose `/proc` lists the processes inside
//! only. Use is determined by mount, not by path, except for memory mappings: only root can see the mount of
//! those.

mod scan;

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper::client;
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::mount::attach::enter;
use crate::namespace::holder::Holder;
use crate::process::Process;
pub use crate::sandbox::workspace_user::{User, Users, Why};
use scan::Found;

/// Time that killed processes may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The same timeout if only bound processes are ended. It is shorter, because new ones may keep appearing, and
/// the caller looks again while the sandbox is frozen.
const BOUND_KILL_TIMEOUT: Duration = Duration::from_millis(500);
/// First interval of checking processes that are being ended; it doubles up to [`POLL_INTERVAL_MAX`].
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Longest interval of checking processes that are being ended.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(20);

/// Lists the processes that use a workspace, or ends them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WorkspaceUsersTask {
    holder: Holder,
    process: Process,
    /// Time before they are killed, if they are to be ended.
    end: Option<Duration>,
    whose: Users,
}

/// Lists the processes that would keep the old workspace of a sandbox if it were replaced ([`Users::Bound`]).
/// `process` is its first process, which is never listed, nor are the processes that supervise commands.
pub fn users(holder: &Holder, process: &Process) -> Result<Vec<User>> {
    request(holder, process, None, Users::Bound)
}

/// Ends the users of a workspace, also those that appear meanwhile: by `SIGTERM`, and after `grace` by
/// `SIGKILL`. Returns those that were ended. With [`Users::Bound`] some may be left, if new ones appeared as
/// fast as others ended; with [`Users::All`] that is an error. The sandbox must not be frozen, because a
/// frozen process does not end.
pub fn end_users(holder: &Holder, process: &Process, grace: Duration, whose: Users) -> Result<Vec<User>> {
    request(holder, process, Some(grace), whose)
}

fn request(holder: &Holder, process: &Process, end: Option<Duration>, whose: Users) -> Result<Vec<User>> {
    let task = WorkspaceUsersTask { holder: holder.clone(), process: process.clone(), end, whose };
    client::call(&task, &[])
}

/// Returns the disk usage, in bytes, of deleted files of the workspace that are still open.
pub fn deleted(holder: &Holder, process: &Process) -> Result<u64> {
    let task = DeletedFilesTask { holder: holder.clone(), process: process.clone() };
    client::call(&task, &[])
}

/// Measures deleted files of a workspace that are still open.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeletedFilesTask {
    holder: Holder,
    process: Process,
}

impl Task for DeletedFilesTask {
    const NAME: &'static str = "deleted-files";
    type Reply = u64;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<u64> {
        enter_sandbox(&self.holder, &self.process)?;
        scan::deleted_bytes()
    }
}

impl Task for WorkspaceUsersTask {
    const NAME: &'static str = "workspace-users";
    type Reply = Vec<User>;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<Vec<User>> {
        enter_sandbox(&self.holder, &self.process)?;
        match self.end {
            None => Ok(scan::scan(self.whose)?.into_iter().map(|found| found.user).collect()),
            Some(grace) => end(grace, self.whose),
        }
    }
}

fn enter_sandbox(holder: &Holder, process: &Process) -> Result<()> {
    let process = process.pidfd().ok_or_else(HostError::sandbox_ended)?;
    holder.join()?;
    enter(process.as_fd())
}

fn end(grace: Duration, whose: Users) -> Result<Vec<User>> {
    let killing = Instant::now() + grace;
    let deadline = killing + if whose == Users::Bound { BOUND_KILL_TIMEOUT } else { KILL_TIMEOUT };
    let mut ended: Vec<(User, u64)> = Vec::new();
    let mut pause = POLL_INTERVAL_MIN;
    loop {
        let left = scan::scan(whose)?;
        let is_late = Instant::now() > deadline;
        if left.is_empty() || (is_late && whose == Users::Bound) {
            return Ok(ended.into_iter().map(|(user, _)| user).collect());
        }
        if is_late {
            let users: Vec<_> = left.iter().map(|one| one.user.pid.to_string()).collect();
            let text = format!("processes that use the workspace do not end: {}", users.join(", "));
            return Err(HostError::of_kind(HostErrorKind::TimedOut, text));
        }
        for found in &left {
            let known = ended.iter().any(|(user, started)| (user.pid, *started) == found.identity());
            if !known {
                ended.push((found.user.clone(), found.start_time));
            }
            if Instant::now() >= killing {
                send(found, Signal::KILL)?;
            } else if !known {
                send(found, Signal::TERM)?;
                // A stopped process would not handle it.
                send(found, Signal::CONT)?;
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_INTERVAL_MAX);
    }
}

/// Sends a signal to a process, which may have ended. The kernel accepts its directory in `/proc` as a PID
/// file descriptor.
fn send(found: &Found, signal: Signal) -> Result<()> {
    match pidfd_send_signal(&found.directory, signal) {
        Err(Errno::SRCH) => Ok(()),
        sent => sent.context("send a signal to a process of the sandbox"),
    }
}
