//! Bases of the workspaces of projects, after their files were replaced.
//!
//! The record of the workspace is the truth: a rebase writes the new base there together with the new files. The
//! catalog is updated after that. An operation that depends on the base updates the catalog first, if that was not done
//! ([`Service::with_recorded_base`]).

use workspace_catalog::{Change, EventKind, Sandbox, State};
use workspace_state::{SnapshotId, Tree};
use workspace_workspace::{Changes, Phase, Record, WorkspaceError, Workspaces};

use crate::config::Config;
use crate::error::{Result, SandboxError};
use crate::lineage::{Lineage, ProjectBase};
use crate::service::{Service, config_of};

/// Maximum number of ancestors of a snapshot that are searched for a base.
const ANCESTORS_MAX: usize = 10_000;

/// State of the processes of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Processes {
    MayRun,
    Ended,
}

impl Service {
    /// Returns the row of a sandbox with the base of its present files. A server that replaced them may have failed to
    /// record it. The caller holds the operation lock.
    pub(crate) async fn with_recorded_base(&self, sandbox: Sandbox) -> Result<Sandbox> {
        let processes = if sandbox.state == State::Stopped { Processes::Ended } else { Processes::MayRun };
        self.with_base_of_files(sandbox, processes).await
    }

    /// Returns the row like [`Self::with_recorded_base`], for a sandbox that is being removed and in which nothing
    /// runs.
    pub(crate) async fn with_recorded_base_of_ended(&self, sandbox: Sandbox) -> Result<Sandbox> {
        self.with_base_of_files(sandbox, Processes::Ended).await
    }

    async fn with_base_of_files(&self, sandbox: Sandbox, processes: Processes) -> Result<Sandbox> {
        let config = config_of(&sandbox)?;
        if config.lineage.project_base.is_none() || config.follows {
            return Ok(sandbox);
        }
        let Some(record) = self.workspace_record(&sandbox.id).await? else { return Ok(sandbox) };
        // It is not known yet which of two directories is the workspace, unless nothing runs in either.
        let is_unresolved = record.phase == Phase::Resetting && processes == Processes::MayRun;
        if record.current.base == config.snapshot || is_unresolved {
            return Ok(sandbox);
        }
        self.sync_base_to_catalog(&sandbox.id).await?;
        self.read_row(&sandbox.id).await
    }

    /// Updates the row of a sandbox from the record of its workspace: the snapshot by which the files were replaced,
    /// and their base. Records an event if the row had another snapshot. A server that was killed after it replaced the
    /// files may not have done this.
    pub(crate) async fn sync_base_to_catalog(&self, id: &str) -> Result<()> {
        let Some(record) = self.workspace_record(id).await? else { return Ok(()) };
        let snapshot = record.current.base;
        let sandbox = self.read_row(id).await?;
        let info = record.current.base_info.as_deref();
        let recorded: Option<ProjectBase> = info.and_then(|info| serde_json::from_str(info).ok());
        let event = match recorded.as_ref().filter(|recorded| recorded.rebased == snapshot) {
            Some(base) => event_of_base(base),
            None => EventKind::SandboxRestored,
        };
        let base = match (recorded, snapshot) {
            (Some(recorded), _) => Some(recorded),
            (None, Some(snapshot)) => self.base_of(&sandbox, snapshot).await?,
            (None, None) => None,
        };
        let change = |sandbox: &Sandbox| {
            let config = config_of(sandbox).ok().filter(|config| config.snapshot != snapshot)?;
            let config = with_base(Config { snapshot, ..config }, base.clone());
            Some(Change { config: serde_json::to_value(config).ok(), ..Change::default() })
        };
        self.change(id, change, &[event]).await?;
        self.count_base_change(id);
        Ok(())
    }

    /// Returns the configuration of a sandbox after it is restored to a snapshot.
    pub(crate) async fn restored_config(&self, sandbox: &Sandbox, snapshot: SnapshotId) -> Result<Config> {
        let base = self.base_of(sandbox, snapshot).await?;
        Ok(with_base(Config { snapshot: Some(snapshot), ..config_of(sandbox)? }, base))
    }

