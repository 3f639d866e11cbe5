//! Errors of operations on workspaces.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use workspace_host::HostError;
use workspace_state::{
    DEPTH_MAX, DirectoryError, LimitExceeded, SkipReason, SnapshotId, StoreError, TreeError, shorten_path,
};

use crate::provider_kind::ProviderKind;

/// Error of an operation on a workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// There is no such workspace.
    #[error("workspace `{id}` not found")]
    NotFound {
        /// Name of the workspace.
        id: String,
    },
    /// There already is a workspace with this name.
    #[error("workspace `{id}` already exists")]
    Exists {
        /// Name of the workspace.
        id: String,
    },
    /// The name is not allowed.
    #[error("`{id}` is not a workspace name: use 1 to 100 letters, digits, `-`, `_` or `.`")]
    BadName {
        /// Requested name.
        id: String,
    },
    /// There is no such snapshot.
    #[error("snapshot {0} not found")]
    UnknownSnapshot(SnapshotId),
    /// The snapshot has the files of a workspace, but no root filesystem of a sandbox.
    #[error("snapshot {0} has no root filesystem")]
    NoRoot(SnapshotId),
    /// The workspace exists but cannot be used.
    #[error("workspace `{id}` cannot be used: {reason}")]
    Unusable {
        /// Name of the workspace.
        id: String,
        /// Reason.
        reason: String,
    },
    /// An anchor cannot show the snapshot that it is to show. An anchor is a mount that shows the present files of a
    /// project to several workspaces.
    #[error("anchor `{name}` cannot be used: {reason}")]
    UnusableAnchor {
        /// Name of the anchor, as in [`AnchorToFollow`](crate::AnchorToFollow).
        name: String,
        /// Reason.
        reason: String,
    },
    /// Processes kept changing the workspace while it was read.
    #[error("processes keep changing workspace `{id}`; try again, or stop them first")]
    Changing {
        /// Name of the workspace.
        id: String,
    },
    /// The provider (the method of making the directory of a workspace) cannot be used here, or does not support the
    /// operation.
    #[error("provider {provider} is not available: {reason}")]
    Provider {
        /// Kind of the provider.
        provider: ProviderKind,
        /// Reason.
        reason: String,
    },
    /// The workspace is nested more deeply than a snapshot may be.
    #[error("`{}` in the workspace is nested too deeply: {DEPTH_MAX} levels are allowed", shorten_path(.path))]
    TooDeep {
        /// Path in the workspace.
        path: Vec<u8>,
    },
    /// The workspace exceeds the [`WalkLimits`](workspace_state::WalkLimits) of the store handle: it has too many
    /// entries, or names and attributes that need too much memory.
    #[error("the workspace has {0}, too much for a snapshot; remove some of its files")]
    TooLarge(#[from] LimitExceeded),
    /// Another process uses the directory of the layers, and so this set of workspaces.
    #[error("{} is used by another process", .path.display())]
    Busy {
        /// Directory of the layers, which has the lock file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} {}: {source}", shorten_path(.path.as_os_str().as_bytes()))]
    Io {
        /// Attempted action, a verb such as `open`.
        action: &'static str,
        /// File or directory that the action was attempted on.
        path: PathBuf,
        /// Error from the operating system.
        source: io::Error,
    },
    /// An operation of the crate `workspace-host` failed, such as a mount.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A directory could not be read or written.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A tree could not be changed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The lazy mount, a FUSE mount that loads the files of snapshots on first read, could not be started.
    #[error("cannot start the lazy mount: {0}")]
    Lazy(String),
}

/// Result of an operation on workspaces.
pub type Result<T, E = WorkspaceError> = std::result::Result<T, E>;

/// Adds the attempted action and the path to a system error.
pub(crate) trait Context<T> {
    /// Converts an error to [`WorkspaceError::Io`]. `action` is a verb such as `open`.
    fn context(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| WorkspaceError::Io { action, path: path.to_owned(), source: error.into() })
    }
}

impl WorkspaceError {
    /// Converts an error about `tree`, the directory that the agent in a workspace sees. Errors that the agent can
    /// cause get paths relative to this directory.
    pub(crate) fn of_directory(error: DirectoryError, tree: &Path) -> Self {
        match error {
            DirectoryError::TooDeep { path } => {
                let inside = path.strip_prefix(tree).unwrap_or(&path);
                Self::TooDeep { path: inside.as_os_str().as_bytes().to_vec() }
            }
            DirectoryError::TooLarge { exceeded, .. } => Self::TooLarge(exceeded),
            other => Self::Directory(other),
        }
    }

    /// Returns true if a workspace is nested more deeply than a snapshot may be.
    pub fn is_too_deep(&self) -> bool {
        matches!(
            self,
            Self::TooDeep { .. }
                | Self::Directory(DirectoryError::TooDeep { .. })
                | Self::Tree(TreeError::TooDeep { .. })
        )
    }

    /// Returns the limit that a walk through the workspace or a snapshot exceeded, if that is the cause.
    pub fn exceeded(&self) -> Option<LimitExceeded> {
        match self {
            Self::TooLarge(exceeded)
            | Self::Directory(DirectoryError::TooLarge { exceeded, .. })
            | Self::Store(StoreError::WalkTooLarge(exceeded))
            | Self::Directory(DirectoryError::Store(StoreError::WalkTooLarge(exceeded)))
            | Self::Tree(TreeError::Store(StoreError::WalkTooLarge(exceeded))) => Some(*exceeded),
            _ => None,
        }
    }

    /// Returns true if the operation failed only because files kept changing while they were read.
    pub fn is_changing(&self) -> bool {
        match self {
            Self::Changing { .. } => true,
            Self::Directory(DirectoryError::Incomplete { skipped, .. }) => {
                skipped.iter().all(|entry| entry.reason == SkipReason::Changing)
            }
            _ => false,
        }
    }

    /// Returns true if the operation was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Cancelled(_))
                | Self::Directory(DirectoryError::Store(StoreError::Cancelled(_)))
                | Self::Tree(TreeError::Store(StoreError::Cancelled(_)))
        )
    }

    /// Returns true if the store lacks an object (a node or chunk of content) of a tree.
    pub(crate) fn is_missing_content(&self) -> bool {
        let (Self::Store(error)
        | Self::Directory(DirectoryError::Store(error))
        | Self::Tree(TreeError::Store(error))) = self
        else {
            return false;
        };
        matches!(error, StoreError::MissingNode(_) | StoreError::MissingChunk(_))
    }

    /// Returns true if the disk is full, or a quota is exceeded.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Store(error)
            | Self::Directory(DirectoryError::Store(error))
            | Self::Tree(TreeError::Store(error)) => return error.is_full(),
            Self::Host(HostError::Helper(error)) => return error.is_disk_full(),
            // The process of the lazy mount reports its error as text.
            Self::Lazy(message) => return is_disk_full_message(message),
            _ => {}
        }
        let mut error: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(cause) = error {
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                let kind = io.kind();
                if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
                    return true;
                }
            }
            error = cause.source();
        }
        false
    }
}

/// Returns true if an error message from another process reports a full disk or an exceeded quota. Runtimes such as
/// Docker report errors as text alone, with that of the system call in it.
pub fn is_disk_full_message(message: &str) -> bool {
    let message = message.to_lowercase();
    ["no space left on device", "disk quota exceeded"].iter().any(|text| message.contains(text))
}
