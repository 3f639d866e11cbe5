//! Names of actions in errors of all runtimes.

/// Listing and ending the processes that use a workspace.
pub(super) const USERS: &str = "find who uses a workspace";
/// Replacing the workspace of a running sandbox.
pub(super) const SWAP: &str = "replace a workspace";
/// Reason of a runtime without access to the mounts of its sandboxes.
pub(super) const CANNOT: &str = "it cannot reach the mounts of its sandboxes here";
