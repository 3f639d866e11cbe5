//! The newest output of several commands, in bounded memory.

use std::collections::BTreeMap;

/// Memory for the output, in bytes, as on the server; the oldest output is dropped first.
const MEMORY_MAX: usize = 8 << 20;
/// Memory of a piece in addition to its bytes.
const PIECE_OVERHEAD: usize = 64;

/// Pieces of output in the order of time.
pub(super) struct NewestOutput {
    memory_max: usize,
    /// Pieces by time in milliseconds since 1970, and those of the same time in the order in which they were added.
    pieces: BTreeMap<(i64, u64), Vec<u8>>,
    /// Number of pieces that were ever added.
    added: u64,
    /// Memory of the pieces, in bytes.
    size: usize,
}

impl NewestOutput {
    pub(super) fn new() -> Self {
        Self::with_memory(MEMORY_MAX)
    }

    fn with_memory(memory_max: usize) -> Self {
        Self { memory_max, pieces: BTreeMap::new(), added: 0, size: 0 }
    }

    /// Adds a piece, and drops the oldest pieces if the others still fill the memory.
    pub(super) fn add(&mut self, time: i64, data: Vec<u8>) {
        self.size += data.len() + PIECE_OVERHEAD;
        self.added += 1;
        self.pieces.insert((time, self.added), data);
        while let Some(oldest) = self.pieces.first_entry()
            && self.size - (oldest.get().len() + PIECE_OVERHEAD) >= self.memory_max
        {
            self.size -= oldest.remove().len() + PIECE_OVERHEAD;
        }
    }

    /// Returns the pieces, oldest first.
    pub(super) fn into_pieces(self) -> impl Iterator<Item = Vec<u8>> {
        self.pieces.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_newest_pieces_of_all_commands_stay() {
        let mut newest = NewestOutput::with_memory(4 * (PIECE_OVERHEAD + 2));
        // The newest command first, as they are read.
        for time in (100..103).chain(0..100) {
            newest.add(time, format!("{}\n", time % 10).into_bytes());
            assert!(newest.pieces.len() <= 5, "{time}");
        }
        let pieces: Vec<Vec<u8>> = newest.into_pieces().collect();
        assert_eq!(pieces.concat(), b"9\n0\n1\n2\n");
    }
}
