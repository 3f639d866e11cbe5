//! The NFS server of the kernel as a server of exports.
//!
//! It exports directories by their paths. A line for each export is kept in a file of exports(5), and the program
//! `exportfs` makes the kernel read it. The kernel goes on to serve clients while this process does not run, so clients
//! do not notice a restart.
//!
//! The kernel knows neither secrets in paths nor a [`Gate`](crate::Gate) or [`DiskLimit`](crate::DiskLimit): who may
//! mount is decided by the addresses alone, and the owner of a directory cannot exclude clients for a moment.

mod checks;
mod exportfs;
mod exports_file;
mod line;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use self::exportfs::Outcome;
use self::exports_file::ExportsFile;
use self::line::Line;
use crate::clients::ClientList;
use crate::error::NfsError;
use crate::export::{Access, Export, ExportSummary, Identity, NfsExportInfo, is_name};
use crate::provider::{NfsMode, NfsProvider, NfsServerInfo};
use parking_lot::{Mutex, MutexGuard};

/// Settings of a [`SystemNfs`].
#[derive(Debug, Clone)]
pub struct SystemSettings {
    /// Id of this server, of ASCII letters, digits, `-` and `_`. It marks the lines in the file that are this server's,
    /// so it must stay the same across restarts.
    pub server: String,
    /// File of exports(5) with the lines of the exports. Others may have lines there. `exportfs` must read it.
    pub exports_file: PathBuf,
    /// Program `exportfs`; `None` to look for it in `PATH` and the directories of the system.
    pub exportfs: Option<PathBuf>,
    /// Directory with the control files of the kernel's server.
    pub nfsd: PathBuf,
    /// Host name or address that clients are told.
    pub host: String,
    /// Clients that may use the exports. In addition, each export has a list of its own.
    pub allowed_clients: ClientList,
}

impl SystemSettings {
    /// Returns the settings for the exports of a server in a file, for all clients.
    pub fn new(server: impl Into<String>, exports_file: impl Into<PathBuf>) -> Self {
        Self {
            server: server.into(),
            exports_file: exports_file.into(),
            exportfs: None,
            nfsd: "/proc/fs/nfsd".into(),
            host: "127.0.0.1".to_owned(),
            allowed_clients: ClientList::any(),
        }
    }
}

/// Exports that the NFS server of the kernel serves.
#[derive(Debug)]
pub struct SystemNfs {
    settings: SystemSettings,
    file: ExportsFile,
    state: Mutex<State>,
    /// Locked while the lines are written and `exportfs` runs. Locked before `state`.
    applied: Mutex<Applied>,
}

/// Exports, and the state of the server.
#[derive(Debug, Default)]
struct State {
    exports: BTreeMap<String, SystemExport>,
    /// Number of changes of `exports` so far.
    version: u64,
    /// Path of `exportfs`; `None` before the first start. Until then, changes are only recorded.
    exportfs: Option<PathBuf>,
    is_started: bool,
}

#[derive(Debug)]
struct SystemExport {
    path: PathBuf,
    revision: String,
    identity: Identity,
    access: Access,
    clients: ClientList,
    /// False while the export is detached from its root.
    has_root: bool,
}

/// Last change that the kernel knows.
#[derive(Debug, Default)]
struct Applied {
    /// [`State::version`] at the last successful run; `None` before the first, and after a failure.
    version: Option<u64>,
    outcome: Option<Outcome>,
}

impl SystemNfs {
    /// TCP port of the kernel's server.
    pub const PORT: u16 = 2049;

