//! Access to the store, which blocks, from asynchronous code; and lookup of snapshots that the catalog names.

use tokio::task::spawn_blocking;
use workspace_state::{Snapshot, SnapshotId, Store};

use super::error::{ProjectError, Result};

/// Parses the id of a snapshot in a row of the catalog. Fails with [`ProjectError::Record`] (a damaged record) if it is
/// not valid.
pub(super) fn parse_snapshot(text: &str) -> Result<SnapshotId> {
    text.parse().map_err(|_| ProjectError::Record(format!("`{text}` is no id of a snapshot")))
}

/// Finds a snapshot that the catalog names. Fails with [`ProjectError::SnapshotMissing`] if the store does not have it.
pub(super) fn find_snapshot(store: &Store, id: SnapshotId) -> Result<Snapshot> {
    store.find_snapshot(&id)?.ok_or(ProjectError::SnapshotMissing { id })
}

/// Runs blocking work on a separate thread. Fails with [`ProjectError::Task`] if the work panics.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    spawn_blocking(work).await.map_err(|error| ProjectError::Task(error.to_string()))?
}
