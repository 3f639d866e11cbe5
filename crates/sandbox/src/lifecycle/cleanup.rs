//! Removing the files of sandboxes that are gone, behind the answer to their deletion.
//!
//! A sandbox that is deleted is ended and out of the catalog before anybody is answered. Its workspace and its
//! directory have no row then, so that a start after a crash, and a collection of garbage, remove them like everything
//! that belongs to nobody.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::blocking::blocking;
use crate::error::{Context as _, Result};
use crate::lifecycle::cleanup_queue::{BACKLOG_MAX, Leftover};
use crate::scope::Scope;
use crate::service::Service;

/// Attempts to remove the files of one sandbox, and the first pause between them. What stays is left to the next
/// collection of garbage.
const ATTEMPTS: (u32, Duration) = (5, Duration::from_millis(500));

impl Service {
    /// Removes the files of a sandbox that is in no catalog any more, later, in turns of the owners. Waits only while the
    /// owner's backlog is full. `bytes` are those of its workspace, as far as they are known.
    pub(crate) async fn remove_files_behind(&self, id: &str, owner: &str, bytes: u64) {
        let leftovers = &self.0.cleanup;
        leftovers.fewer_than(BACKLOG_MAX, &Scope::Owner(owner.to_owned())).await;
        leftovers.add(id, Leftover { owner: owner.to_owned(), bytes });
        let (service, id, owner) = (self.clone(), id.to_owned(), owner.to_owned());
        tokio::spawn(async move {
            let turn = service.0.cleanup.permits.acquire(&owner).await;
            service.remove_files_at_last(&id).await;
            drop(turn);
            service.0.cleanup.remove(&id);
        });
    }

    async fn remove_files_at_last(&self, id: &str) {
        let (mut left, mut pause) = ATTEMPTS;
        loop {
            left -= 1;
            match self.remove_files(id).await {
                Ok(()) => return,
                Err(error) if left == 0 => {
                    tracing::error!(sandbox = id, %error, "failed to remove the files of a deleted sandbox");
                    return;
                }
                Err(error) => {
                    tracing::warn!(sandbox = id, %error, "failed to remove the files of a deleted sandbox, trying again");
                }
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Removes the workspace and the directory of a sandbox. The directory goes last: what is found of a sandbox has
    /// one.
    pub(crate) async fn remove_files(&self, id: &str) -> Result<()> {
        self.remove_workspace(id).await?;
        self.remove_dir(id).await
    }

    pub(crate) async fn remove_dir(&self, id: &str) -> Result<()> {
        let dir = self.dir(id);
        blocking(move || dir.remove()).await?.context(|| "remove the directory of a sandbox".to_owned())
    }

    /// Waits until the files of all sandboxes that were deleted before are removed, for so long; whether they are.
    pub async fn files_removed(&self, limit: Duration) -> bool {
        self.files_removed_of(&Scope::All, limit).await
    }

    /// The same for the sandboxes of a scope.
    pub async fn files_removed_of(&self, scope: &Scope, limit: Duration) -> bool {
        timeout(limit, self.0.cleanup.none_of(scope)).await.is_ok()
    }
}
