//! `POST /api/v1/projects/{project}/workspaces/{agent}/rebase`: the changes in the workspace of an agent are merged with
//! the head of its project.
//!
//! The processes of the agent cannot be frozen. So the files are read until they are those of one moment, merged, and
//! replaced only while they are still the same. Otherwise those that were replaced by then are put back, and the rebase
//! starts again with what the agent has written.

use axum::extract::State;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use workspace_api::agent_workspaces::RebaseAgentWorkspaceResult;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::sandbox_snapshots::RebaseState;
use workspace_catalog::{AgentWorkspace, AgentWorkspaceState, Project};
use workspace_context::projects::{AgentView, Conflict, MergedFile, RebaseInput, RebaseTarget, RebasedFiles};
use workspace_sandbox::{SandboxError, WorkspaceError};
use workspace_state::{NewSnapshot, SnapshotId, WORKSPACE_LABEL};

use super::super::completions::check_owner_quota;
use super::super::conversion::agent_sequence;
use super::super::lookup::project_and_agent;
use super::super::rebase::{
    COMPLETION_WAIT, LastCompletion, conflicts_to_api, last_completion, merged_to_api, project_of,
    wait_for_last, waiting_in,
};
use super::conversion::to_api;
use super::lookup::{busy, find, lock_any, round_id};
use super::moves::{continue_move, move_to};
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::request_id::RequestId;
use crate::snapshots;
use crate::snapshots::work_limits::WorkPermit;

/// Message of the snapshots of a rebase.
const MESSAGE: &str = "rebase";
/// Number of attempts to rebase a workspace whose files keep changing.
const ATTEMPTS: u32 = 5;

/// Outcome of a rebase.
enum Outcome {
    /// The workspace has the changes of both sides.
    Rebased {
        merged: Vec<MergedFile>,
        /// Snapshot with versions of the agent that a rule dropped.
        former: Option<SnapshotId>,
    },
    /// The workspace had everything that the head has.
    Current,
    /// The changes conflict with the head.
    Conflicts(Vec<Conflict>),
}

/// Rebase the workspace of an agent: merge its changes with the present head of the project.
///
/// The changes since the last completion, move or rebase are merged, file by file, with what others changed. If some
/// conflict, they are listed, and the workspace stays as it is. Afterwards, a completion contains the changes of the
/// agent only. Files are replaced in place while processes may run, but none that was changed since it was read. Fails
/// with `WORKSPACE_CHANGING` if processes keep writing.
#[utoipa::path(post, path = "/api/v1/projects/{project}/workspaces/{agent}/rebase", tag = "projects", operation_id = "rebase_workspace",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("agent" = String, Path, description = "Agent")), responses(
    (status = 200, description = "Rebased workspace, or the conflicts", body = RebaseAgentWorkspaceResult),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn rebase(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((project, agent)): Path<(String, String)>,
) -> Result<Json<RebaseAgentWorkspaceResult>, ApiError> {
    let (project, agent) = project_and_agent(&app, &caller, &project, Some(&agent)).await?;
    let (permit, lock, row) = lock_decided(&app, &caller, &project, &agent).await?;
    app.sandboxes.check_snapshot_quota(&scope(&caller), 1).await?;
    check_owner_quota(&app, &caller, &project.id).await?;
    let project = project_of(&app, &project.id).await?;
    let target = app.projects.rebase_target(&project, &agent).await?;
    // In a separate task, so that a move is finished even if the client disconnects.
    let (task_app, task_project, task_target) = (app.clone(), project.clone(), target.clone());
    let rebased = tokio::spawn(async move {
        let _guards = (permit, lock);
        let outcome = rebase_locked(&task_app, &task_target, &row).await?;
        Ok::<_, ApiError>((outcome, find(&task_app, &task_project, &row.workspace.agent).await?))
    });
    let (outcome, row) = rebased.await.map_err(ApiError::internal)??;
    let view = match &caller.binding {
        Some(_) => Some(app.projects.agent_view(&project, &agent).await?),
        None => None,
    };
    let result = result_to_api(outcome, row, target.base.sequence.unsigned_abs(), view.as_ref())?;
    let (workspace, state) = (&result.workspace.id, result.state);
    let details = json!({ "project": project.id, "agent": agent, "workspace": workspace, "state": state });
    app.audit.record(Entry::for_caller("workspace.rebased", &caller, &request, details));
    Ok(Json(result))
}

/// Locks a workspace that is ready, and whose last completion is decided. Finishes a move that was interrupted.
async fn lock_decided(
    app: &App,
    caller: &Caller,
    project: &Project,
    agent: &str,
) -> Result<(WorkPermit, OwnedSemaphorePermit, AgentWorkspace), ApiError> {
    let deadline = Instant::now() + COMPLETION_WAIT;
    loop {
        // Neither the permit nor the lock is held while the completion is awaited.
        let row = find(app, project, agent).await?;
        wait_for_last(app, (&project.id, &round_id(&row)), deadline).await?;
        let permit = app.work_limits.comparison(&caller.owner).await;
        let (lock, row) = lock_any(app, project, agent).await?;
        match row.state {
            AgentWorkspaceState::Ready => {}
            AgentWorkspaceState::Moving => {
                continue_move(app, &row).await?;
                continue;
            }
            state => return Err(busy(agent, state)),
        }
        match last_completion(app, (&project.id, &round_id(&row)), deadline).await? {
            LastCompletion::Decided(_) => return Ok((permit, lock, row)),
            LastCompletion::Queued => {}
            LastCompletion::Waiting(completion) => {
                let subject = format!("the workspace of agent `{agent}`");
                let error = waiting_in(error_codes::WORKSPACE_BUSY, &subject, &completion);
                return Err(error.detail("agent", agent));
            }
        }
    }
}

