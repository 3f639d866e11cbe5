//! Interface of the implementations that serve exports: the embedded server, and the NFS server of the kernel.

use std::fmt::Debug;
use std::os::fd::OwnedFd;

use crate::error::NfsError;
use crate::export::{Export, ExportSummary, NfsExportInfo};
use crate::server::NfsServer;

/// Implementation that serves the exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NfsMode {
    /// Server in this process: [`NfsServer`].
    Embedded,
    /// NFS server of the kernel: [`SystemNfs`](crate::SystemNfs).
    System,
}

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsServerInfo {
    /// Implementation that serves the exports.
    pub mode: NfsMode,
    /// Host name or address that clients are told.
    pub host: String,
    /// TCP port of NFS; zero while the server has never run and its port is not known.
    pub port: u16,
}

/// Server of exports. Exports can be added before it is started, and stay when it is stopped.
///
/// All functions may block for a moment; none needs an async runtime.
pub trait NfsProvider: Debug + Send + Sync {
    /// Begins to serve the exports. Fails if it runs already, or something that it needs is missing.
    fn start(&self) -> Result<(), NfsError>;

    /// Stops. Exports stay, and are served again after the next start. Does nothing if it does not run.
    fn stop(&self) -> Result<(), NfsError>;

    /// Adds an export. Fails if there is one of this name.
    fn add_export(&self, export: Export) -> Result<NfsExportInfo, NfsError>;

    /// Removes an export; its handles become stale. Does nothing if there is none. Can be repeated after an error.
    fn remove_export(&self, name: &str) -> Result<(), NfsError>;

    /// Returns true if the exports are served.
    fn is_running(&self) -> bool;

    /// Returns the address of the server.
    fn get_server_info(&self) -> NfsServerInfo;

    /// Returns the address of an export; `None` if there is no such export.
    fn export_info(&self, name: &str) -> Option<NfsExportInfo>;

    /// Returns all exports, ordered by name.
    fn exports(&self) -> Vec<ExportSummary>;

    /// Replaces the root of an export, also one that was detached. Handles of the former root become stale, unless the
    /// new root is the same directory with the same revision.
    fn replace_root(&self, name: &str, root: OwnedFd, revision: &str) -> Result<NfsExportInfo, NfsError>;

    /// Detaches an export from its root, which the server does not use any more when this returns. The export has no
    /// files until [`replace_root`](Self::replace_root).
    fn detach_root(&self, name: &str) -> Result<(), NfsError>;

    /// Removes what an earlier server has kept for exports that were not added again, except those for which `is_kept`
    /// returns true. It gets the name of the export.
    fn retain_exports(&self, is_kept: &dyn Fn(&str) -> bool) -> Result<(), NfsError>;

    /// Returns the number of connections of clients; 0 if it is not known.
    fn connections(&self) -> usize;
}

impl NfsProvider for NfsServer {
    fn start(&self) -> Result<(), NfsError> {
        Self::start(self)
    }

    fn stop(&self) -> Result<(), NfsError> {
        Self::stop(self)
    }

    fn add_export(&self, export: Export) -> Result<NfsExportInfo, NfsError> {
        Self::add_export(self, export)
    }

    fn remove_export(&self, name: &str) -> Result<(), NfsError> {
        Self::remove_export(self, name)
    }

    fn is_running(&self) -> bool {
        Self::is_running(self)
    }

    fn get_server_info(&self) -> NfsServerInfo {
        Self::get_server_info(self)
    }

    fn export_info(&self, name: &str) -> Option<NfsExportInfo> {
        Self::export_info(self, name)
    }

    fn exports(&self) -> Vec<ExportSummary> {
        Self::exports(self)
    }

    fn replace_root(&self, name: &str, root: OwnedFd, revision: &str) -> Result<NfsExportInfo, NfsError> {
        Self::replace_root(self, name, root, revision)
    }

    fn detach_root(&self, name: &str) -> Result<(), NfsError> {
        Self::detach_root(self, name)
    }

    fn retain_exports(&self, is_kept: &dyn Fn(&str) -> bool) -> Result<(), NfsError> {
        Self::retain_tables(self, is_kept)
    }

    fn connections(&self) -> usize {
        Self::connections(self)
    }
}
