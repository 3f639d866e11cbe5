//! Random numbers, and the size of random campaigns.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns true if the long variants of tests were requested.
pub fn is_full_run() -> bool {
    std::env::var_os("WORKSPACE_TEST_FULL").is_some()
}

/// Small and fast random number generator with a different seed in every run.
pub struct Random(u64);

impl Random {
    /// Creates a generator with a seed of the moment.
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos() as u64;
        Self::with_seed(now ^ u64::from(std::process::id()) << 32)
    }

    /// Creates a generator with a seed.
    pub fn with_seed(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number.
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

    /// Returns true in one of so many calls.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}
