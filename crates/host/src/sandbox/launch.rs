//! Starting a sandbox: a program in namespaces of its own, over a root of its own, without any rights.
//!
//! Two processes take part. The **helper** (this program again, with one thread) joins the holder, takes up what
//! is to be mounted, and makes the **child** in new namespaces. The child builds its root and waits; the helper notes
//! it, and mounts the workspace into it from outside; the child gives up all rights and becomes the guest agent. The
//! workspace is always mounted like this, into namespaces that exist: what is there when a namespace is made could
//! never be replaced.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, HostError, Result};
use crate::helper::client;
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::mount::attach;
use crate::mount::mounts::{self, Access};
use crate::mount::workspace::{give, give_to, take_up};
use crate::namespace::clone::{self, Child, NAMESPACES};
use crate::namespace::holder::{Holder, no_namespaces};
pub use crate::namespace::sandbox_ids::owner;
use crate::namespace::sandbox_ids::{USER, owner_of_namespace, users};
use crate::namespace::{credentials, id_map};
use crate::network::egress::Egress;
use crate::network::network_daemon;
use crate::process::Process;
use crate::resources::cgroup;
use crate::resources::limits::{self, Limits, Missing};
use crate::sandbox::guest::{AGENT, Guest, LOG, OUTPUT, SOCKET_DIRECTORY, TOKEN};
pub use crate::sandbox::layout::{SOCKETS, WORKSPACE};
use crate::sandbox::own_users;
use crate::sandbox::seccomp::Filters;

/// What the root filesystem of a sandbox is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Template {
    /// What the machine has: its programs and libraries.
    Base,
    /// A root filesystem in a directory, which stays as it is. Everybody must be allowed to read it.
    Directory(PathBuf),
}

/// What to start.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Where mounts are made.
    pub holder: &'a Holder,
    /// The sandbox's id, also its host name.
    pub id: &'a str,
    /// The program of the guest agent.
    pub agent: &'a Path,
    /// The user of the machine that it runs as ([`OwnUsers`](crate::own_users::OwnUsers)); if none is given, the one that all share.
    pub user: Option<u32>,
    /// Becomes the root.
    pub template: Template,
    /// Becomes [`WORKSPACE`]; if none is known yet, [`attach`](crate::attach()) brings it later.
    pub workspace: Option<&'a Path>,
    /// The agent gets it as a descriptor; the server listens on `agent.sock` in it, which everybody may write to. Not seen
    /// inside: the list of mounts would tell where it is on the machine.
    pub sockets: &'a Path,
    /// Where output is kept. Not seen inside.
    pub output: &'a Path,
    /// Gets what the agent says. Not seen inside.
    pub log: &'a Path,
    /// Gets the sandbox's process, before anything of the user's runs: whoever ends at whatever moment, what runs
    /// is found again by [`Process::read`].
    pub note: &'a Path,
    /// How much it may use.
    pub limits: Limits,
    /// What it may reach; none for nothing but itself.
    pub egress: Option<&'a Egress>,
    /// With which the agent says for whom it speaks.
    pub token: &'a [u8],
}

/// What was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// Its first process.
    pub process: Process,
    /// Limits that were asked for and are not kept.
    pub missing: Vec<Missing>,
}

/// Starts a sandbox. Its file descriptors are the program of the agent, its token, the output directory and the log.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchTask {
    pub(crate) holder: Holder,
    pub(crate) id: String,
    user: Option<u32>,
    template: Template,
    workspace: Option<PathBuf>,
    sockets: PathBuf,
    note: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) egress: Option<Egress>,
}

/// Starts a sandbox.
pub fn launch(launch: &Launch<'_>) -> Result<Launched> {
    let task = LaunchTask {
        holder: launch.holder.clone(),
        id: launch.id.to_owned(),
        user: launch.user,
        template: launch.template.clone(),
        workspace: launch.workspace.map(Path::to_owned),
        sockets: launch.sockets.to_owned(),
        note: launch.note.to_owned(),
        limits: launch.limits.clone(),
        egress: launch.egress.cloned(),
    };
    forget_former(launch)?;
    if let Some(workspace) = launch.workspace {
        give(launch.holder, workspace, launch.user)?;
    }
    give_to(launch.user.map(|user| (user, user)).or_else(|| owner(launch.holder)), launch.output)?;
    let agent = File::open(launch.agent).doing(format!("open {}", launch.agent.display()))?;
    let output = File::open(launch.output).doing(format!("open {}", launch.output.display()))?;
    let log = File::options().create(true).append(true).open(launch.log);
    let log = log.doing(format!("open {}", launch.log.display()))?;
    let (token, mut writer) = io::pipe().doing("make a pipe")?;
    writer.write_all(launch.token).doing("pass the token")?;
    drop(writer);
    let descriptors = [agent.as_fd(), token.as_fd(), output.as_fd(), log.as_fd()];
    let launched = client::call(&task, &descriptors);
    launched.map_err(|error| match take_back(launch) {
        Ok(()) => error,
        Err(more) => error.followed_by(more),
    })
}

/// The limits that were asked for and are not kept, of the sandbox that is noted at `note`: what [`Launched`] says, for
/// whoever finds it later.
pub fn missing(note: &Path) -> Result<Vec<Missing>> {
    let path = missing_at(note);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.doing(format!("read {}", path.display()))?,
    };
    serde_json::from_slice(&text).map_err(io::Error::from).doing(format!("understand {}", path.display()))
}

