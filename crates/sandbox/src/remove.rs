//! Removing a sandbox.

use std::path::PathBuf;

use workspace_catalog::{Change, EventKind, Sandbox, State};
use workspace_state::{NewSnapshot, SnapshotId};
use workspace_workspace::WorkspaceError;

use crate::disk::release;
use crate::error::{Doing as _, Result, SandboxError};
use crate::service::{Scope, Service, event};

/// Why a sandbox is stopping whose workspace outlives it.
pub(crate) const KEPT: &str = "kept";

/// What stays of a sandbox that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// Its workspace, here.
    Directory(PathBuf),
    /// What its workspace held.
    Snapshot(SnapshotId),
}

impl Service {
    /// Ends everything in a sandbox and forgets it. Its workspace goes too, unless it is to be kept: then this
    /// tells where. Goes on when nobody waits for it any more.
    pub async fn remove(&self, scope: &Scope, id: &str, keep_workspace: bool) -> Result<Kept> {
        let sandbox = self.find_here(scope, id).await?;
        let service = self.clone();
        let removed = tokio::spawn(async move { service.remove_now(sandbox, keep_workspace).await });
        removed.await.map_err(|error| SandboxError::Io {
            action: "remove a sandbox".to_owned(),
            source: std::io::Error::other(error),
        })?
    }

    /// Every step may be done twice: whoever is killed in between, the next start does it again.
    pub(crate) async fn remove_now(&self, sandbox: Sandbox, keep_workspace: bool) -> Result<Kept> {
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
                self.remove_workspace(id).await?;
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
        let kept = match self.clear_workspace(id, &sandbox.owner, keep_workspace).await {
            // Nothing of it is lost: it can be removed again, or committed when what is in the way is gone.
            Err(error) if keep_workspace => {
                self.stay(id, &error).await;
                return Err(error);
            }
            cleared => cleared?,
        };
        let remove = move || place.remove();
        tokio::task::spawn_blocking(remove).await.map_err(std::io::Error::other).doing(removing)??;
        let deleted = event(EventKind::SandboxDeleted, &sandbox, &Change::default());
        self.0.catalog.sandboxes().delete(id, &[deleted]).await?;
        Ok(kept)
    }

    /// Leaves a sandbox of which nothing runs any more, because what it holds could not be kept.
    async fn stay(&self, id: &str, error: &SandboxError) {
        let reason = format!("what it holds could not be kept: {error}");
        let stopped = |sandbox: &Sandbox| {
            sandbox.state.may_become(State::Stopped).then(|| Change {
                state: Some(State::Stopped),
                state_reason: Some(reason.clone()),
                ..Change::default()
            })
        };
        if let Err(error) = self.change(id, stopped, &[EventKind::SandboxError]).await {
            tracing::error!(sandbox = id, %error, "that a sandbox has stopped could not be written down");
        }
    }

    /// What is kept of a workspace is a directory, or a snapshot if it is spread over layers.
    async fn clear_workspace(&self, id: &str, owner: &str, keep: bool) -> Result<Kept> {
        if !keep {
            self.remove_workspace(id).await?;
            return Ok(Kept::Nothing);
        }
        let kept = id.to_owned();
        let path = self
            .on_workspaces(move |workspaces| {
                release(&workspaces.directory_of(&kept));
                workspaces.keep(&kept)
            })
            .await?;
        if let Some(path) = path {
            return Ok(Kept::Directory(path));
        }
        let message = format!("what sandbox {id} left");
        let new = NewSnapshot { author: owner.to_owned(), ..NewSnapshot::with_message(message) };
        let committed = match self.commit_still(id, new).await {
            // Whoever began to remove it has kept it.
            Err(SandboxError::Workspace(WorkspaceError::NotFound { .. })) => return Ok(Kept::Nothing),
            committed => committed?,
        };
        self.note_snapshot(owner, committed.snapshot.id, id).await?;
        self.remove_workspace(id).await?;
        Ok(Kept::Snapshot(committed.snapshot.id))
    }
}

fn removing() -> String {
    "clear away what a sandbox leaves".to_owned()
}
