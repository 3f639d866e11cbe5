//! Launching a sandbox: a program in its own namespaces, with its own root filesystem and without
//! capabilities.
//!
//! Two processes take part. The **helper** joins the namespace holder, clones the mounts, and spawns the
//! **init process** in new namespaces (`sandbox_init.rs`). The init process builds its root and waits. The
//! helper records it and mounts the workspace into it from outside. Then the init process drops all
//! capabilities and executes the guest agent. The workspace is always mounted into existing namespaces,
//! because a mount that is inherited when a namespace is created can never be replaced.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::mount::attach;
use crate::mount::kept_root;
use crate::mount::mounts::{self, Access};
use crate::mount::root::RootSource;
use crate::mount::workspace::{chown, chown_to_sandbox, clone_workspace};
use crate::namespace::clone::{self, Child, NAMESPACES};
use crate::namespace::holder::{NamespaceHolder, explain_refusal};
use crate::namespace::id_map::SetGroups;
use crate::namespace::sandbox_ids::{ids_of, namespace_owner};
pub use crate::namespace::sandbox_ids::{root_ids, shared_sandbox_ids};
use crate::namespace::{credentials, id_map};
use crate::network::egress::Egress;
use crate::network::network_daemon;
use crate::process::Process;
use crate::resources::cgroup;
use crate::resources::hierarchy::{self, Hierarchy};
use crate::resources::limits::{self, Limits, UnenforcedLimit};
use crate::sandbox::dedicated_uids;
pub use crate::sandbox::layout::{SOCKETS, WORKSPACE};
use crate::sandbox::sandbox_init::{
    AGENT_FD, LOG_FD, OUTPUT_FD, SOCKET_DIR_FD, SandboxInit, TOKEN_FD, has_other_users,
};
use crate::sandbox::seccomp::Filter;

/// Source of the root filesystem of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Template {
    /// Programs and libraries of the host.
    Base,
    /// Root filesystem in a directory, which is not modified. It must be readable by everybody.
    Directory(PathBuf),
    /// Root filesystem that is kept: the mount point of an overlay that no other sandbox uses. If root launches
    /// the sandbox, commands may run as other users ([`root_ids`]).
    Kept(PathBuf),
}

/// Parameters of a launch.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Namespaces in which mounts are created.
    pub holder: &'a NamespaceHolder,
    /// Id of the sandbox, also its host name.
    pub id: &'a str,
    /// Program of the guest agent.
    pub agent: &'a Path,
    /// UID on the host that the sandbox runs as ([`DedicatedUids`](crate::dedicated_uids::DedicatedUids)).
    /// `None` for the UID that all sandboxes share.
    pub dedicated_uid: Option<u32>,
    /// Source of the root filesystem.
    pub template: Template,
    /// Directory to mount at [`WORKSPACE`]. If it is not known yet, [`attach_workspace`](crate::attach_workspace)
    /// mounts it later.
    pub workspace: Option<&'a Path>,
    /// Directory with the server's socket `agent.sock`, which must be writable for everybody. The guest agent gets
    /// it as a file descriptor. It is not mounted inside, because the list of mounts would reveal its path on
    /// the host.
    pub sockets: &'a Path,
    /// Directory for the output of commands. Not visible inside.
    pub output: &'a Path,
    /// File for the log of the guest agent. Not visible inside.
    pub log: &'a Path,
    /// File for the identity of the init process. It is written before any program of the user runs, so that
    /// [`Process::read`] finds the sandbox whichever process was killed.
    pub process_file: &'a Path,
    /// Resource limits.
    pub limits: Limits,
    /// Network egress. `None` for loopback only.
    pub egress: Option<&'a Egress>,
    /// Token by which the guest agent proves which sandbox it belongs to.
    pub token: &'a [u8],
}

/// Result of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// Init process.
    pub process: Process,
    /// Requested limits that are not enforced.
    pub missing: Vec<UnenforcedLimit>,
}

/// Starts a sandbox. Its file descriptors are the program of the guest agent, its token, the output directory and
/// the log.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchTask {
    /// Holder of the namespaces in which the sandbox is created.
    pub(crate) holder: NamespaceHolder,
    pub(crate) id: String,
    /// UID that only this sandbox has; `None` for the UID that all sandboxes share.
    dedicated_uid: Option<u32>,
    /// Root filesystem.
    template: Template,
    /// Path of the workspace; `None` if it is attached later.
    workspace: Option<PathBuf>,
    /// Directory with the sockets of the server.
    sockets: PathBuf,
    /// File in which the process is recorded, for the next server.
    process_file: PathBuf,
    pub(crate) limits: Limits,
    /// Network access; `None` without network.
    pub(crate) egress: Option<Egress>,
    /// Hierarchies of the cgroups. Sent, because a helper would have to read the list of mounts, which has
    /// several for each sandbox.
    hierarchies: Vec<Hierarchy>,
}

