//! What the machine can do for sandboxes.
//!
//! [`launch`] starts one: a process of its own, in namespaces of its own, over a root of its own. [`Holder`] keeps
//! the namespaces in which an ordinary user may mount, [`cgroup`] limits and counts what a sandbox uses, [`quota`]
//! what a directory holds, [`network`] lets it reach out, [`overlay`] mounts what it works in, and [`freeze`] stops it
//! for a moment. Nearly everything here that is `unsafe` is a system call.
//!
//! Whoever links this crate has to call [`helper_main`] first thing in `main`: what must run in a process with one
//! thread is the same program, started again.
//!
//! All of this is Linux. On other systems there is what the docker runtime needs there (`unsupported.rs`), and the rest
//! says that it cannot be had.

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "what only Linux does fails here, too"))]
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
pub use sandbox::{launch, workspace_users};

#[cfg(target_os = "linux")]
pub use helper::server::helper_main;
#[cfg(target_os = "linux")]
pub use mount::attach::attach;
#[cfg(target_os = "linux")]
pub use mount::root::{ETC, FIXED, HIDDEN, PROGRAMS};
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub use mount::swap::{SwapStep, swap_killed, swap_stalled};
#[cfg(target_os = "linux")]
pub use mount::swap::{settle_swap, settle_swap_given, swap, swap_given};
#[cfg(target_os = "linux")]
pub use mount::{overlay, privileged_files};
#[cfg(target_os = "linux")]
pub use namespace::holder::Holder;
#[cfg(target_os = "linux")]
pub use process::Process;
#[cfg(target_os = "linux")]
pub use resources::cgroup;
#[cfg(target_os = "linux")]
pub use sandbox::probe::probe;
#[cfg(target_os = "linux")]
pub use sandbox::{host_view, own_users};

#[cfg(not(target_os = "linux"))]
pub use unsupported::{Holder, Process, helper_main, overlay, settle_swap_given, swap_given};
