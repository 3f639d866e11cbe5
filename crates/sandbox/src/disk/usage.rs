//! Creating and measuring the workspace of a sandbox.
//!
//! If filesystem and runtime support quotas, writes beyond the limit fail and the sandbox keeps running.
//! Otherwise a sandbox that exceeds its limit is stopped ([`crate::lifecycle::monitor`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use workspace_host::{HostError, quota};
use workspace_state::Cancel;
use workspace_workspace::{
    AnchorToFollow, Bounds, CancellableWorkspaces, DiskUsage, NewWorkspace, ProviderKind, WorkspaceInfo,
    Workspaces,
};

use crate::blocking::blocking;
use crate::clock::now;
use crate::config::NewSandbox;
use crate::error::Result;
use crate::guest::handle::SandboxHandle;
use crate::root::roots::Roots;
use crate::service::Service;

/// Timeout of a scan that a request waits for.
const REQUESTED_SCAN_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the scan of a new workspace.
const NEW_SCAN_TIMEOUT: Duration = Duration::from_secs(1);

impl Service {
    /// Creates the workspace of a sandbox with a quota of `bytes`, and its root if that is kept, unless it is
    /// cancelled. Without support for quotas, the workspace has none, and is measured from time to time.
    pub(crate) async fn create_workspace(
        &self,
        id: &str,
        owner: &str,
        new: &NewSandbox,
        bytes: Option<u64>,
        cancel: &Cancel,
    ) -> Result<WorkspaceInfo> {
        let (snapshot, materialize) = (new.snapshot, new.materialize);
        // Without a snapshot there are no files to share, so a plain directory is enough.
        let provider = new.provider.or(snapshot.is_none().then_some(ProviderKind::Copy));
        let bytes = bytes.filter(|_| self.0.runtime.supports_quotas());
        self.update_holder().await;
        // All followers share one mount, so its files have one owner.
        let idmap_uid = match &new.follow {
            Some(_) => None,
            None => self.0.runtime.dedicated_uid(id, &self.dir(id)).await?,
        };
        let (name, owner_name) = (id.to_owned(), owner.to_owned());
        let (read_only, follow) = (new.read_only, new.follow.clone());
        let sequence = new.lineage.project_base.as_ref().map_or(0, |base| base.sequence);
        let create = move |workspaces: &CancellableWorkspaces<'_>| {
            let owner = Some(owner_name.as_str());
            let prepare = |path: &Path| {
                if let Some(bytes) = bytes {
                    set_quota(&name, path, bytes);
                }
            };
            let anchor = follow.as_deref().map(|name| AnchorToFollow { name, sequence });
            let new = NewWorkspace {
                snapshot,
                provider,
                materialize,
                idmap_uid,
                owner,
                read_only,
                anchor,
                prepare: &prepare,
            };
            workspaces.create(&name, &new)
        };
        let workspace = self.on_workspaces_until(cancel, create).await?;
        self.create_root(id, owner, new, idmap_uid, cancel).await?;
        Ok(workspace)
    }

    /// Sets the present namespace holder of the runtime for later mounts of workspaces and roots.
    pub(crate) async fn update_holder(&self) {
        if let Ok(holder) = self.0.runtime.mount_holder().await {
            if let Some(roots) = self.0.roots.get() {
                roots.set_holder(holder.clone());
            }
            self.0.workspaces.set_holder(holder);
        }
    }

    /// Runs blocking work on the workspaces.
    pub(crate) async fn on_workspaces<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Workspaces) -> workspace_workspace::Result<T> + Send + 'static,
    ) -> Result<T> {
        let workspaces = Arc::clone(&self.0.workspaces);
        Ok(blocking(move || work(&workspaces)).await??)
    }

    /// Removes a workspace with its quota, and the root of its sandbox. Succeeds if they do not exist.
    pub(crate) async fn remove_workspace(&self, id: &str) -> Result<()> {
        self.remove_root(id).await?;
        let id = id.to_owned();
        self.on_workspaces(move |workspaces| {
            remove_quota(&workspaces.directory_of(&id));
            workspaces.remove(&id)
        })
        .await
    }

    /// Returns the bytes on disk of a workspace. Files that cannot be read do not count.
    pub(crate) async fn disk_usage(&self, id: &str) -> u64 {
        self.measure(id, Bounds::NONE).await.bytes
    }

    /// Measures a workspace within bounds.
    pub(crate) async fn measure(&self, id: &str, bounds: Bounds) -> DiskUsage {
        let deleted = self.handle(id).map_or(0, |handle| handle.usage.deleted_open_bytes());
        let (service, id) = (self.clone(), id.to_owned());
        let read = move || read_usage(&service.0.workspaces, &service.0.roots, &id, bounds);
        let used = blocking(read).await.unwrap_or_default();
        DiskUsage { bytes: used.bytes + deleted, ..used }
    }

    /// Records the initial size of a workspace, before its sandbox writes anything.
    pub(crate) async fn measure_new(&self, handle: &SandboxHandle, new: &NewSandbox) {
        let bounds = Bounds { time: NEW_SCAN_TIMEOUT, ..Bounds::NONE };
        let is_filled = new.snapshot.is_some() || !new.root.is_discarded();
        let used = match is_filled {
            true => self.measure(&handle.id, bounds).await,
            false => DiskUsage::default(),
        };
        handle.usage.record_first(used);
    }

    /// Returns the bytes of a workspace at the last scan, and its time in milliseconds since 1970. The
    /// workspace of a sandbox that is not running is scanned now, with a timeout and a limit on concurrent
    /// scans.
    pub(crate) async fn last_usage(&self, id: &str, owner: &str) -> (u64, i64) {
        if let Some(last) = self.handle(id).and_then(|handle| handle.usage.last_with_time()) {
            return last;
        }
        // Fails only when the service is closed.
        let _permit = self.0.requested_scans.acquire(owner).await;
        let bounds = Bounds { time: REQUESTED_SCAN_TIMEOUT, ..Bounds::NONE };
        (self.measure(id, bounds).await.bytes, now())
    }

    /// Measures deleted files that a sandbox has open, and returns their growth in bytes since the last call.
    pub(crate) async fn measure_deleted(&self, handle: &SandboxHandle) -> u64 {
        match self.0.runtime.deleted_open_bytes(&handle.id, &handle.dir).await {
            Ok(bytes) => bytes.saturating_sub(handle.usage.set_deleted_open_bytes(bytes)),
            Err(error) => {
                tracing::debug!(sandbox = handle.id, %error, "failed to search for deleted files");
                0
            }
        }
    }
}

