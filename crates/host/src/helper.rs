//! Helpers: the same program, started again as a process with one thread, to do what a process with many cannot.

pub(crate) mod client;
pub(crate) mod protocol;
pub(crate) mod server;
mod tasks;
