//! Where edits are tried: sandboxes over a store, in a directory that goes with the search.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use workspace_catalog::{Catalog, sqlite_url};
use workspace_host::Holder;
use workspace_sandbox::runtime::Embedded;
use workspace_sandbox::{NewCommit, NewSandbox, Piece, RunRequest, Scope, Service, Settings, Stream, Wanted};
use workspace_state::{
    Durability, Episode, EpisodeId, Quiet, Snapshot, SnapshotId, SnapshotOptions, Store, Tree, insight,
    snapshot_directory,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The sample and the edits, beside this program's source.
fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Sandboxes, and the store of what became of them.
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

    /// What can be tried: a name and a command each.
    pub(crate) fn edits() -> Result<Vec<(String, String)>> {
        Ok(serde_json::from_slice(&std::fs::read(here().join("edits.json"))?)?)
    }

    /// The sample as it is.
    pub(crate) fn start(&self) -> Result<Snapshot> {
        let options = SnapshotOptions { note: false, ..SnapshotOptions::default() };
        Ok(snapshot_directory(&self.store, &here().join("sample"), options, &Quiet)?.snapshot)
    }

    /// The share of tests that pass after an edit, and a snapshot of that.
    pub(crate) async fn tested(&self, snapshot: SnapshotId, edit: &str) -> Result<(f64, Snapshot)> {
        let wanted = Wanted { owner: "search".to_owned(), unlimited: true, most: None, key: None };
        let new =
            NewSandbox { template: "base".to_owned(), snapshot: Some(snapshot), ..NewSandbox::default() };
        let id = self.service.create(wanted, new).await?.sandbox.id;
        let tried = self.try_in(&id, edit).await;
        self.service.remove(&Scope::All, &id, false).await?;
        tried
    }

    async fn try_in(&self, id: &str, edit: &str) -> Result<(f64, Snapshot)> {
        let command = format!("{edit}; sh test.sh");
        let request = RunRequest { command, ..RunRequest::default() };
        let handle = self.service.run(&Scope::All, id, request).await?;
        let mut output = handle.output(0).await?;
        let mut said = String::new();
        while let Some(pieces) = output.next().await? {
            for piece in pieces {
                if let Piece::Data { stream: Stream::Stdout, data, .. } = piece {
                    said.push_str(&String::from_utf8_lossy(&data));
                }
            }
        }
        let commit = NewCommit { message: edit.to_owned(), buffered: true, ..NewCommit::default() };
        let taken = self.service.commit(&Scope::All, id, commit).await?;
        Ok((share(&said), taken.committed.snapshot))
    }

    /// What a change may cost beside what the tests see.
    pub(crate) fn risk(&self, before: &Snapshot, after: &Snapshot) -> Result<f64> {
        let open = |snapshot| Tree::of_snapshot(&self.store, snapshot);
        let judged = insight(&open(before)?, &open(after)?)?;
        let notes = judged.entries.iter().map(|entry| entry.notes.len()).sum::<usize>() + judged.notes.len();
        Ok(0.05 * notes as f64)
    }

    /// Keeps a step of the search.
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

    /// What was done on the way to a step.
    pub(crate) fn path(&self, episode: &EpisodeId) -> Result<Vec<String>> {
        let path = self.store.episode_path(episode)?;
        Ok(path.into_iter().map(|episode| episode.action).filter(|action| action != "start").collect())
    }

    pub(crate) async fn close(&self) -> Result<()> {
        self.service.close().await;
        // Of an ordinary user's sandboxes this is what is left.
        Holder::find_or_start(self.directory.path())?.end();
        Ok(())
    }
}

/// The guest agent, beside this program.
fn agent() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let agent = own.parent().unwrap_or(Path::new(".")).join("workspace-agent");
    if agent.is_file() {
        return Ok(agent);
    }
    Err(format!("{} is not there: cargo build -p workspace-agent", agent.display()).into())
}

/// The share of tests that passed, of what they printed.
fn share(said: &str) -> f64 {
    let last = said.lines().last().unwrap_or_default();
    let numbers: Vec<f64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [passed, failed] if passed + failed > 0.0 => passed / (passed + failed),
        _ => 0.0,
    }
}
