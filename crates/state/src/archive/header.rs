//! Encoding of member headers, in the ustar format with pax records for values that do not fit.

use tar::{EntryType, Header};

use super::block::BLOCK;
use super::pax::Records;
use crate::snapshot::Timestamp;

/// Longest path or link target in a header, in bytes.
const NAME_MAX: usize = 100;
/// Largest size or time in a header: eleven octal digits.
const OCTAL_MAX: u64 = 0o777_7777_7777;
/// Nanoseconds per second.
const NANOS: i64 = 1_000_000_000;

/// Values of a member's header.
#[derive(Debug)]
pub(super) struct MemberHeader<'a> {
    pub(super) kind: EntryType,
    pub(super) path: &'a [u8],
    /// Target of a symlink or hard link; empty for other kinds.
    pub(super) target: &'a [u8],
    pub(super) mode: u16,
    pub(super) modified: Option<Timestamp>,
    /// Length of the content in bytes.
    pub(super) size: u64,
}

impl MemberHeader<'_> {
    /// Encodes the header as whole blocks. `records`, and records for values that do not fit, precede it.
    pub(super) fn encode(&self, mut records: Records) -> Vec<u8> {
        self.add_overflow(&mut records);
        let mut out = Vec::with_capacity(BLOCK as usize);
        if !records.is_empty() {
            let records = records.encode();
            let mut header = plain_header(EntryType::XHeader, b"PaxHeader", records.len() as u64);
            header.set_mode(0o644);
            push_block(&mut out, header);
            out.extend_from_slice(&records);
            out.resize(out.len() + padding(records.len() as u64) as usize, 0);
        }
        let mut header = plain_header(self.kind, self.path, self.size.min(OCTAL_MAX));
        header.set_mode(u32::from(self.mode));
        header.set_mtime(self.modified.and_then(whole_seconds).unwrap_or(0));
        copy_into(&mut header.as_old_mut().linkname, self.target);
        push_block(&mut out, header);
        out
    }

    /// Adds pax records for values that do not fit into a header.
    fn add_overflow(&self, records: &mut Records) {
        if self.path.len() > NAME_MAX {
            records.set(b"path", self.path);
        }
        if self.target.len() > NAME_MAX {
            records.set(b"linkpath", self.target);
        }
        if self.size > OCTAL_MAX {
            records.set(b"size", self.size.to_string().as_bytes());
        }
        if let Some(modified) = self.modified
            && (whole_seconds(modified).is_none() || modified.0 % NANOS != 0)
        {
            records.set_modified(modified);
        }
    }
}

/// Returns the number of zero bytes that fill up content of this length to whole blocks.
pub(super) fn padding(len: u64) -> u64 {
    len.next_multiple_of(BLOCK) - len
}

/// Returns the time in whole seconds; `None` if a header cannot hold it.
fn whole_seconds(time: Timestamp) -> Option<u64> {
    u64::try_from(time.0 / NANOS).ok().filter(|seconds| *seconds <= OCTAL_MAX && time.0 >= 0)
}

/// Creates a header with owner 0 and time 0. Owners are not exported, so the archive of a tree does not depend on the
/// user.
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

/// Appends a header, with its checksum.
fn push_block(out: &mut Vec<u8>, mut header: Header) {
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
}

/// Copies as many bytes as fit. The value in a pax record replaces a truncated value.
fn copy_into(field: &mut [u8; NAME_MAX], bytes: &[u8]) {
    let len = bytes.len().min(NAME_MAX);
    field[..len].copy_from_slice(&bytes[..len]);
}
