//! Sandboxes on one host: namespaces, mounts, networks and resource limits.
//!
//! [`launch`] starts a sandbox: a process in its own namespaces with its own root filesystem.
//! [`NamespaceHolder`] is a process that keeps the namespaces in which an ordinary user may mount.
//! [`cgroup`] limits and measures the resources of a sandbox, [`quota`] those of a directory. [`network`]
//! gives a sandbox egress, [`overlay`] mounts workspaces, and [`freeze`] stops all processes of a sandbox
//! for the time of a commit or a pause. Nearly all `unsafe` blocks are system calls.
//!
//! A program that links this crate must call [`helper_main`] first in `main`: work that needs a process with
//! one thread is done by the same program, started again.
//!
//! All of this needs Linux. On other systems only the functions exist that the docker runtime needs
//! (`unsupported.rs`); everything else fails with [`HostError::NeedsLinux`].

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux uses all errors"))]
mod error;
mod helper;
pub mod machine;
pub mod network;
mod resources;
mod sandbox;

#[cfg(target_os = "linux")]
mod mount;
#[cfg(target_os = "linux")]
mod namespace;
#[cfg(target_os = "linux")]
mod process;

#[cfg(not(target_os = "linux"))]
mod unsupported;

pub use error::{HostError, Result};
pub use helper::error::{HelperError, HostErrorKind};
pub use resources::{disk_usage, free_space, freeze, limits, quota};
pub use sandbox::seccomp::profile as seccomp_profile;
pub use sandbox::{launch, workspace_processes};

#[cfg(target_os = "linux")]
pub use helper::server::helper_main;
#[cfg(target_os = "linux")]
pub use mount::attach::attach;
#[cfg(target_os = "linux")]
pub use mount::root::{ETC, HIDDEN, PROGRAMS, READ_ONLY};
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub use mount::swap::{SwapStep, swap_killed, swap_stalled};
#[cfg(target_os = "linux")]
pub use mount::swap::{settle_swap, settle_swap_without_chown, swap, swap_without_chown};
#[cfg(target_os = "linux")]
pub use mount::{anchor, overlay, privileged_files};
#[cfg(target_os = "linux")]
pub use namespace::holder::NamespaceHolder;
#[cfg(target_os = "linux")]
pub use process::Process;
#[cfg(target_os = "linux")]
pub use resources::cgroup;
#[cfg(target_os = "linux")]
pub use sandbox::probe::probe;
#[cfg(target_os = "linux")]
pub use sandbox::{dedicated_uids, host_view};

#[cfg(not(target_os = "linux"))]
pub use unsupported::{
    NamespaceHolder, Process, helper_main, overlay, settle_swap_without_chown, swap_without_chown,
};
