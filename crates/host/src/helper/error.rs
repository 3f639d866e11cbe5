//! Errors as they cross the boundary between processes.

use serde::{Deserialize, Serialize};

/// Error of another process, which is a helper or a child of a helper; or an error of this process whose kind has no
/// variant of [`HostError`](crate::HostError).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct HelperError {
    /// Cause, for callers that decide by it.
    pub kind: HostErrorKind,
    /// Errno of the system call that failed, if one did.
    pub errno: Option<i32>,
    /// Description for people. Not part of the API: match on `kind` and `errno` instead.
    pub message: String,
}

/// Cause of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostErrorKind {
    /// A system call failed.
    System,
    /// An overlay could not be mounted.
    Overlay,
    /// The filesystem, or the system, supports no overlays.
    NoOverlay,
    /// The filesystem keeps no project quotas, or this user may not set them.
    NoQuota,
    /// User namespaces are not allowed.
    NoUserNamespaces,
    /// User namespaces are allowed, but not what a sandbox needs in them.
    NoIsolation,
    /// The operation needs Linux.
    NeedsLinux,
    /// The network of a sandbox could not be set up.
    Network,
    /// The sandbox was thawed while it was being frozen.
    Thawed,
    /// The init process of the sandbox has exited.
    SandboxEnded,
    /// The namespace holder has exited.
    HolderGone,
    /// The sandbox is in a state that does not allow the operation.
    Conflict,
    /// The operation did not finish in time.
    TimedOut,
    /// A helper exited without a reply, or a message was malformed or too large.
    Protocol,
    /// Any other cause.
    Other,
}

impl HelperError {
    /// Returns an error without an errno.
    pub fn new(kind: HostErrorKind, message: impl Into<String>) -> Self {
        Self { kind, errno: None, message: message.into() }
    }

    /// Returns true if the disk is full or a disk quota is exceeded.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.errno, Some(libc::ENOSPC | libc::EDQUOT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_errno_and_message_survive_serialization() {
        let error = HelperError {
            kind: HostErrorKind::System,
            errno: Some(libc::ENOSPC),
            message: "cannot write: no space".to_owned(),
        };
        let text = serde_json::to_vec(&error).unwrap();
        let read: HelperError = serde_json::from_slice(&text).unwrap();
        assert_eq!(read, error);
        assert!(read.is_disk_full());
        assert_eq!(read.to_string(), error.message);
    }
}
