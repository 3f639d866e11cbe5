//! Why something about a workspace was not done.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use workspace_host::HostError;
use workspace_state::{
    DEPTH_MAX, DirectoryError, LimitExceeded, SnapshotId, StoreError, TreeError, shorten_path,
};

use crate::provider::Kind;

/// Why something about a workspace was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// There is no such workspace.
    #[error("there is no workspace `{id}`")]
    NotFound {
        /// Its name.
        id: String,
    },
    /// There is one of that name.
    #[error("there is a workspace `{id}` already")]
    Exists {
        /// Its name.
        id: String,
    },
    /// A name that no workspace can have.
    #[error("`{id}` cannot name a workspace: letters, digits, `-`, `_` and `.` can, 100 at most")]
    BadName {
        /// What was given.
        id: String,
    },
    /// There is no such snapshot.
    #[error("there is no snapshot {0}")]
    UnknownSnapshot(SnapshotId),
    /// It is there, and cannot be used.
    #[error("workspace `{id}` cannot be used: {reason}")]
    Unusable {
        /// Its name.
        id: String,
        /// Why.
        reason: String,
    },
    /// The provider that was asked for cannot be used here.
    #[error("workspaces cannot be made by {provider} here: {reason}")]
    Provider {
        /// Which.
        provider: Kind,
        /// Why.
        reason: String,
    },
    /// It is deeper than a snapshot may be.
    #[error("`{}` in the workspace is nested too deeply: {DEPTH_MAX} levels are allowed", shorten_path(.path))]
    TooDeep {
        /// What is too deep, in the workspace.
        path: Vec<u8>,
    },
    /// It has more than the [`WalkLimits`](workspace_state::WalkLimits) of the store's handle allow.
    #[error("the workspace has {0}, too much for a snapshot; remove some of its files")]
    TooLarge(#[from] LimitExceeded),
    /// Another process has them.
    #[error("{} is used by another process", .path.display())]
    Busy {
        /// Where they are.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} {}: {source}", shorten_path(.path.as_os_str().as_bytes()))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The machine did not do its part.
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
    /// The lazy view could not be had.
    #[error("the lazy view cannot be mounted: {0}")]
    Lazy(String),
}

/// What comes of an operation on workspaces.
pub type Result<T, E = WorkspaceError> = std::result::Result<T, E>;

/// Names action and path in an error of the system.
pub(crate) trait Context<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn on(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| WorkspaceError::Io { action, path: path.to_owned(), source: error.into() })
    }
}

impl WorkspaceError {
    /// Names what is too deep or too large as it is in the workspace, whose directory on the host is `tree`.
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

    /// Whether a workspace is deeper than a snapshot may be.
    pub fn is_too_deep(&self) -> bool {
        matches!(
            self,
            Self::TooDeep { .. }
                | Self::Directory(DirectoryError::TooDeep { .. })
                | Self::Tree(TreeError::TooDeep { .. })
        )
    }

    /// Returns the limit that a walk through the workspace or a snapshot has reached, if that is why.
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

    /// Returns whether it was not done because the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Cancelled(_))
                | Self::Directory(DirectoryError::Store(StoreError::Cancelled(_)))
                | Self::Tree(TreeError::Store(StoreError::Cancelled(_)))
        )
    }

    /// Whether there is no room on the disk, or a quota is used up.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Store(error)
            | Self::Directory(DirectoryError::Store(error))
            | Self::Tree(TreeError::Store(error)) => return error.is_full(),
            Self::Host(HostError::Helper(error)) => return error.is_disk_full(),
            // What another process says is text.
            Self::Lazy(said) => return says_full(said),
            _ => {}
        }
        let mut error: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(one) = error {
            if let Some(io) = one.downcast_ref::<io::Error>() {
                let kind = io.kind();
                if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
                    return true;
                }
            }
            error = one.source();
        }
        false
    }
}

/// Whether what somebody else says, another process or a daemon, tells of a disk without room.
pub fn says_full(said: &str) -> bool {
    let said = said.to_lowercase();
    ["no space left on device", "disk quota exceeded"].iter().any(|words| said.contains(words))
}
