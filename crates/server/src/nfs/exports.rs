//! Exports of workspaces, kept up to date by hooks of the sandbox service.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use workspace_nfs::{Access, ClientList, Export, Identity, NfsError};
use workspace_sandbox::{HookFailure, HookedWorkspace, RemovalCause, Retain, WorkspaceHooks, WorkspaceRoot};

use super::server::{Inner, ListedExport, blocking};
use super::workspace_access::WorkspaceAccess;

/// Time that the creation of a sandbox waits for its export. It is below the timeout of the hooks, after which the
/// creation would fail.
const ADDITION_TIMEOUT: Duration = Duration::from_secs(8);

/// Hooks that export each workspace under the id of its sandbox.
#[derive(Debug)]
pub(super) struct WorkspaceExports(pub(super) Arc<Inner>);

#[async_trait]
impl WorkspaceHooks for WorkspaceExports {
    /// Never fails: without its export, a sandbox lacks only the field `nfs`. If it takes long, it goes on afterwards.
    async fn created(&self, workspace: HookedWorkspace<'_>, root: WorkspaceRoot) -> Result<(), HookFailure> {
        if timeout(ADDITION_TIMEOUT, self.add_or_report(workspace, root)).await.is_err() {
            tracing::error!(sandbox = workspace.id, "export of a workspace over NFS takes too long");
        }
        Ok(())
    }

    async fn recovered(&self, workspace: HookedWorkspace<'_>, root: WorkspaceRoot) {
        self.add_or_report(workspace, root).await;
    }

    async fn before_removal(&self, id: &str, _cause: RemovalCause) -> Result<Retain, HookFailure> {
        self.0.exports().remove(id);
        let (inner, id) = (self.0.clone(), id.to_owned());
        blocking(move || inner.server.remove_export(&id)).await?;
        Ok(Retain::Release)
    }

    async fn replaced(&self, id: &str, root: Option<WorkspaceRoot>) {
        let has_files = root.is_some();
        let (inner, name) = (self.0.clone(), id.to_owned());
        let replaced = blocking(move || match root {
            Some(root) => inner.server.replace_root(&name, root.directory, &root.revision).map(drop),
            None => inner.server.detach_root(&name),
        });
        let replaced = replaced.await;
        if let Some(export) = self.0.exports().get_mut(id) {
            export.has_files = has_files && is_served(&replaced);
        }
        match replaced {
            // A workspace that follows the head of a project has no export.
            Ok(()) | Err(NfsError::NoSuchExport { .. }) => {}
            Err(error) => {
                tracing::error!(sandbox = id, %error, "failed to replace the directory of an NFS export");
            }
        }
    }

    /// Exports need no files of removed sandboxes.
    async fn retained(&self, _ids: &[String]) -> Result<HashSet<String>, HookFailure> {
        Ok(HashSet::new())
    }
}

impl WorkspaceExports {
    async fn add_or_report(&self, workspace: HookedWorkspace<'_>, root: WorkspaceRoot) {
        let added = self.add(workspace, root).await;
        if !is_served(&added) {
            self.0.exports().remove(workspace.id);
        }
        if let Err(error) = added {
            tracing::error!(sandbox = workspace.id, %error, "failed to export a workspace over NFS");
        }
    }

    /// Adds the export of a workspace, or replaces its directory if there is one. A workspace that follows the head of
    /// a project has none: its mount is replaced with each head, and an export would go on to show an old one.
    async fn add(&self, workspace: HookedWorkspace<'_>, root: WorkspaceRoot) -> Result<(), NfsError> {
        if workspace.follows_head {
            return Ok(());
        }
        let clients = clients_of(&workspace)?;
        let access = if workspace.is_read_only { Access::ReadOnly } else { Access::ReadWrite };
        let (inner, id) = (self.0.clone(), workspace.id.to_owned());
        let listed = ListedExport { owner: workspace.owner.to_owned(), has_files: true };
        inner.exports().insert(id.clone(), listed);
        let files = WorkspaceAccess::new(inner.sandboxes.clone(), id.clone());
        blocking(move || {
            // The API does not show an export that was withdrawn, but clients may still have it mounted.
            if inner.server.export_info(&id).is_some() {
                return inner.server.replace_root(&id, root.directory, &root.revision).map(drop);
            }
            let identity = owner_of(&root, &id)?;
            let files = Arc::new(files);
            let secret = inner.secret(&id)?;
            let export = Export::new(id, root.directory, identity)
                .revision(root.revision)
                .access(access)
                .clients(clients)
                .secret(secret)
                .gate(files.clone())
                .disk_limit(files);
            inner.server.add_export(export).map(drop)
        })
        .await
    }
}

/// Returns the clients that the owner of a workspace allows.
fn clients_of(workspace: &HookedWorkspace<'_>) -> Result<ClientList, NfsError> {
    let Some(list) = workspace.outside_clients else { return Ok(ClientList::any()) };
    // It was checked when the sandbox was created.
    list.join(",")
        .parse()
        .map_err(|source| NfsError::InvalidClients { name: workspace.id.to_owned(), source })
}

/// Returns true if clients get the new directory, also if some operation still uses the former one.
fn is_served(replaced: &Result<(), NfsError>) -> bool {
    matches!(replaced, Ok(()) | Err(NfsError::StillInUse { .. }))
}

/// Returns the owner of the root directory: the user that the commands of the sandbox run as.
fn owner_of(root: &WorkspaceRoot, id: &str) -> Result<Identity, NfsError> {
    let stat = rustix::fs::fstat(root.directory.as_fd());
    let stat = stat.map_err(|error| NfsError::UnusableRoot { name: id.to_owned(), source: error.into() })?;
    Ok(Identity { uid: stat.st_uid, gid: stat.st_gid })
}
