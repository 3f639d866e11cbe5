//! A store, and workspaces over it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use tempfile::TempDir;
use workspace_host::holder::Holder;
use workspace_host::overlay;
use workspace_state::{
    CheckoutOptions, Difference, NewSnapshot, Quiet, Snapshot, SnapshotOptions, Store, checkout,
    snapshot_directory,
};
use workspace_workspace::{Choice, Kind, LazyCommand, Options, Workspaces};

use crate::listing::{self, listing};

/// The word by which this program serves a lazy view.
const VIEW: &str = "serve-view";

/// Does so if it was asked to.
pub(crate) fn view_entry() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != VIEW {
        return None;
    }
    match workspace_mount::daemon_main(words) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("{error}");
            Some(ExitCode::FAILURE)
        }
    }
}

pub(crate) struct World {
    pub(crate) home: TempDir,
    pub(crate) store: Store,
    pub(crate) holder: Holder,
    /// None while nobody has them open.
    pub(crate) workspaces: Option<Workspaces>,
    kind: Kind,
    lazy: bool,
}

impl World {
    pub(crate) fn new(kind: Kind) -> Self {
        Self::within(tempfile::tempdir().unwrap(), kind, false)
    }

    pub(crate) fn with_view(kind: Kind) -> Self {
        Self::within(tempfile::tempdir().unwrap(), kind, true)
    }

    pub(crate) fn within(home: TempDir, kind: Kind, lazy: bool) -> Self {
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let holder = Holder::find_or_start(home.path()).unwrap();
        let mut world = Self { home, store, holder, workspaces: None, kind, lazy };
        world.open();
        world
    }

    /// Opens the workspaces as another process would.
    pub(crate) fn open(&mut self) {
        self.workspaces = None;
        let lazy = self.lazy.then(|| LazyCommand {
            program: std::env::current_exe().unwrap(),
            words: vec![OsString::from(VIEW)],
        });
        let opened = Workspaces::open(Options {
            directory: self.home.path().join("workspaces"),
            layers: self.home.path().join("layers"),
            store: self.store.clone(),
            holder: Ok(self.holder.clone()),
            owner: None,
            provider: Choice::Prefer(self.kind),
            lazy,
        });
        let opened = opened.unwrap();
        assert_eq!(opened.chosen().kind, self.kind, "{:?}", opened.chosen());
        self.workspaces = Some(opened);
    }

    pub(crate) fn all(&self) -> &Workspaces {
        self.workspaces.as_ref().unwrap()
    }

    /// A directory made by a script, as a snapshot.
    pub(crate) fn snapshot(&self, script: &str) -> Snapshot {
        let directory = tempfile::tempdir_in(self.home.path()).unwrap();
        self.shell_in(directory.path(), script);
        let options = SnapshotOptions { note: false, ..SnapshotOptions::default() };
        let report = snapshot_directory(&self.store, directory.path(), options, &Quiet).unwrap();
        assert!(report.skipped.is_empty(), "{:?}", report.skipped);
        report.snapshot
    }

    fn shell_in(&self, directory: &Path, script: &str) -> Output {
        let mut command: Command = overlay::command(&self.holder, "/bin/sh".as_ref());
        let output = command.args(["-ec", "cd \"$1\"; shift; eval \"$1\"", "sh"]);
        let output = output.arg(directory).arg(script).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Runs a script in a workspace; what it prints.
    pub(crate) fn run(&self, id: &str, script: &str) -> String {
        let output = self.shell_in(&self.all().path(id).unwrap(), script);
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a workspace holds, as whoever uses it sees it.
    pub(crate) fn seen(&self, id: &str) -> String {
        let path = self.all().path(id).unwrap();
        let mut command = overlay::command(&self.holder, std::env::current_exe().unwrap().as_os_str());
        let output = command.arg(listing::WORD).arg(path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a snapshot holds when it is checked out.
    pub(crate) fn checked_out(&self, snapshot: &Snapshot) -> String {
        let directory: PathBuf = tempfile::tempdir_in(self.home.path()).unwrap().keep();
        checkout(&self.store, snapshot, &directory, &CheckoutOptions::default(), &Quiet).unwrap();
        listing(&directory)
    }

    pub(crate) fn commit(&self, id: &str) -> Snapshot {
        let committed = self.all().commit(id, NewSnapshot::with_message("test"), false).unwrap();
        assert!(committed.skipped.is_empty(), "{:?}", committed.skipped);
        committed.snapshot
    }

    /// The changes of a workspace, a word and a path each.
    pub(crate) fn changes(&self, id: &str) -> Vec<String> {
        let changes = self.all().changes(id, false).unwrap();
        changes.differences().unwrap().iter().map(told).collect()
    }
}

pub(crate) fn told(difference: &Difference) -> String {
    let path = String::from_utf8_lossy(&difference.path);
    format!("{:?} {path}", difference.kind)
}

impl Drop for World {
    fn drop(&mut self) {
        self.workspaces = None;
        for path in overlay::mounted(&self.holder, self.home.path()).unwrap_or_default().iter().rev() {
            drop(overlay::unmount(&self.holder, path));
        }
        self.holder.end();
    }
}
