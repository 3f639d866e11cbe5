//! New objects (chunks of file content, and nodes of trees) on their way from a batch, which collects them, to a
//! commit.
//!
//! They are in a buffer in memory, or in bulk packs: append-only files that only one commit writes.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{IoContext, Result};
use crate::id::IdHashBuilder;
use crate::pack::{Location, PACK_HEADER_LEN};
use crate::record::Kind;

/// Size in bytes above which a bulk pack is closed.
const BULK_MAX: u64 = 128 << 20;

/// An object and its position in the buffer or pack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedObject {
    pub(crate) kind: Kind,
    pub(crate) id: [u8; 32],
    /// Offset of the encoded record in bytes.
    pub(crate) offset: u32,
    /// Length of the encoded record in bytes.
    pub(crate) len: u32,
}

/// A pack that only one batch writes, until the batch is committed. The open file is locked, so that garbage collection
/// does not remove it.
#[derive(Clone)]
pub(crate) struct BulkPack {
    pub(crate) number: u32,
    pub(crate) file: Arc<File>,
    /// Offset at which the next record is written.
    pub(crate) end: u64,
    pub(crate) objects: Vec<PackedObject>,
}

/// Encoded objects that a batch hands to its commit.
#[derive(Default, Clone)]
pub(crate) struct NewObjects {
    /// Encoded records of the objects that are not in bulk packs.
    pub(crate) buffer: Vec<u8>,
    /// Objects in `buffer`; offsets count from its start.
    pub(crate) objects: Vec<PackedObject>,
    /// Packs with the objects of a large batch.
    pub(crate) bulk: Vec<BulkPack>,
}

impl NewObjects {
    /// Returns the size of these objects on disk, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.buffer.len() as u64 + self.bulk.iter().map(|pack| pack.end).sum::<u64>()
    }

    /// Adds the objects of another batch for the same commit. Skips objects in its buffer that this buffer already has.
    pub(crate) fn append(&mut self, other: Self) {
        let known: HashSet<(Kind, [u8; 32]), IdHashBuilder> =
            self.objects.iter().map(|object| (object.kind, object.id)).collect();
        for object in other.objects.iter().filter(|object| !known.contains(&(object.kind, object.id))) {
            let from = object.offset as usize;
            let offset = self.buffer.len() as u32;
            self.buffer.extend_from_slice(&other.buffer[from..from + object.len as usize]);
            self.objects.push(PackedObject { offset, ..*object });
        }
        self.bulk.extend(other.bulk);
    }
}

impl BulkPack {
    /// Wraps a pack that was just created. The caller must have locked the file.
    pub(crate) fn new(number: u32, file: File) -> Self {
        Self { number, file: Arc::new(file), end: PACK_HEADER_LEN, objects: Vec::new() }
    }

    /// Returns true if `len` more bytes fit.
    pub(crate) fn has_room(&self, len: u64) -> bool {
        self.end + len <= BULK_MAX
    }

    pub(crate) fn location(&self, object: &PackedObject) -> Location {
        Location { pack: self.number, offset: object.offset, len: object.len }
    }

    /// Appends an encoded record and returns its offset. `path` is for error messages.
    pub(crate) fn append(&mut self, encoded: &[u8], path: &Path) -> Result<u32> {
        let offset = self.end as u32;
        self.file.write_all_at(encoded, self.end).context("write", path)?;
        self.end += encoded.len() as u64;
        Ok(offset)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.end > BULK_MAX
    }
}
