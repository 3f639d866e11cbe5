//! Environment of the search: sandboxes over a store, in a temporary directory.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use workspace_catalog::{Catalog, sqlite_url};
use workspace_host::NamespaceHolder;
use workspace_sandbox::runtime::Embedded;
use workspace_sandbox::{
    CommandLine, Creator, NewCommit, NewSandbox, OutputPiece, ReclaimPolicy, RunRequest, Scope, Service,
    Settings, Stream,
};
use workspace_state::{
    Durability, Episode, EpisodeId, NoProgress, Snapshot, SnapshotId, SnapshotOptions, Store, Tree, insight,
    snapshot_directory,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Returns the directory with the sample and the edits.
fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Sandboxes, and the store with their snapshots.
pub(crate) struct Lab {
    service: Service,
    store: Store,
    directory: TempDir,
}

impl Lab {
    pub(crate) async fn open() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let agent = agent()?;
        let catalog = Catalog::open(&sqlite_url(&directory.path().join("catalog.db"))).await?;
        let runtime = Arc::new(Embedded::start(directory.path(), &agent).await?);
        let service = Service::start(Settings::new(directory.path()), catalog, runtime).await?;
        let store = service.workspaces().store().clone();
        Ok(Self { service, store, directory })
    }

    /// Returns the edits to try, each with a name and a command.
    pub(crate) fn edits() -> Result<Vec<(String, String)>> {
        Ok(serde_json::from_slice(&std::fs::read(here().join("edits.json"))?)?)
    }

    /// Takes a snapshot of the unchanged sample.
    pub(crate) fn start(&self) -> Result<Snapshot> {
        let options = SnapshotOptions { record_as_checkout: false, ..SnapshotOptions::default() };
        Ok(snapshot_directory(&self.store, &here().join("sample"), options, &NoProgress)?.snapshot)
    }

    /// Applies an edit and runs the tests. Returns the share of tests that pass, and a snapshot of the
    /// result.
    pub(crate) async fn tested(&self, snapshot: SnapshotId, edit: &str) -> Result<(f64, Snapshot)> {
        let creator = Creator {
            owner: "search".to_owned(),
            unlimited: true,
            max_sandboxes: None,
            idempotency_key: None,
        };
        let new =
            NewSandbox { template: "base".to_owned(), snapshot: Some(snapshot), ..NewSandbox::default() };
        let id = self.service.create(creator, new).await?.sandbox.id;
        let tried = self.try_in(&id, edit).await;
        self.service.remove(&Scope::All, &id, ReclaimPolicy::Delete).await?;
        tried
    }

    async fn try_in(&self, id: &str, edit: &str) -> Result<(f64, Snapshot)> {
        let command = CommandLine::Shell(format!("{edit}; sh test.sh"));
        let request = RunRequest { command, ..RunRequest::default() };
        let handle = self.service.run(&Scope::All, id, request).await?;
        let mut output = handle.output(0).await?;
        let mut said = String::new();
        while let Some(pieces) = output.next().await? {
            for piece in pieces {
                if let OutputPiece::Data { stream: Stream::Stdout, data, .. } = piece {
                    said.push_str(&String::from_utf8_lossy(&data));
                }
            }
        }
        let commit = NewCommit { message: edit.to_owned(), buffered: true, ..NewCommit::default() };
        let taken = self.service.commit(&Scope::All, id, commit).await?;
        Ok((share(&said), taken.committed.snapshot))
    }

    /// Returns a penalty for risks of a change that the tests do not show.
    pub(crate) fn risk(&self, before: &Snapshot, after: &Snapshot) -> Result<f64> {
        let open = |snapshot| Tree::of_snapshot(&self.store, snapshot);
        let judged = insight(&open(before)?, &open(after)?)?;
        let notes = judged.entries.iter().map(|entry| entry.notes.len()).sum::<usize>() + judged.notes.len();
        Ok(0.05 * notes as f64)
    }

    /// Stores a step of the search as an episode.
    pub(crate) fn keep(
        &self,
        snapshot: &Snapshot,
        parent: Option<EpisodeId>,
        action: &str,
        reward: f64,
    ) -> Result<EpisodeId> {
        let episode = Episode::new(snapshot.id, parent, action, reward);
        self.store.put_episode(&episode, Durability::Buffered)?;
        Ok(episode.id)
    }

    /// Returns the edits on the path to a step.
    pub(crate) fn path(&self, episode: &EpisodeId) -> Result<Vec<String>> {
        let path = self.store.episode_path(episode)?;
        Ok(path.into_iter().map(|episode| episode.action).filter(|action| action != "start").collect())
    }

    pub(crate) async fn close(&self) -> Result<()> {
        self.service.close().await;
        // For an unprivileged user, this process outlives the sandboxes.
        NamespaceHolder::find_or_start(self.directory.path())?.kill();
        Ok(())
    }
}

/// Returns the guest agent, which has to be next to this program.
fn agent() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let agent = own.parent().unwrap_or(Path::new(".")).join("workspace-agent");
    if agent.is_file() {
        return Ok(agent);
    }
    Err(format!("{} is not there: cargo build -p workspace-agent", agent.display()).into())
}

/// Returns the share of passed tests, from the last line of their output.
fn share(said: &str) -> f64 {
    let last = said.lines().last().unwrap_or_default();
    let numbers: Vec<f64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [passed, failed] if passed + failed > 0.0 => passed / (passed + failed),
        _ => 0.0,
    }
}
