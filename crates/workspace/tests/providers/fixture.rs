//! Fixture of the tests: a temporary directory with a store and a set of workspaces.
//!
//! Most tests run with each [`Setting`]: a provider (method of making the directory of a workspace: overlay, clone or
//! copy) on a file system. Scripts and listings run in the namespaces of the *namespace holder*, a process that keeps
//! the mounts of overlays.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitCode, Output};

use libtest_mimic::Trial;
use tempfile::TempDir;
use workspace_host::NamespaceHolder;
use workspace_host::overlay;
use workspace_state::{
    CheckoutOptions, Difference, NewSnapshot, NoProgress, Snapshot, SnapshotOptions, Store, checkout,
    snapshot_directory,
};
use workspace_workspace::{
    LazyCommand, Options, ProviderKind, ProviderPreference, SnapshotPart, Workspaces, Writers,
};

use crate::image::{self, Image};
use crate::listing::{self, listing};

/// Subcommand of this program that serves a lazy mount, a FUSE mount that loads the files of snapshots on first read.
pub(crate) const LAZY_MOUNT: &str = "serve-view";

/// Serves a lazy mount if the first argument is [`LAZY_MOUNT`]. Returns `None` if it is not.
pub(crate) fn lazy_mount_entry() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != LAZY_MOUNT {
        return None;
    }
    match workspace_mount::daemon_main(args) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("{error}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Provider and file system of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Provider that the workspaces must have.
    pub(crate) kind: ProviderKind,
    /// Type of the file system in an image that is mounted for the test; `None` for that of temporary files.
    pub(crate) filesystem: Option<&'static str>,
}

impl Setting {
    /// Overlay in the directory of temporary files.
    pub(crate) const OVERLAY: Self = Self { kind: ProviderKind::Overlay, filesystem: None };
    /// Copy in the directory of temporary files.
    pub(crate) const COPY: Self = Self { kind: ProviderKind::Copy, filesystem: None };

    /// Returns all settings that are available here. Clones need a file system with reflinks, and only root
    /// can mount one.
    pub(crate) fn all() -> Vec<Self> {
        let clone = |filesystem| Self { kind: ProviderKind::Clone, filesystem: Some(filesystem) };
        let clones = if rustix::process::geteuid().is_root() { &["xfs", "btrfs"][..] } else { &[] };
        let clones = clones.iter().copied().filter(|filesystem| image::is_available(filesystem)).map(clone);
        [Self::OVERLAY, Self::COPY].into_iter().chain(clones).collect()
    }

    /// Returns a test whose name is `name` after the setting. `test` captures the setting that it uses.
    pub(crate) fn trial(self, name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
        let suffix = self.filesystem.map(|filesystem| format!("_{filesystem}")).unwrap_or_default();
        Trial::test(format!("{}{suffix}::{name}", self.kind), move || {
            test();
            Ok(())
        })
    }
}

/// Store with workspaces in a temporary directory. Drop unmounts and removes everything.
pub(crate) struct Fixture {
    /// Directory of all files of the fixture.
    pub(crate) home: TempDir,
    /// Store of all snapshots of the test.
    pub(crate) store: Store,
    /// Namespace holder, which keeps the mounts of overlays; killed on drop.
    pub(crate) holder: NamespaceHolder,
    /// Set of workspaces under test; `None` while it is not open.
    pub(crate) workspaces: Option<Workspaces>,
    /// Provider of the workspaces.
    pub(crate) kind: ProviderKind,
    /// True if large trees are mounted lazily at first.
    lazy: bool,
    /// File system that `home` is in, dropped last; `None` for that of temporary files.
    _image: Option<Image>,
}

impl Fixture {
    /// Creates an empty store, and opens an empty set of workspaces, without a lazy mount.
    pub(crate) fn new(setting: Setting) -> Self {
        let image = setting.filesystem.map(|filesystem| Image::new(filesystem, image::SIZE));
        let lazy = false;
        Self::within(image, setting.kind, lazy)
    }

    /// Like [`Self::new`], with a lazy mount, always in the directory of temporary files.
    pub(crate) fn with_lazy_mount(setting: Setting) -> Self {
        let (no_image, lazy) = (None, true);
        Self::within(no_image, setting.kind, lazy)
    }

    /// Creates a fixture whose files are all in the file system of `image`, or else in the directory of temporary
    /// files; with a lazy mount if `lazy` is true.
    pub(crate) fn within(image: Option<Image>, kind: ProviderKind, lazy: bool) -> Self {
        let home = match &image {
            Some(image) => tempfile::tempdir_in(image.path()).unwrap(),
            None => tempfile::tempdir().unwrap(),
        };
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let holder = NamespaceHolder::find_or_start(home.path()).unwrap();
        let mut fixture = Self { home, store, holder, workspaces: None, kind, lazy, _image: image };
        fixture.open();
        fixture
    }

