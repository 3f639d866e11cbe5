//! Bound of the number of threads of all connections together. Each connection has one thread; further threads, with
//! which it executes several requests at the same time, are counted here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of threads beyond the first of each connection.
#[derive(Debug)]
pub(crate) struct ExtraThreads {
    max: usize,
    count: AtomicUsize,
}

/// Permission for one thread beyond the first of a connection. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct ExtraThread(Arc<ExtraThreads>);

impl ExtraThreads {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, count: AtomicUsize::new(0) }
    }

    /// Counts another thread. `None` if the maximum is reached.
    pub(super) fn reserve(self: &Arc<Self>) -> Option<ExtraThread> {
        let next = |count| (count < self.max).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(ExtraThread(Arc::clone(self)))
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for ExtraThread {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_until_they_are_dropped() {
        let threads = Arc::new(ExtraThreads::new(2));
        let mut reserved = vec![threads.reserve().unwrap(), threads.reserve().unwrap()];
        assert!(threads.reserve().is_none());
        reserved.pop();
        assert_eq!(threads.count(), 1);
        assert!(threads.reserve().is_some());
        drop(reserved);
        assert_eq!(threads.count(), 0);
    }
}