    /// Creates a server that is not started. Nothing is written before the start.
    pub fn new(settings: SystemSettings) -> Result<Self, NfsError> {
        if !is_name(&settings.server) {
            return Err(NfsError::InvalidName { name: settings.server });
        }
        let file = ExportsFile::new(&settings.exports_file, settings.server.clone());
        Ok(Self { settings, file, state: Mutex::default(), applied: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Writes the lines of all exports, and makes the kernel read them. Returns `None` if the server was never started.
    ///
    /// Callers that wait for a run which began before their change share the next one.
    fn apply(&self) -> Result<Option<Outcome>, NfsError> {
        let wanted = self.state().version;
        let mut applied = self.applied.lock();
        if applied.version.is_some_and(|version| version >= wanted) {
            return Ok(applied.outcome.clone());
        }
        let (lines, version, program) = {
            let state = self.state();
            let Some(program) = state.exportfs.clone() else { return Ok(None) };
            (self.lines(&state), state.version, program)
        };
        applied.version = None;
        self.file.replace_lines(&lines)?;
        let outcome = exportfs::refresh(&program)?;
        outcome.report();
        *applied = Applied { version: Some(version), outcome: Some(outcome.clone()) };
        Ok(Some(outcome))
    }

    fn lines(&self, state: &State) -> String {
        let with_root = state.exports.iter().filter(|(_, export)| export.has_root);
        let line = |(name, export): (&String, &SystemExport)| {
            let line = Line {
                server: &self.settings.server,
                name,
                path: &export.path,
                clients: &export.clients.intersection(&self.settings.allowed_clients),
                access: export.access,
                identity: export.identity,
                revision: &export.revision,
            };
            line.text()
        };
        with_root.filter_map(line).collect()
    }

    /// Applies a change of an export with this path. Fails if `exportfs` refuses the export.
    fn apply_path(&self, name: &str, path: &Path) -> Result<(), NfsError> {
        let outcome = self.apply()?;
        let complaint = outcome.and_then(|outcome| outcome.complaint_about(&path.to_string_lossy()));
        match complaint {
            None => Ok(()),
            Some(message) => Err(NfsError::ExportRefused { name: name.to_owned(), message }),
        }
    }

    /// Removes an export. Returns false if there is none.
    fn forget(&self, name: &str) -> bool {
        let mut state = self.state();
        state.version += 1;
        state.exports.remove(name).is_some()
    }

    fn info(&self, export: &SystemExport) -> NfsExportInfo {
        NfsExportInfo::of_system(self.settings.host.clone(), Self::PORT, &export.path.to_string_lossy())
    }
}

impl NfsProvider for SystemNfs {
    /// Fails if something is missing: the rights of root, the program `exportfs`, or the kernel's server. Writes the
    /// lines of the exports that were added, and removes those that an earlier process has left for others.
    fn start(&self) -> Result<(), NfsError> {
        if self.state().is_started {
            return Err(NfsError::AlreadyRunning);
        }
        checks::check_root()?;
        let found = || exportfs::find(std::env::var_os("PATH").as_deref());
        let program = self.settings.exportfs.clone().or_else(found).ok_or(NfsError::NoExportfs)?;
        if !checks::is_running(&self.settings.nfsd) {
            return Err(NfsError::NoKernelServer { directory: self.settings.nfsd.clone() });
        }
        {
            let mut state = self.state();
            state.exportfs = Some(program);
            state.is_started = true;
            state.version += 1;
        }
        let applied = self.apply();
        if applied.is_err() {
            self.state().is_started = false;
        }
        let file = &self.settings.exports_file;
        applied
            .map(|_| tracing::info!(file = %file.display(), "exports are served by the kernel's NFS server"))
    }

    /// Only records the stop: the kernel goes on to serve the exports, so that clients keep their mounts while this
    /// process restarts. A later removal of an export still takes effect.
    fn stop(&self) -> Result<(), NfsError> {
        self.state().is_started = false;
        Ok(())
    }

    /// Fails also if the kernel cannot export the directory, if its files belong to root, or if the export has a
    /// secret.
    fn add_export(&self, export: Export) -> Result<NfsExportInfo, NfsError> {
        export.check_name()?;
        let Export { name, root, identity, revision, access, clients, secret, .. } = export;
        if secret.is_some() {
            return Err(NfsError::SecretUnsupported { name });
        }
        checks::check_identity(&name, identity)?;
        let path = checks::exportable_path(&name, &root)?;
        drop(root);
        let added = SystemExport { path: path.clone(), revision, identity, access, clients, has_root: true };
        let info = self.info(&added);
        {
            let mut state = self.state();
            if state.exports.contains_key(&name) {
                return Err(NfsError::ExportExists { name });
            }
            state.version += 1;
            state.exports.insert(name.clone(), added);
        }
        let applied = self.apply_path(&name, &path);
        if applied.is_err() {
            self.forget(&name);
            if let Err(error) = self.apply() {
                tracing::warn!(
                    error = crate::error::chain(&error),
                    export = name,
                    "failed to remove NFS export"
                );
            }
        }
        applied.map(|()| info)
    }

    fn remove_export(&self, name: &str) -> Result<(), NfsError> {
        self.forget(name);
        self.apply().map(drop)
    }

    fn is_running(&self) -> bool {
        self.state().is_started && checks::is_running(&self.settings.nfsd)
    }

    fn get_server_info(&self) -> NfsServerInfo {
        NfsServerInfo { mode: NfsMode::System, host: self.settings.host.clone(), port: Self::PORT }
    }

    fn export_info(&self, name: &str) -> Option<NfsExportInfo> {
        self.state().exports.get(name).map(|export| self.info(export))
    }

    /// The kernel does not tell which clients have mounted an export, so the number of mounts is 0.
    fn exports(&self) -> Vec<ExportSummary> {
        let state = self.state();
        let summary = |(name, export): (&String, &SystemExport)| ExportSummary {
            name: name.clone(),
            access: export.access,
            clients: export.clients.intersection(&self.settings.allowed_clients),
            mounts: 0,
        };
        state.exports.iter().map(summary).collect()
    }

    fn replace_root(&self, name: &str, root: OwnedFd, revision: &str) -> Result<NfsExportInfo, NfsError> {
        let no_such = || NfsError::NoSuchExport { name: name.to_owned() };
        // Also if the new root cannot be used, clients must not reach the former one.
        let detached = self.state().exports.get_mut(name).map(|export| export.has_root = false);
        detached.ok_or_else(no_such)?;
        let path = match checks::exportable_path(name, &root) {
            Ok(path) => path,
            Err(error) => {
                self.detach_root(name)?;
                return Err(error);
            }
        };
        drop(root);
        let info = {
            let mut state = self.state();
            state.version += 1;
            let export = state.exports.get_mut(name).ok_or_else(no_such)?;
            (export.path, export.has_root) = (path.clone(), true);
            revision.clone_into(&mut export.revision);
            self.info(export)
        };
        self.apply_path(name, &path).map(|()| info)
    }

    fn detach_root(&self, name: &str) -> Result<(), NfsError> {
        {
            let mut state = self.state();
            state.version += 1;
            let export = state.exports.get_mut(name);
            let no_such = || NfsError::NoSuchExport { name: name.to_owned() };
            export.ok_or_else(no_such)?.has_root = false;
        }
        self.apply().map(drop)
    }

    /// Does nothing: the next start removes the lines of all exports that were not added again. A directory that is not
    /// there cannot be exported.
    fn retain_exports(&self, _is_kept: &dyn Fn(&str) -> bool) -> Result<(), NfsError> {
        Ok(())
    }

    fn connections(&self) -> usize {
        0
    }
}
