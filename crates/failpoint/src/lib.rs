//! Failpoints: named points in the code where a test can kill the process, fail a write or pause. The crash tests of
//! all crates use them.

mod failpoint;

pub use failpoint::hit;
