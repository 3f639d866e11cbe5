//! Errors of this crate, with a remedy if there is one.

use std::io;
use std::path::PathBuf;

use crate::helper::error::{HelperError, HostErrorKind};

/// Result of the functions of this crate.
pub type Result<T> = std::result::Result<T, HostError>;

/// Error of the functions of this crate.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// Attempted action, as an infinitive: "open /dev/null".
        action: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// Error of another process, or of a kind without its own variant.
    #[error("{0}")]
    Helper(HelperError),
    /// The sandbox was thawed while it was being frozen, because it is being removed.
    #[error("the sandbox was thawed while it was being frozen")]
    Thawed,
    /// A quota cannot be set on a directory.
    #[error("{} has no quota: {reason}", directory.display())]
    NoQuota {
        /// Path of the directory.
        directory: PathBuf,
        /// Cause.
        reason: String,
    },
    /// User namespaces cannot be created: the kernel does not have them, or this user may not.
    #[error("user namespaces are not allowed here ({source}); {REMEDY}")]
    NoUserNamespaces {
        /// Error of the system call.
        source: io::Error,
    },
    /// Namespaces can be created, but not what a sandbox needs in them.
    #[error("sandboxes cannot be isolated here ({reason}); {REMEDY}")]
    NoIsolation {
        /// Step that failed.
        reason: String,
    },
    /// An overlay could not be mounted.
    #[error("cannot mount an overlay at {}: {source}{}", mount_point.display(), in_parentheses(reason))]
    Overlay {
        /// Mount point.
        mount_point: PathBuf,
        /// Error of the system call.
        source: io::Error,
        /// Diagnosis; may be empty.
        reason: String,
    },
    /// The operation needs Linux.
    #[error("{operation} needs Linux; on this system use the docker runtime (RUNTIME=docker)")]
    NeedsLinux {
        /// Name of the operation.
        operation: &'static str,
    },
    /// A directory cannot be a layer of an overlay.
    #[error("{} cannot be a layer of an overlay: {reason}", directory.display())]
    NoOverlay {
        /// Path of the directory.
        directory: PathBuf,
        /// Missing feature.
        reason: String,
    },
}

impl From<HostError> for io::Error {
    /// Returns the error of a failed system call as it is, with its errno.
    fn from(error: HostError) -> Self {
        match error {
            HostError::System { source, .. } => source,
            other => Self::other(other),
        }
    }
}

fn in_parentheses(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

impl HostError {
    /// Returns an error of kind [`HostErrorKind::Other`], for causes that callers need not distinguish.
    pub fn other(message: impl Into<String>) -> Self {
        Self::of_kind(HostErrorKind::Other, message)
    }

    /// Returns an error of a kind without a variant.
    pub(crate) fn of_kind(kind: HostErrorKind, message: impl Into<String>) -> Self {
        Self::Helper(HelperError::new(kind, message))
    }

    /// Returns the error of an operation on a sandbox whose init process has exited.
    #[cfg(target_os = "linux")]
    pub(crate) fn sandbox_ended() -> Self {
        Self::of_kind(HostErrorKind::SandboxEnded, "the sandbox has ended")
    }

    /// Returns the error of an operation in the namespaces of a holder that has exited.
    #[cfg(target_os = "linux")]
    pub(crate) fn holder_gone() -> Self {
        Self::of_kind(HostErrorKind::HolderGone, "the namespace holder has exited")
    }

    /// Returns the cause, also of an error of another process.
    pub fn kind(&self) -> HostErrorKind {
        match self {
            Self::System { .. } => HostErrorKind::System,
            Self::Helper(error) => error.kind,
            Self::Thawed => HostErrorKind::Thawed,
            Self::NoQuota { .. } => HostErrorKind::NoQuota,
            Self::NoUserNamespaces { .. } => HostErrorKind::NoUserNamespaces,
            Self::NoIsolation { .. } => HostErrorKind::NoIsolation,
            Self::Overlay { .. } => HostErrorKind::Overlay,
            Self::NeedsLinux { .. } => HostErrorKind::NeedsLinux,
            Self::NoOverlay { .. } => HostErrorKind::NoOverlay,
        }
    }

    /// Appends the error of undoing the operation. Keeps the kind and errno of the first error.
    #[cfg(target_os = "linux")]
    pub(crate) fn followed_by(self, undo: Self) -> Self {
        let message = format!("{self}; then {undo}");
        let (first, second) = (HelperError::from(self), HelperError::from(undo));
        Self::Helper(HelperError { kind: first.kind, errno: first.errno.or(second.errno), message })
    }

    /// Converts this error to kind [`HostErrorKind::Network`].
    #[cfg(target_os = "linux")]
    pub(crate) fn into_network_error(self) -> Self {
        let message = format!("cannot set up the network of the sandbox: {self}");
        let errno = HelperError::from(self).errno;
        Self::Helper(HelperError { kind: HostErrorKind::Network, errno, message })
    }

    /// Replaces the mount point of an overlay error by the path that the user knows.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_mount_point(self, path: &std::path::Path) -> Self {
        match self {
            Self::Overlay { source, reason, .. } => {
                Self::Overlay { mount_point: path.to_owned(), source, reason }
            }
            other => other,
        }
    }

    /// Returns the errno of the system call that failed, if one did, also in another process.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::System { source, .. }
            | Self::NoUserNamespaces { source }
            | Self::Overlay { source, .. } => source.raw_os_error(),
            Self::Helper(error) => error.errno,
            _ => None,
        }
    }
}

impl From<HostError> for HelperError {
    fn from(error: HostError) -> Self {
        let errno = match &error {
            HostError::System { source, .. }
            | HostError::NoUserNamespaces { source }
            | HostError::Overlay { source, .. } => errno(source),
            _ => None,
        };
        match error {
            HostError::Helper(error) => error,
            error => Self { kind: error.kind(), errno, message: error.to_string() },
        }
    }
}

/// Returns the errno. If the error was replaced by one with a path in its text, which has a kind but no
/// errno, returns the errno of that kind.
fn errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or(match error.kind() {
        io::ErrorKind::StorageFull => Some(libc::ENOSPC),
        io::ErrorKind::QuotaExceeded => Some(libc::EDQUOT),
        _ => None,
    })
}

/// Remedies where sandboxes cannot be isolated. In a container an ordinary user may be allowed more than
/// root, which has UID 0 of the host but not its capabilities.
const REMEDY: &str = "allow it (on the machine: kernel.unprivileged_userns_clone=1, \
    kernel.apparmor_restrict_unprivileged_userns=0; in a container: an ordinary user, --user 1000:1000, with \
    --security-opt seccomp=unconfined --security-opt systempaths=unconfined), or use the docker runtime \
    (RUNTIME=docker)";

/// Adds the attempted action to an I/O error.
pub(crate) trait Context<T> {
    fn context(self, action: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, action: impl Into<String>) -> Result<T> {
        self.map_err(|source| HostError::System { action: action.into(), source: source.into() })
    }
}
