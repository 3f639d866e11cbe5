//! Completion of the changes in sandboxes of projects by the server.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use workspace_catalog::Sandbox;
use workspace_state::{Cancel, Durability, NewSnapshot, Snapshot, SnapshotId};
use workspace_workspace::{CancellableWorkspaces, ConditionalCommit, WorkspaceError, Writers};

use crate::config::{Config, OnEnd};
use crate::error::{Result, SandboxError};
use crate::failpoint;
use crate::hooks::within;
use crate::lifecycle::operation_lock::OperationLockGuard;
use crate::lifecycle::remove::{EndCompletion, paused_content};
use crate::lineage::ProjectBase;
use crate::project_work::{Occasion, Work, WorkNewness, WorkRecorder};
use crate::scope::Scope;
use crate::service::{Service, config_of};

/// Committed files of a sandbox.
pub(crate) struct CommittedWork {
    id: SnapshotId,
    /// The snapshot, if it was made for this, and the bytes by which it made the store larger. It is not durable yet,
    /// and has no owner.
    new: Option<(Snapshot, Arc<AtomicU64>)>,
}

/// Result of completing files.
pub(crate) enum CompletedWork {
    /// Id of the completion.
    Completed(String),
    /// There is nothing to complete.
    Nothing,
    /// An earlier completion is not decided yet.
    Postponed,
}

impl Service {
    /// Completes the changes in a sandbox that is about to be removed, and in which nothing runs, unless they are
    /// discarded. Returns the completion; `None` if there are no new changes. `on_end` overrides the choice of
    /// the sandbox. The caller holds the work lock ([`WorkLock`](crate::WorkLock)).
    pub(crate) async fn complete_at_end(
        &self,
        sandbox: &Sandbox,
        on_end: Option<OnEnd>,
        operation: &OperationLockGuard,
    ) -> Result<Option<EndCompletion>> {
        if on_end.unwrap_or(config_of(sandbox)?.on_end) == OnEnd::Discard {
            return Ok(None);
        }
        if paused_content(sandbox).is_none() {
            let _access = self.0.gates.exclusive(&sandbox.id, operation).await?;
            self.settle_restore_of_ended(&sandbox.id).await?;
        }
        let sandbox = &self.with_recorded_base_of_ended(sandbox.clone()).await?;
        let config = config_of(sandbox)?;
        let recorder = self.0.settings.work_recorder.as_deref();
        let (Some(recorder), Some(base)) = (recorder, config.completion_base()) else { return Ok(None) };
        match self.complete_ended(sandbox, &config, recorder, operation).await {
            Ok(completion) => Ok(completion.map(|id| EndCompletion { id, project: base.project.clone() })),
            Err(source) => {
                Err(SandboxError::NotCompleted { id: sandbox.id.clone(), source: Box::new(source) })
            }
        }
    }

    async fn complete_ended(
        &self,
        sandbox: &Sandbox,
        config: &Config,
        recorder: &dyn WorkRecorder,
        operation: &OperationLockGuard,
    ) -> Result<Option<String>> {
        let id = sandbox.id.as_str();
        let committed = match paused_content(sandbox) {
            Some(id) => Some(CommittedWork { id, new: None }),
            None => {
                let _access = self.0.gates.exclusive(id, operation).await?;
                // A restore may have been interrupted between the root filesystem and the workspace.
                self.finish_root_restore(id).await?;
                match self.commit_work(sandbox, Occasion::End, &Cancel::new()).await {
                    // It was never made, or an earlier removal, which was interrupted, has removed it.
                    Err(SandboxError::Workspace(WorkspaceError::NotFound { .. })) => None,
                    committed => committed?,
                }
            }
        };
        let Some(committed) = committed else { return Ok(None) };
        match self.record_work(sandbox, config, committed, Occasion::End, recorder).await? {
            CompletedWork::Completed(completion) => Ok(Some(completion)),
            CompletedWork::Nothing | CompletedWork::Postponed => Ok(None),
        }
    }

