//! Set of the kept root filesystems of a server.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Mutex, OnceCell};
use workspace_state::{Cancel, NewRoot, NewSnapshot, Snapshot, SnapshotId, Store};
use workspace_workspace::{
    Bounds, CancellableWorkspaces, CommitResult, DiskUsage, Options, ProviderKind, ProviderPreference,
    ReliableFingerprints, SnapshotPart, WorkspaceError, Workspaces, Writers,
};

use super::template_import;
use crate::blocking::blocking;
use crate::error::{Result, SandboxError};
use crate::lock_table::LockTable;
use crate::runtime::Runtime;
use crate::settings::Settings;

/// Kept root filesystems of the sandboxes of a server. They are opened when a sandbox first needs one, or at the
/// start of the server if there are any.
#[derive(Debug)]
pub(crate) struct Roots {
    settings: Settings,
    runtime: Arc<dyn Runtime>,
    store: Store,
    /// Workspaces that hold the roots, or the reason why roots cannot be kept.
    opened: OnceCell<std::result::Result<Arc<Workspaces>, String>>,
    /// Locks that are held while the files of a template are imported, one for each reference to them.
    pub(super) imports: LockTable<Mutex<()>>,
}

impl Roots {
    /// Returns the roots of a server, and opens them if a former server made any.
    pub(crate) async fn new(settings: &Settings, runtime: &Arc<dyn Runtime>, store: &Store) -> Result<Self> {
        let this = Self {
            settings: settings.clone(),
            runtime: Arc::clone(runtime),
            store: store.clone(),
            opened: OnceCell::new(),
            imports: LockTable::default(),
        };
        if settings.roots_dir.exists() {
            this.open().await?;
        }
        Ok(this)
    }

    /// Opens the roots, unless they are open. The inner result has the reason if they cannot be kept, which stays so;
    /// after an outer error the next call tries again.
    async fn open(&self) -> Result<&std::result::Result<Arc<Workspaces>, String>> {
        self.opened.get_or_try_init(|| self.open_workspaces()).await
    }

    async fn open_workspaces(&self) -> Result<std::result::Result<Arc<Workspaces>, String>> {
        let owner_ids = match self.runtime.kept_root_ids() {
            Err(reason) => return Ok(Err(reason)),
            Ok(owner_ids) => owner_ids,
        };
        let options = Options {
            directory: self.settings.roots_dir.clone(),
            layers: self.settings.root_layers_dir.clone(),
            store: self.store.clone(),
            holder: self.runtime.mount_holder().await,
            file_owner: None,
            part: SnapshotPart::Root,
            owner_ids,
            // Only an overlay shows the files of a template without a copy of them.
            provider: ProviderPreference::Prefer(ProviderKind::Overlay),
            // A lazy mount does not show owners.
            lazy: None,
            reserve: self.settings.disk_reserve_bytes,
            outside_writers: Writers::Stopped,
        };
        blocking(move || open(options)).await?
    }

    /// Returns the workspaces that hold the roots; `None` if there are none yet, or roots cannot be kept.
    pub(crate) fn get(&self) -> Option<&Arc<Workspaces>> {
        self.opened.get()?.as_ref().ok()
    }

    /// Returns the workspaces that hold the roots, after opening them. Fails if roots cannot be kept.
    pub(crate) async fn available(&self) -> Result<&Arc<Workspaces>> {
        let unavailable = |reason: &String| SandboxError::RootUnavailable { reason: reason.clone() };
        self.open().await?.as_ref().map_err(unavailable)
    }

    /// Returns the mount point of the root of a sandbox; `None` if its root is not kept.
    pub(crate) fn path(&self, id: &str) -> Option<PathBuf> {
        self.get()?.path(id).ok()
    }

    /// Measures the root of a sandbox within bounds; nothing if it is not kept.
    pub(crate) fn usage(&self, id: &str, bounds: Bounds) -> DiskUsage {
        let Some(roots) = self.get().filter(|roots| roots.get(id).is_ok()) else {
            return DiskUsage::default();
        };
        roots.usage_within(id, bounds).unwrap_or_default()
    }

    /// Returns the layers below the root of a sandbox with their approximate sizes in bytes.
    pub(crate) fn layers_of(&self, id: &str) -> Vec<(String, u64)> {
        self.get().map(|roots| roots.layers_of(id)).unwrap_or_default()
    }
}

fn open(options: Options) -> Result<std::result::Result<Arc<Workspaces>, String>> {
    let roots = Workspaces::open(options)?;
    if let Some(reason) = roots.provider_selection().unavailable_reason(ProviderKind::Overlay) {
        return Ok(Err(format!("overlays are not available: {reason}")));
    }
    template_import::remove_unfinished(&roots)?;
    Ok(Ok(Arc::new(roots)))
}

/// Commits a workspace, together with the root of its sandbox if that is kept. The caller has stopped everything that
/// writes to either.
pub(crate) fn commit(
    workspaces: &CancellableWorkspaces<'_>,
    roots: Option<&Workspaces>,
    (id, cancel): (&str, &Cancel),
    new: NewSnapshot,
) -> workspace_workspace::Result<CommitResult> {
    let Some(roots) = roots else { return workspaces.commit(id, new, Writers::Stopped) };
    let Some((root, files)) = read(roots, id, cancel)? else {
        return workspaces.commit(id, new, Writers::Stopped);
    };
    let committed = workspaces.commit(id, NewSnapshot { root: Some(root), ..new }, Writers::Stopped)?;
    // The snapshot exists. If this fails, the next commit reads unchanged files again.
    if let Err(error) = roots.record_fingerprints(id, files, &committed.snapshot) {
        tracing::warn!(sandbox = id, %error, "failed to record the commit of a root");
    }
    Ok(committed)
}

/// Reads the root of a sandbox; `None` if it is not kept.
fn read(
    roots: &Workspaces,
    id: &str,
    cancel: &Cancel,
) -> workspace_workspace::Result<Option<(NewRoot, ReliableFingerprints)>> {
    let template = match base_template(roots, id) {
        Err(WorkspaceError::NotFound { .. }) => return Ok(None),
        template => template?,
    };
    let content = roots.cancellable(cancel).read(id, Writers::Stopped)?;
    if content.skipped_count > 0 {
        tracing::debug!(
            sandbox = id,
            skipped = content.skipped_count,
            "left entries of a root out of a snapshot"
        );
    }
    Ok(Some((content.tree.into_root(template)?, content.files)))
}

/// Returns the template of the snapshot that the root of a sandbox is based on.
fn base_template(roots: &Workspaces, id: &str) -> workspace_workspace::Result<String> {
    let unusable = |reason: &str| WorkspaceError::Unusable { id: id.to_owned(), reason: reason.to_owned() };
    let base = roots.record(id)?.current.base.ok_or_else(|| unusable("its root has no base"))?;
    let base = roots.store().find_snapshot(&base)?.ok_or(WorkspaceError::UnknownSnapshot(base))?;
    Ok(base.root.ok_or(WorkspaceError::NoRoot(base.id))?.template)
}

/// Returns a snapshot. Fails with [`WorkspaceError::UnknownSnapshot`] if there is none with this id.
pub(crate) fn find_snapshot(store: &Store, id: SnapshotId) -> workspace_workspace::Result<Snapshot> {
    store.find_snapshot(&id)?.ok_or(WorkspaceError::UnknownSnapshot(id))
}
