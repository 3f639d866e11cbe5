//! Limits of kernel resources in the namespaces of a sandbox, set by sysctls.
//!
//! The kernel counts some resources in every user namespace and its parents, and each may set a limit
//! (`/proc/sys/user`). Without one, a single sandbox could take all that the host allows its owner.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Context as _, Result};
use crate::resources::limits;

/// Resources of which a sandbox gets none: namespaces and fanotify, which the seccomp filter denies, too.
/// Mount namespaces are not among them, because the kernel counts every detached mount as one for a moment.
const FORBIDDEN: [&str; 9] = [
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

/// Resources of which a sandbox gets a quarter of what the host allows a user: the limit, the sysctl of the
/// host, and the minimum.
const QUARTERED: [(&str, &str, u64); 2] = [
    ("max_inotify_instances", "fs/inotify/max_user_instances", 16),
    ("max_inotify_watches", "fs/inotify/max_user_watches", 2048),
];

/// Sets the limits. `sys` is `/proc/sys` of the first process of the sandbox, while it still has all
/// capabilities inside; `memory` is the memory limit of the sandbox.
pub(crate) fn set(sys: &Path, memory: Option<u64>) -> Result<()> {
    for name in FORBIDDEN {
        write(&sys.join("user").join(name), 0)?;
    }
    for (name, machine, least) in QUARTERED {
        let machine = sys.join(machine);
        // A kernel without inotify.
        let Ok(text) = fs::read_to_string(&machine) else { continue };
        let most: u64 =
            text.trim().parse().map_err(io::Error::other).context(format!("read {}", machine.display()))?;
        write(&sys.join("user").join(name), (most / 4).max(least))?;
    }
    let Some(memory) = memory else { return Ok(()) };
    let mut bounds = limits::system_v_bounds(memory).into_iter();
    bounds.try_for_each(|(name, value)| write_if_allowed(&sys.join("kernel").join(name), value))
}

/// Writes a sysctl, unless the kernel does not have it.
fn write(path: &Path, value: u64) -> Result<()> {
    match fs::write(path, value.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.context(format!("write {}", path.display())),
    }
}

/// Writes a sysctl if allowed: before Linux 5.19 only root of the host may limit an IPC namespace.
fn write_if_allowed(path: &Path, value: u64) -> Result<()> {
    match fs::write(path, value.to_string()) {
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied].contains(&error.kind()) => {
            Ok(())
        }
        done => done.context(format!("write {}", path.display())),
    }
}
