//! Blocking work on the store, and conversion of its errors into errors of the API.

use std::error::Error;

use tokio::task::spawn_blocking;
use workspace_api::error_codes;
use workspace_state::{Cancel, Store, StoreError, WalkLimits};

use crate::error::ApiError;
use crate::error_mapping::{disk_full, is_full};

/// Limits on the memory of one walk through a workspace or one comparison; the same as those of an archive. Without them, a
/// sandbox could create files whose paths need 256 KiB each, at the cost of an inode.
pub(crate) const WALK_LIMITS: WalkLimits = WalkLimits { entries: 2_000_000, metadata: 512 << 20 };

/// Runs long work on the store in a thread. The work is cancelled when the future is dropped, which happens when the client
/// disconnects, and when a shutdown cancels it.
pub(crate) async fn with_store<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&Store) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let cancel = store.cancel_flag().child();
    let store = store.with_cancel(cancel.clone());
    blocking_until(&cancel, move || work(&store)).await
}

/// Runs blocking work in a thread. Sets `cancel`, which must be the flag of the store handle in use, when the future is
/// dropped.
pub(crate) async fn blocking_until<T: Send + 'static>(
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let stop = cancel.drop_guard();
    let result = blocking(work).await;
    stop.disarm();
    result
}

/// Runs short blocking work in a thread and waits for it. The work continues if the caller is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    spawn_blocking(work).await.map_err(ApiError::internal)?
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UnknownSnapshot(id) => snapshot_not_found(&id.to_string()),
            StoreError::Cancelled(_) => cancelled(),
            StoreError::Refused(message) => Self::new(error_codes::INVALID_REQUEST, message),
            StoreError::WalkTooLarge(exceeded) => {
                Self::new(error_codes::TREE_TOO_LARGE, error.to_string()).detail("limit", exceeded.limit)
            }
            error if error.is_corruption() => {
                let message = "the stored snapshot is damaged; run `workspace verify`";
                Self::new(error_codes::SNAPSHOT_DAMAGED, message).because(error)
            }
            error if error.is_full() => disk_full().because(error),
            other => Self::internal(other),
        }
    }
}

/// Creates the error for cancelled work. A client that is still connected gets it only during a shutdown.
pub(crate) fn cancelled() -> ApiError {
    ApiError::new(error_codes::SHUTTING_DOWN, "the server is stopping")
}

/// Creates the error for a snapshot that does not exist or that the caller may not see.
pub(crate) fn snapshot_not_found(id: &str) -> ApiError {
    ApiError::new(error_codes::SNAPSHOT_NOT_FOUND, format!("there is no snapshot `{id}`"))
        .detail("snapshotId", id)
}

/// Returns true if a full disk caused the error.
pub(crate) fn is_disk_full_error(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(is_full))
}

#[cfg(test)]
mod tests {
    use workspace_state::{LimitExceeded, LimitKind};

    use super::*;

    #[test]
    fn an_error_of_a_large_comparison_names_the_limit_and_a_remedy() {
        let exceeded = LimitExceeded { kind: LimitKind::Entries, limit: 7 };
        let error = ApiError::from(StoreError::WalkTooLarge(exceeded));
        assert_eq!(error.code(), error_codes::TREE_TOO_LARGE);
        let message = error.message();
        assert!(message.contains("more than 7 entries") && message.contains("remove files"), "{message}");
    }
}
