//! Retries with exponential backoff.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Time after the first failure at which retries end. A restarted server is back sooner.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Exponential backoff with a deadline.
#[derive(Default)]
pub(super) struct Backoff {
    /// Time of the first failure since the last success, and the next pause.
    failing: Option<(Instant, Duration)>,
}

impl Backoff {
    /// Resets the backoff after a success.
    pub(super) fn reset(&mut self) {
        self.failing = None;
    }

    /// Waits after a failure until the next attempt. Returns false immediately after [`RETRY_TIMEOUT`].
    pub(super) async fn wait_for_retry(&mut self) -> bool {
        let (since, pause) = self.failing.unwrap_or_else(|| (Instant::now(), INITIAL_BACKOFF));
        if since.elapsed() >= RETRY_TIMEOUT {
            return false;
        }
        self.failing = Some((since, (pause * 2).min(MAX_BACKOFF)));
        sleep(pause).await;
        true
    }
}
