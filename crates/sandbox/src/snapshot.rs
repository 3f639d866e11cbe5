//! Commit, fork, restore and rebase of a sandbox's workspace.

pub(crate) mod bases;
pub(crate) mod operations;
pub(crate) mod rebase;
pub(crate) mod replacement;
pub(crate) mod swap;
