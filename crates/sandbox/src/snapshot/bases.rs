//! Bases of the workspaces of projects, after their files were replaced.
//!
//! The record of the workspace is the truth: a rebase writes the new base there together with the new files. The
//! catalog follows. Whoever depends on the base lets it follow first ([`Service::with_recorded_base`]).

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

    /// Does the same for a sandbox that is being removed and in which nothing runs.
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
        self.record_replaced(&sandbox.id).await?;
        self.read_row(&sandbox.id).await
    }

    /// Records the snapshot by which the files of a workspace were replaced, and their base. A killed server may not have
    /// recorded it.
    pub(crate) async fn record_replaced(&self, id: &str) -> Result<()> {
        let Some(record) = self.workspace_record(id).await? else { return Ok(()) };
        let base = record.current.base;
        let sandbox = self.read_row(id).await?;
        let rebased = record.current.base_info.as_deref().and_then(|info| serde_json::from_str(info).ok());
        let (lineage_base, event) = match (rebased, base) {
            (Some(rebased), _) => (Some(rebased), EventKind::SandboxRebased),
            (None, Some(snapshot)) => (self.base_of(&sandbox, snapshot).await?, EventKind::SandboxRestored),
            (None, None) => (None, EventKind::SandboxRestored),
        };
        let change = |sandbox: &Sandbox| {
            let config = config_of(sandbox).ok().filter(|config| config.snapshot != base)?;
            let config = with_base(Config { snapshot: base, ..config }, lineage_base.clone());
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

    /// Returns the base of a snapshot to which a sandbox is restored, if the sandbox was rebased before; `None` if the base
    /// stays as it is. A snapshot from before a rebase lacks the changes of others that the rebase brought: with the base
    /// of the rebase, a completion would undo them.
    async fn base_of(&self, sandbox: &Sandbox, snapshot: SnapshotId) -> Result<Option<ProjectBase>> {
        let lineage = config_of(sandbox)?.lineage;
        if lineage.former_bases.is_empty() {
            return Ok(None);
        }
        let known = lineage.clone();
        let found =
            self.on_workspaces(move |workspaces| base_of_ancestors(workspaces, &known, snapshot)).await?;
        if found.is_some() {
            return Ok(found);
        }
        let ids = [snapshot.to_string()];
        let made_here = self.0.catalog.snapshots().made_in(&sandbox.owner, &sandbox.id, &ids).await?;
        let mut bases = lineage.bases();
        Ok(bases.find(|base| base.rebased.is_none()).filter(|_| !made_here.is_empty()).cloned())
    }

    /// Returns changes of a workspace that was rebased as those since the head, if it has the files of the rebase.
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

/// Returns the base of the nearest ancestor of a snapshot that has one.
fn base_of_ancestors(
    workspaces: &Workspaces,
    lineage: &Lineage,
    snapshot: SnapshotId,
) -> workspace_workspace::Result<Option<ProjectBase>> {
    let mut next = Some(snapshot);
    for _ in 0..ANCESTORS_MAX {
        let Some(id) = next else { break };
        let has_base = |base: &&ProjectBase| base.rebased.unwrap_or(base.snapshot) == id;
        if let Some(base) = lineage.bases().find(has_base) {
            return Ok(Some(base.clone()));
        }
        next = workspaces.store().find_snapshot(&id)?.and_then(|found| found.parents.first().copied());
    }
    Ok(None)
}
