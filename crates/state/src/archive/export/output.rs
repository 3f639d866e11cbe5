//! Writes headers and blocks of an archive.

use std::io::Write;

use tar::{EntryType, Header};

use super::super::block::BLOCK;
use super::super::error::{ArchiveError, Result};
use super::super::pax::Records;
use crate::entry::Entry;
use crate::snapshot::Timestamp;

/// Longest name in a header, in bytes.
const NAME_MAX: usize = 100;
/// The largest number of eleven octal digits.
const OCTAL_MAX: u64 = 0o777_7777_7777;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Destination of an archive.
pub(super) struct Output<'a> {
    out: &'a mut dyn Write,
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

    /// Writes the header of a member, after the pax records that it needs.
    pub(super) fn header(&mut self, mut member: NewMember) -> Result<()> {
        member.overflow_into_pax();
        if !member.pax.is_empty() {
            let records = member.pax.encode();
            let mut header = plain_header(EntryType::XHeader, b"PaxHeader", records.len() as u64);
            header.set_mode(0o644);
            self.block(&mut header)?;
            self.write(&records)?;
            self.zeros(padding(records.len() as u64))?;
        }
        let mut header = plain_header(member.kind, &member.path, member.size.min(OCTAL_MAX));
        header.set_mode(u32::from(member.mode));
        header.set_mtime(member.whole_seconds().unwrap_or(0));
        copy_into(&mut header.as_old_mut().linkname, &member.target);
        self.block(&mut header)
    }

    /// Writes the two blocks of zeros that end an archive.
    pub(super) fn end(&mut self) -> Result<()> {
        self.zeros(2 * BLOCK)
    }

    fn block(&mut self, header: &mut Header) -> Result<()> {
        header.set_cksum();
        self.write(header.as_bytes())
    }

    pub(super) fn zeros(&mut self, mut len: u64) -> Result<()> {
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

/// Returns the number of zeros after content of this length, up to the next whole block.
pub(super) fn padding(len: u64) -> u64 {
    len.next_multiple_of(BLOCK) - len
}

/// A member that is about to be written.
pub(super) struct NewMember {
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryType,
    pub(super) target: Vec<u8>,
    mode: u16,
    modified: Option<Timestamp>,
    pub(super) size: u64,
    pub(super) pax: Records,
}

impl NewMember {
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

    /// Marks the member as a sparse file of format 1.0 with `real_size` bytes.
    pub(super) fn set_sparse(&mut self, real_size: u64) {
        for (key, value) in [("major", "1"), ("minor", "0"), ("realsize", &real_size.to_string())] {
            self.pax.set(format!("GNU.sparse.{key}").as_bytes(), value.as_bytes());
        }
        // Tools without support for the format extract the parts under a name that says so.
        self.pax.set(b"GNU.sparse.name", &self.path);
        self.path.splice(..0, *b"GNUSparseFile.0/");
    }

    /// Returns the time in seconds, if a header can hold it.
    fn whole_seconds(&self) -> Option<u64> {
        const NANOS: i64 = 1_000_000_000;
        let time = self.modified?.0;
        u64::try_from(time / NANOS).ok().filter(|seconds| *seconds <= OCTAL_MAX && time >= 0)
    }

    fn overflow_into_pax(&mut self) {
        if self.path.len() > NAME_MAX {
            self.pax.set(b"path", &self.path);
        }
        if self.target.len() > NAME_MAX {
            self.pax.set(b"linkpath", &self.target);
        }
        if self.size > OCTAL_MAX {
            self.pax.set(b"size", self.size.to_string().as_bytes());
        }
        if let Some(modified) = self.modified
            && (self.whole_seconds().is_none() || modified.0 % 1_000_000_000 != 0)
        {
            self.pax.set_modified(modified);
        }
    }
}

/// Creates a header. Owners are not kept, so that archives of a tree are equal for all users.
fn plain_header(kind: EntryType, path: &[u8], size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    copy_into(&mut header.as_old_mut().name, path);
    header
}

fn copy_into(field: &mut [u8; NAME_MAX], bytes: &[u8]) {
    let len = bytes.len().min(NAME_MAX);
    field[..len].copy_from_slice(&bytes[..len]);
}
