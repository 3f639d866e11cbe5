//! Helpers: the same program, started again as a process with one thread, to do what a process with many cannot.

pub(crate) mod error;

#[cfg(target_os = "linux")]
pub(crate) mod client;
#[cfg(target_os = "linux")]
pub(crate) mod protocol;
#[cfg(target_os = "linux")]
pub(crate) mod server;
#[cfg(target_os = "linux")]
mod tasks;
