//! The NFS server of this process, with the exports of all workspaces.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;
use workspace_api::nfs::{NfsExport, NfsInfo};
use workspace_nfs::{
    ExportSummary, MountSecret, NfsError, NfsExportInfo, NfsProvider, NfsServer, SystemNfs, SystemSettings,
};
use workspace_sandbox::{Scope, Service, WorkspaceHooks};

use super::exports::WorkspaceExports;
use super::observer::NfsObserver;
use crate::audit::Audit;
use crate::metrics::Metrics;
use crate::settings::{NfsMode, Settings};
use crate::signing_key::{SigningKey, SigningSecret};

/// Context of the key from which the secrets of mount paths are made.
const SECRET_CONTEXT: &str = "elevo workspace: NFS mount secrets";
/// Port of NFS, which only root may use on most machines.
const STANDARD_PORT: u16 = 2049;
/// Number of hexadecimal digits of the secret in a mount path.
const SECRET_DIGITS: usize = 32;
/// Time that the server waits for clients of an export that is removed or replaced. The hooks have a longer timeout.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// NFS server of this process. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Nfs(Option<Arc<Inner>>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) server: Arc<dyn NfsProvider>,
    /// Observer of the embedded server; `None` for the kernel's server.
    observer: Option<Arc<NfsObserver>>,
    /// Sandboxes whose workspaces are exported. Set before the server listens.
    pub(super) sandboxes: Arc<OnceLock<Service>>,
    /// Key that the secrets in mount paths are made with; `None` if paths have no secret.
    secret_key: Option<SigningKey>,
    /// Exports by id of the sandbox.
    exports: Mutex<HashMap<String, ListedExport>>,
}

/// Export as the API lists it.
#[derive(Debug)]
pub(super) struct ListedExport {
    pub(super) owner: String,
    /// False while there is nothing to mount, as for a sandbox that is paused to disk. Clients that have mounted it are
    /// told to try again.
    pub(super) has_files: bool,
}

impl Nfs {
    /// Opens the state of the server, which does not listen yet. With `NFS_MODE=off`, there is none. `server_id` is the
    /// id of this server.
    pub(crate) fn open(
        settings: &Settings,
        server_id: &str,
        secret: &SigningSecret,
    ) -> Result<Self, NfsError> {
        let (server, observer): (Arc<dyn NfsProvider>, _) = match settings.nfs_mode {
            NfsMode::Off => return Ok(Self(None)),
            NfsMode::Embedded => {
                let observer = Arc::new(NfsObserver::default());
                (Arc::new(NfsServer::new(server_settings(settings), observer.clone())?), Some(observer))
            }
            NfsMode::System => (Arc::new(SystemNfs::new(system_settings(settings, server_id))?), None),
        };
        // The kernel's server has no secrets.
        let has_secrets = settings.nfs_mount_secret.0 && settings.nfs_mode == NfsMode::Embedded;
        let secret_key = has_secrets.then(|| SigningKey::derive(secret, SECRET_CONTEXT));
        let (sandboxes, exports) = (Arc::default(), Mutex::default());
        Ok(Self(Some(Arc::new(Inner { server, observer, sandboxes, secret_key, exports }))))
    }

    /// Returns hooks that export the workspaces of sandboxes.
    pub(crate) fn hooks(&self) -> Vec<Arc<dyn WorkspaceHooks>> {
        let hooks = |inner: &Arc<Inner>| Arc::new(WorkspaceExports(inner.clone())) as Arc<dyn WorkspaceHooks>;
        self.0.iter().map(hooks).collect()
    }

    /// Begins to listen, for clients of the workspaces of `sandboxes`. Those of `expected` may not be exported yet.
    pub(crate) async fn start(
        &self,
        sandboxes: &Service,
        expected: HashSet<String>,
        audit: &Audit,
        metrics: &Metrics,
    ) -> Result<(), NfsError> {
        let Some(inner) = self.0.clone() else { return Ok(()) };
        // Neither was set before: a server is started once.
        let _ = inner.sandboxes.set(sandboxes.clone());
        if let Some(observer) = inner.observer.clone() {
            observer.set_audit(audit.clone());
            metrics.add_collector(move |text| observer.render(text));
        }
        blocking(move || {
            inner.server.retain_exports(&|name| expected.contains(name))?;
            inner.server.start()
        })
        .await
    }

    /// Ends the connections of all clients, and stops listening.
    pub(crate) async fn stop(&self) {
        let Some(inner) = self.0.clone() else { return };
        if let Err(error) = blocking(move || inner.server.stop()).await {
            tracing::warn!(%error, "failed to stop the NFS server");
        }
    }

    /// Returns the address on which the server listens; `None` if there is none.
    pub(crate) fn address(&self) -> Option<String> {
        let server = &self.0.as_ref()?.server;
        let info = server.get_server_info();
        server.is_running().then(|| format!("{}:{}", info.host, info.port))
    }