/// Sets a quota if the filesystem supports it.
pub(crate) fn set_quota(id: &str, path: &Path, bytes: u64) {
    match quota::limit(path, bytes) {
        Ok(()) => {}
        Err(error @ HostError::NoQuota { .. }) => {
            tracing::debug!(sandbox = id, %error, "quotas are not supported; the workspace is measured instead");
        }
        Err(error) => {
            tracing::warn!(sandbox = id, %error, "failed to set a quota; the workspace is measured instead");
        }
    }
}

/// Removes the quota of a workspace.
pub(crate) fn remove_quota(path: &Path) {
    if let Err(error) = quota::release(path) {
        tracing::warn!(workspace = %path.display(), %error, "failed to remove a quota");
    }
}

/// Reads the usage of a workspace and the root of its sandbox from their quota, or counts every file.
fn read_usage(workspaces: &Workspaces, roots: &Roots, id: &str, bounds: Bounds) -> DiskUsage {
    let path: PathBuf = workspaces.directory_of(id);
    match quota::used(&path) {
        Ok(Some(used)) => return used,
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(workspace = id, %error, "failed to read a quota; files are counted instead");
        }
    }
    let (workspace, root) =
        (workspaces.usage_within(id, bounds).unwrap_or_default(), roots.usage(id, bounds));
    DiskUsage {
        bytes: workspace.bytes + root.bytes,
        files: workspace.files + root.files,
        is_lower_bound: workspace.is_lower_bound || root.is_lower_bound,
    }
}
