//! Blocks, the units of an archive.

/// Size of a block in bytes.
pub(super) const BLOCK: u64 = 512;

/// Rounds `len` up to whole blocks. Returns `None` on overflow.
pub(super) fn padded(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(BLOCK)
}
