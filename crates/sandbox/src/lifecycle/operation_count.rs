//! Operations under way.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Number of operations under way, also of those whose client has left.
#[derive(Debug, Default)]
pub(crate) struct OperationCount(Arc<watch::Sender<usize>>);

/// One operation, counted until this is dropped.
pub(crate) struct OperationGuard(Arc<watch::Sender<usize>>);

impl OperationCount {
    pub(crate) fn begin(&self) -> OperationGuard {
        self.0.send_modify(|count| *count += 1);
        OperationGuard(Arc::clone(&self.0))
    }

    /// Waits until no operation is under way. Returns false after the time limit.
    pub(crate) async fn wait_until_idle(&self, limit: Duration) -> bool {
        let mut count = self.0.subscribe();
        timeout(limit, count.wait_for(|count| *count == 0)).await.is_ok()
    }
}

impl Drop for OperationGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
