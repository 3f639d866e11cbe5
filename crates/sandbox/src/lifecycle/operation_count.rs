//! Operations under way.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Number of operations under way, also of those whose client has left.
#[derive(Debug, Default)]
pub(crate) struct OperationCount(Arc<watch::Sender<usize>>);

/// One operation, counted until this is dropped.
pub(crate) struct CountedOperation(Arc<watch::Sender<usize>>);

impl OperationCount {
    pub(crate) fn begin(&self) -> CountedOperation {
        self.0.send_modify(|count| *count += 1);
        CountedOperation(Arc::clone(&self.0))
    }

    /// Waits until there is none, for `limit` at most. Returns false if there is one still.
    pub(crate) async fn idle(&self, limit: Duration) -> bool {
        let mut count = self.0.subscribe();
        timeout(limit, count.wait_for(|count| *count == 0)).await.is_ok()
    }
}

impl Drop for CountedOperation {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
