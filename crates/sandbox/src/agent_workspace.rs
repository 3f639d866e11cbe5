//! Workspaces of agents that run in containers which the service did not start.
//!
//! Such a workspace is a plain directory (provider clone or copy), so that every process of the machine that may enter
//! it sees its files: the mount of an overlay may be in namespaces of its own. Nobody can freeze the processes that use
//! it. Its row is in the table `agent_workspaces` of the catalog, and is inserted before and deleted after its
//! directory.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use workspace_catalog::{SnapshotOrigin, WorkspaceDirectory};
use workspace_state::{Cancel, Durability, NewSnapshot, Snapshot, SnapshotId, WORKSPACE_LABEL};
use workspace_workspace::{
    CancellableWorkspaces, Changes, MoveStart, MoveTarget, NewWorkspace, ProviderKind, WorkspaceError,
};

use crate::blocking::blocking;
use crate::disk::usage::set_quota;
use crate::error::{Context as _, Result, SandboxError};
use crate::failpoint;
use crate::lifecycle::cancellable::or_cancelled;
use crate::service::Service;

/// Reason why the workspace of an agent is never an overlay.
const NO_OVERLAY: &str = "other processes of the machine may not see its mount; use clone or copy";

/// Files of an agent's workspace, in a snapshot.
#[derive(Debug)]
pub struct AgentFiles {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Number of bytes by which it made the store larger.
    stored: Arc<AtomicU64>,
}

