//! Creating and removing the kept root of a sandbox.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use workspace_host::quota;
use workspace_state::{Cancel, SnapshotId};
use workspace_workspace::{Materialize, NewWorkspace, ProviderKind, Workspaces};

use super::mode::RootMode;
use super::roots::find_snapshot;
use crate::blocking::blocking;
use crate::config::NewSandbox;
use crate::error::{Result, SandboxError};
use crate::runtime::RuntimeError;
use crate::service::Service;

impl Service {
    /// Returns true if the root of a sandbox is kept.
    pub(crate) fn has_root(&self, id: &str) -> bool {
        self.0.roots.path(id).is_some()
    }

    /// Fails if the root of a new sandbox cannot be kept as requested.
    pub(crate) async fn check_root(&self, new: &NewSandbox) -> Result<()> {
        if new.root.is_discarded() {
            return Ok(());
        }
        self.0.roots.available().await?;
        match self.template_of_root(new.snapshot).await? {
            Some(template) if template != new.template => Err(SandboxError::RootUnavailable {
                reason: format!(
                    "the root of the snapshot was made from template `{template}`, not from `{}`",
                    new.template
                ),
            }),
            Some(_) => Ok(()),
            None => self.template_with_root(&new.template).map(|_| ()),
        }
    }

    /// Returns the environment variables of the template of a new sandbox. A root from a snapshot does not need
    /// its template.
    pub(crate) async fn template_envs(&self, new: &NewSandbox) -> Result<BTreeMap<String, String>> {
        match self.0.runtime.variables(&new.template).await {
            Err(RuntimeError::NoTemplate { .. })
                if new.root == RootMode::Kept && self.template_of_root(new.snapshot).await?.is_some() =>
            {
                Ok(BTreeMap::new())
            }
            envs => Ok(envs?),
        }
    }

    /// Returns the template of the root of a snapshot; `None` if it has no root.
    pub async fn template_of_root(&self, snapshot: Option<SnapshotId>) -> Result<Option<String>> {
        let Some(id) = snapshot else { return Ok(None) };
        let snapshot = self.on_workspaces(move |workspaces| find_snapshot(workspaces.store(), id)).await?;
        Ok(snapshot.root.map(|root| root.template))
    }

    /// Creates the root of a sandbox, if it is to be kept, from its snapshot or else from its template. The workspace
    /// of the sandbox exists; the root shares its quota.
    pub(crate) async fn create_root(
        &self,
        id: &str,
        owner: &str,
        new: &NewSandbox,
        idmap_uid: Option<u32>,
        cancel: &Cancel,
    ) -> Result<()> {
        if new.root.is_discarded() {
            return Ok(());
        }
        let roots = Arc::clone(self.0.roots.available().await?);
        let base = match (new.snapshot, self.template_of_root(new.snapshot).await?) {
            (Some(snapshot), Some(_)) => snapshot,
            _ => self.template_base(&new.template, cancel).await?,
        };
        let (id, owner, cancel) = (id.to_owned(), owner.to_owned(), cancel.clone());
        let workspace = self.0.workspaces.directory_of(&id);
        let created = blocking(move || {
            let prepare = |path: &Path| share_quota(&id, path, &workspace);
            let new = NewWorkspace {
                snapshot: Some(base),
                provider: Some(ProviderKind::Overlay),
                materialize: Materialize::Full,
                idmap_uid,
                owner: Some(&owner),
                prepare: &prepare,
                ..NewWorkspace::default()
            };
            roots.cancellable(&cancel).create(&id, &new)
        })
        .await?;
        match created {
            Err(error) if error.is_cancelled() => Err(SandboxError::Cancelled),
            created => Ok(created.map(|_| ())?),
        }
    }

    /// Removes the root of a sandbox. Succeeds if it is not kept.
    pub(crate) async fn remove_root(&self, id: &str) -> Result<()> {
        let Some(roots) = self.0.roots.get().cloned() else { return Ok(()) };
        let id = id.to_owned();
        Ok(blocking(move || roots.remove(&id)).await??)
    }

    /// Removes roots of sandboxes that do not exist. One that cannot be removed does not stop the others.
    pub(crate) async fn clear_orphaned_roots(
        &self,
        ids: impl Iterator<Item = String> + Send,
        known: &HashSet<&str>,
        cancel: &Cancel,
    ) -> Result<()> {
        for id in ids.filter(|id| !known.contains(id.as_str())) {
            cancel.check()?;
            if let Err(error) = self.remove_root(&id).await {
                tracing::error!(sandbox = id, %error, "failed to remove an orphaned root");
            }
        }
        Ok(())
    }

    /// Runs blocking work on the workspaces that hold the kept roots; returns `None` if roots cannot be kept.
    pub(crate) async fn on_kept_roots<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Workspaces) -> workspace_workspace::Result<T> + Send + 'static,
    ) -> Result<Option<T>> {
        let Some(roots) = self.0.roots.get().cloned() else { return Ok(None) };
        Ok(Some(blocking(move || work(&roots)).await??))
    }
}

/// Lets a root use the quota of a workspace, if the workspace has one.
fn share_quota(id: &str, root: &Path, workspace: &Path) {
    if let Err(error) = quota::share(root, workspace) {
        tracing::warn!(sandbox = id, %error, "failed to set the quota of a root; it is measured instead");
    }
}
