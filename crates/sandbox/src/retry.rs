//! Attempts at what has to be done in the end, such as writing to a disk that is full for now.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::error::Result;
use crate::service::Service;

/// Pause before the second attempt, and the longest one.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Pauses between attempts, each twice as long as the one before, up to 10 s.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(RETRY_BACKOFF.0)
    }

    /// Waits until it is time for the next attempt.
    pub(crate) async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(RETRY_BACKOFF.1);
    }
}

impl Service {
    /// Tries `work` again in the background, after a pause each time, until it succeeds or the service is closed.
    pub(crate) fn retry<F, W>(&self, work: F)
    where
        F: Fn(Self) -> W + Send + 'static,
        W: Future<Output = Result<()>> + Send,
    {
        let service = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let mut backoff = Backoff::new();
            loop {
                backoff.wait().await;
                let Some(service) = service.upgrade().map(Self) else { return };
                if work(service).await.is_ok() {
                    return;
                }
            }
        });
    }
}
