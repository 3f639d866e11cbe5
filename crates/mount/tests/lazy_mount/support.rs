//! Shared fixture: a store and its lazy mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use tempfile::TempDir;
use workspace_mount::{LazyMount, MountError, MountOptions, RequestCounter, detach};
use workspace_state::{NewSnapshot, Snapshot, Store, VirtualTree};
use workspace_test_support::requires;

/// A store and an empty directory to mount it on, both removed on drop.
pub(crate) struct Fixture {
    pub(crate) directory: TempDir,
    pub(crate) store: Store,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        fs::create_dir(directory.path().join("mount")).unwrap();
        Self { directory, store }
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    /// Commits a tree.
    pub(crate) fn commit(&self, fill: impl FnOnce(&mut VirtualTree)) -> Snapshot {
        let mut tree = self.store.empty_tree().unwrap();
        fill(&mut tree);
        tree.commit(NewSnapshot::with_message("test")).unwrap()
    }

    /// Mounts the store, served by a thread of this process.
    pub(crate) fn mount(&self) -> TestMount {
        TestMount::new(self, &MountOptions::default())
    }
}

/// A lazy mount that is unmounted on drop.
pub(crate) struct TestMount {
    mountpoint: PathBuf,
    pub(crate) requests: RequestCounter,
    thread: Option<JoinHandle<Result<(), MountError>>>,
}

impl TestMount {
    pub(crate) fn new(fixture: &Fixture, options: &MountOptions) -> Self {
        let mount = LazyMount::mount(fixture.store.path(), fixture.mountpoint(), options)
            .unwrap_or_else(|error| panic!("these tests need FUSE: {error} ({:?})", error.hint()));
        let mountpoint = mount.mountpoint().to_owned();
        let requests = mount.requests();
        Self { mountpoint, requests, thread: Some(std::thread::spawn(|| mount.serve())) }
    }

    /// Returns the path of a snapshot in the mount.
    pub(crate) fn of(&self, snapshot: &Snapshot) -> PathBuf {
        self.mountpoint.join(snapshot.id.to_string())
    }

    /// Returns the number of requests that `work` causes.
    pub(crate) fn requests_of(&self, work: impl FnOnce()) -> u64 {
        let before = self.requests.count();
        work();
        self.requests.count() - before
    }

    /// Waits until the unmounted file system is no longer served.
    pub(crate) fn ended(mut self) -> Result<(), MountError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(detach(&self.mountpoint));
            drop(thread.join());
        }
    }
}

/// Returns the output of a command, which must succeed.
pub(crate) fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns the names in a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Returns true if a test that needs root can run. Fails if all tests are required.
pub(crate) fn requires_root() -> bool {
    requires(rustix::process::geteuid().is_root(), "root, because it makes mount namespaces")
}
