//! Tar archives: a snapshot as a stream that other tools read, and back.
//!
//! Archives are written in the pax format: long names, times in nanoseconds, user extended attributes
//! (`SCHILY.xattr.`), hard links by link label, and holes (GNU sparse format 1.0).
//!
//! Imported archives may be hostile: everything goes into a [`VirtualTree`](crate::VirtualTree), so nothing
//! outside the new snapshot can be reached, and an archive that tries is refused as a whole. An [`Extractor`]
//! writes an archive into a directory of the file system, for all callers that unpack one. [`ArchiveLimits`]
//! bound both.

mod block;
mod error;
mod export;
mod extract;
mod import;
mod limits;
mod list;
mod member;
mod pax;
mod reader;
mod sparse;

pub use crate::limit::LimitKind;
pub use error::ArchiveError;
pub use export::export_tar;
pub use extract::{ExtractOptions, ExtractProfile, ExtractReport, Extractor};
pub use import::{ImportOptions, ImportReport, SkippedMember, import_tar};
pub use limits::{ArchiveLimits, MemoryBudget};
pub use list::{ListedFile, list_tar};

/// Reads an archive as an import does and keeps nothing, for [`crate::testing`].
#[cfg(feature = "failpoints")]
pub(crate) fn read_through(mut bytes: &[u8], limits: ArchiveLimits) -> error::Result<()> {
    let mut reader = reader::Reader::new(&mut bytes, crate::cancel::Cancel::new());
    let mut usage = limits::Usage::new(limits);
    while let Some(mut member) = reader.next()? {
        usage.add_member(&member)?;
        usage.add_bytes(member.size)?;
        limits::path_components(&member.path)?;
        if let Some(map) = reader.map(&mut member)? {
            for run in map.runs() {
                if let sparse::SparseRun::Data(len) = run {
                    reader.content(len, |_| Ok(()))?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
