//! Support for the tests of all crates.
//!
//! [`skip`] and [`requires`] record tests that cannot run on this machine, [`stable_port`] finds a port for a
//! server that is restarted, [`wait_until`] waits for other processes, [`find_program`] finds a program of the
//! machine, [`Docker`] and [`PostgresDatabase`] are on
//! servers that tests share, [`child`] runs the test program as a child that can be
//! killed, [`network`] simulates a host and an internet in network namespaces, and
//! [`ordinary_user`] runs programs without privileges.

pub mod child;
mod docker;
pub mod network;
pub mod ordinary_user;
mod ports;
mod postgres;
mod programs;
mod random;
mod shared_server;
mod skip;
mod small_disk;
mod wait;

pub use docker::Docker;
pub use ports::stable_port;
pub use postgres::PostgresDatabase;
pub use programs::find_program;
pub use random::{Random, is_full_run};
pub use skip::{requires, runs_as_root, skip};
pub use small_disk::SmallDisk;
pub use wait::wait_until;
