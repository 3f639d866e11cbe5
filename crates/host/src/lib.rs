//! What the machine can do for sandboxes.
//!
//! [`launch`] starts one: a process of its own, in namespaces of its own, over a root of its own. [`holder`] keeps
//! the namespaces in which an ordinary user may mount, [`cgroup`] limits and counts what a sandbox uses, [`quota`]
//! what a directory holds, [`egress`] lets it reach out, [`overlay`] mounts what it works in, and [`freeze`] stops it for
//! a moment. Nearly everything here that is `unsafe` is a system call.
//!
//! Whoever links this crate has to call [`entry`] first thing in `main`: what must run in a process with one
//! thread is the same program, started again.

mod attach;
pub mod cgroup;
pub mod egress;
mod enter;
mod entry;
mod error;
mod fork;
pub mod freeze;
mod guest;
mod hierarchy;
pub mod holder;
mod identity;
pub mod launch;
pub mod limits;
mod mounts;
pub mod overlay;
mod probe;
mod process;
pub mod quota;
pub mod rights;
mod root;
mod seccomp;
mod swap;
pub mod usage;
pub mod users;

pub use attach::attach;
pub use entry::entry;
pub use error::{HostError, Result};
pub use probe::probe;
pub use process::Process;
pub use root::{ETC, FIXED, HIDDEN, PROGRAMS};
pub use seccomp::profile as seccomp_profile;
pub use swap::{swap, swap_given};
