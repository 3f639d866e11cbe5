//! What the machine can do for sandboxes.
//!
//! [`launch`] starts one: a process of its own, in namespaces of its own, over a root of its own. [`holder`] keeps
//! the namespaces in which an ordinary user may mount, [`cgroup`] limits and counts what a sandbox uses, [`quota`]
//! what a directory holds, [`egress`] lets it reach out, [`overlay`] mounts what it works in, and [`freeze`] stops it for
//! a moment. Nearly everything here that is `unsafe` is a system call.
//!
//! Whoever links this crate has to call [`entry`] first thing in `main`: what must run in a process with one
//! thread is the same program, started again.
//!
//! All of this is Linux. On other systems there is what the docker runtime needs there (`elsewhere.rs`), and the rest says
//! that it cannot be had.

pub mod egress;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "what only Linux does fails here, too"))]
mod error;
pub mod free_space;
mod frozen;
mod inside;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux sees to limits by itself"))]
pub mod limits;
pub mod machine;
mod seccomp;
mod user;

#[cfg(target_os = "linux")]
mod attach;
#[cfg(target_os = "linux")]
mod bounds;
#[cfg(target_os = "linux")]
pub mod cgroup;
#[cfg(target_os = "linux")]
mod enter;
#[cfg(target_os = "linux")]
mod entry;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
pub mod freeze;
#[cfg(target_os = "linux")]
mod guest;
#[cfg(target_os = "linux")]
mod hierarchy;
#[cfg(target_os = "linux")]
pub mod holder;
#[cfg(target_os = "linux")]
pub mod host_view;
#[cfg(target_os = "linux")]
mod identity;
#[cfg(target_os = "linux")]
mod ids;
#[cfg(target_os = "linux")]
pub mod launch;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
pub mod overlay;
#[cfg(target_os = "linux")]
pub mod own_users;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
pub mod quota;
#[cfg(target_os = "linux")]
mod remove_tree;
#[cfg(target_os = "linux")]
pub mod rights;
#[cfg(target_os = "linux")]
mod root;
#[cfg(target_os = "linux")]
mod swap;
#[cfg(target_os = "linux")]
pub mod usage;
#[cfg(target_os = "linux")]
pub mod users;

#[cfg(not(target_os = "linux"))]
mod elsewhere;

pub use error::{HostError, Result};
pub use seccomp::profile as seccomp_profile;

#[cfg(target_os = "linux")]
pub use attach::attach;
#[cfg(target_os = "linux")]
pub use entry::entry;
#[cfg(target_os = "linux")]
pub use probe::probe;
#[cfg(target_os = "linux")]
pub use process::Process;
#[cfg(target_os = "linux")]
pub(crate) use remove_tree::remove_tree;
#[cfg(target_os = "linux")]
pub use root::{ETC, FIXED, HIDDEN, PROGRAMS};
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub use swap::{SwapStep, swap_killed, swap_stalled};
pub use swap::{settle_swap, settle_swap_given, swap, swap_given};

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{
    Process, entry, freeze, holder, launch, overlay, quota, settle_swap_given, swap_given, usage, users,
};
