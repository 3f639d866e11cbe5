//! Output of an export: headers and blocks of the archive, with a count of the written bytes.

use std::io::Write;

use tar::EntryType;

use super::super::block::BLOCK;
use super::super::error::{ArchiveError, Result};
use super::super::header::MemberHeader;
use super::super::pax::Records;
use crate::entry::Entry;
use crate::snapshot::Timestamp;

/// Source of zeros for holes and padding.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Destination of an archive, or of one part of it.
pub(super) struct Output<'a> {
    out: &'a mut dyn Write,
    /// Number of bytes written.
    written: u64,
}

impl<'a> Output<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, written: 0 }
    }

    /// Returns the number of bytes written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes the header of a member. Pax records for values that do not fit into the header precede it.
    pub(super) fn write_header(&mut self, member: NewMember) -> Result<()> {
        let NewMember { path, kind, target, mode, modified, size, pax } = member;
        let header = MemberHeader { kind, path: &path, target: &target, mode, modified, size };
        self.write(&header.encode(pax))
    }

    /// Writes the two blocks of zeros that end an archive.
    pub(super) fn write_end(&mut self) -> Result<()> {
        self.write_zeros(2 * BLOCK)
    }

    pub(super) fn write_zeros(&mut self, mut len: u64) -> Result<()> {
        while len > 0 {
            let step = len.min(ZEROS.len() as u64);
            self.write(&ZEROS[..step as usize])?;
            len -= step;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|source| ArchiveError::Write { source })?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

/// A member that is about to be written.
pub(super) struct NewMember {
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryType,
    /// Target of a symlink, or first name of a hard-linked file; empty for other kinds.
    pub(super) target: Vec<u8>,
    mode: u16,
    modified: Option<Timestamp>,
    /// Length of the content in the archive, in bytes.
    pub(super) size: u64,
    /// Extended attributes, and the description of a sparse file.
    pub(super) pax: Records,
}

impl NewMember {
    /// Creates a member with the mode and time of `entry`. The caller sets kind, target, size and further records.
    pub(super) fn new(path: &[u8], entry: &Entry) -> Self {
        Self {
            path: path.to_vec(),
            kind: EntryType::Regular,
            target: Vec::new(),
            mode: entry.node.mode(),
            modified: entry.modified,
            size: 0,
            pax: Records::default(),
        }
    }

    /// Marks the member as a sparse file of GNU format 1.0. `real_size` is the length of the file with its holes.
    pub(super) fn set_sparse(&mut self, real_size: u64) {
        for (key, value) in [("major", "1"), ("minor", "0"), ("realsize", &real_size.to_string())] {
            self.pax.set(format!("GNU.sparse.{key}").as_bytes(), value.as_bytes());
        }
        // A tool that does not know the format extracts map and data as one file, under this name in the header.
        self.pax.set(b"GNU.sparse.name", &self.path);
        self.path.splice(..0, *b"GNUSparseFile.0/");
    }
}
