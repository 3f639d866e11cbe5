//! Sandboxes: launching them, their init process, their system calls, and the processes that use their
//! workspace.

pub(crate) mod layout;
pub(crate) mod lazy_mount;
pub(crate) mod seccomp;
pub(crate) mod workspace_process;

#[cfg(target_os = "linux")]
pub mod dedicated_uids;
#[cfg(target_os = "linux")]
pub mod launch;
#[cfg(target_os = "linux")]
pub(crate) mod probe;
#[cfg(target_os = "linux")]
pub mod read_only_host;
#[cfg(target_os = "linux")]
pub(crate) mod sandbox_init;
#[cfg(target_os = "linux")]
pub mod workspace_processes;

#[cfg(not(target_os = "linux"))]
pub use crate::unsupported::{launch, workspace_processes};
