//! Limits on kernel resources in the namespaces of a sandbox, set by sysctls.
//!
//! The kernel counts some resources per user namespace and in all its ancestors, each of which may set a
//! limit (`/proc/sys/user`). Without one, a single sandbox could use up the limit of the host user that
//! runs it.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Context as _, Result};
use crate::resources::limits;

/// Resources that a sandbox cannot use: namespaces and fanotify, which the seccomp filter denies, too. Mount
/// namespaces are not among them, because the kernel briefly counts every detached mount as one.
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

/// Resources of which a sandbox may use a quarter of the host's limit per user: sysctl to set, sysctl with
/// the host's limit, and minimum.
const SHARED: [(&str, &str, u64); 2] = [
    ("max_inotify_instances", "fs/inotify/max_user_instances", 16),
    ("max_inotify_watches", "fs/inotify/max_user_watches", 2048),
];

/// Sets the limits. `sys` is `/proc/sys` of the first process of the sandbox, while it still has all
/// capabilities inside; `memory` is the memory limit of the sandbox.
pub(crate) fn set(sys: &Path, memory: Option<u64>) -> Result<()> {
    for name in FORBIDDEN {
        write(&sys.join("user").join(name), 0)?;
    }
    for (name, host_sysctl, min) in SHARED {
        let host_sysctl = sys.join(host_sysctl);
        // A kernel without inotify.
        let Ok(text) = fs::read_to_string(&host_sysctl) else { continue };
        let host_limit: u64 = text
            .trim()
            .parse()
            .map_err(io::Error::other)
            .context(format!("read {}", host_sysctl.display()))?;
        write(&sys.join("user").join(name), (host_limit / 4).max(min))?;
    }
    let Some(memory) = memory else { return Ok(()) };
    let mut sysctls = limits::system_v_ipc_limits(memory).into_iter();
    sysctls.try_for_each(|(name, value)| write_if_allowed(&sys.join("kernel").join(name), value))
}

/// Writes a sysctl. Does nothing if the kernel does not have it.
fn write(path: &Path, value: u64) -> Result<()> {
    match fs::write(path, value.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.context(format!("write {}", path.display())),
    }
}

/// Writes a sysctl. Does nothing if that is not allowed: before Linux 5.19 only root of the host may limit an
/// IPC namespace.
fn write_if_allowed(path: &Path, value: u64) -> Result<()> {
    match fs::write(path, value.to_string()) {
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied].contains(&error.kind()) => {
            Ok(())
        }
        result => result.context(format!("write {}", path.display())),
    }
}
