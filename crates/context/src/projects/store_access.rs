//! Access to the store from asynchronous code.

use tokio::task::spawn_blocking;
use workspace_state::{Snapshot, SnapshotId, Store};

use super::error::{ProjectError, Result};

pub(super) fn parse_snapshot(text: &str) -> Result<SnapshotId> {
    text.parse().map_err(|_| ProjectError::Record(format!("`{text}` is no id of a snapshot")))
}

pub(super) fn find_snapshot(store: &Store, id: SnapshotId) -> Result<Snapshot> {
    store.find_snapshot(&id)?.ok_or(ProjectError::SnapshotMissing { id })
}

/// Runs blocking work of the store in a thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    spawn_blocking(work).await.map_err(|error| ProjectError::Task(error.to_string()))?
}
