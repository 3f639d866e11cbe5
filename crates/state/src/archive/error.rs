//! Errors of writing, reading, importing and extracting tar archives.

use std::io;

use crate::cancel::Cancelled;
use crate::error::StoreError;
use crate::limit::LimitKind;
use crate::quote::shorten_path;
use crate::virtual_tree::TreeError;

/// Error of writing or reading an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The archive could not be written.
    #[error("cannot write the archive: {source}")]
    Write {
        /// Error from the operating system.
        source: io::Error,
    },
    /// The archive could not be read.
    #[error("cannot read the archive: {source}")]
    Read {
        /// Error from the operating system.
        source: io::Error,
    },
    /// The input does not start with a valid tar header.
    #[error("this does not look like a tar archive: {reason}")]
    NotAnArchive {
        /// Failed check.
        reason: &'static str,
    },
    /// The archive is damaged.
    #[error("the archive is damaged: {reason} at byte {offset}")]
    Malformed {
        /// Failed check.
        reason: &'static str,
        /// Offset in the archive, in bytes.
        offset: u64,
    },
    /// The archive ends before its end-of-archive blocks.
    #[error("the archive ends early, after {offset} bytes")]
    Truncated {
        /// Length of the archive, in bytes.
        offset: u64,
    },
    /// A member was refused, because it could affect files outside of the target, is invalid or contradicts another
    /// member.
    #[error("`{path}` in the archive is refused: {reason}")]
    Refused {
        /// Path of the member.
        path: String,
        /// Reason of the refusal.
        reason: String,
    },
    /// The archive holds more than its [`ArchiveLimits`](crate::ArchiveLimits) allow.
    #[error("the archive has more than {limit} {kind}")]
    TooLarge {
        /// Limited quantity.
        kind: LimitKind,
        /// Value of the limit.
        limit: u64,
    },
    /// Concurrent imports together need more memory than the [`MemoryBudget`](crate::MemoryBudget) that they share.
    #[error("the archives that are imported at the same time need too much memory together")]
    OverBudget,
    /// A member could not be written to the file system.
    #[error("cannot write `{path}`: {source}")]
    Extract {
        /// Path of the member.
        path: String,
        /// Error from the operating system.
        source: io::Error,
    },
    /// The operation was cancelled.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// A member could not be added to the virtual tree: the tree in memory that an import fills before its commit.
    #[error(transparent)]
    Tree(TreeError),
    /// The store could not be read or written.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ArchiveError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled(cancelled) => Self::Cancelled(cancelled),
            other => Self::Store(other),
        }
    }
}

impl From<TreeError> for ArchiveError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Store(error) => error.into(),
            other => Self::Tree(other),
        }
    }
}

pub(super) type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// Returns the error for a refused member. `reason` completes "the member is refused: …".
pub(super) fn refused(path: &[u8], reason: impl Into<String>) -> ArchiveError {
    ArchiveError::Refused { path: shorten_path(path).into_owned(), reason: reason.into() }
}
