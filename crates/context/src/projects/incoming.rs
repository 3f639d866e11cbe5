//! Completions that requests of this server are about to queue. The merge daemon waits a moment for them: a batch has a
//! cost of its own, such as syncs to disk, whatever the number of its completions.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum time that a batch waits for further completions.
const COLLECT_TIMEOUT: Duration = Duration::from_millis(25);

/// Number of completions that are about to be queued, of all projects.
#[derive(Debug, Default)]
pub(super) struct Incoming(watch::Sender<usize>);

impl Incoming {
    /// Adds a completion.
    pub(super) fn begin(&self) -> IncomingCompletion {
        self.0.send_modify(|count| *count += 1);
        IncomingCompletion(self.0.clone())
    }

    /// Waits until all completions that are about to be queued are queued, for at most [`COLLECT_TIMEOUT`]. Returns at
    /// once if there are none.
    pub(super) async fn wait_until_queued(&self) {
        let mut count = self.0.subscribe();
        // After the timeout, the others are for the next batch. The sender lives as long as `self`.
        let _ = timeout(COLLECT_TIMEOUT, count.wait_for(|count| *count == 0)).await;
    }
}

/// Completion that is about to be queued, until this is dropped.
#[derive(Debug)]
pub struct IncomingCompletion(watch::Sender<usize>);

impl Drop for IncomingCompletion {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_batch_waits_for_incoming_completions_but_not_for_long() {
        let (incoming, began) = (Incoming::default(), Instant::now());
        incoming.wait_until_queued().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "nothing comes");
        let (first, second) = (incoming.begin(), incoming.begin());
        let queue = async {
            drop(first);
            tokio::time::sleep(Duration::from_millis(5)).await;
            drop(second);
        };
        tokio::join!(incoming.wait_until_queued(), queue);
        assert_eq!(began.elapsed(), Duration::from_millis(5));
        let _slow = incoming.begin();
        incoming.wait_until_queued().await;
        assert_eq!(began.elapsed(), Duration::from_millis(5) + COLLECT_TIMEOUT);
    }
}
