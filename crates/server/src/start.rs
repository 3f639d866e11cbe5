//! Startup: from settings to a server that listens.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use workspace_catalog::{Catalog, CatalogError};
use workspace_context::projects::Projects;
use workspace_nfs::NfsError;
use workspace_sandbox::{GuestPort, SandboxError, Service};
use workspace_state::{Cancel, Notice, Store, StoreError, set_notice_handler};

use crate::app::App;
use crate::episode_recovery;
use crate::first_key::{self, FirstKeyError, KeyOrigin};
use crate::guest_port::{self, GuestPortError};
use crate::nfs::server::Nfs;
use crate::private_file::{self, PrivateFileError};
use crate::projects::ProjectWorkRecorder;
use crate::route_group::RouteGroup;
use crate::runtime;
use crate::serve::{Address, ServeError, Server};
use crate::server_id;
use crate::settings::Settings;
use crate::signing_key::{SigningKeyError, SigningSecret};
use crate::store::WALK_LIMITS;

/// Error of starting the server.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum StartError {
    #[error(transparent)]
    Private(#[from] PrivateFileError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    SigningKey(#[from] SigningKeyError),
    #[error("cannot use the snapshot store: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    FirstKey(#[from] FirstKeyError),
    #[error(transparent)]
    Guests(#[from] GuestPortError),
    #[error(transparent)]
    Sandboxes(#[from] SandboxError),
    #[error("cannot start the NFS server: {0}{hint}", hint = nfs_hint(.0))]
    Nfs(#[from] NfsError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot read the address of a listener: {0}")]
    Address(#[from] std::io::Error),
}

/// Server that listens but does not respond yet.
pub struct StartedServer {
    /// Shared state of its routes.
    pub app: App,
    /// Server to run with [`Server::run`].
    pub server: Server,
    /// Address of the API.
    pub address: Address,
    /// Address of `METRICS_PORT`, if it is set.
    pub metrics: Option<SocketAddr>,
    /// Address for guest agents, with `GUEST_TRANSPORT=tcp`.
    pub guests: Option<SocketAddr>,
    /// Origin of the first admin key: the setting `API_KEY`, or a file in `DATA_DIR`.
    pub key: KeyOrigin,
    /// Lock on `DATA_DIR`. Keep it until the server has stopped: it excludes other servers from the same data.
    pub lock: File,
}

/// Opens catalog, store and sandboxes, and listens. `route_groups` is called once the shared state exists.
pub async fn start(
    settings: Settings,
    route_groups: impl FnOnce(&App) -> Vec<RouteGroup>,
) -> Result<StartedServer, StartError> {
    private_file::create_directory(&settings.data_dir)?;
    private_file::create_directory(&settings.workspace_root)?;
    let lock = private_file::lock(&settings.data_dir)?;
    let catalog = Catalog::open(settings.database_url.0.reveal()).await?;
    let store = open_store(&settings.store_dir).await?;
    let server_id = server_id::read_or_create(&settings.data_dir)?;
    episode_recovery::remove_stale_records(&catalog, &server_id, &store).await?;
    episode_recovery::add_missing_searches(&catalog, &server_id, &store).await?;
    let key = first_key::ensure(&settings, &server_id, &catalog).await?;
    let port = guest_port::listen(&settings).await?;
    let guests = port.as_ref().map(GuestPort::address).transpose()?;
    let cancel = Cancel::new();
    let secret = SigningSecret::load(&catalog).await?;
    let nfs = Nfs::open(&settings, &server_id, &secret)?;
    let projects = Projects::new(catalog.clone(), store.with_cancel(cancel.clone()));
    let recorder = ProjectWorkRecorder { catalog: catalog.clone(), projects: projects.clone() };
    let parts =
        runtime::ServiceParts { server: server_id, cancel, recorder: Arc::new(recorder), hooks: nfs.hooks() };
    let sandboxes = runtime::start_service(&settings, parts, catalog.clone(), port).await?;
    let bound =
        bind(settings, catalog, sandboxes.clone(), (projects, store), (nfs, secret), route_groups).await;
    if bound.is_err() {
        // Otherwise the sandboxes of the warm pool would outlive this process.
        sandboxes.close().await;
    }
    let (app, server) = bound?;
    let (address, metrics) = (server.address()?, server.metrics_address()?);
    Ok(StartedServer { app, server, address, metrics, guests, key, lock })
}

async fn bind(
    settings: Settings,
    catalog: Catalog,
    sandboxes: Service,
    (projects, store): (Projects, Store),
    (nfs, secret): (Nfs, SigningSecret),
    route_groups: impl FnOnce(&App) -> Vec<RouteGroup>,
) -> Result<(App, Server), StartError> {
    let app = App::new(settings, catalog, sandboxes, projects, &store, nfs, &secret)?;
    let expected = app.sandboxes.expected_workspaces().await?;
    app.nfs.start(&app.sandboxes, expected, &app.audit, &app.metrics).await?;
    crate::projects::recover_workspaces(&app).await?;
    let groups = route_groups(&app);
    let server = Server::bind(app.clone(), groups).await?;
    Ok((app, server))
}

/// Opens the store, or creates it with mode 0700. Other processes may have it open, too.
async fn open_store(path: &Path) -> Result<Store, StartError> {
    set_notice_handler(|notice| match notice {
        Notice::Rebuilt { .. } => tracing::warn!(%notice, "rebuilt the index of the store"),
        Notice::Waiting { .. } => tracing::warn!(%notice, "waited long for a lock of the store"),
        _ => tracing::warn!(%notice, "received a notice from the store"),
    });
    private_file::create_directory(path)?;
    let path = path.to_owned();
    let opened = spawn_blocking(move || Store::open_or_create(path)).await;
    Ok(opened.map_err(std::io::Error::other)??.with_walk_limits(WALK_LIMITS))
}

/// Returns what to do about a failed start of NFS; empty for errors without advice.
fn nfs_hint(error: &NfsError) -> &'static str {
    match error {
        NfsError::CannotListen { .. } => "\nhint: set NFS_PORT to a free port, or NFS_MODE=off",
        NfsError::NotRoot { .. } => "\nhint: run the server as root, or set NFS_MODE=embedded",
        NfsError::NoExportfs => {
            "\nhint: install nfs-kernel-server (Debian) or nfs-utils (Fedora), or set NFS_MODE=embedded"
        }
        NfsError::NoKernelServer { .. } => {
            "\nhint: install nfs-kernel-server (Debian) or nfs-utils (Fedora), and run \
             `systemctl enable --now nfs-server`; or set NFS_MODE=embedded"
        }
        NfsError::State { .. } => {
            "\nhint: create the directory of NFS_EXPORTS_FILE, and check its permissions"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn walks_of_the_servers_store_are_limited() {
        let directory = tempfile::tempdir().unwrap();
        let store = open_store(&directory.path().join("store")).await.unwrap();
        assert_eq!(store.walk_limits(), WALK_LIMITS);
        assert_eq!(store.with_cancel(store.cancel_flag().child()).walk_limits(), WALK_LIMITS);
    }
}
