//! Helpers: work that needs a process with one thread.
//!
//! A server has many threads and must not fork, and only a process with one thread can enter user and mount
//! namespaces. So the program starts itself once as the **helper server** (`server.rs`), which forks a
//! **helper** for each task. That is faster than starting the program for each task. Tasks are types
//! (`protocol.rs`), listed in `tasks.rs`.

pub(crate) mod error;

#[cfg(target_os = "linux")]
pub(crate) mod client;
#[cfg(target_os = "linux")]
pub(crate) mod fd_message;
#[cfg(target_os = "linux")]
pub(crate) mod protocol;
#[cfg(target_os = "linux")]
pub(crate) mod server;
#[cfg(target_os = "linux")]
mod tasks;
