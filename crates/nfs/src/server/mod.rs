//! Server: its exports, its listener, and the address that clients are told.
//!
//! An export is served as a *volume*: its directory with the table of its file handles and its cached descriptors. The
//! *generation* of a volume is a random number in all of its handles. Handles with the generation of no volume are
//! stale. An export without a volume for the moment is *detached*: its clients are told to try again later.

mod connections;
mod context;
mod listener;
mod mounts;
mod registry;
mod rules;
mod users;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use self::connections::{OpenConnection, UsedExport};
pub(crate) use self::context::Context;
use self::listener::Listener;
pub(crate) use self::registry::{Found, VolumeInUse};
pub(crate) use self::rules::Rules;
use crate::error::NfsError;
use crate::export::{self, Export, ExportSummary, NfsExportInfo};
use crate::hooks::Observer;
use crate::provider::{NfsMode, NfsServerInfo};
use crate::settings::Settings;
use crate::state_dir::StateDir;
use crate::table;
use crate::volume::Volume;

/// NFS server of this process.
///
/// Exports can be added before the server is started, and stay when it is stopped. All functions may block for a
/// short time; none needs an async runtime.
pub struct NfsServer {
    settings: Settings,
    state: StateDir,
    context: Arc<Context>,
    listener: Mutex<Option<Listener>>,
}

impl NfsServer {
    /// Creates a server that does not listen yet. Opens the directory of its state, or creates it.
    ///
    /// That directory has a table of file handles for each export of an earlier server. Until such an export is added
    /// or removed, its clients are told to try again later. Call [`retain_tables`](Self::retain_tables) when it is
    /// known which exports will be added again.
    pub fn new(settings: Settings, observer: Arc<dyn Observer>) -> Result<Self, NfsError> {
        let state = StateDir::open(&settings.state_dir)?;
        let context = Arc::new(Context::new(&settings, state.key()?, observer));
        for export in state.stored_exports()? {
            state.remove_incomplete_table(&export)?;
            match table::stored_generation(&state.table(&export)) {
                Ok(Some(generation)) => context.registry.expect(&export, generation),
                Ok(None) => {}
                // `add_export` fails with this error if the export is added.
                Err(error) => tracing::warn!(%error, export, "failed to read table of NFS file handles"),
            }
        }
        Ok(Self { settings, state, context, listener: Mutex::new(None) })
    }

    /// Removes the tables that an earlier server has left, except those of exports that were added again, and those for
    /// which `is_kept` returns true. `is_kept` gets the name of the export. The handles of a removed table become
    /// stale. Clients with handles of a kept table are told to try again until the export is added.
    pub fn retain_tables(&self, is_kept: impl Fn(&str) -> bool) -> Result<(), NfsError> {
        for export in self.state.stored_exports()? {
            if !is_kept(&export) && self.context.registry.cancel_expected(&export) {
                self.state.remove_table(&export)?;
            }
        }
        Ok(())
    }

    /// Begins to listen. Fails if the server listens already, or none of the ports can be bound.
    pub fn start(&self) -> Result<(), NfsError> {
        let mut listener = self.listener.lock();
        if listener.is_some() {
            return Err(NfsError::AlreadyRunning);
        }
        *listener = Some(Listener::start(&self.settings, &self.state, &self.context)?);
        Ok(())
    }

    /// Stops listening, closes all connections, and waits up to ten seconds until their requests have ended. Exports
    /// stay, and handles are valid again after the next start. Does nothing if the server does not listen.
    pub fn stop(&self) -> Result<(), NfsError> {
        let listener = self.listener.lock().take();
        if let Some(listener) = listener {
            listener.stop(&self.context);
        }
        Ok(())
    }

    /// Returns true if the server listens.
    pub fn is_running(&self) -> bool {
        self.listener.lock().is_some()
    }

    /// Returns the number of connections of clients.
    pub fn connections(&self) -> usize {
        let listener = self.listener.lock();
        listener.as_ref().map_or(0, Listener::connection_count)
    }

    /// Returns the number of large requests that are held in memory, at most
    /// [`Limits::large_requests`](crate::Limits::large_requests).
    pub fn large_requests(&self) -> usize {
        self.context.large_requests.held()
    }

    /// Returns the address of the server.
    pub fn get_server_info(&self) -> NfsServerInfo {
        let listener = self.listener.lock();
        let port_before_start = || match self.settings.ports.first() {
            Some(0) | None => self.state.last_port().unwrap_or(0),
            Some(port) => *port,
        };
        let port = listener.as_ref().map_or_else(port_before_start, Listener::port);
        NfsServerInfo { mode: NfsMode::Embedded, host: self.host(), port }
    }

    /// Returns the host name or address that clients are told.
    fn host(&self) -> String {
        let address = match self.settings.address {
            IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            address => address,
        };
        self.settings.advertised_host.clone().unwrap_or_else(|| address.to_string())
    }

