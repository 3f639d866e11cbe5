//! Number of descriptors that a server keeps open between operations.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of descriptors that a server keeps open between operations, over all exports.
#[derive(Debug)]
pub(crate) struct OpenFileCount {
    count: AtomicUsize,
    max: usize,
}

impl OpenFileCount {
    pub(crate) fn new(max: usize) -> Self {
        Self { count: AtomicUsize::new(0), max }
    }

    /// Counts one more. Returns false, and counts nothing, at the maximum.
    pub(crate) fn try_add(&self) -> bool {
        let add = |count| (count < self.max).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Counts some less.
    pub(crate) fn remove(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
    }
}
