//! Ending what is there only for sandboxes once there are none: the lazy view, the holder of an ordinary user's namespaces,
//! and the sandboxes that were started ahead in them. Whoever makes the next sandbox starts them again.

use std::time::{Duration, Instant};

use workspace_workspace::Workspaces;

use crate::error::Result;
use crate::service::Service;

/// Longest time between two looks whether there are sandboxes.
const REST_INTERVAL: Duration = Duration::from_secs(60);

impl Service {
    /// Time between two looks.
    pub(crate) fn rest_interval(&self) -> Duration {
        self.0.settings.rest_after.min(REST_INTERVAL).max(Duration::from_millis(10))
    }

    /// Ends it when there has been no sandbox for as long as the settings say. Returns how often, 0 or 1.
    pub(crate) async fn rest_when_idle(&self) -> Result<u64> {
        let is_idle = self.is_idle().await?;
        let is_due = {
            let mut since = self.0.idle_since.lock();
            if !is_idle {
                *since = None;
            }
            is_idle && since.get_or_insert_with(Instant::now).elapsed() >= self.0.settings.rest_after
        };
        Ok(u64::from(is_due && self.rest().await?))
    }

    /// Ends it unless there is a sandbox, or one is being made. Returns whether it is ended.
    pub async fn rest(&self) -> Result<bool> {
        // Whoever makes a sandbox, or starts one ahead, has this for reading until it is counted.
        let Ok(_alone) = self.0.making.try_write() else { return Ok(false) };
        if !self.is_idle().await? {
            return Ok(false);
        }
        if self.0.runtime.has_holder() {
            self.drain_pool().await;
        }
        self.on_workspaces(Workspaces::unmount_lazy).await?;
        self.0.runtime.rest().await?;
        Ok(true)
    }

    /// Returns whether there is no sandbox, and nothing is left of one.
    async fn is_idle(&self) -> Result<bool> {
        let (here, _) = self.0.catalog.sandboxes().total(&self.0.settings.node, "").await?;
        if here > 0 || !self.0.cleanup.ids().is_empty() {
            return Ok(false);
        }
        self.on_workspaces(|workspaces| Ok(workspaces.list()?.is_empty())).await
    }
}
