//! Random numbers, and the choice between the short and the long variant of a test.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns true if `make test-full` requested the long variants of tests, with more rounds, cases or kills.
pub fn is_full_run() -> bool {
    std::env::var_os("WORKSPACE_TEST_FULL").is_some()
}

/// Small and fast random number generator with a different seed in every run.
pub struct Random(u64);

impl Random {
    /// Creates a generator with a seed from the clock and the PID.
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos() as u64;
        Self::with_seed(now ^ u64::from(std::process::id()) << 32)
    }

    /// Creates a generator with a seed. Neighbouring seeds give different sequences.
    pub fn with_seed(seed: u64) -> Self {
        // The product with an odd number differs for each seed. Without it, the first numbers of small seeds would be
        // small and similar.
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // From zero, all numbers would be zero.
        Self(if mixed == 0 { u64::MAX } else { mixed })
    }

    /// Returns the next random number.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns true with a probability of 1 in `of`.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_seeds_give_different_sequences() {
        let seeds = (0..1000).chain([u64::MAX]);
        let mut first: Vec<u64> = seeds.map(|seed| Random::with_seed(seed).next()).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 1001);
        assert!(!first.contains(&0));
    }
}
