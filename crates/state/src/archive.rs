//! Tar archives: export of snapshots, import as snapshots, and extraction into directories.
//!
//! Archives are written in the pax format, with long names, times in nanoseconds, `user.*` extended attributes
//! (`SCHILY.xattr.`), hard links and holes (GNU sparse format 1.0).
//!
//! Imported archives are not trusted. An import writes only to a [`VirtualTree`](crate::VirtualTree) (a mutable tree
//! in memory), and rejects an archive if the path of any member (entry of the archive) leaves this tree. An
//! [`Extractor`] writes archives into a directory of the file system. [`ArchiveLimits`] apply to imports and
//! extractions.

mod block;
mod error;
mod export;
mod extract;
mod header;
mod import;
mod limits;
mod list;
mod member;
mod pax;
mod reader;
mod sparse;
mod stream;

pub use crate::limit::LimitKind;
pub use error::ArchiveError;
pub use export::{TarExport, export_tar};
pub use extract::{ExtractOptions, ExtractProfile, ExtractReport, Extractor, MemberPaths};
pub use import::{ImportOptions, ImportReport, SkippedMember, import_tar};
pub use limits::{ArchiveLimits, MemoryBudget};
pub use list::{ListedFile, list_tar};
pub use stream::{TarMember, TarMemberKind, TarReader, TarWriteError, TarWriter};

/// Parses an archive with the checks of an import, and discards its content. For [`crate::testing`].
#[cfg(feature = "failpoints")]
pub(crate) fn read_through(mut bytes: &[u8], limits: ArchiveLimits) -> error::Result<()> {
    let mut reader = reader::Reader::new(&mut bytes, crate::cancel::Cancel::new());
    let mut usage = limits::Usage::new(limits);
    while let Some(mut member) = reader.next()? {
        usage.add_member(&member)?;
        usage.add_bytes(member.size)?;
        limits::path_components(&member.path)?;
        if let Some(map) = reader.sparse_map(&mut member)? {
            for run in map.runs() {
                if let sparse::SparseRun::Data(len) = run {
                    reader.read_content(len, |_| Ok(()))?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
