//! Opening the workspaces of a server.

use std::sync::Arc;

use workspace_state::Store;
use workspace_workspace::{Options, SnapshotPart, Workspaces};

use crate::blocking::blocking;
use crate::error::Result;
use crate::runtime::{LazyMount, Runtime};
use crate::settings::Settings;

/// Opens the workspaces of a server. Before that, probes whether sandboxes can have dedicated UIDs. Unless the
/// settings name a provider, it is the fastest one that works here.
pub(crate) async fn open_workspaces(settings: &Settings, runtime: &Arc<dyn Runtime>) -> Result<Workspaces> {
    let lazy_mount = if settings.lazy.is_some() { LazyMount::Used } else { LazyMount::Unused };
    runtime.probe_dedicated_uids(&settings.workspaces_dir, &settings.sandboxes_dir, lazy_mount).await?;
    let mount_holder = runtime.mount_holder().await;
    let (settings, file_owner) = (settings.clone(), runtime.file_owner());
    let opened = blocking(move || -> Result<Workspaces> {
        let store =
            Store::open_or_create(&settings.store_dir).map_err(workspace_workspace::WorkspaceError::from)?;
        let store = store.with_walk_limits(settings.walk_limits);
        Ok(Workspaces::open(Options {
            directory: settings.workspaces_dir,
            layers: settings.layers_dir,
            store,
            holder: mount_holder,
            file_owner,
            part: SnapshotPart::Workspace,
            owner_ids: None,
            provider: settings.provider,
            outside_writers: settings.outside_writers,
            lazy: settings.lazy,
            // Minimum of free disk space, in bytes.
            reserve: settings.disk_reserve_bytes,
        })?)
    })
    .await??;
    log_provider(&opened);
    Ok(opened)
}

/// Logs the provider of workspaces, and why no faster one is used.
fn log_provider(workspaces: &Workspaces) {
    let chosen = workspaces.provider_selection();
    tracing::info!(provider = %chosen.kind, "chose the provider of workspaces");
    for (kind, reason) in chosen.unavailable_faster() {
        tracing::warn!(provider = %kind, reason, "a faster provider of workspaces is not available");
    }
}