async fn rebase_locked(app: &App, target: &RebaseTarget, row: &AgentWorkspace) -> Result<Outcome, ApiError> {
    let workspace = &row.workspace;
    let made_from = workspace.base.snapshot.parse();
    let made_from = made_from.map_err(|_| ApiError::internal("a workspace has no valid snapshot"))?;
    let from = app.projects.changes_base(&workspace.project, &round_id(row), made_from).await?;
    if app.projects.is_current(target, from).await? {
        return Ok(Outcome::Current);
    }
    for _ in 0..ATTEMPTS {
        if let Some(outcome) = attempt(app, target, row, from).await? {
            return Ok(outcome);
        }
    }
    Err(SandboxError::from(WorkspaceError::Changing { id: workspace.id.clone() }).into())
}

/// Reads the files of a workspace, merges them with the head, and replaces them. `from` is the snapshot that the changes
/// are compared with. Returns `None` if files were changed since they were read.
async fn attempt(
    app: &App,
    target: &RebaseTarget,
    row: &AgentWorkspace,
    from: SnapshotId,
) -> Result<Option<Outcome>, ApiError> {
    let workspace = &row.workspace;
    let files = app.sandboxes.read_agent_workspace(&workspace.id, &workspace.agent, MESSAGE).await?;
    let theirs = files.snapshot.id;
    let new = merged_snapshot(&workspace.id, &workspace.agent);
    let rebased = app.projects.rebase(target, RebaseInput { from, theirs, new }).await;
    let (snapshot, merged, has_dropped) = match rebased {
        Ok(RebasedFiles::Merged { snapshot, merged, has_dropped }) => (snapshot.id, merged, has_dropped),
        Ok(RebasedFiles::Conflicts(conflicts)) => {
            app.sandboxes.remove_agent_files(&workspace.id, theirs).await;
            return Ok(Some(Outcome::Conflicts(conflicts)));
        }
        Err(error) => {
            app.sandboxes.remove_agent_files(&workspace.id, theirs).await;
            return Err(error.into());
        }
    };
    if has_dropped {
        // Before a file is replaced: a server that is killed afterwards must not lose the versions of the agent.
        let owned = app.sandboxes.own_agent_files(&workspace.id, &workspace.owner, &files).await;
        if let Err(error) = owned {
            app.sandboxes.remove_agent_files(&workspace.id, snapshot).await;
            return Err(error.into());
        }
    }
    // After an error, the move is to be continued, which needs the former files, too.
    let is_moved = move_to(app, row, theirs, &target.base, Some(snapshot)).await?;
    let former = Some(theirs).filter(|_| is_moved && has_dropped);
    match former {
        Some(_) => {}
        None if has_dropped => snapshots::remove_redundant(app, &workspace.owner, theirs).await?,
        None => app.sandboxes.remove_agent_files(&workspace.id, theirs).await,
    }
    Ok(is_moved.then_some(Outcome::Rebased { merged, former }))
}

/// Returns the description of the snapshot with the result of the merge. It stays as long as the workspace is being
/// moved to it, and is on disk with the files of the workspace before the move is recorded: a crash of the machine in the
/// middle of the move needs both.
fn merged_snapshot(workspace: &str, agent: &str) -> NewSnapshot {
    NewSnapshot {
        author: agent.to_owned(),
        message: MESSAGE.to_owned(),
        pending: true,
        labels: [(WORKSPACE_LABEL.to_owned(), workspace.to_owned())].into(),
        ..NewSnapshot::default()
    }
}

/// Returns the result as the caller sees it. `sequence` is that of the head; `view` restricts what an agent sees.
fn result_to_api(
    outcome: Outcome,
    row: AgentWorkspace,
    sequence: u64,
    view: Option<&AgentView>,
) -> Result<RebaseAgentWorkspaceResult, ApiError> {
    let (state, merged, former, conflicts) = match outcome {
        Outcome::Rebased { merged, former } => (RebaseState::Rebased, merged, former, Vec::new()),
        Outcome::Current => (RebaseState::Current, Vec::new(), None, Vec::new()),
        Outcome::Conflicts(conflicts) => (RebaseState::Conflicts, Vec::new(), None, conflicts),
    };
    Ok(RebaseAgentWorkspaceResult {
        state,
        workspace: to_api(row, view)?,
        sequence: view.map_or(sequence, |view| agent_sequence(sequence, view)),
        former: former.map(|id| id.to_string()),
        merged: merged.into_iter().map(merged_to_api).collect(),
        conflicts: conflicts_to_api(conflicts),
    })
}
