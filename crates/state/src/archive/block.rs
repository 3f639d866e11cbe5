//! Blocks, the units of a tar archive: headers and contents begin at a multiple of the block size.

/// Size of a block of a tar archive, in bytes.
pub(super) const BLOCK: u64 = 512;

/// Rounds `len` up to whole blocks. Returns `None` on overflow.
pub(super) fn padded(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(BLOCK)
}
