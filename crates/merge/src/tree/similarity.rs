//! How much of one file is in another, measured as git does: pieces that end at a line's end or after 64 bytes, and
//! how many bytes of pieces both have.

/// What files that have everything in common score.
pub(super) const SAME: u64 = 60_000;

const PIECE_MAX: usize = 64;

/// The pieces of a file: bytes by hash, sorted.
#[derive(Debug)]
pub(super) struct Pieces {
    size: u64,
    bytes: Vec<(u64, u64)>,
}

impl Pieces {
    pub(super) fn new(content: &[u8]) -> Self {
        let is_text = crate::kinds::is_text(content);
        let (mut hash, mut length) = (START, 0);
        let mut all = Vec::with_capacity(content.len() / 32);
        for (at, byte) in content.iter().enumerate() {
            if is_text && *byte == b'\r' && content.get(at + 1) == Some(&b'\n') {
                continue;
            }
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            length += 1;
            if length == PIECE_MAX || *byte == b'\n' {
                all.push((hash, length as u64));
                (hash, length) = (START, 0);
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
        Self { size: content.len() as u64, bytes: all }
    }

    /// How alike two files are, up to [`SAME`].
    pub(super) fn score(&self, other: &Self) -> u64 {
        let (mut left, mut right) = (self.bytes.iter().peekable(), other.bytes.iter().peekable());
        let mut common = 0;
        while let (Some((a, length)), Some((b, there))) = (left.peek(), right.peek()) {
            match a.cmp(b) {
                std::cmp::Ordering::Less => drop(left.next()),
                std::cmp::Ordering::Greater => drop(right.next()),
                std::cmp::Ordering::Equal => {
                    common += length.min(there);
                    left.next();
                    right.next();
                }
            }
        }
        score(common, self.size.max(other.size))
    }
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

fn score(common: u64, size: u64) -> u64 {
    u64::try_from(u128::from(common) * u128::from(SAME) / u128::from(size.max(1))).unwrap_or(SAME)
}

/// Whether files of these sizes can score so much.
pub(super) fn may_score(a: u64, b: u64, least: u64) -> bool {
    score(a.min(b), a.max(b)) >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_have_counts() {
        let score = |a: &str, b: &str| Pieces::new(a.as_bytes()).score(&Pieces::new(b.as_bytes()));
        assert_eq!(score("one\ntwo\n", "two\none\n"), SAME);
        assert_eq!(score("one\ntwo\n", "one\r\ntwo\n"), SAME * 8 / 9);
        assert_eq!(score("aaa\nbbb\n", "aaa\nccc\n"), SAME / 2);
        assert_eq!(score("aaa\naaa\n", "aaa\n"), SAME / 2);
        assert_eq!(score("aaa\n", "bbb\n"), 0);
        assert!(may_score(50, 100, SAME / 2) && !may_score(49, 100, SAME / 2));
    }
}