/// Launches a sandbox.
pub fn launch(launch: &Launch<'_>) -> Result<Launched> {
    let task = LaunchTask {
        holder: launch.holder.clone(),
        id: launch.id.to_owned(),
        dedicated_uid: launch.dedicated_uid,
        template: launch.template.clone(),
        workspace: launch.workspace.map(Path::to_owned),
        sockets: launch.sockets.to_owned(),
        process_file: launch.process_file.to_owned(),
        limits: launch.limits.clone(),
        egress: launch.egress.cloned(),
        hierarchies: hierarchy::recent().context("read the cgroup hierarchies")?.to_vec(),
    };
    remove_leftovers(launch)?;
    if let Some(workspace) = launch.workspace {
        chown_to_sandbox(launch.holder, workspace, launch.dedicated_uid)?;
    }
    let output_owner =
        launch.dedicated_uid.map(|uid| (uid, uid)).or_else(|| shared_sandbox_ids(launch.holder));
    chown(output_owner, launch.output)?;
    let agent = File::open(launch.agent).context(format!("open {}", launch.agent.display()))?;
    let output = File::open(launch.output).context(format!("open {}", launch.output.display()))?;
    let log = File::options().create(true).append(true).open(launch.log);
    let log = log.context(format!("open {}", launch.log.display()))?;
    let (token, mut writer) = io::pipe().context("create a pipe")?;
    writer.write_all(launch.token).context("pass the token")?;
    drop(writer);
    let descriptors = [agent.as_fd(), token.as_fd(), output.as_fd(), log.as_fd()];
    let launched = helper::client::call(&task, &descriptors);
    launched.map_err(|error| match undo(launch) {
        Ok(()) => error,
        Err(undo_error) => error.followed_by(undo_error),
    })
}

/// Returns the requested limits that are not enforced, of the sandbox recorded at `process_file`: the same as
/// in [`Launched`].
pub fn unenforced_limits(process_file: &Path) -> Result<Vec<UnenforcedLimit>> {
    let path = unenforced_file(process_file);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.context(format!("read {}", path.display()))?,
    };
    serde_json::from_slice(&text).map_err(io::Error::from).context(format!("parse {}", path.display()))
}

/// Returns the path of the file with the limits that are not enforced. It exists if there are any. Servers of other
/// versions read it, so its name stays.
fn unenforced_file(process_file: &Path) -> PathBuf {
    process_file.with_extension("missing")
}

/// Writes the file with the limits that are not enforced. To be done before the process is recorded, so that
/// the file exists for every sandbox that is found.
fn write_unenforced(process_file: &Path, missing: &[UnenforcedLimit]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_vec(missing).map_err(|error| HostError::other(error.to_string()))?;
    std::fs::write(unenforced_file(process_file), text).context("record limits that are not enforced")
}

/// Removes files and cgroups of an earlier launch with the same id and file. Fails if that sandbox still
/// runs.
fn remove_leftovers(launch: &Launch<'_>) -> Result<()> {
    let process_file = launch.process_file;
    if Process::read(process_file)?.is_some_and(|former| former.is_running()) {
        return Err(HostError::of_kind(
            HostErrorKind::Conflict,
            format!("the sandbox recorded at {} is still running", process_file.display()),
        ));
    }
    remove(process_file)?;
    remove(&unenforced_file(process_file))?;
    cgroup::remove_empty(launch.id)
}

/// Undoes a launch that failed. A helper that was killed may have started the sandbox before.
fn undo(launch: &Launch<'_>) -> Result<()> {
    if let Some(process) = Process::read(launch.process_file)? {
        process.kill();
    }
    remove(launch.process_file)?;
    remove(&unenforced_file(launch.process_file))?;
    cgroup::remove(launch.id)
}

