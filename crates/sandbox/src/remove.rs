//! Removing a sandbox.

use std::path::PathBuf;

use workspace_catalog::{Change, EventKind, Sandbox, State};

use crate::disk::{release, remove_workspace};
use crate::error::{Doing as _, Result, SandboxError};
use crate::service::{Scope, Service, event};

/// Where workspaces are that outlive their sandbox.
pub(crate) const KEPT: &str = "kept";

impl Service {
    /// Ends everything in a sandbox and forgets it. Its workspace goes too, unless it is to be kept: then this
    /// tells where. Goes on when nobody waits for it any more.
    pub async fn remove(&self, scope: &Scope, id: &str, keep_workspace: bool) -> Result<Option<PathBuf>> {
        let sandbox = self.find_here(scope, id).await?;
        let service = self.clone();
        let removed = tokio::spawn(async move { service.remove_now(sandbox, keep_workspace).await });
        removed.await.map_err(|error| SandboxError::Io {
            action: "remove a sandbox".to_owned(),
            source: std::io::Error::other(error),
        })?
    }

    /// Every step may be done twice: whoever is killed in between, the next start does it again.
    pub(crate) async fn remove_now(&self, sandbox: Sandbox, keep_workspace: bool) -> Result<Option<PathBuf>> {
        let id = sandbox.id.as_str();
        let stopping = |sandbox: &Sandbox| {
            sandbox.state.may_become(State::Stopping).then(|| Change {
                state: Some(State::Stopping),
                state_reason: keep_workspace.then(|| KEPT.to_owned()),
                ..Change::default()
            })
        };
        let sandbox = match self.change(id, stopping, &[]).await {
            // What it leaves is what fills the disk, perhaps; whoever removes it wants none of it.
            Err(SandboxError::Catalog(error)) if error.is_full() && !keep_workspace => {
                self.0.runtime.end(id, &self.place(id)).await?;
                self.clear_workspace(id, false).await?;
                self.change(id, stopping, &[]).await?
            }
            changed => changed?,
        };
        let live = self.live(id);
        let _work = match &live {
            Some(live) => Some(live.work.lock().await),
            None => None,
        };
        // From here on its guest is not missed.
        self.remove_live(id);
        let place = self.place(id);
        self.0.runtime.end(id, &place).await?;
        self.lose_commands(id, live.as_ref(), "the sandbox was removed").await;
        let kept = self.clear_workspace(id, keep_workspace).await?;
        let remove = move || place.remove();
        tokio::task::spawn_blocking(remove).await.map_err(std::io::Error::other).doing(removing)??;
        let deleted = event(EventKind::SandboxDeleted, &sandbox, &Change::default());
        self.0.catalog.sandboxes().delete(id, &[deleted]).await?;
        Ok(kept)
    }

    async fn clear_workspace(&self, id: &str, keep: bool) -> Result<Option<PathBuf>> {
        let root = &self.0.settings.workspaces;
        let (path, kept) = (root.join(id), root.join(KEPT));
        let to = kept.join(id);
        let work = move || -> std::io::Result<Option<PathBuf>> {
            if !keep {
                return remove_workspace(&path).map(|()| None);
            }
            release(&path);
            std::fs::create_dir_all(&kept)?;
            match std::fs::rename(&path, &to) {
                // Moved by whoever began to remove it, or never made.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    Ok(Some(to).filter(|to| to.exists()))
                }
                done => done.map(|()| Some(to)),
            }
        };
        let done = tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other);
        done.doing(removing)?.doing(removing)
    }
}

fn removing() -> String {
    "clear away what a sandbox leaves".to_owned()
}
