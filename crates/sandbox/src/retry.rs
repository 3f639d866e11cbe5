//! Retries with exponential backoff, for work that must eventually succeed, such as writing to a full disk.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::error::Result;
use crate::lifecycle::cancellable::or_cancelled;
use crate::service::{Inner, Service};

/// Default delay before the first retry.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Default maximum delay between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Delays between attempts, which double up to a maximum.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Delay before the next attempt.
    next: Duration,
    /// Maximum delay.
    max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(BACKOFF_MIN, BACKOFF_MAX)
    }
}

impl Backoff {
    /// Starts with a delay of `first`, which doubles up to `max`.
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
    /// Retries `work` in the background, with backoff, until it succeeds or the service is closed.
    pub(crate) fn retry<F, W>(&self, work: F)
    where
        F: Fn(Self) -> W + Send + 'static,
        W: Future<Output = Result<()>> + Send,
    {
        let service = Arc::downgrade(&self.0);
        tokio::spawn(async move { retry_until_closed(&service, Backoff::default(), work).await });
    }
}

/// Retries `work`, with a delay before each attempt, until it succeeds or the service is closed or dropped.
/// Closing waits for an attempt in progress, and prevents new ones.
pub(crate) async fn retry_until_closed<F, W>(service: &Weak<Inner>, mut backoff: Backoff, work: F)
where
    F: Fn(Service) -> W,
    W: Future<Output = Result<()>>,
{
    let Some(cancel) = service.upgrade().map(|inner| inner.cancel.clone()) else { return };
    while or_cancelled(&cancel, backoff.wait()).await.is_ok() {
        let Some(service) = service.upgrade().map(Service) else { return };
        // Before the check, because closing the service waits for the operations that it counts.
        let _operation = service.0.operation_count.begin();
        if cancel.is_cancelled() || work(service.clone()).await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;
    use crate::error::SandboxError;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Notifies when it is dropped, which is when the retries that own it have ended.
    struct NotifyOnDrop(Arc<Notify>);

    impl Drop for NotifyOnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    #[tokio::test]
    async fn retries_end_when_the_service_is_closed() {
        let home = tempfile::tempdir().unwrap();
        let (service, ended) = (Service::start_without_runtime(home.path()).await, Arc::new(Notify::new()));
        let owned = NotifyOnDrop(Arc::clone(&ended));
        service.retry(move |_| {
            let _ = &owned;
            async { Err(SandboxError::Cancelled) }
        });
        service.close().await;
        timeout(TIMEOUT, ended.notified()).await.expect("the retries outlived the service");
        // They did not end because the service was dropped.
        drop(service);
    }

    #[tokio::test]
    async fn closing_waits_for_an_attempt_in_progress() {
        let home = tempfile::tempdir().unwrap();
        let service = Service::start_without_runtime(home.path()).await;
        let (begun, done) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (begin, finish) = (Arc::clone(&begun), Arc::clone(&done));
        service.retry(move |service| {
            let (begin, finish) = (Arc::clone(&begin), Arc::clone(&finish));
            async move {
                begin.notify_one();
                while !service.0.cancel.is_cancelled() {
                    sleep(Duration::from_millis(1)).await;
                }
                finish.store(true, Ordering::SeqCst);
                Ok(())
            }
        });
        timeout(TIMEOUT, begun.notified()).await.unwrap();
        service.close().await;
        assert!(done.load(Ordering::SeqCst));
    }
}
