//! Lists the files of an archive without reading their content. The caller can read the content at its offset later.

use std::fs::File;

use super::error::Result;
use super::limits::{ArchiveLimits, Usage, path_components};
use super::member::Kind;
use super::reader::Reader;
use crate::cancel::Cancel;

/// A regular file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    /// Path without `.` and empty components.
    pub path: Vec<u8>,
    /// Offset of the content from the start of the archive, in bytes.
    pub offset: u64,
    /// Length of the content in bytes.
    pub size: u64,
}

/// Lists the regular files of the archive that begins at the current position of `file`. Leaves out sparse files,
/// because their content is not contiguous in the archive.
pub fn list_tar(file: &File, limits: ArchiveLimits, cancel: &Cancel) -> Result<Vec<ListedFile>> {
    let mut reader = Reader::of_file(file, cancel.clone());
    let mut usage = Usage::new(limits);
    let mut files = Vec::new();
    while let Some(member) = reader.next()? {
        usage.add_member(&member)?;
        let path = path_components(&member.path)?.join(&b'/');
        if member.kind == Kind::File {
            files.push(ListedFile { path, offset: reader.offset(), size: member.stored });
        }
    }
    Ok(files)
}
