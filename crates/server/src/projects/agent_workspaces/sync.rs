//! `POST /api/v1/projects/{project}/sync`: workspaces of agents without changes move to the present head.

use axum::extract::State;
use serde_json::json;
use workspace_api::agent_workspaces::SyncResult;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_catalog::{
    AgentWorkspace, AgentWorkspaceFilter, AgentWorkspaceState, CompletionState, Project,
};
use workspace_context::projects::WorkspaceBase;
use workspace_state::SnapshotId;

use super::super::lookup::{Found, NamedAgent, open};
use super::lookup::{lock_any, read_changes, round_id};
use super::moves::{continue_move, head_of, move_to};
use crate::app::App;
use crate::audit::Entry;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::request_id::RequestId;
use crate::snapshots::work_limits::WorkPermit;

/// Number of workspaces that are read from the catalog at a time.
const PAGE_SIZE: u32 = 500;

/// Move the workspaces of agents that have no changes to the present head, in place.
///
/// With the key of an agent: its own. Workspaces with changes stay as they are, as do those on other servers. Sync before
/// the agents start: a process that writes to a file at the very moment in which it is replaced loses that write.
#[utoipa::path(post, path = "/api/v1/projects/{project}/sync", tag = "projects", operation_id = "sync_project",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent whose workspace is moved. Needed if the key may act for several agents")), responses(
    (status = 200, description = "Numbers of workspaces", body = SyncResult),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn sync(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    request: RequestId,
    Path(project): Path<String>,
) -> Result<Json<SyncResult>, ApiError> {
    let Found { project, view } = open(&app, &caller, agent, &project).await?;
    let agent = view.map(|view| view.policy().agent().to_owned());
    // Waited for here, so that requests whose clients disconnect do not pile up.
    let permit = app.work_limits.sync(&caller.owner).await;
    // In a separate task, so that a move is finished even if the client disconnects.
    let (task_app, task_project, owner) = (app.clone(), project.clone(), caller.owner.clone());
    let synced = tokio::spawn(async move {
        let _permit = permit;
        sync_all(&task_app, &owner, &task_project, agent).await
    });
    let result = synced.await.map_err(ApiError::internal)??;
    let details = json!({ "project": project.id, "synced": result.synced, "skipped": result.skipped });
    app.audit.record(Entry::for_caller("project.synced", &caller, &request, details));
    Ok(Json(result))
}

async fn sync_all(
    app: &App,
    owner: &str,
    project: &Project,
    agent: Option<String>,
) -> Result<SyncResult, ApiError> {
    let mut result = SyncResult { synced: 0, skipped: 0, total: 0 };
    let mut filter = AgentWorkspaceFilter { agent, cursor: None, limit: PAGE_SIZE };
    loop {
        let page = app.catalog.agent_workspaces().list(&project.id, &filter).await?;
        let Some(last) = page.last().map(|last| last.workspace.agent.clone()) else { return Ok(result) };
        for row in page {
            result.total += 1;
            let permit = app.work_limits.comparison(owner).await;
            match sync_one(app, &permit, project, &row.workspace.agent).await {
                Ok(true) => result.synced += 1,
                Ok(false) => result.skipped += 1,
                // One workspace, such as one whose directory is gone, must not hold up the others.
                Err(error) => {
                    tracing::warn!(
                        workspace = row.workspace.id,
                        cause = error.cause(),
                        "failed to sync a workspace"
                    );
                    result.skipped += 1;
                }
            }
        }
        filter.cursor = Some(last);
    }
}

/// Moves a workspace to the head. Returns false if it stays as it is.
async fn sync_one(app: &App, permit: &WorkPermit, project: &Project, agent: &str) -> Result<bool, ApiError> {
    let (_lock, row) = match lock_any(app, project, agent).await {
        Err(error)
            if [error_codes::WORKSPACE_ELSEWHERE, error_codes::WORKSPACE_NOT_FOUND]
                .contains(&error.code()) =>
        {
            return Ok(false);
        }
        locked => locked?,
    };
    match row.state {
        AgentWorkspaceState::Moving => return continue_move(app, &row).await,
        AgentWorkspaceState::Creating | AgentWorkspaceState::Removing => return Ok(false),
        AgentWorkspaceState::Ready => {}
    }
    let base = app.projects.workspace_base(project, agent).await?;
    let (next, present) = (head_of(&base), &row.workspace.base);
    // Another request may have moved it to a newer head than the one that this request has read.
    let is_newer = (next.sequence, next.policy_version) > (present.sequence, present.policy_version);
    if !is_newer || next.snapshot == present.snapshot {
        return Ok(false);
    }
    match last_content(app, &row).await? {
        Some(content) => move_unchanged(app, permit, &row, content, &base).await,
        None => Ok(false),
    }
}

/// Moves a workspace to a base if its files are those of the snapshot `content`. Returns false if it stays as it is.
async fn move_unchanged(
    app: &App,
    permit: &WorkPermit,
    row: &AgentWorkspace,
    content: SnapshotId,
    base: &WorkspaceBase,
) -> Result<bool, ApiError> {
    let id = &row.workspace.id;
    // Checked before a move is recorded, because most workspaces that cannot be moved have changes.
    let changes = read_changes(app, permit, id).await;
    let is_unchanged = match changes {
        Ok(changes) => app.projects.has_tree(&content.to_string(), changes.after.id()).await?,
        // Its directory is in use, unreadable or gone. A completion or a deletion would fail with that error.
        Err(error) => {
            tracing::debug!(workspace = id, %error, "skipped a workspace that cannot be read");
            false
        }
    };
    if !is_unchanged {
        return Ok(false);
    }
    move_to(app, row, content, base, None).await
}

/// Returns the snapshot whose files a workspace without changes has: that of its last completion, or its base. `None`
/// while a completion is not merged yet, or if it failed.
async fn last_content(app: &App, row: &AgentWorkspace) -> Result<Option<SnapshotId>, ApiError> {
    let newest = app.catalog.completions().newest(&row.workspace.project, &round_id(row)).await?;
    let snapshot = match newest {
        None => row.workspace.base.snapshot.clone(),
        Some(newest) if matches!(newest.state, CompletionState::Queued | CompletionState::Failed) => {
            return Ok(None);
        }
        Some(newest) => newest.completion.theirs_snapshot,
    };
    snapshot.parse().map(Some).map_err(|_| ApiError::internal("a workspace has no valid snapshot"))
}
