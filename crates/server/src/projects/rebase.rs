//! `/api/v1/sandboxes/{id}/rebase`: the changes in the workspace of a sandbox are merged with the head of its project.

use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use serde_json::json;
use tokio::time::Instant;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes::{self, ErrorCode};
use workspace_api::projects::{CompletionConflict, MergedFile};
use workspace_api::sandbox_snapshots::{RebaseSandbox, RebaseSandboxResult, RebaseState};
use workspace_catalog::{Completion, CompletionState, Project, owner_behind_agent};
use workspace_context::projects::{
    Conflict, MergedFile as Merged, ProjectError, RebaseInput, RebaseTarget, RebasedFiles,
};
use workspace_sandbox::{
    HeadVersion, IfInUse, MergedFiles, ProjectBase, Rebase, RebaseDecision, RebaseFiles, RebaseResult,
    SandboxInfo, Scope,
};

use super::completions::base_of_workspace;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path};
use crate::request_id::RequestId;
use crate::sandboxes::{freeze_to_api, process_to_api, sandbox_to_api};

/// Time that a request waits until the last completion of the workspace is merged.
pub(super) const COMPLETION_WAIT: Duration = Duration::from_secs(30);

/// Outcome of [`rebase_sandbox`].
pub(crate) enum RebaseOutcome {
    /// The workspace has the changes of both sides.
    Rebased { result: Box<RebaseResult>, merged: Vec<Merged> },
    /// The workspace had everything that the head has.
    Current(Box<SandboxInfo>),
    /// The changes conflict with the head, and nothing was replaced. `completion` is the id of the last completion,
    /// since which the changes were made; `None` if there was none.
    Conflicts { base: Box<ProjectBase>, completion: Option<String>, conflicts: Vec<Conflict> },
    /// The last completion of the sandbox waits to be merged.
    Waiting(Box<Completion>),
}

/// Result of the merge, which runs while the sandbox is frozen.
type Report = Result<FrozenMerge, ProjectError>;

/// Merge of the files of a frozen sandbox with the head.
enum FrozenMerge {
    /// Files that a merge strategy combined.
    Merged(Vec<Merged>),
    Conflicts {
        base: Box<ProjectBase>,
        conflicts: Vec<Conflict>,
    },
}

/// Rebases the workspace of a sandbox onto the present head of its project. Returns the outcome, and the project with
/// that head. Waits at most `wait` until the last completion of the sandbox is merged.
pub(crate) async fn rebase_sandbox(
    app: &App,
    scope: &Scope,
    id: &str,
    if_in_use: IfInUse,
    wait: Duration,
) -> Result<(RebaseOutcome, Project), ApiError> {
    let deadline = Instant::now() + wait;
    let (base, completion, _lock) = loop {
        // Access is checked, and the completion awaited, before the lock is taken: a removal of the sandbox waits for
        // the lock.
        let base = app.sandboxes.rebasable(scope, id).await?;
        wait_for_last(app, (&base.project, &base.round_id(id)), deadline).await?;
        // A completion in between would contain changes that the rebase does not know as completed.
        let lock = app.sandboxes.lock_work(id).await;
        let base = app.sandboxes.rebasable(scope, id).await?;
        match last_completion(app, (&base.project, &base.round_id(id)), deadline).await? {
            LastCompletion::Decided(completion) => break (base, completion, lock),
            LastCompletion::Waiting(newest) => {
                let project = project_of(app, &base.project).await?;
                return Ok((RebaseOutcome::Waiting(newest), project));
            }
            LastCompletion::Queued => drop(lock),
        }
    };
    let project = project_of(app, &base.project).await?;
    let target = app.projects.rebase_target(&project, &base.agent).await?;
    let head = base_of_workspace(&project.id, &base.agent, &target.base);
    let from = app.projects.changes_base(&project.id, &base.round_id(id), base.snapshot).await?;
    if app.projects.is_current(&target, from).await? {
        let info = app.sandboxes.record_current_base(scope, id, &base, head).await?;
        return Ok((RebaseOutcome::Current(Box::new(info)), project));
    }
    let (projects, sandbox, snapshot) = (app.projects.clone(), id.to_owned(), target.base.snapshot);
    let merge = move |files: RebaseFiles| {
        let (projects, target, head) = (projects.clone(), target.clone(), head.clone());
        let sandbox = sandbox.clone();
        async move { merge(&projects, &target, head, &sandbox, files).await }
    };
    let outcome = match app.sandboxes.rebase(scope, id, snapshot, if_in_use, merge).await? {
        Rebase::Done(result, Ok(FrozenMerge::Merged(merged))) => RebaseOutcome::Rebased { result, merged },
        Rebase::Kept(Ok(FrozenMerge::Conflicts { base, conflicts })) => {
            RebaseOutcome::Conflicts { base, completion, conflicts }
        }
        Rebase::Done(_, Err(error)) | Rebase::Kept(Err(error)) => return Err(error.into()),
        Rebase::Done(..) | Rebase::Kept(..) => return Err(ApiError::internal("a rebase has no outcome")),
    };
    Ok((outcome, project))
}

