//! Removal of old commands that have ended, so that a sandbox that runs many does not fill the disk.

use std::fs::File;

use crate::error::{Context as _, Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::sandbox_dir::SandboxDir;
use crate::service::Service;
use workspace_agent_protocol::output;

/// Old commands are removed each time that [`Settings::max_kept_commands`](crate::Settings) divided by this have
/// ended.
const CLEANUP_DIVISOR: u32 = 10;

impl Service {
    /// Counts a command that has ended, and from time to time removes the oldest commands that have ended.
    pub(crate) async fn remove_old_commands(&self, handle: &SandboxHandle) {
        let keep = self.0.settings.max_kept_commands;
        if !handle.commands.count_end(keep / CLEANUP_DIVISOR) {
            return;
        }
        // If commands end faster than they are removed, the next removal has more to do. Several at once would remove the
        // same commands, and each would slow down the others.
        let Some(_guard) = handle.commands.begin_cleanup() else { return };
        if let Err(error) = self.keep_newest(handle, keep).await {
            tracing::error!(sandbox = handle.id, %error, "failed to remove old commands");
        }
    }

    /// Removes all ended commands but the newest `keep`, with their output.
    async fn keep_newest(&self, handle: &SandboxHandle, keep: u32) -> Result<()> {
        let commands = self.0.catalog.commands();
        let old = commands.old_ended_ids(&handle.id, keep).await?;
        // Files first: files without a row would never be found again.
        remove_output(handle.dir.clone(), old.clone()).await?;
        Ok(commands.delete_ended(&old).await?)
    }
}

async fn remove_output(dir: SandboxDir, commands: Vec<String>) -> Result<()> {
    let action = "remove the output of commands";
    let work = move || -> std::io::Result<()> {
        if commands.is_empty() {
            return Ok(());
        }
        output::remove(File::open(dir.output())?, &commands)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| SandboxError::task_failed(action, error))?.context(|| action.to_owned())
}
