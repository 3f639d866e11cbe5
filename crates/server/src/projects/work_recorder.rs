//! Completions that the server records by itself: of sandboxes that end, and of running ones.

use async_trait::async_trait;
use workspace_catalog::{Catalog, Completion, CompletionState};
use workspace_context::projects::{ProjectError, Projects};
use workspace_sandbox::{HookFailure, Occasion, Work, WorkNewness, WorkRecorder};
use workspace_state::SnapshotId;

use super::completions::{content_key, new_completion};

/// Prefix of the ids of completions that were recorded at the end of their sandbox.
const END_PREFIX: &str = "end";
/// Prefix of the ids of completions of running sandboxes.
const QUIET_PREFIX: &str = "auto";

/// Recorder of completions for the service that manages sandboxes.
#[derive(Debug)]
pub(crate) struct ProjectWorkRecorder {
    pub(crate) catalog: Catalog,
    pub(crate) projects: Projects,
}

impl ProjectWorkRecorder {
    async fn newest(&self, work: &Work) -> Result<Option<Completion>, HookFailure> {
        let round = work.base.round_id(&work.sandbox);
        Ok(self.catalog.completions().newest(&work.base.project, &round).await?)
    }

    /// Returns the snapshots whose files need no completion: those of the last completion that did not fail, or those that
    /// the sandbox began with.
    async fn known(&self, work: &Work, newest: Option<&Completion>) -> Result<Vec<SnapshotId>, HookFailure> {
        let last = match newest {
            Some(newest) if newest.state != CompletionState::Failed => Some(newest.clone()),
            Some(_) => {
                let round = work.base.round_id(&work.sandbox);
                self.catalog.completions().newest_merged_or_refused(&work.base.project, &round).await?
            }
            None => None,
        };
        Ok(match last {
            Some(last) => vec![theirs(&last)?],
            None => work.base.untouched.into_iter().chain([work.base.snapshot]).collect(),
        })
    }
}

#[async_trait]
impl WorkRecorder for ProjectWorkRecorder {
    async fn newness(&self, work: &Work) -> Result<WorkNewness, HookFailure> {
        let Some(project) = self.catalog.projects().get(&work.base.project).await? else {
            return Ok(WorkNewness::Known);
        };
        let newest = self.newest(work).await?;
        if work.occasion == Occasion::Quiet
            && let Some(newest) = &newest
        {
            match newest.state {
                // Otherwise completions would pile up while nothing can be merged into the project.
                CompletionState::Queued => return Ok(WorkNewness::Postponed),
                // A completion of the same files would fail again.
                CompletionState::Failed
                    if self.projects.have_same_files(&project, theirs(newest)?, work.snapshot).await? =>
                {
                    return Ok(WorkNewness::Known);
                }
                _ => {}
            }
        }
        for known in self.known(work, newest.as_ref()).await? {
            if self.projects.have_same_files(&project, known, work.snapshot).await? {
                return Ok(match newest {
                    Some(newest) if is_from_end(work, &newest) => WorkNewness::Recorded(newest.completion.id),
                    _ => WorkNewness::Known,
                });
            }
        }
        Ok(WorkNewness::New)
    }

    async fn record(&self, work: &Work) -> Result<Option<String>, HookFailure> {
        let newest = self.newest(work).await?;
        let before = newest.map_or_else(|| work.base.snapshot.to_string(), |newest| newest.completion.id);
        let prefix = match work.occasion {
            Occasion::End => END_PREFIX,
            Occasion::Quiet => QUIET_PREFIX,
        };
        let theirs = work.snapshot.to_string();
        let key = content_key(prefix, &work.base.round_id(&work.sandbox), &before, &theirs);
        let new = new_completion(key, &work.owner, &work.sandbox, work.base.clone(), theirs);
        match self.projects.complete(new).await {
            Ok(recorded) => Ok(Some(recorded.completion.id)),
            // The project was deleted meanwhile, and its completions with it.
            Err(ProjectError::NotFound { .. }) => Ok(None),
            Err(error) => match self.catalog.projects().get(&work.base.project).await? {
                None => Ok(None),
                Some(_) => Err(match error {
                    ProjectError::Catalog(error) => error.into(),
                    error => error.into(),
                }),
            },
        }
    }
}

/// Returns true if a removal that was interrupted recorded the newest completion.
fn is_from_end(work: &Work, newest: &Completion) -> bool {
    work.occasion == Occasion::End
        && newest.state != CompletionState::Failed
        && newest.completion.id.starts_with(END_PREFIX)
}

/// Returns the snapshot with the work of the agent that was completed.
fn theirs(completion: &Completion) -> Result<SnapshotId, HookFailure> {
    completion.completion.theirs_snapshot.parse().map_err(|_| "a completion has no valid snapshot".into())
}
