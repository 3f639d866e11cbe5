//! Commit, fork and restore of a sandbox's workspace.

pub(crate) mod operations;
pub(crate) mod swap;
