//! Bounds of what a sandbox takes of the kernel, set in its own namespaces.
//!
//! The kernel counts some of what a user takes in every user namespace and in those around it, and lets each set
//! a bound (`/proc/sys/user`). Without one, a single sandbox could take all that the machine allows its owner.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Doing as _, Result};
use crate::resources::limits;

/// Namespaces that nobody inside makes; the list of system calls says the same. And fanotify, which it refuses. Mount
/// namespaces are missing: to the kernel every tree that is mounted from here on is one for a moment.
const NONE: [&str; 9] = [
    "max_cgroup_namespaces",
    "max_fanotify_groups",
    "max_fanotify_marks",
    "max_ipc_namespaces",
    "max_net_namespaces",
    "max_pid_namespaces",
    "max_time_namespaces",
    "max_user_namespaces",
    "max_uts_namespaces",
];

/// What is bounded to a quarter of what the machine allows a user: the bound, the machine's own, and the least.
const QUARTERS: [(&str, &str, u64); 2] = [
    ("max_inotify_instances", "fs/inotify/max_user_instances", 16),
    ("max_inotify_watches", "fs/inotify/max_user_watches", 2048),
];

/// Sets them. `sys` is `/proc/sys` as the first process of the sandbox sees it, which still has all rights inside;
/// `memory` is how much memory the sandbox may use.
pub(crate) fn set(sys: &Path, memory: Option<u64>) -> Result<()> {
    for name in NONE {
        write(&sys.join("user").join(name), 0)?;
    }
    for (name, machine, least) in QUARTERS {
        let machine = sys.join(machine);
        // A kernel without inotify.
        let Ok(text) = fs::read_to_string(&machine) else { continue };
        let most: u64 =
            text.trim().parse().map_err(io::Error::other).doing(format!("read {}", machine.display()))?;
        write(&sys.join("user").join(name), (most / 4).max(least))?;
    }
    let Some(memory) = memory else { return Ok(()) };
    let mut bounds = limits::system_v_bounds(memory).into_iter();
    bounds.try_for_each(|(name, value)| write_if_allowed(&sys.join("kernel").join(name), value))
}

/// What the kernel does not have needs no bound.
fn write(path: &Path, value: u64) -> Result<()> {
    match fs::write(path, value.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.doing(format!("write {}", path.display())),
    }
}

/// Before Linux 5.19 only the machine's superuser may set what an IPC namespace holds.
fn write_if_allowed(path: &Path, value: u64) -> Result<()> {
    match fs::write(path, value.to_string()) {
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied].contains(&error.kind()) => {
            Ok(())
        }
        done => done.doing(format!("write {}", path.display())),
    }
}