    /// Adds an export. Handles from an earlier server are valid again if the directory and its revision are the same.
    pub fn add_export(&self, export: Export) -> Result<NfsExportInfo, NfsError> {
        export.check_name()?;
        let Export { name, root, identity, revision, access, clients, secret, gate, disk_limit } = export;
        let rules = Rules { name, identity, access, clients, secret, gate, disk_limit };
        let rules = Arc::new(rules);
        self.context.registry.reserve(&rules)?;
        let volume = self.volume(&rules, root, &revision);
        match volume {
            Ok(volume) => self.context.registry.publish(&rules.name, volume),
            Err(error) => {
                self.context.registry.cancel_reserved(&rules.name);
                return Err(error);
            }
        }
        Ok(self.info(&rules))
    }

    /// Opens the directory of an export as a volume.
    fn volume(&self, rules: &Arc<Rules>, root: OwnedFd, revision: &str) -> Result<Arc<Volume>, NfsError> {
        let table = self.state.table(&rules.name);
        let Context { open_files, table_budget, .. } = &*self.context;
        let volume = Volume::open(Arc::clone(rules), root, revision, &table, open_files, table_budget)?;
        Ok(Arc::new(volume))
    }

    fn info(&self, rules: &Rules) -> NfsExportInfo {
        let server = self.get_server_info();
        NfsExportInfo::new(server.host, server.port, &rules.name, rules.secret.as_ref())
    }

    /// Returns the address of an export, or `None` if there is no such export.
    pub fn export_info(&self, name: &str) -> Option<NfsExportInfo> {
        self.context.registry.rules(name).map(|rules| self.info(&rules))
    }

    /// Returns all exports, ordered by name.
    pub fn exports(&self) -> Vec<ExportSummary> {
        let summary = |rules: Arc<Rules>| ExportSummary {
            mounts: self.context.mounts.count(&rules.name),
            name: rules.name.clone(),
            access: rules.access,
            clients: rules.clients.clone(),
        };
        self.context.registry.all().into_iter().map(summary).collect()
    }

    /// Removes an export and its table of file handles, so its handles become stale. Does nothing if there is neither
    /// an export of this name nor a table that an earlier server has left.
    ///
    /// Waits until all operations on the export have ended, and closes its root and every descriptor below. Fails with
    /// [`NfsError::StillInUse`] if an operation has not ended after
    /// [`Limits::drain_timeout`](crate::Limits::drain_timeout); the call can be repeated then.
    pub fn remove_export(&self, name: &str) -> Result<(), NfsError> {
        self.context.registry.remove(name);
        self.forget_replies();
        self.context.mounts.remove_export(name);
        self.drain(name)?;
        // Last, because an operation that has not ended could write the table again.
        if export::is_name(name) { self.state.remove_table(name) } else { Ok(()) }
    }

    /// Replaces the root of an export, for example after its directory was restored from a snapshot. Handles of the
    /// former root become stale, unless the new root is the same directory with the same revision. If the new root
    /// cannot be used, the export stays detached.
    ///
    /// When this returns, no operation uses the former root. Fails with [`NfsError::StillInUse`] if an operation has
    /// not ended after [`Limits::drain_timeout`](crate::Limits::drain_timeout); the new root is served nevertheless.
    pub fn replace_root(&self, name: &str, root: OwnedFd, revision: &str) -> Result<NfsExportInfo, NfsError> {
        let rules = self.context.registry.detach(name)?;
        let drained = self.drain(name);
        if drained.is_err() {
            // The running operation may still write to the table, so the new volume starts with a table of its own.
            self.state.remove_table(name)?;
        }
        let volume = self.volume(&rules, root, revision)?;
        self.context.registry.publish(name, volume);
        self.forget_replies();
        drained.map(|()| self.info(&rules))
    }

    /// Detaches an export from its root: clients are told to try again later, until
    /// [`replace_root`](Self::replace_root) or [`remove_export`](Self::remove_export).
    ///
    /// When this returns, no descriptor of the root or below is open. Fails with [`NfsError::StillInUse`] if an
    /// operation has not ended after [`Limits::drain_timeout`](crate::Limits::drain_timeout); the call can be repeated
    /// then.
    pub fn detach_root(&self, name: &str) -> Result<(), NfsError> {
        self.context.registry.detach(name)?;
        self.drain(name)
    }

    /// Removes the kept replies to calls with handles that are stale now.
    fn forget_replies(&self) {
        self.context.replies.retain(|generation| self.context.registry.has_generation(generation));
    }

    /// Waits until no operation uses a volume that was removed or detached from this export.
    fn drain(&self, name: &str) -> Result<(), NfsError> {
        if self.context.registry.wait_unused(name, self.settings.limits.drain_timeout) {
            Ok(())
        } else {
            Err(NfsError::StillInUse { name: name.to_owned() })
        }
    }
}

impl Drop for NfsServer {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(%error, "failed to stop NFS server");
        }
    }
}

impl std::fmt::Debug for NfsServer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("NfsServer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
