use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::quote::shorten_path;
use crate::tree::DEPTH_MAX;
use crate::walk_limits::LimitExceeded;

use super::skipped::Skipped;

/// Why a directory could not be snapshotted or checked out into.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The target holds changes that a checkout would undo.
    #[error("{directory} has local changes in {} that would be lost", count(.paths))]
    LocalEdits {
        /// The directory.
        directory: PathBuf,
        /// Paths inside it.
        paths: Vec<PathBuf>,
    },
    /// What the target holds was a snapshot, which was removed.
    #[error("{directory} holds what no snapshot of this store has any more")]
    Unsaved {
        /// The directory.
        directory: PathBuf,
    },
    /// The target holds something and is not known to be a checkout.
    #[error("{directory} is not empty and is not a checkout of this store")]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
    },
    /// Two names that the target's filesystem cannot tell apart.
    #[error("the filesystem of {directory} cannot hold {path}: another name is the same to it")]
    Collision {
        /// The directory.
        directory: PathBuf,
        /// The second of the two names.
        path: PathBuf,
    },
    /// A snapshot that was to be complete would have lacked something.
    #[error("a snapshot would lack {}", lacking(.skipped, *.count))]
    Incomplete {
        /// The first thousand entries that could not be read, and why; not empty.
        skipped: Vec<Skipped>,
        /// Number of all that could not be read.
        count: u64,
    },
    /// A tree deeper than anything should be.
    #[error("{} is nested too deeply: {DEPTH_MAX} levels are allowed", shorten_path(.path.as_os_str().as_bytes()))]
    TooDeep {
        /// The path.
        path: PathBuf,
    },
    /// The directory holds more than the [`WalkLimits`](crate::WalkLimits) of the store's handle allow.
    #[error("{directory} has {exceeded}, too much for a snapshot; remove or ignore some of its files")]
    TooLarge {
        /// The directory.
        directory: PathBuf,
        /// The limit that was reached.
        exceeded: LimitExceeded,
    },
    /// The store underneath failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn count(paths: &[PathBuf]) -> String {
    match paths {
        [one] => one.display().to_string(),
        many => format!("{} places", many.len()),
    }
}

/// Paths named in a message: enough to act on, and not all of a large directory.
const NAMED_MAX: usize = 5;

fn lacking(skipped: &[Skipped], count: u64) -> String {
    let named = skipped.iter().take(NAMED_MAX).map(|Skipped { path, reason }| {
        format!("`{}` ({reason})", shorten_path(path.as_os_str().as_bytes()))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match count.saturating_sub(NAMED_MAX as u64) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

pub(super) type Result<T, E = DirectoryError> = std::result::Result<T, E>;

/// Names action and path in an error of the system.
pub(super) trait Context<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn on(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| DirectoryError::Io { action, path: path.to_owned(), source: error.into() })
    }
}
