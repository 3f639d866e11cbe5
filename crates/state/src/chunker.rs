//! Cuts file content into chunks, which are stored by their hash, and holes.
//!
//! The cut points are a function of the content alone, and part of the format of the store: the same bytes always give
//! the same chunks and holes, whether or not the file was sparse on disk.
//!
//! - Content of at most [`WHOLE_MAX`] bytes is one chunk.
//! - Otherwise every maximal run of aligned all-zero blocks of [`BLOCK`] bytes is a hole (a shorter last
//!   block counts too). The data between two holes is a *segment*. FastCDC (v2020) cuts each segment into chunks of the
//!   sizes below.

use fastcdc::v2020::{FastCDC, Normalization};

/// Content size in bytes up to which it is one chunk.
pub(crate) const WHOLE_MAX: usize = 64 * 1024;
/// Smallest chunk in bytes, except for the last one of a segment.
pub(crate) const CHUNK_MIN: usize = 16 * 1024;
/// Average size in bytes of chunks of random data.
pub(crate) const CHUNK_AVERAGE: usize = 64 * 1024;
/// Largest chunk in bytes.
pub(crate) const CHUNK_MAX: usize = 256 * 1024;
/// Unit in bytes in which holes are detected.
pub(crate) const BLOCK: usize = 4096;

/// One piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Content of a chunk.
    Data(Vec<u8>),
    /// Length of a hole in bytes.
    Hole(u64),
}

/// State of a segment when it is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentState {
    /// More data of the segment may follow.
    Growing,
    Ended,
}

/// Cutter of content that arrives in parts of any size.
#[derive(Default)]
pub(crate) struct Chunker {
    /// Content so far; `None` once it is larger than [`WHOLE_MAX`], and in a resumed chunker.
    start: Option<Vec<u8>>,
    /// True once the content is larger than [`WHOLE_MAX`], and in a resumed chunker.
    is_cut: bool,
    /// Bytes of an incomplete block.
    block: Vec<u8>,
    /// Number of bytes up to the end of the block in which the chunker was resumed. They are data, even if they are
    /// zeros.
    rest_of_block: usize,
    /// Data of the current segment since the last cut.
    segment: Vec<u8>,
    /// Length in bytes of the current hole so far.
    hole: u64,
    /// Finished pieces. The caller takes them out, so that they do not pile up in memory.
    pub(crate) pieces: Vec<Piece>,
}

impl Chunker {
    pub(crate) fn new() -> Self {
        Self { start: Some(Vec::new()), ..Self::default() }
    }

    /// Continues content at `offset`, at which the last kept chunk or hole ends. If the offset is inside a block, the
    /// block is data: a block of zeros is part of a hole, and a chunk cannot end in it.
    pub(crate) fn resume(offset: u64) -> Self {
        let offset_in_block = (offset % BLOCK as u64) as usize;
        let rest_of_block = if offset_in_block == 0 { 0 } else { BLOCK - offset_in_block };
        Self { is_cut: true, rest_of_block, ..Self::default() }
    }

    /// Adds the next part of the content.
    pub(crate) fn push(&mut self, data: &[u8]) {
        if let Some(start) = &mut self.start {
            if start.len() + data.len() <= WHOLE_MAX {
                start.extend_from_slice(data);
                return;
            }
            let start = self.start.take().unwrap_or_default();
            self.is_cut = true;
            self.push_blocks(&start);
        }
        self.push_blocks(data);
    }

    /// Adds `len` zero bytes without allocating them.
    pub(crate) fn push_zeros(&mut self, mut len: u64) {
        const ZEROS: [u8; BLOCK] = [0; BLOCK];
        while len > 0 {
            let aligned = self.block.is_empty() && self.rest_of_block == 0;
            if self.is_cut && aligned && len >= BLOCK as u64 {
                let run = len - len % BLOCK as u64;
                self.end_segment();
                self.hole += run;
                len -= run;
            } else {
                let step = (BLOCK - self.block.len()).min(usize::try_from(len).unwrap_or(BLOCK));
                self.push(&ZEROS[..step]);
                len -= step as u64;
            }
        }
    }

    /// Marks the content as complete.
    pub(crate) fn finish(&mut self) {
        if let Some(start) = self.start.take() {
            if !start.is_empty() {
                self.pieces.push(Piece::Data(start));
            }
            return;
        }
        let last = std::mem::take(&mut self.block);
        if !last.is_empty() {
            self.take_block(&last);
        }
        self.end_segment();
        self.end_hole();
    }

    /// Adds content that is larger than one chunk, block by block.
    fn push_blocks(&mut self, mut data: &[u8]) {
        if self.rest_of_block > 0 {
            let rest = self.rest_of_block.min(data.len());
            self.segment.extend_from_slice(&data[..rest]);
            self.rest_of_block -= rest;
            data = &data[rest..];
        }
        if !self.block.is_empty() {
            let fill = (BLOCK - self.block.len()).min(data.len());
            self.block.extend_from_slice(&data[..fill]);
            data = &data[fill..];
            if self.block.len() < BLOCK {
                return;
            }
            let block = std::mem::take(&mut self.block);
            self.take_block(&block);
        }
        let mut blocks = data.chunks_exact(BLOCK);
        for block in &mut blocks {
            self.take_block(block);
        }
        self.block.extend_from_slice(blocks.remainder());
    }

    /// Adds a complete block, or the shorter last one, to the current hole or segment.
    fn take_block(&mut self, block: &[u8]) {
        if is_zero(block) {
            self.end_segment();
            self.hole += block.len() as u64;
            return;
        }
        self.end_hole();
        self.segment.extend_from_slice(block);
        // The bytes after the last cut are moved to the front. Cutting several chunks at once makes that rare.
        if self.segment.len() >= 4 * CHUNK_MAX {
            self.cut(SegmentState::Growing);
        }
    }

