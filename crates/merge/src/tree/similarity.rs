//! Similarity of two files, computed as in git: both files are split into pieces that end at a line ending or
//! after 64 bytes, and the bytes of common pieces are counted. The similarity is the share of these bytes in the
//! larger file, as a score from 0 to [`MAX_SCORE`].

use std::collections::HashMap;

use workspace_state::{Extent, FileNode};

/// Maximum score. Files with equal content have it, unless they are text with CR LF, whose CRs are never counted as
/// common.
pub(super) const MAX_SCORE: u64 = 60_000;

/// Maximum length of a piece in bytes.
const PIECE_MAX: usize = 64;

/// Hashed pieces of a file.
#[derive(Debug)]
pub(super) struct Pieces {
    /// Size of the file in bytes.
    size: u64,
    /// Pairs of a hash and the number of bytes in pieces with this hash, sorted by hash.
    bytes_by_hash: Vec<(u64, u64)>,
}

impl Pieces {
    /// Splits the content of a file into pieces. In text, a CR before LF is ignored.
    pub(super) fn new(content: &[u8]) -> Self {
        let is_text = crate::file_type::is_text(content);
        let (mut hash, mut length) = (FNV_OFFSET_BASIS, 0);
        let mut all = Vec::with_capacity(content.len() / 32);
        for (offset, byte) in content.iter().enumerate() {
            if is_text && *byte == b'\r' && content.get(offset + 1) == Some(&b'\n') {
                continue;
            }
            hash = (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
            length += 1;
            if length == PIECE_MAX || *byte == b'\n' {
                all.push((hash, length as u64));
                (hash, length) = (FNV_OFFSET_BASIS, 0);
            }
        }
        if length > 0 {
            all.push((hash, length as u64));
        }
        all.sort_unstable();
        all.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            sum.1 += if same { next.1 } else { 0 };
            same
        });
        Self { size: content.len() as u64, bytes_by_hash: all }
    }

    /// Returns the similarity of two files, from 0 to [`MAX_SCORE`].
    pub(super) fn score(&self, other: &Self) -> u64 {
        let (mut left, mut right) =
            (self.bytes_by_hash.iter().peekable(), other.bytes_by_hash.iter().peekable());
        let mut common = 0;
        while let (Some((a, length)), Some((b, other_length))) = (left.peek(), right.peek()) {
            match a.cmp(b) {
                std::cmp::Ordering::Less => drop(left.next()),
                std::cmp::Ordering::Greater => drop(right.next()),
                std::cmp::Ordering::Equal => {
                    common += length.min(other_length);
                    left.next();
                    right.next();
                }
            }
        }
        score(common, self.size.max(other.size))
    }
}

/// Initial value of a 64-bit FNV-1a hash.
const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// Factor of a 64-bit FNV-1a hash.
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Returns the share `common` / `size` as a score.
fn score(common: u64, size: u64) -> u64 {
    u64::try_from(u128::from(common) * u128::from(MAX_SCORE) / u128::from(size.max(1))).unwrap_or(MAX_SCORE)
}

/// Returns the similarity of two files by their chunks: the pieces of content that the store names by their hashes.
/// Reads no content, so a change in a chunk counts as a change of all its bytes.
pub(super) fn score_of_chunks(one: &FileNode, other: &FileNode) -> u64 {
    let chunks = |file: &FileNode| {
        let mut chunks = HashMap::new();
        for extent in &file.extents {
            if let Extent::Data { chunk, len } = extent {
                *chunks.entry(*chunk).or_insert(0_u64) += *len;
            }
        }
        chunks
    };
    let (left, right) = (chunks(one), chunks(other));
    let common = left.iter().filter_map(|(chunk, bytes)| Some(*bytes.min(right.get(chunk)?))).sum();
    score(common, one.size().max(other.size()))
}

/// Returns true if the similarity of files of these sizes can reach the score `threshold`.
pub(super) fn can_reach_score(a: u64, b: u64, threshold: u64) -> bool {
    score(a.min(b), a.max(b)) >= threshold
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_counts_common_pieces() {
        let score = |a: &str, b: &str| Pieces::new(a.as_bytes()).score(&Pieces::new(b.as_bytes()));
        assert_eq!(score("one\ntwo\n", "two\none\n"), MAX_SCORE);
        assert_eq!(score("one\ntwo\n", "one\r\ntwo\n"), MAX_SCORE * 8 / 9);
        assert_eq!(score("aaa\nbbb\n", "aaa\nccc\n"), MAX_SCORE / 2);
        assert_eq!(score("aaa\naaa\n", "aaa\n"), MAX_SCORE / 2);
        assert_eq!(score("aaa\n", "bbb\n"), 0);
        assert!(can_reach_score(50, 100, MAX_SCORE / 2) && !can_reach_score(49, 100, MAX_SCORE / 2));
    }
}