/// Merges the files of a frozen sandbox with a head. The snapshot of the former files is kept if the merge dropped a
/// version of the agent, which no other snapshot has.
async fn merge(
    projects: &workspace_context::projects::Projects,
    target: &RebaseTarget,
    head: ProjectBase,
    sandbox: &str,
    files: RebaseFiles,
) -> RebaseDecision<Report> {
    let RebaseFiles { base, theirs, new } = files;
    let rebased = async {
        let from = projects.changes_base(&base.project, &base.round_id(sandbox), base.snapshot).await?;
        projects.rebase(target, RebaseInput { from, theirs, new }).await
    };
    match rebased.await {
        Ok(RebasedFiles::Merged { snapshot, merged, has_dropped }) => {
            let report = Ok(FrozenMerge::Merged(merged));
            let files = MergedFiles { snapshot, base: head, keeps_former: has_dropped, report };
            RebaseDecision::Replace(Box::new(files))
        }
        Ok(RebasedFiles::Conflicts(conflicts)) => {
            RebaseDecision::Keep(Ok(FrozenMerge::Conflicts { base: Box::new(base), conflicts }))
        }
        Err(error) => RebaseDecision::Keep(Err(error)),
    }
}

/// Last completion in a round of a workspace ([`NewCompletion::round_id`](workspace_catalog::NewCompletion::round_id)).
pub(super) enum LastCompletion {
    /// Id of a completion that is merged, refused or failed; `None` if there was none.
    Decided(Option<String>),
    /// It waits to be merged.
    Queued,
    /// It waits to be merged, and the time of the request is over.
    Waiting(Box<Completion>),
}

/// Waits until the last completion in a round of a workspace of a project is decided, or the deadline is over.
pub(super) async fn wait_for_last(
    app: &App,
    (project, round): (&str, &str),
    deadline: Instant,
) -> Result<(), ApiError> {
    if let Some(newest) = app.catalog.completions().newest(project, round).await? {
        app.projects.wait_for(newest, deadline.saturating_duration_since(Instant::now())).await?;
    }
    Ok(())
}

/// Returns the last completion in a round of a workspace of a project, on which the caller has a lock.
pub(super) async fn last_completion(
    app: &App,
    (project, round): (&str, &str),
    deadline: Instant,
) -> Result<LastCompletion, ApiError> {
    Ok(match app.catalog.completions().newest(project, round).await? {
        None => LastCompletion::Decided(None),
        Some(newest) if newest.state != CompletionState::Queued => {
            LastCompletion::Decided(Some(newest.completion.id))
        }
        Some(newest) if Instant::now() >= deadline => LastCompletion::Waiting(Box::new(newest)),
        Some(_) => LastCompletion::Queued,
    })
}

/// Returns the project with this id as it is now.
pub(super) async fn project_of(app: &App, id: &str) -> Result<Project, ApiError> {
    let project = app.catalog.projects().get(id).await?;
    Ok(project.ok_or_else(|| ProjectError::NotFound { project: id.to_owned() })?)
}

/// Returns the version of the present head of a project.
pub(crate) fn head_version(project: &Project) -> HeadVersion {
    HeadVersion { sequence: project.sequence, policy_version: project.policy_version }
}

pub(crate) fn conflicts_to_api(conflicts: Vec<Conflict>) -> Vec<CompletionConflict> {
    let conflict = |conflict: Conflict| CompletionConflict { path: conflict.path, class: conflict.class };
    conflicts.into_iter().map(conflict).collect()
}

