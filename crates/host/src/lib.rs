//! Sandboxes on one host: namespaces, mounts, networks and resource limits.
//!
//! [`launch`] starts a sandbox: a process in its own namespaces with its own root filesystem. [`attach_workspace`]
//! mounts a workspace in a running sandbox, and [`swap_workspace`] replaces it by another one;
//! [`settle_workspace_swap`] finishes or reverts a replacement that was interrupted. The functions `…_without_chown`
//! are for workspaces whose files the sandbox user owns already, as with other runtimes. [`NamespaceHolder`] is a
//! process that keeps the namespaces in which an ordinary user may mount. [`cgroup`] limits and measures the resources
//! of a sandbox, [`quota`] those of a directory. [`network`] gives a sandbox egress, [`overlay`] mounts workspaces, and
//! [`freeze`] stops all processes of a sandbox for the time of a commit or a pause. [`probe_host`] tells what the host
//! supports. [`open_as_holder`] opens files with the capabilities of a namespace holder. [`read_only_host`] runs a
//! program of `workspace try` over the host's files, read-only. [`HOST_PROGRAM_DIRECTORIES`] and [`HOST_ETC_ENTRIES`]
//! are the parts of the host's root filesystem that sandboxes show, [`HIDDEN_KERNEL_PATHS`] and
//! [`READ_ONLY_KERNEL_PATHS`] the parts of `/proc` and `/sys` that they hide or protect. Nearly all `unsafe` blocks are
//! system calls.
//!
//! A program that links this crate must call [`helper_main`] first in `main`: work that needs a process with
//! one thread is done by the same program, started again.
//!
//! All of this needs Linux. On other systems only the items exist that the docker runtime and plain workspaces (copies
//! or reflink clones in a directory, without an overlay) need (`unsupported.rs`). Functions that need Linux fail there
//! with [`HostError::NeedsLinux`], or with the error for a feature that the machine lacks.

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux uses all errors"))]
mod error;
mod helper;
pub mod host_status;
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
pub use sandbox::lazy_mount::LazyMount;
pub use sandbox::seccomp::profile as seccomp_profile;
pub use sandbox::{launch, workspace_processes};

#[cfg(target_os = "linux")]
pub use helper::server::helper_main;
#[cfg(target_os = "linux")]
pub use mount::attach::attach_workspace;
#[cfg(target_os = "linux")]
pub use mount::root::{
    HIDDEN_KERNEL_PATHS, HOST_ETC_ENTRIES, HOST_PROGRAM_DIRECTORIES, READ_ONLY_KERNEL_PATHS,
};
// For tests: swaps with a helper that is killed, or hangs, after a step.
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub use mount::swap::{SwapStep, swap_killed, swap_stalled};
#[cfg(target_os = "linux")]
pub use mount::swap::{
    settle_workspace_swap, settle_workspace_swap_without_chown, swap_workspace, swap_workspace_without_chown,
};
#[cfg(target_os = "linux")]
pub use mount::{anchor, open_as_holder, overlay};
#[cfg(target_os = "linux")]
pub use namespace::holder::NamespaceHolder;
#[cfg(target_os = "linux")]
pub use process::Process;
#[cfg(target_os = "linux")]
pub use resources::cgroup;
#[cfg(target_os = "linux")]
pub use sandbox::probe::probe_host;
#[cfg(target_os = "linux")]
pub use sandbox::{dedicated_uids, read_only_host};

#[cfg(not(target_os = "linux"))]
pub use unsupported::{
    NamespaceHolder, Process, helper_main, overlay, settle_workspace_swap_without_chown,
    swap_workspace_without_chown,
};
