//! How long and how often to try again.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// A server that is started again is back sooner.
const ENOUGH: Duration = Duration::from_secs(60);

/// Waits between attempts, longer and longer, until it is enough. Who stops waiting for another reason goes on where he was.
#[derive(Default)]
pub(super) struct Patience {
    /// When it began to fail, when to try next, and how long that wait is.
    failing: Option<(Instant, Instant, Duration)>,
}

impl Patience {
    /// It worked.
    pub(super) fn restore(&mut self) {
        self.failing = None;
    }

    /// It failed. Whether to try again.
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