    /// Returns the mode as the API names it.
    pub(crate) fn mode(&self) -> &'static str {
        let mode = match &self.0 {
            None => NfsMode::Off,
            Some(inner) => match inner.server.get_server_info().mode {
                workspace_nfs::NfsMode::Embedded => NfsMode::Embedded,
                workspace_nfs::NfsMode::System => NfsMode::System,
            },
        };
        mode.as_str()
    }

    /// Returns the number of connections of clients.
    pub(crate) fn connections(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.server.connections() as u64)
    }

    /// Returns how clients can mount the workspace of a sandbox; `None` if it is not exported.
    pub(crate) fn export_of(&self, sandbox: &str) -> Option<NfsInfo> {
        let inner = self.0.as_ref()?;
        let has_files = inner.exports().get(sandbox).is_some_and(|export| export.has_files);
        inner.server.export_info(sandbox).filter(|_| has_files).map(info_to_api)
    }

    /// Returns the exports of the sandboxes in a scope, in the order of their ids.
    pub(super) fn exports(&self, scope: &Scope) -> Vec<NfsExport> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let to_api = |export: ExportSummary| {
            let info = inner.server.export_info(&export.name)?;
            let is_read_only = export.access == workspace_nfs::Access::ReadOnly;
            let clients = export.clients.to_string();
            let mounts = export.mounts as u64;
            Some(NfsExport {
                sandbox: export.name,
                nfs: info_to_api(info),
                read_only: is_read_only,
                clients,
                mounts,
            })
        };
        let listed = inner.exports();
        let is_visible = |export: &ExportSummary| {
            let listed = listed.get(&export.name).filter(|listed| listed.has_files);
            listed.is_some_and(|listed| scope.covers(&export.name, Some(&listed.owner)))
        };
        inner.server.exports().into_iter().filter(is_visible).filter_map(to_api).collect()
    }
}

impl Inner {
    pub(super) fn exports(&self) -> MutexGuard<'_, HashMap<String, ListedExport>> {
        self.exports.lock()
    }

    /// Returns the secret in the mount path of a workspace; `None` if paths have no secret.
    pub(super) fn secret(&self, id: &str) -> Result<Option<MountSecret>, NfsError> {
        let Some(key) = &self.secret_key else { return Ok(None) };
        let digits = blake3::Hash::from_bytes(key.sign(id.as_bytes())).to_hex();
        MountSecret::new(&digits[..SECRET_DIGITS]).map(Some)
    }
}

fn info_to_api(info: NfsExportInfo) -> NfsInfo {
    NfsInfo {
        host: info.host,
        port: info.port,
        path: info.path,
        mount_command: info.mount_command,
        mount_command_v4: info.mount_command_v4,
        mount_command_macos: info.mount_command_macos,
    }
}

fn server_settings(settings: &Settings) -> workspace_nfs::Settings {
    // A port that was chosen is used or reported as taken; any other is as good as the standard one.
    let ports = settings.nfs_port.map_or_else(|| vec![STANDARD_PORT, 0], |port| vec![port]);
    workspace_nfs::Settings {
        address: settings.nfs_host,
        ports,
        advertised_host: settings.nfs_advertise.as_ref().map(|host| host.0.clone()),
        allowed_clients: settings.nfs_allowed_ips.0.clone(),
        // Other machines ask rpcbind, and do not reach a loopback address.
        register_with_rpcbind: !settings.nfs_host.to_canonical().is_loopback(),
        limits: workspace_nfs::Limits {
            connections: settings.nfs_max_connections as usize,
            drain_timeout: DRAIN_TIMEOUT,
            ..workspace_nfs::Limits::default()
        },
        ..workspace_nfs::Settings::new(settings.data_dir.join("nfs"))
    }
}

fn system_settings(settings: &Settings, server_id: &str) -> SystemSettings {
    let advertised = settings.nfs_advertise.as_ref().map(|host| host.0.clone());
    SystemSettings {
        host: advertised.unwrap_or_else(|| settings.nfs_host.to_string()),
        allowed_clients: settings.nfs_allowed_ips.0.clone(),
        ..SystemSettings::new(server_id, &settings.nfs_exports_file.0)
    }
}

/// Runs a function that may block for a moment on another thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NfsError> + Send + 'static,
) -> Result<T, NfsError> {
    match spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{HostEnvironment, SettingsSource};

    /// Only 127.0.0.1 counted as a loopback address.
    #[test]
    fn a_server_on_a_loopback_address_is_not_registered_with_rpcbind() {
        let is_registered = |host: &str| {
            let environment = HostEnvironment {
                user_data: Some("/home/a/.local/share".into()),
                program_directory: Some("/opt/bin".into()),
                ..HostEnvironment::default()
            };
            let source = SettingsSource::new(environment, [("NFS_HOST".to_owned(), host.to_owned())], None);
            server_settings(&Settings::from_source(&source).unwrap()).register_with_rpcbind
        };
        for host in ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"] {
            assert!(!is_registered(host), "{host}");
        }
        for host in ["0.0.0.0", "10.8.0.1", "fd00::1"] {
            assert!(is_registered(host), "{host}");
        }
    }
}
