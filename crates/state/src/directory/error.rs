//! Errors of snapshots of directories and of checkouts.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::id::SnapshotId;
use crate::limit::LimitExceeded;
use crate::quote::shorten_path;
use crate::tree_path::DEPTH_MAX;

use super::skipped::SkippedEntry;

/// Error of a snapshot of a directory, or of a checkout.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// Attempted action, as a verb.
        action: &'static str,
        /// File or directory that it was attempted on.
        path: PathBuf,
        /// Error from the operating system.
        source: io::Error,
    },
    /// A checkout would undo local changes.
    #[error("{directory} has local changes in {} that would be lost", count(.paths))]
    LocalEdits {
        /// Snapshotted or checked-out directory.
        directory: PathBuf,
        /// Changed paths, relative to the directory.
        paths: Vec<PathBuf>,
    },
    /// The directory holds the content of a snapshot that was removed.
    #[error("{directory} holds the content of {} from this store", removed(*.snapshot))]
    Unsaved {
        /// Snapshotted or checked-out directory.
        directory: PathBuf,
        /// Removed snapshot; `None` if an older version recorded the checkout, or the checkout was interrupted.
        snapshot: Option<SnapshotId>,
    },
    /// The directory is not empty and not a checkout of this store.
    #[error("{directory} is not empty and is not a checkout of this store")]
    NotEmpty {
        /// Snapshotted or checked-out directory.
        directory: PathBuf,
    },
    /// The file system of the directory treats two names of the tree as equal, for example because it ignores case.
    #[error("the filesystem of {directory} cannot hold {path}: it treats another name as the same")]
    Collision {
        /// Snapshotted or checked-out directory.
        directory: PathBuf,
        /// The second of the two names.
        path: PathBuf,
    },
    /// A snapshot with [`fail_if_incomplete`](super::SnapshotOptions::fail_if_incomplete) would lack entries.
    #[error("a snapshot would lack {}", lacking(.skipped, *.count))]
    Incomplete {
        /// First thousand entries that could not be read, with reasons; not empty.
        skipped: Vec<SkippedEntry>,
        /// Number of all entries that could not be read.
        count: u64,
    },
    /// The directory is nested too deeply.
    #[error("{} is nested too deeply: {DEPTH_MAX} levels are allowed", shorten_path(.path.as_os_str().as_bytes()))]
    TooDeep {
        /// Path of the directory that is too deep.
        path: PathBuf,
    },
    /// The directory holds more than the [`WalkLimits`](crate::WalkLimits) of the store's handle allow.
    #[error("{directory} has {exceeded}, too much for a snapshot; remove or ignore some of its files")]
    TooLarge {
        /// Snapshotted or checked-out directory.
        directory: PathBuf,
        /// Limit that was exceeded.
        exceeded: LimitExceeded,
    },
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Describes the changed paths.
fn count(paths: &[PathBuf]) -> String {
    match paths {
        [one] => one.display().to_string(),
        many => format!("{} places", many.len()),
    }
}

/// Describes the removed snapshot.
fn removed(snapshot: Option<SnapshotId>) -> String {
    match snapshot {
        Some(id) => format!("snapshot {id}, which was removed"),
        None => "a snapshot that was removed".to_owned(),
    }
}

/// Maximum number of paths in a message.
const NAMED_MAX: usize = 5;

/// Lists the first skipped entries, and the number of further entries.
fn lacking(skipped: &[SkippedEntry], count: u64) -> String {
    let named = skipped.iter().take(NAMED_MAX).map(|SkippedEntry { path, reason }| {
        format!("`{}` ({reason})", shorten_path(path.as_os_str().as_bytes()))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match count.saturating_sub(NAMED_MAX as u64) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

pub(super) type Result<T, E = DirectoryError> = std::result::Result<T, E>;

/// Adds the attempted action and the path to a system error.
pub(super) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| DirectoryError::Io { action, path: path.to_owned(), source: error.into() })
    }
}
