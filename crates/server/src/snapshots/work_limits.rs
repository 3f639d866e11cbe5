//! Concurrency limits for expensive operations: in total and per owner, so that no owner can use up all permits.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use workspace_api::error_codes;

use crate::error::ApiError;
use crate::keyed_semaphores::KeyedSemaphores;
use crate::settings::Settings;

/// Maximum number of concurrent comparisons and searches.
const COMPARISONS_MAX: usize = 4;
const COMPARISONS_PER_OWNER_MAX: usize = 2;
/// Maximum number of concurrent requests that read a list, a directory or a log.
const READS_MAX: usize = 8;
const READS_PER_OWNER_MAX: usize = 2;
/// Maximum number of concurrent syncs of projects. Each takes the permit of a comparison for every workspace, so that the
/// other comparisons have their turn in between.
const SYNCS_MAX: usize = 8;
const SYNCS_PER_OWNER_MAX: usize = 1;
/// Maximum number of concurrent imports of templates.
const TEMPLATES_MAX: usize = 4;
/// Timeout for an upload or an import to acquire a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// `Retry-After` in seconds when other owners hold all permits.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

/// Concurrency limits for expensive operations.
#[derive(Debug)]
pub(crate) struct WorkLimits {
    uploads: Permits,
    comparisons: Permits,
    reads: Permits,
    syncs: Permits,
    templates: Permits,
}

impl WorkLimits {
    /// Creates the limits of the settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        let (uploads, own) = (settings.max_uploads as usize, settings.max_uploads_per_owner as usize);
        Self {
            uploads: Permits::new(uploads, own),
            comparisons: Permits::new(COMPARISONS_MAX, COMPARISONS_PER_OWNER_MAX),
            reads: Permits::new(READS_MAX, READS_PER_OWNER_MAX),
            syncs: Permits::new(SYNCS_MAX, SYNCS_PER_OWNER_MAX),
            templates: Permits::new(TEMPLATES_MAX, TEMPLATES_MAX),
        }
    }

    /// Creates limits of two operations of each kind, one per owner.
    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        let permits = || Permits::new(2, 1);
        let (uploads, comparisons, reads) = (permits(), permits(), permits());
        Self { uploads, comparisons, reads, syncs: permits(), templates: permits() }
    }

    /// Waits for the permit of an upload, at most [`PERMIT_TIMEOUT`], because other uploads may be slow.
    pub(crate) async fn upload(&self, owner: &str) -> Result<WorkPermit, ApiError> {
        self.uploads.acquire_within(PERMIT_TIMEOUT, owner).await.map_err(|reached| {
            let error = reached.to_error(&self.uploads, "archives", "being uploaded");
            error.detail("setting", reached.upload_setting())
        })
    }

    /// Waits for the permit of a template import, at most [`PERMIT_TIMEOUT`].
    pub(crate) async fn template(&self, owner: &str) -> Result<WorkPermit, ApiError> {
        let permit = self.templates.acquire_within(PERMIT_TIMEOUT, owner).await;
        permit.map_err(|reached| reached.to_error(&self.templates, "templates", "being imported"))
    }

    /// Waits for the permit of a comparison, or of another request that reads all files of a workspace. Wait for it before
    /// a lock of the workspace: the request that holds the permit may wait for the same lock.
    pub(crate) async fn comparison(&self, owner: &str) -> WorkPermit {
        self.comparisons.acquire(owner).await
    }

    /// Waits for the permit of a sync of a project. Wait for it before that of a comparison.
    pub(crate) async fn sync(&self, owner: &str) -> WorkPermit {
        self.syncs.acquire(owner).await
    }

    /// Waits for the permit of a request that reads a list, a directory or a log.
    pub(crate) async fn read(&self, owner: &str) -> WorkPermit {
        self.reads.acquire(owner).await
    }
}

/// Permit of an expensive operation. It is released on drop.
#[derive(Debug)]
pub(crate) struct WorkPermit {
    _own: Option<OwnedSemaphorePermit>,
    _total: Option<OwnedSemaphorePermit>,
}

