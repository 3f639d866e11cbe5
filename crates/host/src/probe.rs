//! What sandboxes can have on this machine, found out by trying.

use crate::error::{HostError, Result};
use crate::holder::{Holder, no_namespaces};
use crate::launch::{NAMESPACES, users};
use crate::limits::{self, Capabilities, Limits};
use crate::{cgroup, entry, fork, identity};

/// What sandboxes that are launched with this holder can have.
pub fn probe(holder: &Holder) -> Result<Capabilities> {
    entry::ask("probe", holder, &[])
}

/// Tries it; run in a process of its own.
pub(crate) fn run(holder: &Holder) -> Result<Capabilities> {
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

fn namespaces(holder: &Holder) -> Result<()> {
    holder.join()?;
    let child = fork::child(NAMESPACES, None, |parent| match parent.wait() {
        Ok(()) => HostError::Helper("nothing to do".to_owned()),
        Err(error) => error,
    })
    .map_err(no_namespaces)?;
    let users = [users(holder)];
    let mapped = identity::map(child.pid, &users, &users);
    child.kill();
    mapped
}
