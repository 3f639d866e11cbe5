//! Failpoints, for the crash tests of all crates.

mod failpoint;

pub use failpoint::hit;