/// Limit that had no permit available in time.
#[derive(Debug, PartialEq, Eq)]
enum LimitReached {
    /// Limit of the owner.
    Owner,
    /// Limit of all owners together.
    Total,
}

impl LimitReached {
    /// Creates the response to an operation that got no permit. `things` and `activity` describe the operations that
    /// hold the permits.
    fn to_error(&self, permits: &Permits, things: &str, activity: &str) -> ApiError {
        let error = match self {
            Self::Owner => {
                let limit = permits.owners.permits();
                let message = format!("{limit} {things} of the same owner are already {activity}; try again");
                ApiError::new(error_codes::UPLOAD_LIMIT_EXCEEDED, message).detail("limit", limit)
            }
            Self::Total => {
                let message = format!("{} {things} are already {activity}; try again", permits.total);
                ApiError::new(error_codes::UPLOADS_BUSY, message).detail("limit", permits.total)
            }
        };
        error.header(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// Returns the setting of the limit of uploads.
    fn upload_setting(&self) -> &'static str {
        match self {
            Self::Owner => "MAX_UPLOADS_PER_OWNER",
            Self::Total => "MAX_UPLOADS",
        }
    }
}

/// Permits of one kind of operation. An operation needs one of its owner and a shared one.
#[derive(Debug)]
struct Permits {
    /// Number of shared permits.
    total: usize,
    shared: Arc<Semaphore>,
    owners: KeyedSemaphores,
}

impl Permits {
    fn new(total: usize, per_owner: usize) -> Self {
        let shared = Arc::new(Semaphore::new(total));
        Self { total, shared, owners: KeyedSemaphores::new(per_owner.min(total)) }
    }

    /// Waits for the owner's permit first, then for a shared one, so that an owner at its limit holds no shared permit.
    async fn acquire(&self, owner: &str) -> WorkPermit {
        let own = self.owners.semaphore(owner).acquire_owned().await.ok();
        // The semaphores are never closed, so both are `Some`.
        WorkPermit { _own: own, _total: Arc::clone(&self.shared).acquire_owned().await.ok() }
    }

    async fn acquire_within(&self, timeout: Duration, owner: &str) -> Result<WorkPermit, LimitReached> {
        let own = tokio::time::timeout(timeout, self.owners.semaphore(owner).acquire_owned()).await;
        let own = own.map_err(|_| LimitReached::Owner)?.ok();
        let total = tokio::time::timeout(timeout, Arc::clone(&self.shared).acquire_owned()).await;
        Ok(WorkPermit { _own: own, _total: total.map_err(|_| LimitReached::Total)?.ok() })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const SHORT_TIMEOUT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn syncs_of_an_owner_follow_each_other_and_leave_comparisons_to_it_and_to_others() {
        let limits = WorkLimits::for_tests();
        let first = limits.sync("alice").await;
        let mut second = pin!(limits.sync("alice"));
        let is_pending = poll_fn(|context| Poll::Ready(second.as_mut().poll(context).is_pending())).await;
        assert!(is_pending);
        let _other = limits.sync("bob").await;
        drop(limits.comparison("alice").await);
        drop(first);
        second.await;
    }

    #[tokio::test]
    async fn one_owner_cannot_take_all_permits() {
        let permits = Permits::new(4, 2);
        let first = permits.acquire_within(SHORT_TIMEOUT, "a").await.unwrap();
        let _second = permits.acquire_within(SHORT_TIMEOUT, "a").await.unwrap();
        assert_eq!(permits.acquire_within(SHORT_TIMEOUT, "a").await.unwrap_err(), LimitReached::Owner);
        let (_third, _fourth) = (
            permits.acquire_within(SHORT_TIMEOUT, "b").await.unwrap(),
            permits.acquire_within(SHORT_TIMEOUT, "c").await.unwrap(),
        );
        assert_eq!(permits.acquire_within(SHORT_TIMEOUT, "b").await.unwrap_err(), LimitReached::Total);
        drop(first);
        permits.acquire_within(SHORT_TIMEOUT, "b").await.unwrap();
    }
}
