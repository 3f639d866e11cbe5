//! Forgetting commands that ended long ago, so that a sandbox that runs many does not fill the disk.

use std::fs::File;

use crate::error::{Context as _, Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::sandbox_dir::SandboxDir;
use crate::service::Service;
use workspace_agent_protocol::output;

/// Looked for whenever so large a part of what is remembered has ended since.
const SHARE: u32 = 10;

impl Service {
    /// Forgets the oldest, now and then.
    pub(crate) async fn forget_old(&self, handle: &SandboxHandle) {
        let keep = self.0.settings.commands_kept;
        if !handle.commands.is_retention_due(keep / SHARE) {
            return;
        }
        if let Err(error) = self.forget_all_but(handle, keep).await {
            tracing::error!(sandbox = handle.id, %error, "old commands could not be forgotten");
        }
    }

    async fn forget_all_but(&self, handle: &SandboxHandle, keep: u32) -> Result<()> {
        let commands = self.0.catalog.commands();
        let old = commands.ended_before_newest(&handle.id, keep).await?;
        // Files first: what has no row would never be found again.
        remove_output(handle.dir.clone(), old.clone()).await?;
        for id in old {
            commands.forget(&id).await?;
        }
        Ok(())
    }
}

async fn remove_output(dir: SandboxDir, commands: Vec<String>) -> Result<()> {
    let doing = || "remove what commands printed".to_owned();
    let work = move || -> std::io::Result<()> {
        commands.iter().try_for_each(|id| output::remove(File::open(dir.output())?, id))
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| SandboxError::Io { action: doing(), source: std::io::Error::other(error) })?
        .context(doing)
}
