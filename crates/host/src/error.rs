//! What can go wrong, with the way out where there is one.

use std::io;
use std::path::PathBuf;

use crate::helper::error::{HelperError, HostErrorKind};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, HostError>;

/// What the machine did not do.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was being done.
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// A process that was started to do something said why it could not.
    #[error("{0}")]
    Helper(HelperError),
    /// Somebody let a sandbox go on while it was being frozen, to end it.
    #[error("the sandbox was thawed while it was being frozen")]
    Thawed,
    /// How much a directory holds cannot be limited.
    #[error("{} has no quota: {reason}", directory.display())]
    NoQuota {
        /// Which.
        directory: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Nobody but the superuser may make user namespaces here.
    #[error("user namespaces are not allowed here ({source}); {WAY_OUT}")]
    NoUserNamespaces {
        /// What the system said.
        source: io::Error,
    },
    /// Namespaces can be made, but not what a sandbox needs in them.
    #[error("sandboxes cannot be isolated here ({reason}); {WAY_OUT}")]
    NoIsolation {
        /// What was refused.
        reason: String,
    },
    /// An overlay was not mounted.
    #[error("cannot mount an overlay at {}: {source}{}", at.display(), and(reason))]
    Overlay {
        /// Where.
        at: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What is known of why; may be empty.
        reason: String,
    },
    /// Only Linux has it.
    #[error("{what} needs Linux; on this system sandboxes are for the docker runtime (RUNTIME=docker)")]
    NeedsLinux {
        /// What was wanted.
        what: &'static str,
    },
    /// Overlays cannot be had for what is in a directory.
    #[error("{} cannot be under overlays: {reason}", directory.display())]
    NoOverlay {
        /// Which.
        directory: PathBuf,
        /// What is missing.
        reason: String,
    },
}

fn and(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

impl HostError {
    /// Returns an error that no caller decides by.
    pub fn other(message: impl Into<String>) -> Self {
        Self::of_kind(HostErrorKind::Other, message)
    }

    /// Returns an error of a kind that has no variant of its own.
    pub(crate) fn of_kind(kind: HostErrorKind, message: impl Into<String>) -> Self {
        Self::Helper(HelperError::new(kind, message))
    }

    /// Returns the error of an operation on a sandbox whose first process has ended.
    #[cfg(target_os = "linux")]
    pub(crate) fn sandbox_ended() -> Self {
        Self::of_kind(HostErrorKind::SandboxEnded, "the sandbox has ended")
    }

    /// Returns the error of an operation in the namespaces of a holder that has ended.
    #[cfg(target_os = "linux")]
    pub(crate) fn holder_gone() -> Self {
        Self::of_kind(HostErrorKind::HolderGone, "the holder is gone")
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

    /// Adds the failure of the attempt to undo what had been done. Kind and errno of the first error stay.
    #[cfg(target_os = "linux")]
    pub(crate) fn followed_by(self, undo: Self) -> Self {
        let message = format!("{self}; then {undo}");
        let (first, second) = (HelperError::from(self), HelperError::from(undo));
        Self::Helper(HelperError { kind: first.kind, errno: first.errno.or(second.errno), message })
    }

    /// Makes it the failure to set up the network of a sandbox.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_network(self) -> Self {
        let message = format!("the sandbox's network cannot be made: {self}");
        let errno = HelperError::from(self).errno;
        Self::Helper(HelperError { kind: HostErrorKind::Network, errno, message })
    }

    /// The same of an overlay, with the path that its user knows.
    #[cfg(target_os = "linux")]
    pub(crate) fn at(self, path: &std::path::Path) -> Self {
        match self {
            Self::Overlay { source, reason, .. } => Self::Overlay { at: path.to_owned(), source, reason },
            other => other,
        }
    }

    /// The number of the system's error, if it was one.
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

/// Returns the errno, also of an error to which a path was added and that has kept only its kind.
fn errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or(match error.kind() {
        io::ErrorKind::StorageFull => Some(libc::ENOSPC),
        io::ErrorKind::QuotaExceeded => Some(libc::EDQUOT),
        _ => None,
    })
}

/// What whoever finds no isolation can do. A container's own root may do less than an ordinary user there: he has the
/// name of the machine's superuser, but not his rights.
const WAY_OUT: &str = "allow it (on the machine: kernel.unprivileged_userns_clone=1, \
    kernel.apparmor_restrict_unprivileged_userns=0; in a container: an ordinary user, --user 1000:1000, with \
    --security-opt seccomp=unconfined --security-opt systempaths=unconfined), or use the docker runtime \
    (RUNTIME=docker)";

/// Says what was being done when something failed.
pub(crate) trait Doing<T> {
    fn doing(self, action: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, action: impl Into<String>) -> Result<T> {
        self.map_err(|source| HostError::System { action: action.into(), source: source.into() })
    }
}
