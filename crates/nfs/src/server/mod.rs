//! The server: its exports, its listener, and the address that clients are told.

mod connections;
mod context;
mod listener;
mod mounts;
mod registry;
mod rules;
mod users;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use self::connections::{OpenConnection, UsedExport};
pub(crate) use self::context::Context;
use self::listener::Listener;
pub(crate) use self::registry::{Found, InUse};
pub(crate) use self::rules::Rules;
use crate::error::NfsError;
use crate::export::{self, Export, ExportSummary, NfsExportInfo};
use crate::hooks::Observer;
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

/// Implementation that serves the exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NfsMode {
    /// This crate.
    Embedded,
    /// The NFS server of the kernel.
    System,
}

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsServerInfo {
    /// Implementation that serves the exports.
    pub mode: NfsMode,
    /// Host name or address that clients are told.
    pub host: String,
    /// TCP port of NFS and MOUNT; zero while the server has never run and its port is not known.
    pub port: u16,
}

impl NfsServer {
    /// Creates a server that does not listen yet. Opens its own directory, or creates it.
    ///
    /// Clients of the exports that an earlier server had are told to try again later, until the export is added or
    /// removed. Call [`retain_tables`](Self::retain_tables) when it is known which exports will be added again.
    pub fn new(settings: Settings, observer: Arc<dyn Observer>) -> Result<Self, NfsError> {
        let state = StateDir::open(&settings.state_dir)?;
        let context = Arc::new(Context::new(&settings, state.key()?, observer));
        for export in state.stored_exports()? {
            state.remove_incomplete_table(&export)?;
            match table::stored_generation(&state.table(&export)) {
                Ok(Some(generation)) => context.registry.expect(&export, generation),
                Ok(None) => {}
                // It is an error when the export is added.
                Err(error) => tracing::warn!(%error, export, "failed to read table of NFS file handles"),
            }
        }
        Ok(Self { settings, state, context, listener: Mutex::new(None) })
    }

    /// Removes the tables of exports that an earlier server had, that were not added, and for which `is_kept` returns
    /// false: their handles are stale. Clients of the others are told to try again until the exports are added. Exports
    /// that were added stay.
    pub fn retain_tables(&self, is_kept: impl Fn(&str) -> bool) -> Result<(), NfsError> {
        for export in self.state.stored_exports()? {
            if !is_kept(&export) && self.context.registry.cancel_expected(&export) {
                self.state.remove_table(&export)?;
            }
        }
        Ok(())
    }

    /// Begins to listen. Fails if the server runs, or none of the ports can be bound.
    pub fn start(&self) -> Result<(), NfsError> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.is_some() {
            return Err(NfsError::AlreadyRunning);
        }
        *listener = Some(Listener::start(&self.settings, &self.state, &self.context)?);
        Ok(())
    }

    /// Stops listening, closes all connections, and waits until their requests have ended. Exports stay, and
    /// handles are valid again after the next start. A stopped server is not stopped again.
    pub fn stop(&self) -> Result<(), NfsError> {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listener) = listener {
            listener.stop(&self.context);
        }
        Ok(())
    }

    /// Returns true between a start and a stop.
    pub fn is_running(&self) -> bool {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns the number of connections of clients.
    pub fn connections(&self) -> usize {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.as_ref().map_or(0, Listener::connection_count)
    }

    /// Returns the number of large requests that are held in memory, at most
    /// [`Limits::large_requests`](crate::Limits::large_requests).
    pub fn large_requests(&self) -> usize {
        self.context.large_requests.held()
    }

    /// Returns the address of the server.
    pub fn get_server_info(&self) -> NfsServerInfo {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = || match self.settings.ports.first() {
            Some(0) | None => self.state.last_port().unwrap_or(0),
            Some(port) => *port,
        };
        let port = listener.as_ref().map_or_else(expected, Listener::port);
        NfsServerInfo { mode: NfsMode::Embedded, host: self.host(), port }
    }

    fn host(&self) -> String {
        let address = match self.settings.address {
            IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            address => address,
        };
        self.settings.advertised_host.clone().unwrap_or_else(|| address.to_string())
    }

    /// Adds an export. Handles that an earlier server gave out are valid again if the directory is the same.
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

    /// Removes an export and its table: its handles are stale. An export that does not exist is no error; a table that
    /// an earlier server has left is removed.
    ///
    /// Waits until all operations on it have ended, and closes the root and every descriptor below. With
    /// [`NfsError::StillInUse`] some operation goes on; the call can be repeated.
    pub fn remove_export(&self, name: &str) -> Result<(), NfsError> {
        self.context.registry.remove(name);
        self.forget_replies();
        self.context.mounts.remove_export(name);
        self.drain(name)?;
        // A running operation could write the table anew, so it is removed last.
        if export::is_name(name) { self.state.remove_table(name) } else { Ok(()) }
    }

    /// Replaces the root of an export, after a restore. Handles of the former root are stale, unless it is the same
    /// directory with the same revision.
    ///
    /// When this returns, no operation uses the former root. With [`NfsError::StillInUse`] some operation does; the
    /// new root is served all the same.
    pub fn replace_root(&self, name: &str, root: OwnedFd, revision: &str) -> Result<NfsExportInfo, NfsError> {
        let rules = self.context.registry.detach(name)?;
        let drained = self.drain(name);
        if drained.is_err() {
            // An operation on the former root may still write to its table.
            self.state.remove_table(name)?;
        }
        let volume = self.volume(&rules, root, revision)?;
        self.context.registry.publish(name, volume);
        self.forget_replies();
        drained.map(|()| self.info(&rules))
    }

    /// Takes the root from an export: clients are told to try again later, until
    /// [`replace_root`](Self::replace_root) or [`remove_export`](Self::remove_export).
    ///
    /// When this returns, no descriptor below the root is open. With [`NfsError::StillInUse`] some operation goes
    /// on; the call can be repeated.
    pub fn detach_root(&self, name: &str) -> Result<(), NfsError> {
        self.context.registry.detach(name)?;
        self.drain(name)
    }

    /// Forgets the replies to calls on handles that are stale now.
    fn forget_replies(&self) {
        self.context.replies.retain(|generation| self.context.registry.has_generation(generation));
    }

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
