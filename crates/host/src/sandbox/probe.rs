//! What sandboxes can have on this machine, found out by trying.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, HostError, Result};
use crate::helper::client;
use crate::helper::protocol::Task;
use crate::mount::attach;
use crate::mount::mounts::{self, Access};
use crate::namespace::clone::{self, NAMESPACES};
use crate::namespace::holder::{Holder, no_namespaces};
use crate::namespace::id_map;
use crate::namespace::sandbox_ids::users;
use crate::resources::cgroup;
use crate::resources::limits::{self, Capabilities, Limits};

/// What sandboxes that are launched with this holder can have.
pub fn probe(holder: &Holder) -> Result<Capabilities> {
    client::call(&ProbeTask { holder: holder.clone() }, &[])
}

/// Finds out by trying what sandboxes can have.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProbeTask {
    holder: Holder,
}

impl Task for ProbeTask {
    const NAME: &'static str = "probe";
    type Reply = Capabilities;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<Capabilities> {
        run(&self.holder)
    }
}

fn run(holder: &Holder) -> Result<Capabilities> {
    let id = format!("probe-{}", std::process::id());
    let made = cgroup::make(&id, &Limits::some_of_all());
    cgroup::remove(&id)?;
    let (_, mut missing) = made?;
    if limits::processes_are_counted_inside() {
        missing.retain(|missing| !missing.is_processes());
    }
    let namespaces = namespaces(holder).map_err(|error| error.to_string());
    Ok(Capabilities::new(namespaces, &missing))
}

/// Takes the steps of a launch that a machine, or a container around this process, may refuse.
fn namespaces(holder: &Holder) -> Result<()> {
    let refused = |error: HostError| HostError::NoIsolation { reason: error.to_string() };
    holder.join().map_err(refused)?;
    let mut child = clone::child(NAMESPACES, None, |parent| match mount_inside(parent) {
        Ok(()) => HostError::other("nothing more to do"),
        Err(error) => error,
    })
    .map_err(no_namespaces)?;
    let mounted = accompany(&mut child, holder).map_err(refused);
    child.kill();
    mounted
}

/// What the child tries.
fn mount_inside(parent: &mut clone::Parent) -> Result<()> {
    parent.wait()?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .doing("keep mounts to the sandbox")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", "/proc", c"proc", flags, None).doing("mount proc")?;
    parent.done()?;
    parent.wait()
}

/// What is tried from outside.
fn accompany(child: &mut clone::Child, holder: &Holder) -> Result<()> {
    mounts::detached(Path::new("/dev/null"), Access::Read)?;
    let users = [users(holder)];
    id_map::map(child.pid, &users, &users)?;
    child.done()?;
    child.ready()?;
    let process = pidfd_open(child.pid, PidfdFlags::empty()).doing("look at the sandbox")?;
    attach::enter(process.as_fd())
}
