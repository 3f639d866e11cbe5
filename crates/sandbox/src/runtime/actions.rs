//! Texts of errors that several runtimes share.

/// Action of listing and terminating the processes that use a workspace.
pub(super) const FIND_PROCESSES: &str = "find the processes that use a workspace";
/// Action of replacing the workspace of a running sandbox.
pub(super) const SWAP: &str = "replace a workspace";
/// Action of making a sandbox show the head of a project.
pub(super) const FOLLOW: &str = "follow the head of a project";
/// Reason of a runtime without access to the mounts of its sandboxes.
pub(super) const NO_MOUNT_ACCESS: &str = "it cannot enter the mount namespaces of its sandboxes here";