impl Service {
    /// Creates the directory of an agent's workspace from a snapshot, with the disk limit of a sandbox if the
    /// filesystem supports quotas. Without `provider`, the fastest of clone and copy that works is used.
    pub async fn create_agent_workspace(
        &self,
        id: &str,
        owner: &str,
        snapshot: SnapshotId,
        provider: Option<ProviderKind>,
    ) -> Result<WorkspaceDirectory> {
        let provider = self.plain_provider(provider)?;
        let (id, owner) = (id.to_owned(), owner.to_owned());
        let bytes = self.0.runtime.supports_quotas().then_some(self.0.settings.default_resources.disk);
        self.cancellable(|service, cancel| async move {
            // Writing many files is slow, so it needs a permit, as for a sandbox.
            let permit = or_cancelled(&cancel, service.0.workspace_permits.acquire(&owner)).await?;
            let _permit = permit.map_err(|_| SandboxError::Cancelled)?;
            let create = move |workspaces: &CancellableWorkspaces<'_>| {
                let prepare = |path: &Path| {
                    if let Some(bytes) = bytes {
                        set_quota(&id, path, bytes);
                    }
                };
                let new = NewWorkspace {
                    snapshot: Some(snapshot),
                    provider: Some(provider),
                    owner: Some(&owner),
                    prepare: &prepare,
                    ..NewWorkspace::default()
                };
                workspaces.create(&id, &new)
            };
            let made = service.on_workspaces_until(&cancel, create).await?;
            let path = made.path.clone();
            let found = blocking(move || std::fs::symlink_metadata(&path)).await?;
            let found = found.context(|| "stat the workspace of an agent".to_owned())?;
            Ok(WorkspaceDirectory {
                provider: made.provider.to_string(),
                path: made.path.to_string_lossy().into_owned(),
                owner: (found.uid(), found.gid()),
            })
        })
        .await
    }

    /// Returns the provider of an agent's workspace.
    fn plain_provider(&self, requested: Option<ProviderKind>) -> Result<ProviderKind> {
        let has_clone =
            self.0.workspaces.provider_selection().unavailable_reason(ProviderKind::Clone).is_none();
        match requested {
            Some(provider @ ProviderKind::Overlay) => {
                Err(WorkspaceError::Provider { provider, reason: NO_OVERLAY.to_owned() }.into())
            }
            Some(provider) => Ok(provider),
            None if has_clone => Ok(ProviderKind::Clone),
            None => Ok(ProviderKind::Copy),
        }
    }

    /// Makes a snapshot of an agent's workspace, which belongs to `owner`, and is on disk when this returns. Fails with
    /// [`WorkspaceError::Changing`] if processes keep writing to the workspace.
    pub async fn commit_agent_workspace(
        &self,
        id: &str,
        owner: &str,
        author: &str,
        message: String,
    ) -> Result<Snapshot> {
        let (id, owner) = (id.to_owned(), owner.to_owned());
        let new = NewSnapshot { author: author.to_owned(), message, ..NewSnapshot::default() };
        self.cancellable(|service, cancel| async move {
            let files = service.read_settled(&id, new, &cancel).await?;
            service.own_files(&id, &owner, &files).await?;
            Ok(files.snapshot)
        })
        .await
    }

    /// Makes a snapshot of an agent's workspace like [`Self::commit_agent_workspace`], which nobody owns. The caller
    /// removes it ([`Self::remove_agent_files`]) or gives it an owner ([`Self::own_agent_files`]); if the server is
    /// killed, it stays as long as the workspace is being moved.
    pub async fn read_agent_workspace(&self, id: &str, author: &str, message: &str) -> Result<AgentFiles> {
        let new = NewSnapshot {
            author: author.to_owned(),
            message: message.to_owned(),
            labels: [(WORKSPACE_LABEL.to_owned(), id.to_owned())].into(),
            ..NewSnapshot::default()
        };
        let id = id.to_owned();
        self.cancellable(|service, cancel| async move {
            let files = service.read_settled(&id, new, &cancel).await?;
            failpoint::hit("files-read")?;
            Ok(files)
        })
        .await
    }

    async fn read_settled(&self, id: &str, new: NewSnapshot, cancel: &Cancel) -> Result<AgentFiles> {
        let (name, stored) = (id.to_owned(), Arc::default());
        let new = NewSnapshot {
            durability: Durability::Buffered,
            pending: true,
            stored_bytes: Some(Arc::clone(&stored)),
            ..new
        };
        let commit = move |workspaces: &CancellableWorkspaces<'_>| workspaces.commit_settled(&name, &new);
        let snapshot = self.on_workspaces_until(cancel, commit).await?.snapshot;
        Ok(AgentFiles { snapshot, stored })
    }

    /// Makes a snapshot of an agent's workspace belong to `owner`. It is on disk when this returns. If this fails, it is
    /// removed.
    pub async fn own_agent_files(&self, id: &str, owner: &str, files: &AgentFiles) -> Result<()> {
        self.own_files(id, owner, files).await?;
        failpoint::hit("files-owned")?;
        Ok(())
    }

    async fn own_files(&self, id: &str, owner: &str, files: &AgentFiles) -> Result<()> {
        if let Err(error) = self.on_workspaces(|workspaces| Ok(workspaces.store().sync()?)).await {
            self.remove_snapshot_from_store(id, &files.snapshot).await;
            return Err(error);
        }
        self.record_snapshot_of(owner, &files.snapshot, (id, &SnapshotOrigin::default()), &files.stored).await
    }

    /// Removes a snapshot of the files of an agent's workspace that nobody owns. If that fails, it is removed when this
    /// server has ended.
    pub async fn remove_agent_files(&self, id: &str, snapshot: SnapshotId) {
        let name = id.to_owned();
        let removed =
            self.on_workspaces(move |workspaces| match workspaces.store().find_snapshot(&snapshot)? {
                Some(found) => workspaces.uncommit(&name, &found),
                None => Ok(()),
            });
        if let Err(error) = removed.await {
            tracing::warn!(workspace = id, %snapshot, %error, "failed to remove the files of a move");
        }
    }

    /// Compares an agent's workspace with its base. Each file is as it was at one moment.
    pub async fn agent_workspace_changes(&self, id: &str) -> Result<Changes> {
        let id = id.to_owned();
        self.cancellable(|service, cancel| async move {
            let read = move |workspaces: &CancellableWorkspaces<'_>| workspaces.changes_while_running(&id);
            service.on_workspaces_until(&cancel, read).await
        })
        .await
    }

    /// Moves an agent's workspace to other files, in place. Returns false if its changes prevent that.
    pub async fn move_agent_workspace(&self, id: &str, start: MoveStart, to: MoveTarget) -> Result<bool> {
        let id = id.to_owned();
        self.cancellable(|service, cancel| async move {
            failpoint::hit("move-begun")?;
            let go = move |workspaces: &CancellableWorkspaces<'_>| workspaces.move_in_place(&id, start, to);
            let moved = service.on_workspaces_until(&cancel, go).await?;
            failpoint::hit("move-done")?;
            Ok(moved)
        })
        .await
    }

    /// Removes the directory of an agent's workspace. Succeeds if it does not exist.
    pub async fn remove_agent_workspace(&self, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.cancellable(|service, _| async move { service.remove_workspace(&id).await }).await
    }
}