fn remove(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(format!("remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Moves file descriptors to the numbers that they have in the guest agent.
fn place_fds(descriptors: Vec<OwnedFd>) -> Result<()> {
    let numbers = [AGENT_FD, TOKEN_FD, OUTPUT_FD, LOG_FD];
    if descriptors.len() != numbers.len() {
        return Err(HostError::other(format!("a launch needs 4 descriptors, not {}", descriptors.len())));
    }
    // Moved to higher numbers first: a descriptor may have one of the target numbers.
    let moved = descriptors.iter().map(|descriptor| fcntl_dupfd_cloexec(descriptor, 64));
    let moved = moved.collect::<rustix::io::Result<Vec<_>>>().context("duplicate a file descriptor")?;
    drop(descriptors);
    moved.iter().zip(numbers).try_for_each(|(moved, number)| place_fd(moved, number))
}

fn place_fd(descriptor: &OwnedFd, number: RawFd) -> Result<()> {
    // SAFETY: the descriptor is open, and nothing else uses the number.
    let done = unsafe { libc::dup2(descriptor.as_raw_fd(), number) };
    if done < 0 { Err(io::Error::last_os_error()).context("duplicate a file descriptor") } else { Ok(()) }
}

impl Task for LaunchTask {
    const NAME: &'static str = "launch";
    type Reply = Launched;

    fn run(self, fds: Vec<OwnedFd>) -> Result<Launched> {
        run(&self, fds)
    }
}

fn run(task: &LaunchTask, descriptors: Vec<OwnedFd>) -> Result<Launched> {
    place_fds(descriptors)?;
    let (cgroups, mut missing) = cgroup::create_all(&task.hierarchies, &task.id, &task.limits)?;
    let mut nproc_rlimit = None;
    if limits::has_per_namespace_process_limit() && missing.iter().any(UnenforcedLimit::is_processes) {
        missing.retain(|missing| !missing.is_processes());
        nproc_rlimit = task.limits.processes;
    }
    write_unenforced(&task.process_file, &missing)?;
    task.holder.join()?;
    place_fd(&mounts::clone_tree(&task.sockets, Access::Read)?, SOCKET_DIR_FD)?;
    let mut mounts = Vec::new();
    if let Some(workspace) = &task.workspace {
        mounts.push((clone_workspace(workspace, task.dedicated_uid)?, WORKSPACE));
    }
    let root = match &task.template {
        Template::Base => RootSource::Base,
        Template::Directory(path) => RootSource::Template(mounts::clone_tree(path, Access::Read)?),
        Template::Kept(path) => RootSource::Kept(kept_root::clone(path)?),
    };
    let ids = ids_of(&task.holder);
    let groups = if has_other_users(&root, ids) { SetGroups::Allow } else { SetGroups::Deny };
    let data_rlimit = task.limits.memory_bytes.filter(|_| missing.iter().any(UnenforcedLimit::is_memory));
    let filter = Filter::new()?;
    let init = SandboxInit { task, root, ids, cgroups: &cgroups, nproc_rlimit, data_rlimit, filter };
    limits::limit_pending_signals().context("limit pending signals")?;
    let spawn = || {
        clone::spawn(NAMESPACES, cgroups.v2_fd(), |parent| match init.run(parent) {
            Ok(never) => match never {},
            Err(error) => error,
        })
    };
    if task.holder == NamespaceHolder::None {
        credentials::drop_supplementary_groups()?;
    }
    let spawned = match namespace_owner(&task.holder, &task.id, task.dedicated_uid) {
        Some(owner) => credentials::with_owner(owner, spawn),
        None => spawn(),
    };
    let mut child = spawned.map_err(explain_refusal)?;
    let process = set_up(&mut child, task, mounts, groups);
    if process.is_err() {
        child.kill();
    }
    process.map(|process| Launched { process, missing })
}

/// Sets up the sandbox from outside while the init process starts.
fn set_up(
    child: &mut Child,
    task: &LaunchTask,
    mounts: Vec<(OwnedFd, &str)>,
    groups: SetGroups,
) -> Result<Process> {
    let id_map = dedicated_uids::id_map_of(ids_of(&task.holder), task.dedicated_uid);
    let identity = Process::of(child.pid)?;
    id_map::write_with(child.pid, &id_map, &id_map, groups)?;
    child.notify()?;
    child.wait_ready()?;
    // If the helper exits before this line, the init process exits, too, because its pipe is closed. From here on
    // the sandbox can be found.
    identity.save(&task.process_file)?;
    let process = pidfd_open(child.pid, PidfdFlags::empty()).context("open the process of the sandbox")?;
    if let Some(egress) = &task.egress {
        network_daemon::start(&process, egress, &task.holder)?;
    }
    attach::enter_mount_namespace(process.as_fd())?;
    attach::mount_trees(mounts)?;
    child.notify()?;
    // The pipe is closed without a message when the init process executes the agent.
    while child.wait()? {}
    Ok(identity)
}
