//! One record of a pack (an append-only file of the store, see `pack.rs`): a header, and content that may be
//! compressed.
//!
//! ```text
//! 0   kind       u8    1 chunk, 2 node, 3 commit, 4 checkpoint; 0 after the last record
//! 1   encoding   u8    0 plain, 1 zstd
//! 2   zero       u16
//! 4   stored     u32   length of the bytes after the header
//! 8   raw        u32   length after decoding
//! 12  checksum   u32   CRC-32 of bytes 0..12, 16..48 and the stored bytes
//! 16  id         32 B  BLAKE3 of the raw bytes
//! 48  stored bytes
//! ```
//!
//! The checksum detects an incomplete or damaged record without decompressing it; the id verifies the content. Both are
//! checked before content is returned.

use std::cell::RefCell;

use crate::codec::{DecodeError, Decoded, Reader};
use crate::error::{Result, StoreError};

/// Length of a record's header in bytes.
pub(crate) const RECORD_HEADER_LEN: usize = 48;

/// Largest content of one record in bytes. Keeps lengths, and offsets in a pack, within 32 bits.
pub(crate) const RAW_MAX: usize = 1 << 30;

/// Content length in bytes below which compression is not tried: the header of the record is nearly as large.
const COMPRESS_MIN: usize = 64;

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A piece of file content.
    Chunk = 1,
    /// A file, directory or symlink of a tree.
    Node = 2,
    /// Changes of one commit: of snapshots, references (names), pins (protection from garbage collection) and episodes
    /// (steps of searches).
    Commit = 3,
    /// Copy of all snapshots, references, pins and episodes of the store, or a part of it.
    Checkpoint = 4,
}

impl Kind {
    fn from_byte(byte: u8) -> Decoded<Self> {
        Ok(match byte {
            1 => Self::Chunk,
            2 => Self::Node,
            3 => Self::Commit,
            4 => Self::Checkpoint,
            _ => return Err(DecodeError("unknown kind of record")),
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chunk => "chunk",
            Self::Node => "node",
            Self::Commit => "commit",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// A record's header, decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    compressed: bool,
    /// Length of the bytes after the header.
    pub(crate) stored: u32,
    /// Length of these bytes when they are decompressed.
    raw: u32,
    checksum: u32,
    pub(crate) id: [u8; 32],
}

impl Header {
    /// Returns the length of the whole record in bytes, header included.
    pub(crate) fn total(&self) -> u64 {
        RECORD_HEADER_LEN as u64 + u64::from(self.stored)
    }

    /// Decodes a header. Returns `Ok(None)` for a header of zeros, which follows the last record of a pack.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_LEN]) -> Decoded<Option<Self>> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut reader = Reader::new(bytes);
        let kind = Kind::from_byte(reader.u8()?)?;
        let compressed = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError("unknown encoding of a record")),
        };
        if reader.u16()? != 0 {
            return Err(DecodeError("reserved bytes are used"));
        }
        let header = Self {
            kind,
            compressed,
            stored: reader.u32()?,
            raw: reader.u32()?,
            checksum: reader.u32()?,
            id: reader.array()?,
        };
        if header.raw as usize > RAW_MAX || (!compressed && header.raw != header.stored) {
            return Err(DecodeError("impossible length of a record"));
        }
        Ok(Some(header))
    }

    /// Returns true if the checksum of header and stored bytes matches.
    pub(crate) fn is_intact(&self, header: &[u8; RECORD_HEADER_LEN], stored: &[u8]) -> bool {
        stored.len() == self.stored as usize && checksum(header, stored) == self.checksum
    }

    /// Decompresses the content if necessary, and returns it after verifying its hash.
    pub(crate) fn open(&self, stored: &[u8]) -> Decoded<Vec<u8>> {
        let raw = if self.compressed { decompress(stored, self.raw as usize)? } else { stored.to_vec() };
        if raw.len() != self.raw as usize || blake3::hash(&raw).as_bytes() != &self.id {
            return Err(DecodeError("content does not match its hash"));
        }
        Ok(raw)
    }
}

/// Compression level of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// No compression, to save time.
    None,
    Fast,
    Thorough,
}

/// Content length in bytes below which levels 1 and 2 of zstd give the same result.
const THOROUGH_MIN: usize = 8 << 10;

impl Compression {
    fn level(self, len: usize) -> Option<i32> {
        match self {
            Self::None => None,
            // Level 3 takes a quarter longer and saves only 2 %.
            Self::Thorough if len >= THOROUGH_MIN => Some(2),
            Self::Fast | Self::Thorough => Some(1),
        }
    }
}

