//! Fixtures: NFS servers with a temporary directory that they export.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nfs3_types::nfs3::nfs_fh3;
use parking_lot::Mutex;
use tempfile::TempDir;
use workspace_nfs::{
    Direction, Export, Identity, Limits, MountEvent, NfsServer, Observer, Operation, Outcome, Refusal,
    RefusalReason, Settings,
};

use crate::client::Client;

/// Name of the export of a fixture.
pub(crate) const NAME: &str = "sbx-1";

/// Running server in a temporary directory.
///
/// The directory has `root`, which is exported, and `state`, in which the server keeps its key and the tables of file
/// handles.
pub(crate) struct Fixture {
    pub(crate) server: NfsServer,
    pub(crate) recorder: Arc<Recorder>,
    directory: TempDir,
}

/// Observer that records all of its calls.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) operations: Mutex<Vec<(Operation, Outcome)>>,
    pub(crate) bytes: Mutex<Vec<(Direction, u64)>>,
    /// Names of exports, after `+` for a mount and after `-` for an unmount.
    pub(crate) mounts: Mutex<Vec<String>>,
    pub(crate) refusals: Mutex<Vec<RefusalReason>>,
}

impl Observer for Recorder {
    fn operation(&self, operation: Operation, outcome: Outcome) {
        self.operations.lock().push((operation, outcome));
    }

    fn bytes(&self, direction: Direction, count: u64) {
        self.bytes.lock().push((direction, count));
    }

    fn mounted(&self, event: MountEvent<'_>) {
        self.mounts.lock().push(format!("+{}", event.export));
    }

    fn unmounted(&self, event: MountEvent<'_>) {
        self.mounts.lock().push(format!("-{}", event.export));
    }

    fn refused(&self, refusal: Refusal<'_>) {
        self.refusals.lock().push(refusal.reason);
    }
}

impl Fixture {
    /// Starts a server with an export that every client may mount and change.
    pub(crate) fn new() -> Self {
        Self::with_export(|export| export)
    }

    /// Starts a server with an export that `set` has changed.
    pub(crate) fn with_export(set: impl FnOnce(Export) -> Export) -> Self {
        let fixture = Self::without_export(|settings| settings);
        fixture.server.add_export(set(fixture.export())).unwrap();
        fixture
    }

    /// Starts a server with an export and with limits that `set` has changed.
    pub(crate) fn with_limits(set: impl FnOnce(&mut Limits)) -> Self {
        let fixture = Self::without_export(|mut settings| {
            set(&mut settings.limits);
            settings
        });
        fixture.server.add_export(fixture.export()).unwrap();
        fixture
    }

    /// Starts a server without an export, with settings that `set` has changed.
    pub(crate) fn without_export(set: impl FnOnce(Settings) -> Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        let recorder = Arc::new(Recorder::default());
        let settings = set(settings(directory.path()));
        let server = NfsServer::new(settings, Arc::clone(&recorder) as Arc<dyn Observer>).unwrap();
        server.start().unwrap();
        Self { server, recorder, directory }
    }

    /// Stops the server without a removal of its export. Starts another server with the same state, and adds the
    /// export.
    pub(crate) fn restart(self) -> Self {
        self.restart_with(|export| export)
    }

    /// Restarts the server like [`restart`](Self::restart), but adds the export that `set` returns.
    pub(crate) fn restart_with(self, set: impl FnOnce(Export) -> Export) -> Self {
        let fixture = self.restart_without_export();
        fixture.server.add_export(set(fixture.export())).unwrap();
        fixture
    }

    /// Restarts the server like [`restart`](Self::restart), but does not add the export.
    pub(crate) fn restart_without_export(self) -> Self {
        let Self { server, directory, .. } = self;
        drop(server);
        let recorder = Arc::new(Recorder::default());
        let observer = Arc::clone(&recorder) as Arc<dyn Observer>;
        let server = NfsServer::new(settings(directory.path()), observer).unwrap();
        server.start().unwrap();
        Self { server, recorder, directory }
    }

    /// Returns the directory as an export, which can be added to a server.
    pub(crate) fn export(&self) -> Export {
        Export::new(NAME, open(&self.root()), Identity::own())
    }

    /// Returns the path of the exported directory.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// Returns the path of a file or directory in the exported directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Returns the directory above the exported directory, which clients must not reach.
    pub(crate) fn outside(&self) -> &Path {
        self.directory.path()
    }

    /// Connects a client.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.server.get_server_info().port)
    }

    /// Connects a client and mounts the export. Returns the handle of the root, too.
    pub(crate) fn mount(&self) -> (Client, nfs_fh3) {
        let mut client = self.connect();
        let root = client.mount(&format!("/{NAME}")).unwrap();
        (client, root)
    }
}

fn settings(directory: &Path) -> Settings {
    let mut settings = Settings::new(directory.join("state"));
    settings.ports = vec![0];
    settings
}

/// Opens a directory.
pub(crate) fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}
