//! Sparse members: files with holes, of which the archive stores only the data and a map of it (GNU sparse formats).

use super::block::BLOCK;
use crate::node::Extent;

/// Map of the data in a sparse file. All other bytes of the file are zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SparseMap {
    /// Offset and length of each piece of data, in order.
    pub(super) pieces: Vec<(u64, u64)>,
    /// Length of the file in bytes, with its holes.
    pub(super) size: u64,
}

impl SparseMap {
    /// Validates the map in an archive: pieces must be in order and inside the file, and their total length must be
    /// `stored`, the length of the data in the archive.
    pub(super) fn new(pieces: Vec<(u64, u64)>, size: u64, stored: u64) -> Result<Self, &'static str> {
        let (mut end, mut total) = (0u64, 0u64);
        for (offset, len) in &pieces {
            if *offset < end {
                return Err("sparse pieces out of order");
            }
            // Tools differ in whether they pad a piece to whole blocks. Only the last piece with data may need padding.
            if total % BLOCK != 0 && *len > 0 {
                return Err("sparse pieces that are not whole blocks");
            }
            end = offset.checked_add(*len).ok_or("a sparse piece at an impossible offset")?;
            total += len;
        }
        if end > size || total != stored {
            return Err("sparse pieces that do not add up to the file");
        }
        Ok(Self { pieces, size })
    }

    /// Returns the map of a file; `None` if the file has no holes, or if its data is not aligned to blocks.
    pub(super) fn of(extents: &[Extent]) -> Option<Self> {
        let has_holes = extents.iter().any(|extent| matches!(extent, Extent::Hole { .. }));
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        let mut end = 0;
        for extent in extents {
            if let Extent::Data { len, .. } = extent {
                match pieces.last_mut() {
                    Some((offset, piece_len)) if *offset + *piece_len == end => *piece_len += len,
                    _ => pieces.push((end, *len)),
                }
            }
            end += extent.len();
        }
        // Holes that the chunker finds in file content are aligned to blocks. Files with other holes are written with
        // zeros.
        let aligned = pieces
            .iter()
            .all(|(offset, len)| offset % BLOCK == 0 && (len % BLOCK == 0 || offset + len == end));
        if !has_holes || !aligned {
            return None;
        }
        if pieces.last().is_none_or(|(offset, len)| offset + len < end) {
            // Readers take the end of the file from the last piece.
            pieces.push((end, 0));
        }
        Some(Self { pieces, size: end })
    }

    /// Returns the length of the data in the archive, in bytes.
    pub(super) fn stored(&self) -> u64 {
        self.pieces.iter().map(|(_, len)| len).sum()
    }

    /// Encodes the map in GNU sparse format 1.0: as text before the data, in whole blocks.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = format!("{}\n", self.pieces.len());
        for (offset, len) in &self.pieces {
            out.push_str(&format!("{offset}\n{len}\n"));
        }
        let mut out = out.into_bytes();
        out.resize(out.len().next_multiple_of(BLOCK as usize), 0);
        out
    }
}

/// Part of a sparse file, with its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SparseRun {
    /// Hole, which is not in the archive.
    Hole(u64),
    /// Data in the archive.
    Data(u64),
}

impl SparseMap {
    /// Iterates over the parts of the file in order. Their total length is the length of the file.
    pub(super) fn runs(&self) -> impl Iterator<Item = SparseRun> {
        let mut data_end = 0;
        let end_of_file = [(self.size, 0)];
        self.pieces.iter().copied().chain(end_of_file).flat_map(move |(offset, len)| {
            let hole = offset - data_end;
            data_end = offset + len;
            [SparseRun::Hole(hole), SparseRun::Data(len)]
                .into_iter()
                .filter(|run| !matches!(run, SparseRun::Hole(0) | SparseRun::Data(0)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ChunkId;

    fn runs(pieces: &[(u64, u64)], size: u64, stored: u64) -> Vec<SparseRun> {
        SparseMap::new(pieces.to_vec(), size, stored).unwrap().runs().collect()
    }

    #[test]
    fn runs_make_up_the_whole_file() {
        use SparseRun::{Data, Hole};
        assert_eq!(runs(&[(0, 512)], 512, 512), [Data(512)]);
        assert_eq!(runs(&[(1024, 512)], 2000, 512), [Hole(1024), Data(512), Hole(464)]);
        assert_eq!(runs(&[(1536, 0)], 1536, 0), [Hole(1536)]);
        assert_eq!(runs(&[], 0, 0), []);
        assert_eq!(runs(&[], u64::MAX, 0), [Hole(u64::MAX)]);
        assert_eq!(runs(&[(0, 512), (1024, 10)], 1034, 522), [Data(512), Hole(512), Data(10)]);
    }

    #[test]
    fn inconsistent_maps_are_refused() {
        for (pieces, size, stored) in [
            (vec![(0, 512)], 512, 1024),
            (vec![(0, 1024)], 512, 1024),
            (vec![(512, 512), (0, 512)], 1024, 1024),
            (vec![(0, 10), (512, 10)], 1024, 20),
            (vec![(u64::MAX, 2)], u64::MAX, 2),
        ] {
            assert!(SparseMap::new(pieces.clone(), size, stored).is_err(), "{pieces:?}");
        }
    }

    #[test]
    fn a_trailing_hole_is_encoded_as_an_empty_piece() {
        let chunk = ChunkId::of(b"");
        let extents =
            [Extent::Hole { len: 8192 }, Extent::Data { len: 4096, chunk }, Extent::Hole { len: 100 }];
        let map = SparseMap::of(&extents).unwrap();
        assert_eq!(map.pieces, [(8192, 4096), (12388, 0)]);
        assert_eq!(&map.encode()[..24], b"2\n8192\n4096\n12388\n0\n\0\0\0\0");
        assert_eq!(map.encode().len(), 512);
        assert_eq!(SparseMap::of(&extents[1..2]), None);
    }
}