/// Where that is kept, if there is anything to say.
fn missing_at(note: &Path) -> PathBuf {
    note.with_extension("missing")
}

/// Before the sandbox is noted: whoever finds it finds this.
fn note_missing(note: &Path, missing: &[Missing]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_vec(missing).map_err(|error| HostError::other(error.to_string()))?;
    std::fs::write(missing_at(note), text).doing("note what is missing")
}

/// Makes sure that what is found later under the sandbox's names is of this launch.
fn forget_former(launch: &Launch<'_>) -> Result<()> {
    let note = launch.note;
    if Process::read(note)?.is_some_and(|former| former.is_running()) {
        return Err(HostError::of_kind(
            HostErrorKind::Conflict,
            format!("the sandbox noted at {} still runs", note.display()),
        ));
    }
    remove(note)?;
    remove(&missing_at(note))?;
    cgroup::remove_empty(launch.id)
}

/// A helper that was killed may have let the sandbox go before.
fn take_back(launch: &Launch<'_>) -> Result<()> {
    if let Some(process) = Process::read(launch.note)? {
        process.kill();
    }
    remove(launch.note)?;
    remove(&missing_at(launch.note))?;
    cgroup::remove(launch.id)
}

fn remove(note: &Path) -> Result<()> {
    match std::fs::remove_file(note) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(format!("remove {}", note.display()))
        }
        _ => Ok(()),
    }
}

/// Gives descriptors the numbers they have from here to the agent, which is to have them.
fn number(descriptors: Vec<OwnedFd>) -> Result<()> {
    let numbers = [AGENT, TOKEN, OUTPUT, LOG];
    if descriptors.len() != numbers.len() {
        return Err(HostError::other(format!("{} descriptors for a launch", descriptors.len())));
    }
    // Out of the way of the numbers first.
    let moved = descriptors.iter().map(|descriptor| fcntl_dupfd_cloexec(descriptor, 64));
    let moved = moved.collect::<rustix::io::Result<Vec<_>>>().doing("copy a descriptor")?;
    drop(descriptors);
    moved.iter().zip(numbers).try_for_each(|(moved, number)| number_one(moved, number))
}

fn number_one(descriptor: &OwnedFd, number: RawFd) -> Result<()> {
    // SAFETY: a descriptor that is open, and a number that nothing here has.
    let done = unsafe { libc::dup2(descriptor.as_raw_fd(), number) };
    if done < 0 { Err(io::Error::last_os_error()).doing("number a descriptor") } else { Ok(()) }
}

impl Task for LaunchTask {
    const NAME: &'static str = "launch";
    type Reply = Launched;

    fn run(self, fds: Vec<OwnedFd>) -> Result<Launched> {
        run(&self, fds)
    }
}

fn run(task: &LaunchTask, descriptors: Vec<OwnedFd>) -> Result<Launched> {
    number(descriptors)?;
    let (groups, mut missing) = cgroup::make(&task.id, &task.limits)?;
    let mut processes = None;
    if limits::processes_are_counted_inside() && missing.iter().any(Missing::is_processes) {
        missing.retain(|missing| !missing.is_processes());
        processes = task.limits.processes;
    }
    note_missing(&task.note, &missing)?;
    task.holder.join()?;
    number_one(&mounts::detached(&task.sockets, Access::Read)?, SOCKET_DIRECTORY)?;
    let mut mounts = Vec::new();
    if let Some(workspace) = &task.workspace {
        mounts.push((take_up(workspace, task.user)?, WORKSPACE));
    }
    let template = match &task.template {
        Template::Base => None,
        Template::Directory(path) => Some(mounts::detached(path, Access::Read)?),
    };
    let users = users(&task.holder);
    let memory = task.limits.memory_bytes.filter(|_| missing.iter().any(Missing::is_memory));
    let guest = Guest { task, template, users, groups: &groups, processes, memory, filters: Filters::new()? };
    limits::limit_pending_signals().doing("limit pending signals")?;
    let make = || {
        clone::child(NAMESPACES, groups.to_be_made_in(), |parent| match guest.begin(parent) {
            Ok(never) => match never {},
            Err(error) => error,
        })
    };
    if task.holder == Holder::Machine {
        credentials::leave_groups()?;
    }
    let made = match owner_of_namespace(&task.holder, &task.id, task.user) {
        Some(owner) => credentials::with_owner(owner, make),
        None => make(),
    };
    let mut child = made.map_err(no_namespaces)?;
    let made = accompany(&mut child, task, mounts);
    if made.is_err() {
        child.kill();
    }
    made.map(|process| Launched { process, missing })
}

/// What the helper does while the child gets ready.
fn accompany(child: &mut Child, task: &LaunchTask, mounts: Vec<(OwnedFd, &str)>) -> Result<Process> {
    let users = own_users::map_of(users(&task.holder), task.user);
    let made = Process::of(child.pid)?;
    id_map::map(child.pid, &users, &users)?;
    child.done()?;
    child.ready()?;
    // If this process ends before the child was let go, the child ends too; from here on it can be found.
    made.note(&task.note)?;
    let process = pidfd_open(child.pid, PidfdFlags::empty()).doing("look at the sandbox")?;
    if let Some(egress) = &task.egress {
        network_daemon::start(&process, egress, &task.holder)?;
    }
    attach::enter(process.as_fd())?;
    attach::mount(mounts)?;
    child.done()?;
    // It became the agent when its end of the pipe is closed without a word.
    while child.wait()? {}
    Ok(made)
}
