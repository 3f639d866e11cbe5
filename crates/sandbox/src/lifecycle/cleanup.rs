//! Removing the files of deleted sandboxes, after the response to the delete request.
//!
//! Before the response, the processes of the sandbox are killed and its row is deleted. Its workspace and its
//! directory have no row then, so that the next start after a crash, or a garbage collection, removes them
//! like other orphans.

use std::time::Duration;

use tokio::time::timeout;

use crate::blocking::blocking;
use crate::error::{Context as _, Result};
use crate::lifecycle::cleanup_queue::{BACKLOG_MAX, DeletedSandbox};
use crate::retry::Backoff;
use crate::scope::Scope;
use crate::service::Service;

/// Number of attempts to remove the files of one sandbox. After that they are left to the next garbage
/// collection.
const ATTEMPTS_MAX: u32 = 5;

impl Service {
    /// Removes the files of a sandbox that is not in the catalog any more, in the background, with a fair
    /// share for each owner. Waits only while the owner's backlog is full. `bytes` is the last known size of
    /// its workspace.
    pub(crate) async fn queue_cleanup(&self, id: &str, owner: &str, bytes: u64) {
        let queue = &self.0.cleanup_queue;
        queue.wait_for_fewer_than(BACKLOG_MAX, &Scope::Owner(owner.to_owned())).await;
        queue.add(id, DeletedSandbox { owner: owner.to_owned(), bytes });
        let (service, id, owner) = (self.clone(), id.to_owned(), owner.to_owned());
        tokio::spawn(async move {
            let permit = service.0.cleanup_queue.permits.acquire(&owner).await;
            service.remove_files_with_retries(&id).await;
            drop(permit);
            service.0.cleanup_queue.remove(&id);
        });
    }

    async fn remove_files_with_retries(&self, id: &str) {
        let mut backoff = Backoff::default();
        for attempts_left in (0..ATTEMPTS_MAX).rev() {
            match self.remove_files(id).await {
                Ok(()) => return,
                Err(error) if attempts_left == 0 => {
                    tracing::error!(sandbox = id, %error, "failed to remove the files of a deleted sandbox");
                    return;
                }
                Err(error) => {
                    tracing::warn!(sandbox = id, %error, "failed to remove the files of a deleted sandbox, trying again");
                }
            }
            backoff.wait().await;
        }
    }

    /// Removes the workspace and the directory of a sandbox. The directory is removed last, because orphans
    /// are found by it.
    pub(crate) async fn remove_files(&self, id: &str) -> Result<()> {
        self.remove_workspace(id).await?;
        self.remove_dir(id).await
    }

    /// Removes the directory of a sandbox. Before that, removes the snapshots of its pauses: an interrupted removal of
    /// these is continued as long as the directory exists.
    pub(crate) async fn remove_dir(&self, id: &str) -> Result<()> {
        self.release_pause_snapshots(id, None).await?;
        let dir = self.dir(id);
        blocking(move || dir.remove()).await?.context(|| "remove the directory of a sandbox".to_owned())
    }

    /// Waits until the files of all sandboxes that were deleted before are removed. Returns false if they
    /// are not after `max_wait`.
    pub async fn wait_for_removed_files(&self, max_wait: Duration) -> bool {
        self.wait_for_removed_files_of(&Scope::All, max_wait).await
    }

    /// Waits like [`Self::wait_for_removed_files`], for the sandboxes in scope only.
    pub async fn wait_for_removed_files_of(&self, scope: &Scope, max_wait: Duration) -> bool {
        timeout(max_wait, self.0.cleanup_queue.wait_until_none_of(scope)).await.is_ok()
    }
}
