//! Counter of operations in progress, by which closing the service waits for them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Number of operations in progress, including those whose client has disconnected.
#[derive(Debug, Default)]
pub(crate) struct OperationCount(Arc<watch::Sender<usize>>);

/// Operation that is counted until this is dropped.
pub(crate) struct CountedOperation(Arc<watch::Sender<usize>>);

impl OperationCount {
    /// Counts one more operation until the result is dropped.
    pub(crate) fn begin(&self) -> CountedOperation {
        self.0.send_modify(|count| *count += 1);
        CountedOperation(Arc::clone(&self.0))
    }

    /// Waits until no operation is in progress. Returns false on timeout.
    pub(crate) async fn wait_until_idle(&self, max_wait: Duration) -> bool {
        let mut count = self.0.subscribe();
        timeout(max_wait, count.wait_for(|count| *count == 0)).await.is_ok()
    }
}

impl Drop for CountedOperation {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
