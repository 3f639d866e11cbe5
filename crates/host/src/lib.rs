//! What the machine can do for sandboxes.
//!
//! [`launch`] starts one: a process of its own, in namespaces of its own, over a root of its own. [`holder`] keeps
//! the namespaces in which an ordinary user may mount. Nearly everything here that is `unsafe` is a system call.
//!
//! Whoever links this crate has to call [`entry`] first thing in `main`: what must run in a process with one
//! thread is the same program, started again.

mod entry;
mod error;
mod fork;
pub mod holder;
mod identity;
pub mod launch;
mod mounts;
mod process;
mod root;
mod seccomp;

pub use entry::entry;
pub use error::{HostError, Result};
pub use process::Process;
