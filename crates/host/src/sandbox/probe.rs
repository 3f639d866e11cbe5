//! Probe of the isolation and limits that the host supports for sandboxes.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::helper::protocol::Task;
use crate::mount::attach;
use crate::mount::mounts::{self, Access};
use crate::namespace::clone::{self, NAMESPACES};
use crate::namespace::holder::{NamespaceHolder, explain_refusal};
use crate::namespace::id_map;
use crate::namespace::sandbox_ids::ids_of;
use crate::resources::cgroup;
use crate::resources::limits::{self, HostSupport, Limits};

/// Determines which isolation and limits sandboxes with this holder can have.
pub fn probe_host(holder: &NamespaceHolder) -> Result<HostSupport> {
    helper::client::call(&ProbeTask { holder: holder.clone() }, &[])
}

/// Tries the steps of a launch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProbeTask {
    holder: NamespaceHolder,
}

impl Task for ProbeTask {
    const NAME: &'static str = "probe";
    type Reply = HostSupport;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<HostSupport> {
        run(&self.holder)
    }
}

fn run(holder: &NamespaceHolder) -> Result<HostSupport> {
    let id = format!("probe-{}", std::process::id());
    let created = cgroup::create(&id, &Limits::all_set());
    cgroup::remove(&id)?;
    let (_, mut missing) = created?;
    if limits::has_per_namespace_process_limit() {
        missing.retain(|missing| !missing.is_processes());
    }
    let namespaces = try_namespaces(holder).map_err(|error| error.to_string());
    Ok(HostSupport::new(namespaces, &missing))
}

/// Tries the steps that the kernel, or a container around this process, may refuse.
fn try_namespaces(holder: &NamespaceHolder) -> Result<()> {
    let refused = |error: HostError| HostError::NoIsolation { reason: error.to_string() };
    holder.join().map_err(refused)?;
    let mut child = clone::spawn(NAMESPACES, None, |parent| match mount_inside(parent) {
        Ok(()) => HostError::other("the probe succeeded"),
        Err(error) => error,
    })
    .map_err(explain_refusal)?;
    let result = try_from_outside(&mut child, holder).map_err(refused);
    child.kill();
    result
}

/// Tries mounts in the new namespaces; runs in the child.
fn mount_inside(parent: &mut clone::Parent) -> Result<()> {
    // The parent maps the ids.
    parent.wait()?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("make the mounts of the sandbox private")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", "/proc", c"proc", flags, None).context("mount proc")?;
    parent.notify()?;
    // The parent enters the mount namespace, and then kills this process.
    parent.wait()
}

/// Tries the steps that a helper takes outside the new namespaces, and enters the mount namespace.
fn try_from_outside(child: &mut clone::Child, holder: &NamespaceHolder) -> Result<()> {
    mounts::clone_tree(Path::new("/dev/null"), Access::Read)?;
    let users = [ids_of(holder)];
    id_map::write(child.pid, &users, &users)?;
    child.notify()?;
    child.wait_ready()?;
    let process = pidfd_open(child.pid, PidfdFlags::empty()).context("open the process of the sandbox")?;
    attach::enter_mount_namespace(process.as_fd())
}
