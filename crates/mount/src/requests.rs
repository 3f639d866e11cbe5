//! Counter of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the requests that reached the serving process. Cheap to clone; clones share the counter.
#[derive(Debug, Clone, Default)]
pub struct RequestCounter(Arc<AtomicU64>);

impl RequestCounter {
    /// Returns the number of requests so far, without FORGET requests and rejected writes.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
