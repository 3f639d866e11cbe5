//! Writes file content to a batch (the new objects of a commit): cuts it into chunks (`chunker.rs`), hashes and
//! compresses several of them in parallel, and returns the extents of the file (its chunks and holes, in order).

use rayon::prelude::*;

use crate::batch::Batch;
use crate::chunker::{Chunker, Piece, WHOLE_MAX};
use crate::error::Result;
use crate::node::Extent;

/// Number of pieces (chunks or holes) that are collected, to be hashed and compressed in parallel.
const PARALLEL_PIECES: usize = 32;

/// Writer that streams the content of a file into a batch.
pub(crate) struct ContentWriter<'b> {
    batch: &'b Batch,
    chunker: Chunker,
    extents: Vec<Extent>,
}

impl<'b> ContentWriter<'b> {
    pub(crate) fn new(batch: &'b Batch) -> Self {
        Self { batch, chunker: Chunker::new(), extents: Vec::new() }
    }

    /// Creates a writer that continues after the `stored` extents, which [`stable_part`] has returned.
    fn resume(batch: &'b Batch, stored: &[Extent]) -> Self {
        let offset: u64 = stored.iter().map(Extent::len).sum();
        let chunker = if offset == 0 { Chunker::new() } else { Chunker::resume(offset) };
        Self { batch, chunker, extents: stored.to_vec() }
    }

    pub(crate) fn push(&mut self, data: &[u8]) -> Result<()> {
        self.chunker.push(data);
        if self.chunker.pieces.len() >= PARALLEL_PIECES { self.store_pieces() } else { Ok(()) }
    }

    pub(crate) fn push_zeros(&mut self, len: u64) -> Result<()> {
        self.chunker.push_zeros(len);
        if self.chunker.pieces.len() >= PARALLEL_PIECES { self.store_pieces() } else { Ok(()) }
    }

    /// Returns the number of extents so far. Those of the last few pieces are not counted yet.
    pub(crate) fn extent_count(&self) -> usize {
        self.extents.len()
    }

    /// Ends the content. Returns all extents.
    pub(crate) fn finish(mut self) -> Result<Vec<Extent>> {
        self.chunker.finish();
        self.store_pieces()?;
        Ok(self.extents)
    }

    /// Adds the finished pieces to the batch and appends their extents.
    fn store_pieces(&mut self) -> Result<()> {
        let pieces = std::mem::take(&mut self.chunker.pieces);
        let put = |piece: &Piece| -> Result<Extent> {
            Ok(match piece {
                Piece::Hole(len) => Extent::Hole { len: *len },
                Piece::Data(data) => {
                    Extent::Data { len: data.len() as u64, chunk: self.batch.put_chunk(data)? }
                }
            })
        };
        let extents: Result<Vec<Extent>> = if pieces.len() > 1 {
            pieces.par_iter().map(put).collect()
        } else {
            pieces.iter().map(put).collect()
        };
        for extent in extents? {
            push_extent(&mut self.extents, extent);
        }
        Ok(())
    }
}

/// Appends an extent. Adjacent holes are merged, because a list of extents has one canonical form.
fn push_extent(extents: &mut Vec<Extent>, extent: Extent) {
    if let (Some(Extent::Hole { len }), Extent::Hole { len: more }) = (extents.last_mut(), extent) {
        *len += more;
    } else {
        extents.push(extent);
    }
}

/// Returns the extents that do not change when content is appended, and their total length in bytes.
///
/// The chunker decides about a cut from the bytes before the cut, so most extents stay the same. The last chunk ended
/// with the content, and a hole at the end may have ended in the middle of a block: both must be cut again.
pub(crate) fn stable_part(extents: &[Extent]) -> (Vec<Extent>, u64) {
    let size: u64 = extents.iter().map(Extent::len).sum();
    if size <= WHOLE_MAX as u64 {
        return (Vec::new(), 0);
    }
    let last_data = extents.iter().rposition(|extent| matches!(extent, Extent::Data { .. }));
    let stable = &extents[..last_data.unwrap_or(0)];
    (stable.to_vec(), stable.iter().map(Extent::len).sum())
}

/// Writes `tail` as the continuation of `stored` extents. Returns the extents of the whole content.
pub(crate) fn write_tail(batch: &Batch, stored: &[Extent], tail: &[u8]) -> Result<Vec<Extent>> {
    if tail.is_empty() {
        return Ok(stored.to_vec());
    }
    if stored.is_empty() && tail.len() <= WHOLE_MAX {
        let chunk = batch.put_chunk(tail)?;
        return Ok(vec![Extent::Data { len: tail.len() as u64, chunk }]);
    }
    let mut writer = ContentWriter::resume(batch, stored);
    for part in tail.chunks(1 << 20) {
        writer.push(part)?;
    }
    writer.finish()
}