/// Appends a record to `out`; returns its length.
pub(crate) fn append(
    out: &mut Vec<u8>,
    kind: Kind,
    id: &[u8; 32],
    raw: &[u8],
    compression: Compression,
) -> Result<u32> {
    if raw.len() > RAW_MAX {
        return Err(StoreError::TooLarge(raw.len()));
    }
    let start = out.len();
    out.resize(start + RECORD_HEADER_LEN, 0);
    let compressed = compression.level(raw.len()).is_some_and(|level| compress_into(out, raw, level));
    if !compressed {
        out.extend_from_slice(raw);
    }
    let stored = (out.len() - start - RECORD_HEADER_LEN) as u32;
    let header = &mut out[start..start + RECORD_HEADER_LEN];
    header[0] = kind as u8;
    header[1] = u8::from(compressed);
    header[4..8].copy_from_slice(&stored.to_le_bytes());
    header[8..12].copy_from_slice(&(raw.len() as u32).to_le_bytes());
    header[16..48].copy_from_slice(id);
    let (header, body) =
        out[start..].split_first_chunk_mut::<RECORD_HEADER_LEN>().unwrap_or_else(|| unreachable!());
    let sum = checksum(header, body);
    header[12..16].copy_from_slice(&sum.to_le_bytes());
    Ok(RECORD_HEADER_LEN as u32 + stored)
}

/// Returns the content of an encoded record after verifying it.
pub(crate) fn open(record: &[u8]) -> Decoded<Vec<u8>> {
    let (head, stored) =
        record.split_first_chunk::<RECORD_HEADER_LEN>().ok_or(DecodeError("shorter than a header"))?;
    let header = Header::decode(head)?.ok_or(DecodeError("there is no record"))?;
    if header.is_intact(head, stored) { header.open(stored) } else { Err(DecodeError("a torn record")) }
}

fn checksum(header: &[u8; RECORD_HEADER_LEN], stored: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..12]);
    hasher.update(&header[16..]);
    hasher.update(stored);
    hasher.finalize()
}

/// A compressor with its current level and output buffer.
struct Compressor {
    context: zstd::bulk::Compressor<'static>,
    level: i32,
    output: Vec<u8>,
}

thread_local! {
    // A context takes a megabyte and is slow to create, so every thread keeps one.
    static COMPRESSOR: RefCell<Option<Compressor>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Compressor {
    /// Compresses `raw`. Reserves an output buffer for the worst case, because the context would be unusable after it
    /// has run out of space.
    fn compress(&mut self, raw: &[u8], level: i32) -> std::io::Result<&[u8]> {
        if self.level != level {
            self.context.set_compression_level(level)?;
            self.level = level;
        }
        self.output.clear();
        self.output.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        self.context.compress_to_buffer(raw, &mut self.output)?;
        Ok(&self.output)
    }
}

/// Appends `raw` compressed if that saves at least 1/16; otherwise leaves `out` unchanged.
fn compress_into(out: &mut Vec<u8>, raw: &[u8], level: i32) -> bool {
    if raw.len() < COMPRESS_MIN {
        return false;
    }
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            let context = zstd::bulk::Compressor::new(level).ok();
            *slot = context.map(|context| Compressor { context, level, output: Vec::new() });
        }
        let Some(compressor) = slot else { return false };
        match compressor.compress(raw, level) {
            Ok(smaller) if smaller.len() <= raw.len() - raw.len() / 16 => {
                out.extend_from_slice(smaller);
                true
            }
            Ok(_) => false,
            Err(_) => {
                // Not expected. The next record gets a new context.
                *slot = None;
                false
            }
        }
    })
}

fn decompress(stored: &[u8], raw: usize) -> Decoded<Vec<u8>> {
    // Fails instead of aborting if a hostile length is too large to allocate.
    let mut out = Vec::new();
    out.try_reserve_exact(raw).map_err(|_| DecodeError("too large to decompress"))?;
    DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = zstd::bulk::Decompressor::new().ok();
        }
        let decompressor = slot.as_mut().ok_or(DecodeError("cannot decompress here"))?;
        decompressor
            .decompress_to_buffer(stored, &mut out)
            .map_err(|_| DecodeError("compressed data is damaged"))
    })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append(&mut out, Kind::Chunk, blake3::hash(raw).as_bytes(), raw, Compression::Thorough).unwrap();
        out
    }

    #[test]
    fn records_round_trip_and_text_shrinks() {
        let text = b"the same words again and again, ".repeat(100);
        assert!(record(&text).len() < text.len() / 4);
        for raw in [&b""[..], b"x", &text] {
            assert_eq!(open(&record(raw)).unwrap(), raw);
        }
    }

    #[test]
    fn incompressible_content_does_not_affect_later_records() {
        let noise: Vec<u8> =
            (0..10_000u64).flat_map(|at| blake3::hash(&at.to_le_bytes()).as_bytes()[..8].to_vec()).collect();
        let text = b"the same words again and again, ".repeat(100);
        for _ in 0..3 {
            assert_eq!(record(&noise).len(), noise.len() + RECORD_HEADER_LEN);
            assert!(record(&text).len() < text.len() / 4);
        }
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let good = record(&b"some content that is worth keeping ".repeat(5));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&bad).is_err(), "bit {bit} flipped without being noticed");
        }
    }
}
