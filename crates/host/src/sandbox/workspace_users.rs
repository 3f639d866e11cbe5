//! Who uses the workspace of a sandbox: processes inside that have something open in what is mounted there, are in a
//! directory of it, or run a program from it. They would stay with what was mounted there before, if it were replaced.
//! Those whose working directory is its root are moved with it, see [`swap`](crate::swap()).
//!
//! A helper looks at them from the mounts of the sandbox, where `/proc` is the sandbox's own: it lists what is inside
//! and nothing else. What is used is told by mounts, not by names, but for what is mapped into memory: the kernel
//! tells nobody but the superuser of which mount that is.

mod scan;

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, HostError, Result};
use crate::helper::client;
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::mount::attach::enter;
use crate::namespace::holder::Holder;
use crate::process::Process;
pub use crate::sandbox::workspace_user::{User, Users, Why};
use scan::Found;

/// How long what was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where only those that are bound to the workspace are ended: others may come to be bound all the time, by
/// a loop that enters a directory, and are looked for again while everything is frozen.
const BOUND_PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks at those that are to end: the first, and no more than.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Lists the processes that use a workspace, or ends them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WorkspaceUsersTask {
    holder: Holder,
    process: Process,
    /// Whether they are to end, and how long they have before they are killed.
    end: Option<Duration>,
    whose: Users,
}

/// The processes that use the workspace of the sandbox whose first process this is. That one is never among them, nor
/// are those that look after commands.
pub fn users(holder: &Holder, process: &Process) -> Result<Vec<User>> {
    ask(holder, process, None, Users::Bound)
}

/// Ends them, and whoever comes to use it meanwhile: they are asked to, and killed after a while. Returns those that were
/// ended. With [`Users::Bound`] some may be left, if others came to use it as fast as they were ended; with [`Users::All`]
/// that is an error. To be done while the sandbox is not frozen: what is frozen does not end.
pub fn end_users(holder: &Holder, process: &Process, grace: Duration, whose: Users) -> Result<Vec<User>> {
    ask(holder, process, Some(grace), whose)
}

fn ask(holder: &Holder, process: &Process, end: Option<Duration>, whose: Users) -> Result<Vec<User>> {
    let task = WorkspaceUsersTask { holder: holder.clone(), process: process.clone(), end, whose };
    client::call(&task, &[])
}

/// How many bytes files of the workspace take that have no name any more, and that processes of the sandbox whose first
/// process this is have open.
pub fn deleted(holder: &Holder, process: &Process) -> Result<u64> {
    let task = DeletedFilesTask { holder: holder.clone(), process: process.clone() };
    client::call(&task, &[])
}

/// Adds up the bytes of files of a workspace that are open and have no name any more.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeletedFilesTask {
    holder: Holder,
    process: Process,
}

impl Task for DeletedFilesTask {
    const NAME: &'static str = "deleted-files";
    type Reply = u64;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<u64> {
        go_inside(&self.holder, &self.process)?;
        scan::deleted()
    }
}

impl Task for WorkspaceUsersTask {
    const NAME: &'static str = "workspace-users";
    type Reply = Vec<User>;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<Vec<User>> {
        go_inside(&self.holder, &self.process)?;
        match self.end {
            None => Ok(scan::found(self.whose)?.into_iter().map(|found| found.user).collect()),
            Some(grace) => end(grace, self.whose),
        }
    }
}

fn go_inside(holder: &Holder, process: &Process) -> Result<()> {
    let process = process.pidfd().ok_or_else(HostError::sandbox_ended)?;
    holder.join()?;
    enter(process.as_fd())
}

fn end(grace: Duration, whose: Users) -> Result<Vec<User>> {
    let killing = Instant::now() + grace;
    let deadline = killing + if whose == Users::Bound { BOUND_PATIENCE } else { PATIENCE };
    let mut ended: Vec<(User, u64)> = Vec::new();
    let mut pause = LOOK.0;
    loop {
        let left = scan::found(whose)?;
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
                ended.push((found.user.clone(), found.started));
            }
            if Instant::now() >= killing {
                send(found, Signal::KILL)?;
            } else if !known {
                send(found, Signal::TERM)?;
                // What is stopped would not hear it.
                send(found, Signal::CONT)?;
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK.1);
    }
}

/// Sends a signal to a process, which may have ended. The kernel takes its directory in `/proc` for it, whatever its
/// number is here.
fn send(found: &Found, signal: Signal) -> Result<()> {
    match pidfd_send_signal(&found.directory, signal) {
        Err(Errno::SRCH) => Ok(()),
        sent => sent.doing("send a signal to a process of the sandbox"),
    }
}
