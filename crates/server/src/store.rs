//! Work on the store of snapshots, and its errors as errors of the API.

use std::error::Error;

use tokio::task::spawn_blocking;
use workspace_api::error_codes;
use workspace_state::{Cancel, Store, StoreError, WalkLimits};

use crate::error::ApiError;
use crate::error_mapping::{is_full, no_room};

/// The most that one walk through a workspace or a comparison holds, as much as an archive may have. A sandbox can make
/// files whose paths have a quarter of a megabyte each, at the price of an inode.
pub(crate) const WALK_LIMITS: WalkLimits = WalkLimits { entries: 2_000_000, metadata: 512 << 20 };

/// Does work on the store that takes long for a large tree. It is cancelled when the future is dropped, which happens
/// when the client leaves, and when the server does not wait for it any more.
pub(crate) async fn with_store<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&Store) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let cancel = store.cancel().child();
    let store = store.with_cancel(cancel.clone());
    blocking_until(&cancel, move || work(&store)).await
}

/// Does work on trees whose store's handle has the flag `cancel`, which is set when the future is dropped.
pub(crate) async fn blocking_until<T: Send + 'static>(
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let stop = cancel.on_drop();
    let done = blocking(work).await;
    stop.disarm();
    done
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
            StoreError::UnknownSnapshot(id) => no_snapshot(&id.to_string()),
            StoreError::Cancelled(_) => cancelled(),
            StoreError::Refused(message) => Self::new(error_codes::INVALID_REQUEST, message),
            StoreError::WalkTooLarge(exceeded) => {
                Self::new(error_codes::TREE_TOO_LARGE, error.to_string()).detail("limit", exceeded.limit)
            }
            error if error.is_corruption() => {
                let message = "what is stored of the snapshot is damaged; `workspace verify` says more";
                Self::new(error_codes::SNAPSHOT_DAMAGED, message).because(error)
            }
            error if error.is_full() => no_room().because(error),
            other => Self::internal(other),
        }
    }
}

/// Creates the error of cancelled work. If the client is still connected, the server is stopping.
pub(crate) fn cancelled() -> ApiError {
    ApiError::new(error_codes::SHUTTING_DOWN, "the server is stopping")
}

/// Creates the error for a snapshot that does not exist or that the caller may not see.
pub(crate) fn no_snapshot(id: &str) -> ApiError {
    ApiError::new(error_codes::SNAPSHOT_NOT_FOUND, format!("there is no snapshot `{id}`"))
        .detail("snapshotId", id)
}

/// Returns true if a full disk caused the error.
pub(crate) fn has_no_room(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(is_full))
}

#[cfg(test)]
mod tests {
    use workspace_state::{LimitExceeded, LimitKind};

    use super::*;

    #[test]
    fn a_comparison_of_too_much_names_the_limit_and_the_way_out() {
        let exceeded = LimitExceeded { kind: LimitKind::Entries, limit: 7 };
        let told = ApiError::from(StoreError::WalkTooLarge(exceeded));
        assert_eq!(told.code(), error_codes::TREE_TOO_LARGE);
        let message = told.message();
        assert!(message.contains("more than 7 entries") && message.contains("remove files"), "{message}");
    }
}
