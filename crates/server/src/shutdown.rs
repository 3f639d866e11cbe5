//! Graceful shutdown: notification of tasks, and the count of work in progress.

use std::sync::Arc;

use tokio::sync::watch;
use workspace_state::Cancel;

/// Shutdown flag and count of work in progress. Clones share both.
#[derive(Debug, Clone)]
pub struct Shutdown {
    begun: Arc<watch::Sender<bool>>,
    /// Number of living guards.
    running: Arc<watch::Sender<usize>>,
    /// Flag that cancels long work.
    cancel: Cancel,
}

impl Shutdown {
    /// Creates a shutdown that has not begun.
    pub fn new() -> Self {
        Self::with_cancel(Cancel::new())
    }

    /// Creates a shutdown whose cancellation flag is shared with others.
    pub(crate) fn with_cancel(cancel: Cancel) -> Self {
        Self { begun: Arc::new(watch::Sender::new(false)), running: Arc::new(watch::Sender::new(0)), cancel }
    }

    /// Returns the flag that cancels long work in threads shortly before `SHUTDOWN_TIMEOUT` ends. Work of one request uses a
    /// child of it.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Begins the shutdown.
    pub fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// Returns true once the shutdown has begun.
    pub fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Waits until the shutdown begins. Streams wait for this, so that they can send a final message.
    pub async fn wait_until_begun(&self) {
        // `wait_for` fails only if the sender was dropped, and `self` owns the sender.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Counts a request or a connection as in progress until the guard is dropped. Works after the shutdown has begun,
    /// too.
    pub fn enter(&self) -> RunningGuard {
        self.running.send_modify(|count| *count += 1);
        RunningGuard(Arc::clone(&self.running))
    }

    /// Returns the number of living guards.
    pub fn in_progress(&self) -> usize {
        *self.running.borrow()
    }

    /// Waits until all guards are dropped.
    pub async fn wait_until_idle(&self) {
        let _ = self.running.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

/// Guard of work in progress: a request until its response has been sent, a terminal until it is closed.
#[derive(Debug)]
pub struct RunningGuard(Arc<watch::Sender<usize>>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
