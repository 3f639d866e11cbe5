//! What can go wrong with the store, and what it means for the caller.

use std::io;
use std::path::{Path, PathBuf};

use crate::cancel::Cancelled;
use crate::codec::DecodeError;
use crate::id::{ChunkId, NodeId, SnapshotId};
use crate::walk_limits::LimitExceeded;

/// An error of the store underneath every operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The index answered with an error.
    #[error("the index of the store failed: {source}")]
    Index {
        /// What the index said.
        #[from]
        source: heed::Error,
    },
    /// The directory is not a store.
    #[error("{path} is not a store")]
    NotAStore {
        /// The directory.
        path: PathBuf,
    },
    /// The store was written by a newer version.
    #[error("store {path} has format {found}, this version reads up to {supported}")]
    NewerFormat {
        /// The store.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest known here.
        supported: u32,
    },
    /// Another process is rebuilding the index.
    #[error("store {path} is being repaired by another process")]
    Busy {
        /// The store.
        path: PathBuf,
    },
    /// The store is open elsewhere, once where it can be written and once where it cannot: only one of these at a time.
    #[error(
        "store {path} is in use: where it cannot be written it can be read only while no process that can write has it open"
    )]
    InUse {
        /// The store.
        path: PathBuf,
    },
    /// A chunk that something refers to is not there.
    #[error("chunk {0} is missing from the store")]
    MissingChunk(ChunkId),
    /// A node that something refers to is not there.
    #[error("node {0} is missing from the store")]
    MissingNode(NodeId),
    /// Stored bytes do not match their name or checksum.
    #[error("{what} in pack {pack} at offset {offset} is damaged: {reason}")]
    Damaged {
        /// The object.
        what: String,
        /// The pack that holds it.
        pack: u32,
        /// Where in the pack.
        offset: u64,
        /// What does not fit.
        reason: &'static str,
    },
    /// Bytes match their name and yet do not decode.
    #[error("{what} cannot be decoded: {source}")]
    Undecodable {
        /// The object.
        what: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// The index says otherwise than the log.
    #[error("the index of the store differs from its log: {problem}")]
    IndexDiffers {
        /// The first difference.
        problem: String,
    },
    /// No such snapshot.
    #[error("snapshot `{0}` not found")]
    UnknownSnapshot(SnapshotId),
    /// A reference was not where the caller thought.
    #[error("reference `{name}` has moved: expected {expected}, found {found}")]
    ReferenceMoved {
        /// The reference.
        name: String,
        /// What the caller expected.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A reference name that is not allowed.
    #[error("`{0}` is not a reference name: use 1 to 255 of A-Z a-z 0-9 . _ - / without empty parts")]
    BadReferenceName(String),
    /// An earlier sync failed, so what was written since is in doubt.
    #[error("an earlier sync of the store failed; reopen the store and run verify")]
    Poisoned,
    /// A record is larger than the format can hold.
    #[error("an object of {0} bytes is larger than the store can hold")]
    TooLarge(usize),
    /// A walk through a tree, or a comparison of two, holds more than the [`WalkLimits`](crate::WalkLimits) of the store's
    /// handle allow.
    #[error("too much to go through at once: {0}; remove files, or compare trees that differ less")]
    WalkTooLarge(#[from] LimitExceeded),
    /// The work was asked to stop.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// What the caller asked for contradicts what is stored.
    #[error("{0}")]
    Refused(String),
}

impl StoreError {
    /// Whether stored data is damaged or missing, as opposed to a failing machine or a wrong request.
    pub fn is_corruption(&self) -> bool {
        matches!(
            self,
            Self::MissingChunk(_)
                | Self::MissingNode(_)
                | Self::Damaged { .. }
                | Self::Undecodable { .. }
                | Self::IndexDiffers { .. }
        )
    }

    /// Returns true if the disk or the index is full, or a quota is used up.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Index { source: heed::Error::Mdb(heed::MdbError::MapFull) } => true,
            // The index does not tell of its errors as sources.
            Self::Io { source, .. } | Self::Index { source: heed::Error::Io(source) } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Whether the same call may succeed later without anything being repaired.
    pub fn may_retry(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::InUse { .. } | Self::ReferenceMoved { .. } => true,
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::Interrupted
            ),
            _ => false,
        }
    }
}

/// Result of an operation on the store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Names the path and the action in an I/O error.
pub(crate) trait IoContext<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| StoreError::Io { action, path: path.to_owned(), source: error.into() })
    }
}
