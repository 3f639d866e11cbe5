//! Tar archives: a snapshot as a stream that other tools read, and back.
//!
//! Archives are written in the pax format: long names, times in nanoseconds, user extended attributes
//! (`SCHILY.xattr.`), hard links by link label, and holes (GNU sparse format 1.0).
//!
//! Imported archives may be hostile: everything goes into a [`VirtualTree`](crate::VirtualTree), so nothing
//! outside the new snapshot can be reached, and an archive that tries is refused as a whole. An [`Extractor`]
//! writes an archive into a directory of the file system, for all callers that unpack one. [`ArchiveLimits`]
//! bound both.

mod export;
mod extract;
mod import;
mod limits;
mod list;
mod member;
mod pax;
mod reader;
mod sparse;

use std::io;

use crate::cancel::Cancelled;
use crate::error::StoreError;
use crate::quote::shorten_path;
use crate::virtual_tree::TreeError;

pub use crate::limit::LimitKind;
pub use export::export_tar;
pub use extract::{ExtractOptions, ExtractProfile, ExtractReport, Extractor};
pub use import::{ImportOptions, ImportReport, SkippedMember, import_tar};
pub use limits::{ArchiveLimits, MemoryBudget};
pub use list::{ListedFile, list_tar};

/// Archives consist of blocks of this size.
const BLOCK: u64 = 512;

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
    /// The bytes do not begin as a tar archive does.
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
    /// A member that could reach something outside the archive, or that contradicts another.
    #[error("`{path}` in the archive is refused: {reason}")]
    Refused {
        /// The member.
        path: String,
        /// Reason of the refusal.
        reason: String,
    },
    /// The archive holds more than its [`ArchiveLimits`] allow.
    #[error("the archive has more than {limit} {kind}")]
    TooLarge {
        /// The quantity that is limited.
        kind: LimitKind,
        /// The limit.
        limit: u64,
    },
    /// Archives that are imported at the same time need more than their [`MemoryBudget`].
    #[error("the archives that are imported at the same time need too much memory together")]
    OverBudget,
    /// A member could not be written to the file system.
    #[error("cannot write `{path}`: {source}")]
    Extract {
        /// The member.
        path: String,
        /// Error from the operating system.
        source: io::Error,
    },
    /// The work was asked to stop.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The tree could not take a member.
    #[error(transparent)]
    Tree(TreeError),
    /// The store failed.
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

type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// Returns the error for a member that is not accepted.
fn refused(path: &[u8], reason: impl Into<String>) -> ArchiveError {
    ArchiveError::Refused { path: shorten_path(path).into_owned(), reason: reason.into() }
}

/// Rounds `len` up to whole blocks. Returns `None` on overflow.
fn padded(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(BLOCK)
}

/// Reads an archive as an import does and keeps nothing, for [`crate::testing`].
#[cfg(feature = "failpoints")]
pub(crate) fn read_through(mut bytes: &[u8], limits: ArchiveLimits) -> Result<()> {
    let mut reader = reader::Reader::new(&mut bytes, crate::cancel::Cancel::new());
    let mut usage = limits::Usage::new(limits);
    while let Some(mut member) = reader.next()? {
        usage.add_member(&member)?;
        usage.add_bytes(member.size)?;
        limits::names_inside(&member.path)?;
        if let Some(map) = reader.map(&mut member)? {
            for run in map.runs() {
                if let sparse::Run::Data(len) = run {
                    reader.content(len, |_| Ok(()))?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