    fn end_segment(&mut self) {
        if !self.segment.is_empty() {
            self.cut(SegmentState::Ended);
        }
    }

    fn end_hole(&mut self) {
        if self.hole > 0 {
            self.pieces.push(Piece::Hole(std::mem::take(&mut self.hole)));
        }
    }

    /// Cuts the segment into chunks, as far as later data cannot change the cuts: while [`CHUNK_MAX`] bytes are left,
    /// or to the end of a segment that has ended.
    fn cut(&mut self, state: SegmentState) {
        let segment = std::mem::take(&mut self.segment);
        let cdc = FastCDC::with_level(&segment, CHUNK_MIN, CHUNK_AVERAGE, CHUNK_MAX, Normalization::Level1);
        let mut start = 0;
        while start < segment.len() && (state == SegmentState::Ended || segment.len() - start >= CHUNK_MAX) {
            let (_, end) = cdc.cut(start, segment.len() - start);
            self.pieces.push(Piece::Data(segment[start..end].to_vec()));
            start = end;
        }
        self.segment = segment[start..].to_vec();
    }
}

/// Returns true if all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Nearly every data block differs in its first bytes. For the rest, comparing the slice with itself
    // shifted by one uses the vectorised memcmp.
    bytes.first().is_none_or(|first| *first == 0 && bytes[1..] == bytes[..bytes.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ChunkId;

    /// Returns a fixed stream of bytes (xorshift64*), the same on every machine and in every version.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    fn cut_in_parts(content: &[u8], part: usize) -> Vec<Piece> {
        let mut chunker = Chunker::new();
        for data in content.chunks(part.max(1)) {
            chunker.push(data);
        }
        chunker.finish();
        chunker.pieces
    }

    fn lengths(pieces: &[Piece]) -> Vec<i64> {
        pieces
            .iter()
            .map(|piece| match piece {
                Piece::Data(data) => data.len() as i64,
                Piece::Hole(len) => -(*len as i64),
            })
            .collect()
    }

    #[test]
    fn the_cut_points_are_frozen() {
        let pieces = cut_in_parts(&noise(1 << 20), 1 << 20);
        assert_eq!(
            lengths(&pieces),
            FROZEN_LENGTHS,
            "the cut points are a format: a store written yesterday must still share chunks today"
        );
        let Piece::Data(first) = &pieces[0] else { panic!("noise has no holes") };
        assert_eq!(ChunkId::of(first).to_string(), FROZEN_FIRST);
    }

    const FROZEN_LENGTHS: &[i64] =
        &[67822, 68399, 19536, 69288, 72413, 100181, 123727, 252702, 84700, 67302, 67333, 55173];
    const FROZEN_FIRST: &str = "183e465bd999f2601f8c7317eeb6084b6aa95c57b7e0cef2bd23f482270c67e7";

    #[test]
    fn cut_points_do_not_depend_on_how_content_is_split() {
        let mut content = noise(700_000);
        content[200_000..330_000].fill(0);
        let whole = cut_in_parts(&content, content.len());
        for part in [1, 7, 4095, 4096, 4097, 65_536, 300_001] {
            assert_eq!(cut_in_parts(&content, part), whole, "parts of {part}");
        }
        assert!(whole.iter().any(|piece| matches!(piece, Piece::Hole(_))));
    }

    #[test]
    fn pushed_zeros_equal_zero_bytes() {
        for (before, zeros, after) in
            [(0, 1 << 20, 0), (100, 200_000, 5), (70_000, 4096 * 9, 70_000), (3, 70_000, 0), (65_536, 1, 0)]
        {
            let mut content = noise(before);
            content.extend(std::iter::repeat_n(0, zeros));
            content.extend(noise(after));
            let mut chunker = Chunker::new();
            chunker.push(&content[..before]);
            chunker.push_zeros(zeros as u64);
            chunker.push(&content[before + zeros..]);
            chunker.finish();
            assert_eq!(chunker.pieces, cut_in_parts(&content, 1 << 20), "{before} {zeros} {after}");
        }
    }

    #[test]
    fn lengths_of_pieces_add_up_for_contents_at_the_size_limits() {
        for size in [0, 1, CHUNK_MIN - 1, CHUNK_MIN, WHOLE_MAX - 1, WHOLE_MAX, WHOLE_MAX + 1, CHUNK_MAX + 1] {
            let content = noise(size);
            let pieces = cut_in_parts(&content, 9999);
            let total: i64 = lengths(&pieces).iter().map(|len| len.abs()).sum();
            assert_eq!(total, size as i64);
            if size <= WHOLE_MAX {
                assert!(pieces.len() <= 1);
            }
        }
    }

    #[test]
    fn an_insertion_changes_few_chunks() {
        let content = noise(4 << 20);
        let mut edited = content.clone();
        edited.splice(1_000_000..1_000_000, *b"inserted");
        let before: std::collections::HashSet<_> = chunk_ids(&cut_in_parts(&content, 1 << 20));
        let after = chunk_ids(&cut_in_parts(&edited, 1 << 20));
        let new = after.difference(&before).count();
        assert!(new <= 4, "{new} of {} chunks changed", after.len());
    }

    fn chunk_ids(pieces: &[Piece]) -> std::collections::HashSet<ChunkId> {
        pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Data(data) => Some(ChunkId::of(data)),
                Piece::Hole(_) => None,
            })
            .collect()
    }
}