/// Rebase a sandbox: merge the changes in its workspace with the present head of its project.
///
/// The changes since the last completion or rebase are merged, file by file, with what others changed. If some
/// conflict, they are listed, and the workspace stays as it is. Afterwards, a completion contains the changes of the
/// agent only. Processes whose working directory is `/workspace` itself keep running and see the new files.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/rebase", tag = "projects", operation_id = "rebase_sandbox",
    params(("id" = String, Path, description = "Id of the sandbox")),
    request_body = Option<RebaseSandbox>, responses(
    (status = 200, description = "Rebased sandbox, or the conflicts", body = RebaseSandboxResult),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn rebase(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Optional(body): Optional<RebaseSandbox>,
) -> Result<Json<RebaseSandboxResult>, ApiError> {
    let if_in_use = if body.force { IfInUse::KillProcesses } else { IfInUse::Fail };
    let (outcome, project) = rebase_sandbox(&app, &scope(&caller), &id, if_in_use, COMPLETION_WAIT).await?;
    let result = to_api(&app, &caller, &id, outcome, &project).await?;
    let details = json!({ "project": project.id, "state": result.state, "ended": result.ended.len() });
    let entry = Entry::for_caller("sandbox.rebased", &caller, &request, details);
    app.audit.record(Entry { sandbox_id: Some(id), ..entry });
    Ok(Json(result))
}

async fn to_api(
    app: &App,
    caller: &Caller,
    id: &str,
    outcome: RebaseOutcome,
    project: &Project,
) -> Result<RebaseSandboxResult, ApiError> {
    let (state, info, conflicts) = match outcome {
        RebaseOutcome::Rebased { result, merged } => {
            let RebaseResult { info, snapshot, former, killed, freeze } = *result;
            return Ok(RebaseSandboxResult {
                state: RebaseState::Rebased,
                sequence: shown_sequence(app, &info, project).await?,
                sandbox: sandbox_to_api(&app.nfs, caller, info)?,
                snapshot: Some(snapshot.to_string()),
                former: former.map(|id| id.to_string()),
                merged: merged.into_iter().map(merged_to_api).collect(),
                conflicts: Vec::new(),
                ended: killed.into_iter().map(process_to_api).collect(),
                frozen: Some(freeze_to_api(freeze)),
            });
        }
        RebaseOutcome::Current(info) => (RebaseState::Current, *info, Vec::new()),
        RebaseOutcome::Conflicts { conflicts, .. } => (
            RebaseState::Conflicts,
            app.sandboxes.get(&scope(caller), id).await?,
            conflicts_to_api(conflicts),
        ),
        RebaseOutcome::Waiting(completion) => return Err(waiting(id, &completion)),
    };
    Ok(RebaseSandboxResult {
        state,
        sequence: shown_sequence(app, &info, project).await?,
        sandbox: sandbox_to_api(&app.nfs, caller, info)?,
        snapshot: None,
        former: None,
        merged: Vec::new(),
        conflicts,
        ended: Vec::new(),
        frozen: None,
    })
}

pub(super) fn merged_to_api(file: Merged) -> MergedFile {
    MergedFile { path: file.path, strategy: file.strategy }
}

fn waiting(id: &str, completion: &Completion) -> ApiError {
    waiting_in(error_codes::SANDBOX_CONFLICT, &format!("sandbox `{id}`"), completion).detail("sandboxId", id)
}

/// Returns the error that the last completion of a workspace waits to be merged. `subject` names the workspace.
pub(super) fn waiting_in(code: ErrorCode, subject: &str, completion: &Completion) -> ApiError {
    let message = format!(
        "completion `{}` of {subject} waits to be merged; try again when it has landed",
        completion.completion.id
    );
    ApiError::new(code, message)
        .detail("completion", completion.completion.id.as_str())
        .header(header::RETRY_AFTER, header::HeaderValue::from_static("1"))
}

/// Returns the sequence of a head; in the sandbox of an agent's key, the number of changes that the agent sees.
async fn shown_sequence(app: &App, info: &SandboxInfo, project: &Project) -> Result<u64, ApiError> {
    let base = info.config.lineage.project_base.as_ref();
    let sequence = match base.filter(|_| owner_behind_agent(&info.sandbox.owner).is_some()) {
        Some(base) => app.projects.agent_view(project, &base.agent).await?.sequence(),
        None => project.sequence,
    };
    Ok(sequence.unsigned_abs())
}
