//! Retries with exponential backoff, for work that must succeed in the end, such as writing to a full disk.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::error::Result;
use crate::service::Service;

/// Pause before the second attempt.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// Longest pause between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Pauses between attempts, each twice as long as the one before, up to 10 s.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(INITIAL_BACKOFF)
    }

    /// Waits until it is time for the next attempt.
    pub(crate) async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(MAX_BACKOFF);
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