    /// Returns the base of a snapshot to which a sandbox is restored, if the sandbox was rebased before; `None` if the
    /// base stays as it is.
    ///
    /// The base is never guessed. Files from before a rebase lack the changes of others that the rebase merged:
    /// compared with the base of the rebase, a completion would undo these changes. Files from after a rebase have
    /// them: compared with an earlier base, a completion would merge them a second time.
    async fn base_of(&self, sandbox: &Sandbox, snapshot: SnapshotId) -> Result<Option<ProjectBase>> {
        let lineage = config_of(sandbox)?.lineage;
        if lineage.former_bases.is_empty() {
            return Ok(None);
        }
        let unknown = || SandboxError::BaseUnknown { id: sandbox.id.clone(), snapshot };
        let origin = self.0.catalog.snapshots().origin(&sandbox.owner, &snapshot.to_string()).await?;
        let (made_in, round_id) = origin.map_or((None, None), |origin| (origin.sandbox, origin.round_id));
        if let Some(round_id) = round_id.filter(|round_id| is_round_of(round_id, &sandbox.id)) {
            let mut bases = lineage.bases();
            let found = bases.find(|base| base.round_id(&sandbox.id) == round_id);
            // Only the last bases are kept.
            return found.cloned().map(Some).ok_or_else(unknown);
        }
        let search = move |workspaces: &Workspaces| base_of_ancestors(workspaces, &lineage, snapshot);
        match self.on_workspaces(search).await? {
            AncestorBase::Found(base) => Ok(Some(*base)),
            AncestorBase::None if made_in.as_ref() != Some(&sandbox.id) => Ok(None),
            AncestorBase::None | AncestorBase::Unknown => Err(unknown()),
        }
    }

    /// Returns the changes of a workspace compared with the head that it was rebased onto, instead of with the files
    /// that the rebase wrote, which already had the changes from before it. Other changes are returned as they are.
    pub(super) async fn since_rebase(&self, changes: Changes, sandbox: &Sandbox) -> Result<Changes> {
        let base = config_of(sandbox)?.lineage.project_base;
        let base = base.filter(|base| base.rebased.is_some() && base.rebased == changes.base);
        let Some(head) = base.map(|base| base.snapshot) else { return Ok(changes) };
        let store = changes.before.store().clone();
        let before = self.on_workspaces(move |_| match store.find_snapshot(&head)? {
            Some(found) => Ok(Some(Tree::of_snapshot(&store, &found)?)),
            // The project was deleted.
            None => Ok(None),
        });
        Ok(match before.await? {
            Some(before) => Changes { base: Some(head), before, ..changes },
            None => changes,
        })
    }

    /// Forgets a former base, whose files no snapshot has.
    pub(super) async fn forget_base(&self, id: &str, rebased: SnapshotId) -> Result<()> {
        let change = |sandbox: &Sandbox| {
            let mut config = config_of(sandbox).ok()?;
            config.lineage.forget_base(rebased);
            let config = serde_json::to_value(config).ok().filter(|config| *config != sandbox.config)?;
            Some(Change { config: Some(config), ..Change::default() })
        };
        self.change(id, change, &[]).await.map(|_| ())
    }

    /// Returns the record of a workspace; `None` if there is no workspace.
    async fn workspace_record(&self, id: &str) -> Result<Option<Record>> {
        let id = id.to_owned();
        match self.on_workspaces(move |workspaces| workspaces.record(&id)).await {
            Err(SandboxError::Workspace(WorkspaceError::NotFound { .. })) => Ok(None),
            record => record.map(Some),
        }
    }
}

fn with_base(config: Config, base: Option<ProjectBase>) -> Config {
    match base {
        Some(base) => config.with_base(base),
        None => config,
    }
}

/// Returns true if a round ([`ProjectBase::round_id`]) is one of a sandbox.
fn is_round_of(round_id: &str, sandbox: &str) -> bool {
    round_id.strip_prefix(sandbox).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Base of a snapshot, or of its nearest ancestor that has one.
enum AncestorBase {
    Found(Box<ProjectBase>),
    /// No ancestor has one.
    None,
    /// An ancestor was deleted, or there are too many.
    Unknown,
}

/// Searches the first parents of a snapshot for one that a sandbox was made from or rebased to.
fn base_of_ancestors(
    workspaces: &Workspaces,
    lineage: &Lineage,
    snapshot: SnapshotId,
) -> workspace_workspace::Result<AncestorBase> {
    let mut id = snapshot;
    for _ in 0..ANCESTORS_MAX {
        let has_base =
            |base: &&ProjectBase| base.rebased.unwrap_or(base.snapshot) == id || base.untouched == Some(id);
        if let Some(base) = lineage.bases().find(has_base) {
            return Ok(AncestorBase::Found(Box::new(base.clone())));
        }
        let Some(found) = workspaces.store().find_snapshot(&id)? else { return Ok(AncestorBase::Unknown) };
        let Some(parent) = found.parents.first() else { return Ok(AncestorBase::None) };
        id = *parent;
    }
    Ok(AncestorBase::Unknown)
}

/// Returns the type of the event about a workspace whose files the server replaced, with another base.
pub(super) fn event_of_base(base: &ProjectBase) -> EventKind {
    match base.reverted {
        Some(_) => EventKind::SandboxChangesReverted,
        None => EventKind::SandboxRebased,
    }
}

/// Returns the base of the files of a sandbox as the text that is stored in the record of its workspace; `None` without
/// a project.
pub(crate) fn project_base_text(config: &Config) -> Option<String> {
    config.lineage.project_base.as_ref().and_then(|base| serde_json::to_string(base).ok())
}
