//! Tar archives: a snapshot as a stream that other tools read, and back.
//!
//! Archives are written in the pax format: long names, times in nanoseconds, user extended attributes
//! (`SCHILY.xattr.`), hard links by link label, and holes (GNU sparse format 1.0). What is read may come from anyone:
//! everything goes into a [`VirtualTree`](crate::VirtualTree), so nothing outside the new snapshot can be reached, and an
//! archive that tries is refused as a whole.

mod export;
mod import;
mod member;
mod pax;
mod reader;
mod sparse;

use std::io;

use crate::error::StoreError;
use crate::virtual_tree::TreeError;

pub use export::export_tar;
pub use import::{ImportOptions, ImportReport, SkippedMember, import_tar};

/// Archives consist of blocks of this size.
const BLOCK: u64 = 512;

/// Why an archive was not written or not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The archive could not be written.
    #[error("cannot write the archive: {source}")]
    Write {
        /// What the system said.
        source: io::Error,
    },
    /// The archive could not be read.
    #[error("cannot read the archive: {source}")]
    Read {
        /// What the system said.
        source: io::Error,
    },
    /// The bytes do not begin as a tar archive does.
    #[error("this does not look like a tar archive: {reason}")]
    NotAnArchive {
        /// What is wrong.
        reason: &'static str,
    },
    /// The archive is damaged.
    #[error("the archive is damaged: {reason} at byte {offset}")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
        /// Where.
        offset: u64,
    },
    /// The archive ends before its end mark.
    #[error("the archive ends early, after {offset} bytes")]
    Truncated {
        /// Where.
        offset: u64,
    },
    /// A member that could reach something outside the archive, or that contradicts another.
    #[error("`{path}` in the archive is refused: {reason}")]
    Refused {
        /// The member.
        path: String,
        /// Why.
        reason: String,
    },
    /// The tree could not take a member.
    #[error(transparent)]
    Tree(TreeError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TreeError> for ArchiveError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Store(error) => Self::Store(error),
            other => Self::Tree(other),
        }
    }
}

type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// A refusal that names the member.
fn refused(path: &[u8], reason: impl Into<String>) -> ArchiveError {
    ArchiveError::Refused { path: String::from_utf8_lossy(path).into_owned(), reason: reason.into() }
}

/// Rounded up to whole blocks.
fn padded(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests;
