//! Errors of the store, and their classification for callers: corruption, full disk, retry.

use std::io;
use std::path::{Path, PathBuf};

use crate::cancel::Cancelled;
use crate::codec::DecodeError;
use crate::id::{ChunkId, NodeId, SnapshotId};
use crate::limit::LimitExceeded;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
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
    /// LMDB returned an error.
    #[error("the index of the store failed: {source}")]
    Index {
        /// Error from LMDB.
        #[from]
        source: heed::Error,
    },
    /// The directory is not a store.
    #[error("{path} is not a store")]
    NotAStore {
        /// The directory.
        path: PathBuf,
    },
    /// The store has a format that this version does not support.
    #[error("store {path} has format {found}; this version supports formats up to {supported}")]
    UnsupportedFormat {
        /// The store.
        path: PathBuf,
        /// Format of the store.
        found: u32,
        /// Format that this version supports.
        supported: u32,
    },
    /// Another process is rebuilding the index.
    #[error("store {path} is being repaired by another process")]
    Busy {
        /// The store.
        path: PathBuf,
    },
    /// The store is open in another process with incompatible access: a store on a read-only file system can
    /// be opened only while no process has it open for writing.
    #[error(
        "store {path} is in use: a store on a read-only file system can be opened only while no other process has it \
         open for writing"
    )]
    InUse {
        /// The store.
        path: PathBuf,
    },
    /// A chunk (piece of file content) that a file refers to is not in the store.
    #[error("chunk {0} is missing from the store")]
    MissingChunk(ChunkId),
    /// A node (file, directory or symlink) that a tree refers to is not in the store.
    #[error("node {0} is missing from the store")]
    MissingNode(NodeId),
    /// Stored bytes do not match their id or checksum.
    #[error("{what} in pack {pack} at offset {offset} is damaged: {reason}")]
    Damaged {
        /// The object.
        what: String,
        /// Number of the pack, the file of the store that holds the object.
        pack: u32,
        /// Offset in the pack, in bytes.
        offset: u64,
        /// Failed check.
        reason: &'static str,
    },
    /// An object is intact but cannot be decoded.
    #[error("{what} cannot be decoded: {source}")]
    Undecodable {
        /// The object.
        what: String,
        /// Cause.
        source: DecodeError,
    },
    /// The index differs from the log, the sequence of all commits, from which it can be rebuilt.
    #[error("the index of the store differs from its log: {problem}")]
    IndexDiffers {
        /// The first difference.
        problem: String,
    },
    /// No such snapshot.
    #[error("snapshot `{0}` not found")]
    UnknownSnapshot(SnapshotId),
    /// A reference (name of a snapshot) did not have the expected value.
    #[error("reference `{name}` has moved: expected {expected}, found {found}")]
    ReferenceMoved {
        /// The reference.
        name: String,
        /// Expected value.
        expected: String,
        /// Value found.
        found: String,
    },
    /// A reference name that is not allowed.
    #[error("`{0}` is not a reference name: use 1 to 255 of A-Z a-z 0-9 . _ - / without empty parts")]
    BadReferenceName(String),
    /// An earlier sync failed, or a commit panicked. It is unknown which data is on disk since then, so all writes of
    /// this process fail.
    #[error("an earlier sync of the store failed; reopen the store and run verify")]
    Poisoned,
    /// A record is larger than the format can hold.
    #[error("an object of {0} bytes is larger than the store can hold")]
    TooLarge(usize),
    /// The operation would exceed the [`WalkLimits`](crate::WalkLimits) of the store's handle.
    #[error("the walk exceeds its limits: {0}; remove files, or compare trees that differ less")]
    WalkTooLarge(#[from] LimitExceeded),
    /// The operation was cancelled.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The request conflicts with the content or state of the store.
    #[error("{0}")]
    Refused(String),
}

impl StoreError {
    /// Returns true if stored data is damaged or missing, as opposed to an I/O error or an invalid request.
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

    /// Returns true if the disk or the index is full, or a quota is exceeded.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Index { source: heed::Error::Mdb(heed::MdbError::MapFull) } => true,
            // heed does not expose its I/O errors through `source()`.
            Self::Io { source, .. } | Self::Index { source: heed::Error::Io(source) } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Returns true if the same call may succeed when it is retried later.
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

/// Adds the attempted action and the path to an I/O error.
pub(crate) trait IoContext<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn context(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| StoreError::Io { action, path: path.to_owned(), source: error.into() })
    }
}
