//! Support for the tests of all crates.
//!
//! [`skip`] and [`requires`] record tests that cannot run on this machine, [`stable_port`] finds a port for a
//! server that is restarted, [`wait_until`] waits for other processes, [`find_program`] finds a program of the
//! machine, [`Docker`] is a daemon, [`network`] simulates a host and an internet in network namespaces, and
//! [`ordinary_user`] runs programs without privileges.

mod docker;
pub mod network;
pub mod ordinary_user;
mod ports;
mod programs;
mod skip;
mod wait;

pub use docker::Docker;
pub use ports::stable_port;
pub use programs::find_program;
pub use skip::{requires, skip};
pub use wait::wait_until;
