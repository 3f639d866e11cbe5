//! Content of a file as a list of extents with their end offsets, so that any offset is found by binary
//! search.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use workspace_state::{ChunkId, Extent};

/// Largest distance in bytes between two reads that count as sequential: the kernel's own read-ahead
/// reorders.
const SEQUENTIAL_GAP: u64 = 1 << 20;

/// Extents of a file. Nearly every file is one chunk, so that case needs no allocation.
pub(crate) enum Content {
    Empty,
    One(ContentExtent),
    Many(Box<ManyExtents>),
}

/// Extent of a file: a chunk or a hole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContentExtent {
    /// End offset in the file.
    end: u64,
    /// Chunk with its bytes; `None` for a hole.
    pub(crate) chunk: Option<ChunkId>,
}

/// Content of more than one extent.
pub(crate) struct ManyExtents {
    extents: Box<[ContentExtent]>,
    /// Number of bytes that are not in holes.
    data: u64,
    /// End offset of the last read.
    read_to: AtomicU64,
}

/// Range of an extent in the file, and its chunk; `None` for a hole.
#[derive(Debug, Clone)]
pub(crate) struct ExtentRange {
    pub(crate) range: Range<u64>,
    pub(crate) chunk: Option<ChunkId>,
}

impl Content {
    pub(crate) fn new(extents: &[Extent]) -> Self {
        let mut end = 0;
        let mut content_extents = extents.iter().map(|extent| {
            end += extent.len();
            match extent {
                Extent::Data { chunk, .. } => ContentExtent { end, chunk: Some(*chunk) },
                Extent::Hole { .. } => ContentExtent { end, chunk: None },
            }
        });
        match extents.len() {
            0 => Self::Empty,
            1 => content_extents.next().map_or(Self::Empty, Self::One),
            _ => Self::Many(Box::new(ManyExtents {
                extents: content_extents.collect(),
                data: extents
                    .iter()
                    .filter(|extent| matches!(extent, Extent::Data { .. }))
                    .map(Extent::len)
                    .sum(),
                read_to: AtomicU64::new(0),
            })),
        }
    }

    fn extents(&self) -> &[ContentExtent] {
        match self {
            Self::Empty => &[],
            Self::One(extent) => std::slice::from_ref(extent),
            Self::Many(many) => &many.extents,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.extents().last().map_or(0, |extent| extent.end)
    }

    /// Returns the number of bytes that are not in holes.
    pub(crate) fn data_size(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(extent) => extent.chunk.map_or(0, |_| extent.end),
            Self::Many(many) => many.data,
        }
    }

    /// Iterates over the extents from the one that holds `offset` to the end.
    pub(crate) fn extents_from(&self, offset: u64) -> impl Iterator<Item = ExtentRange> {
        let extents = self.extents();
        let first = extents.partition_point(|extent| extent.end <= offset);
        (first..extents.len()).map(move |index| ExtentRange {
            range: index.checked_sub(1).map_or(0, |before| extents[before].end)..extents[index].end,
            chunk: extents[index].chunk,
        })
    }

    /// Returns the offset of the next data, from `offset` on.
    pub(crate) fn seek_data(&self, offset: u64) -> Option<u64> {
        let found = self.extents_from(offset).find(|extent| extent.chunk.is_some())?;
        Some(found.range.start.max(offset))
    }

    /// Returns the offset of the next hole, from `offset` on; the end of the file counts as one.
    pub(crate) fn seek_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size() {
            return None;
        }
        let found = self.extents_from(offset).find(|extent| extent.chunk.is_none());
        Some(found.map_or(self.size(), |hole| hole.range.start.max(offset)))
    }

    /// Records a read. Returns true if it is sequential, so that more is likely to follow.
    pub(crate) fn record_read(&self, offset: u64, end: u64) -> bool {
        match self {
            Self::Many(many) => {
                let last = many.read_to.swap(end, Ordering::Relaxed);
                offset == 0 || offset.abs_diff(last) <= SEQUENTIAL_GAP
            }
            Self::Empty | Self::One(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(lens: &[(u64, bool)]) -> Content {
        let chunk = ChunkId::of(b"");
        let extents: Vec<Extent> = lens
            .iter()
            .map(|(len, data)| match data {
                true => Extent::Data { len: *len, chunk },
                false => Extent::Hole { len: *len },
            })
            .collect();
        Content::new(&extents)
    }

    #[test]
    fn holes_and_data_are_found_from_anywhere() {
        let sparse = content(&[(10, true), (10, true), (100, false), (5, true)]);
        assert_eq!((sparse.size(), sparse.data_size()), (125, 25));
        assert_eq!([0, 9, 19].map(|offset| sparse.seek_hole(offset)), [Some(20); 3]);
        assert_eq!([20, 77].map(|offset| sparse.seek_hole(offset)), [Some(20), Some(77)]);
        assert_eq!(
            [0, 20, 77, 122].map(|offset| sparse.seek_data(offset)),
            [Some(0), Some(120), Some(120), Some(122)]
        );
        assert_eq!(
            [125, 999].map(|offset| (sparse.seek_data(offset), sparse.seek_hole(offset))),
            [(None, None); 2]
        );
        let hole = content(&[(8, false)]);
        assert_eq!((hole.seek_data(0), hole.seek_hole(3)), (None, Some(3)));
        let empty = content(&[]);
        assert_eq!((empty.size(), empty.seek_data(0), empty.seek_hole(0)), (0, None, None));
    }

    #[test]
    fn extents_are_found_by_offset() {
        let many = content(&[(10, true), (10, true), (10, true)]);
        let from = |offset| many.extents_from(offset).map(|extent| extent.range).collect::<Vec<_>>();
        assert_eq!(from(0), [0..10, 10..20, 20..30]);
        assert_eq!(from(10), [10..20, 20..30]);
        assert_eq!(from(29), vec![20..30; 1]);
        assert!(from(30).is_empty());
    }
}
