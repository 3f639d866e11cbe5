//! Stopping: everybody is told, and what is under way may end.

use std::sync::Arc;

use tokio::sync::watch;
use workspace_state::Cancel;

/// Tells that the server is stopping, and counts what is under way. Clones are the same.
#[derive(Debug, Clone)]
pub struct Shutdown {
    begun: Arc<watch::Sender<bool>>,
    running: Arc<watch::Sender<usize>>,
    work: Cancel,
}

impl Shutdown {
    /// Creates a shutdown that has not begun.
    pub fn new() -> Self {
        Self::with_work(Cancel::new())
    }

    /// Creates a shutdown whose cancellation flag is shared with others.
    pub(crate) fn with_work(work: Cancel) -> Self {
        Self { begun: Arc::new(watch::Sender::new(false)), running: Arc::new(watch::Sender::new(0)), work }
    }

    /// Returns the flag that stops long work in threads, whose requests would not end in time. What works for
    /// one request has a child of it.
    pub fn work(&self) -> &Cancel {
        &self.work
    }

    /// Begins to stop.
    pub fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// Returns true once the shutdown has begun.
    pub fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Waits until it begins. Streams watch this, to say goodbye.
    pub async fn begun(&self) {
        // It fails only when the sender is gone, and that is `self`.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Counts something as under way for as long as the guard lives.
    pub fn enter(&self) -> Running {
        self.running.send_modify(|count| *count += 1);
        Running(Arc::clone(&self.running))
    }

    /// Returns the number of requests in progress.
    pub fn under_way(&self) -> usize {
        *self.running.borrow()
    }

    /// Waits until nothing is under way.
    pub async fn idle(&self) {
        let _ = self.running.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

/// Something that is under way: a request until its answer was sent, a terminal until it is closed.
#[derive(Debug)]
pub struct Running(Arc<watch::Sender<usize>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
