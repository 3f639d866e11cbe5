//! Releasing resources that only sandboxes need once there are none: the lazy mount, the namespace holder of
//! an unprivileged user, and the warm pool in its namespaces. The next creation starts them again.

use std::time::{Duration, Instant};

use workspace_workspace::Workspaces;

use crate::error::Result;
use crate::service::Service;

/// Maximum interval at which the server checks whether there are sandboxes.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);

impl Service {
    /// Returns the interval at which the server checks whether it is idle.
    pub(crate) fn idle_check_interval(&self) -> Duration {
        self.0.settings.idle_release_after.min(CHECK_INTERVAL_MAX).max(Duration::from_millis(10))
    }

    /// Releases the resources when there has been no sandbox for as long as the settings say. Returns 1 if it
    /// did, else 0.
    pub(crate) async fn release_when_idle(&self) -> Result<u64> {
        let is_idle = self.is_idle().await?;
        let is_due = {
            let mut since = self.0.idle_since.lock();
            if !is_idle {
                *since = None;
            }
            is_idle && since.get_or_insert_with(Instant::now).elapsed() >= self.0.settings.idle_release_after
        };
        Ok(u64::from(is_due && self.release_idle_resources().await?))
    }

    /// Releases the resources unless there is a sandbox, or one is being created. Returns true if it did.
    pub async fn release_idle_resources(&self) -> Result<bool> {
        // A creation holds this for reading until the sandbox is counted.
        let Ok(_exclusive) = self.0.creation_lock.try_write() else { return Ok(false) };
        if !self.is_idle().await? {
            return Ok(false);
        }
        if self.0.runtime.has_holder() {
            self.drain_pool().await;
        }
        self.on_workspaces(Workspaces::unmount_lazy_mount).await?;
        self.0.runtime.release_holder().await?;
        Ok(true)
    }

    /// Returns true if there is no sandbox, and no files of one are left.
    async fn is_idle(&self) -> Result<bool> {
        let (count, _) = self.0.catalog.sandboxes().count_for_quota(&self.0.settings.server, "").await?;
        if count > 0 || !self.0.cleanup_queue.ids().is_empty() {
            return Ok(false);
        }
        self.on_workspaces(|workspaces| Ok(workspaces.list()?.is_empty())).await
    }
}
