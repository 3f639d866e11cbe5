//! Retries with backoff.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Time after the first failure at which retries end. A restarted server is back sooner.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Exponential backoff with a deadline. Cancel safe.
#[derive(Default)]
pub(super) struct Backoff {
    /// Time of the first failure, time of the next attempt, and the wait before it.
    failing: Option<(Instant, Instant, Duration)>,
}

impl Backoff {
    /// Resets the backoff after a success.
    pub(super) fn reset(&mut self) {
        self.failing = None;
    }

    /// Records a failure. Returns true if another attempt should be made.
    pub(super) fn should_retry(&mut self) -> bool {
        let now = Instant::now();
        let (since, wait) = match self.failing {
            Some((since, _, wait)) => (since, (wait * 2).min(MAX_BACKOFF)),
            None => (now, INITIAL_BACKOFF),
        };
        self.failing = Some((since, now + wait, wait));
        now - since < RETRY_TIMEOUT
    }

    /// Waits until the next attempt.
    pub(super) async fn wait(&self) {
        if let Some((_, next, _)) = self.failing {
            sleep_until(next).await;
        }
    }
}