    /// Opens the set of workspaces, or closes it and opens it again, as the next process does after a restart. Existing
    /// workspaces stay.
    pub(crate) fn open(&mut self) {
        self.workspaces = None;
        let lazy = self.lazy.then(|| LazyCommand {
            program: std::env::current_exe().unwrap(),
            args: vec![OsString::from(LAZY_MOUNT)],
        });
        let options = options(self.home.path(), &self.store, &self.holder, self.kind);
        let opened = Workspaces::open(Options { lazy, ..options });
        let opened = opened.unwrap();
        assert_eq!(opened.provider_selection().kind, self.kind, "{:?}", opened.provider_selection());
        self.workspaces = Some(opened);
    }

    /// Returns the set of workspaces under test. Panics if it is not open.
    pub(crate) fn all(&self) -> &Workspaces {
        self.workspaces.as_ref().unwrap()
    }

    /// Runs a script in a new, empty directory, and commits the directory as a new snapshot. No workspace is created.
    pub(crate) fn snapshot(&self, script: &str) -> Snapshot {
        let directory = tempfile::tempdir_in(self.home.path()).unwrap();
        self.shell_in(directory.path(), script);
        let options = SnapshotOptions { record_as_checkout: false, ..SnapshotOptions::default() };
        let report = snapshot_directory(&self.store, directory.path(), options, &NoProgress).unwrap();
        assert!(report.skipped.is_empty(), "{:?}", report.skipped);
        report.snapshot
    }

    /// Runs a script in a directory, in the namespaces of the namespace holder. Fails the test if the script fails.
    pub(crate) fn shell_in(&self, directory: &Path, script: &str) -> Output {
        let mut command: Command = overlay::command(&self.holder, "/bin/sh".as_ref());
        let output = command.args(["-ec", "cd \"$1\"; shift; eval \"$1\"", "sh"]);
        let output = output.arg(directory).arg(script).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Runs a script in the workspace `id`, as [`Self::shell_in`] does. Returns its standard output.
    pub(crate) fn run(&self, id: &str, script: &str) -> String {
        let output = self.shell_in(&self.all().path(id).unwrap(), script);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the listing (`listing.rs`) of a workspace as its agent sees it.
    pub(crate) fn seen(&self, id: &str) -> String {
        self.run_self(&[listing::SUBCOMMAND.as_ref(), self.all().path(id).unwrap().as_os_str()])
    }

    /// Runs this program in the namespaces of the namespace holder, with a subcommand and its arguments. Returns its
    /// standard output.
    pub(crate) fn run_self(&self, args: &[&OsStr]) -> String {
        let mut command = overlay::command(&self.holder, std::env::current_exe().unwrap().as_os_str());
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Checks a snapshot out into a temporary directory, and returns the listing of that directory.
    pub(crate) fn checked_out(&self, snapshot: &Snapshot) -> String {
        let directory = tempfile::tempdir_in(self.home.path()).unwrap();
        let options = CheckoutOptions { keep_set_id: true, ..CheckoutOptions::default() };
        checkout(&self.store, snapshot, directory.path(), &options, &NoProgress).unwrap();
        let listing = listing(directory.path());
        // Makes the temporary directory removable.
        self.shell_in(self.home.path(), &format!("chmod -R u+rwX '{}'", directory.path().display()));
        listing
    }

    /// Commits the workspace `id` as a new snapshot, and returns that. The workspace must have no special files, such
    /// as sockets, which a commit skips.
    pub(crate) fn commit(&self, id: &str) -> Snapshot {
        let result = self.all().commit(id, NewSnapshot::with_message("test"), Writers::Running).unwrap();
        assert!(result.skipped.is_empty(), "{:?}", result.skipped);
        result.snapshot
    }

    /// Returns the changes of the workspace `id` since its base snapshot, each as its kind and path ([`describe`]).
    pub(crate) fn changes(&self, id: &str) -> Vec<String> {
        let changes = self.all().changes(id, Writers::Running).unwrap();
        changes.differences().unwrap().iter().map(describe).collect()
    }
}

/// Returns the options for a set of workspaces in the directory `home`, with the provider `kind` and without a lazy
/// mount.
pub(crate) fn options(home: &Path, store: &Store, holder: &NamespaceHolder, kind: ProviderKind) -> Options {
    Options {
        directory: home.join("workspaces"),
        layers: home.join("layers"),
        store: store.clone(),
        holder: Ok(holder.clone()),
        file_owner: None,
        part: SnapshotPart::Workspace,
        owner_ids: None,
        provider: ProviderPreference::Prefer(kind),
        lazy: None,
        reserve: 0,
        outside_writers: Writers::Stopped,
    }
}

/// Returns the kind and path of a change, as `Added PATH`.
pub(crate) fn describe(difference: &Difference) -> String {
    let path = String::from_utf8_lossy(&difference.path);
    format!("{:?} {path}", difference.kind)
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.workspaces = None;
        for path in overlay::mounted(&self.holder, self.home.path()).unwrap_or_default().iter().rev() {
            drop(overlay::unmount(&self.holder, path));
        }
        self.holder.kill();
    }
}