    /// Commits the workspace of a sandbox, if it differs from its last snapshot. `None` if it is empty and has none.
    /// The caller has exclusive access, and no process writes.
    pub(crate) async fn commit_work(
        &self,
        sandbox: &Sandbox,
        occasion: Occasion,
        cancel: &Cancel,
    ) -> Result<Option<CommittedWork>> {
        let (id, stored) = (sandbox.id.clone(), Arc::<AtomicU64>::default());
        let new = NewSnapshot {
            author: sandbox.owner.clone(),
            message: occasion.message().to_owned(),
            durability: Durability::Buffered,
            pending: true,
            stored_bytes: Some(Arc::clone(&stored)),
            ..NewSnapshot::default()
        };
        let commit = move |workspaces: &CancellableWorkspaces<'_>| {
            workspaces.commit_if_changed(&id, new, Writers::Stopped)
        };
        let committed = self.on_workspaces_until(cancel, commit).await?;
        failpoint::hit("work-committed")?;
        Ok(match committed {
            ConditionalCommit::Committed(committed) => {
                let snapshot = committed.snapshot;
                Some(CommittedWork { id: snapshot.id, new: Some((snapshot, stored)) })
            }
            ConditionalCommit::Unchanged(last) => last.map(|id| CommittedWork { id, new: None }),
        })
    }

    /// Records committed files as a completion, if they have new changes; otherwise removes the snapshot that was made.
    pub(crate) async fn record_work(
        &self,
        sandbox: &Sandbox,
        config: &Config,
        committed: CommittedWork,
        occasion: Occasion,
        recorder: &dyn WorkRecorder,
    ) -> Result<CompletedWork> {
        let Some(base) = config.completion_base() else { return Ok(CompletedWork::Nothing) };
        let work = Work {
            sandbox: sandbox.id.clone(),
            owner: sandbox.owner.clone(),
            base: base.clone(),
            snapshot: committed.id,
            occasion,
        };
        let max_wait = self.0.settings.hook_timeout;
        let newness = within(max_wait, recorder.newness(&work)).await;
        let result = match newness.map_err(|source| SandboxError::WorkRecorder { source }) {
            Ok(WorkNewness::New) => match self.sync_work(sandbox, base, &committed).await {
                Ok(()) => {
                    failpoint::hit("work-synced")?;
                    if let Some((snapshot, stored)) = &committed.new {
                        let made_in = (sandbox.id.as_str(), Some(base));
                        self.record_snapshot(&sandbox.owner, snapshot, made_in, stored).await?;
                    }
                    failpoint::hit("work-owned")?;
                    // From here on, the snapshot stays even after a failure: the next attempt uses it.
                    let recorded = within(max_wait, recorder.record(&work)).await;
                    let recorded = recorded.map_err(|source| SandboxError::WorkRecorder { source })?;
                    failpoint::hit("work-recorded")?;
                    return Ok(recorded.map_or(CompletedWork::Nothing, CompletedWork::Completed));
                }
                Err(error) => Err(error),
            },
            Ok(WorkNewness::Known) => Ok(CompletedWork::Nothing),
            Ok(WorkNewness::Recorded(completion)) => Ok(CompletedWork::Completed(completion)),
            Ok(WorkNewness::Postponed) => Ok(CompletedWork::Postponed),
            Err(error) => Err(error),
        };
        self.discard_work(sandbox, &committed).await;
        result
    }

    /// Makes a snapshot durable. Fails if it is a new one and the owner may have no more, or if the owner of the
    /// project has used up the quota, as for completions that clients request.
    async fn sync_work(
        &self,
        sandbox: &Sandbox,
        base: &ProjectBase,
        committed: &CommittedWork,
    ) -> Result<()> {
        self.check_project_quota(&base.project, &sandbox.owner).await?;
        if committed.new.is_some() {
            self.check_snapshot_quota(&Scope::Owner(sandbox.owner.clone()), 1).await?;
        }
        self.on_workspaces(|workspaces| Ok(workspaces.store().sync()?)).await
    }

    /// Removes a snapshot that is not needed, unless it existed before.
    pub(crate) async fn discard_work(&self, sandbox: &Sandbox, committed: &CommittedWork) {
        if let Some((snapshot, _)) = &committed.new {
            self.remove_snapshot_from_store(&sandbox.id, snapshot).await;
        }
    }
}
