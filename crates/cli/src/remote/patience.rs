//! Retries with backoff.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// Time after the first failure at which retries end. A restarted server is back sooner.
const ENOUGH: Duration = Duration::from_secs(60);

/// Exponential backoff with a deadline. Cancel safe.
#[derive(Default)]
pub(super) struct Patience {
    /// Time of the first failure, time of the next attempt, and the wait before it.
    failing: Option<(Instant, Instant, Duration)>,
}

impl Patience {
    /// Resets the backoff after a success.
    pub(super) fn restore(&mut self) {
        self.failing = None;
    }

    /// Records a failure. Returns true if another attempt should be made.
    pub(super) fn lose(&mut self) -> bool {
        let now = Instant::now();
        let (since, wait) = match self.failing {
            Some((since, _, wait)) => (since, (wait * 2).min(LONGEST)),
            None => (now, FIRST),
        };
        self.failing = Some((since, now + wait, wait));
        now - since < ENOUGH
    }

    /// Waits until the next attempt.
    pub(super) async fn wait(&self) {
        if let Some((_, next, _)) = self.failing {
            sleep_until(next).await;
        }
    }
}
