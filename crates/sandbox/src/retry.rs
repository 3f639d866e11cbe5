//! Retries with exponential backoff, for work that must succeed in the end, such as writing to a full disk.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::error::Result;
use crate::service::Service;

/// Default pause before the second attempt.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Default for the longest pause between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Pauses between attempts, each twice as long as the one before, up to a limit.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(BACKOFF_MIN, BACKOFF_MAX)
    }
}

impl Backoff {
    /// Begins with a pause of `first`. No pause is longer than `max`.
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self { next: first, max }
    }

    /// Waits until it is time for the next attempt.
    pub(crate) async fn wait(&mut self) {
        sleep(self.next).await;
        self.next = (self.next * 2).min(self.max);
    }
}

impl Service {
    /// Tries `work` again in the background, after a pause each time, until it succeeds or the service is dropped.
    pub(crate) fn retry<F, W>(&self, work: F)
    where
        F: Fn(Self) -> W + Send + 'static,
        W: Future<Output = Result<()>> + Send,
    {
        let service = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let mut backoff = Backoff::default();
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
