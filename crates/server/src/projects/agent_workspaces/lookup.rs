//! Lookup of workspaces of agents, and locks on them.

use axum::http::{HeaderValue, header};
use tokio::sync::OwnedSemaphorePermit;
use workspace_api::error_codes;
use workspace_catalog::{AgentWorkspace, AgentWorkspaceState, CompletionState, Project};
use workspace_sandbox::{Changes, SandboxError};
use workspace_state::TreeId;

use crate::app::App;
use crate::error::ApiError;
use crate::snapshots::work_limits::WorkPermit;

/// `Retry-After` in seconds of a workspace that another operation uses.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Returns the workspace of an agent.
pub(super) async fn find(app: &App, project: &Project, agent: &str) -> Result<AgentWorkspace, ApiError> {
    let found = app.catalog.agent_workspaces().find(&project.id, agent).await?;
    found.ok_or_else(|| not_found(&project.name, agent))
}

pub(super) fn not_found(project: &str, agent: &str) -> ApiError {
    let message = format!("agent `{agent}` has no workspace of project `{project}`");
    ApiError::new(error_codes::WORKSPACE_NOT_FOUND, message).detail("agent", agent)
}

/// Locks the workspace of an agent, whose directory is on this server and complete. No other request uses it until the
/// result is dropped.
pub(super) async fn lock(
    app: &App,
    project: &Project,
    agent: &str,
) -> Result<(OwnedSemaphorePermit, AgentWorkspace), ApiError> {
    let (lock, row) = lock_any(app, project, agent).await?;
    match row.state {
        AgentWorkspaceState::Ready => Ok((lock, row)),
        state => Err(busy(agent, state)),
    }
}

/// Locks the workspace of an agent in any state, such as one that a killed server left unfinished.
pub(super) async fn lock_any(
    app: &App,
    project: &Project,
    agent: &str,
) -> Result<(OwnedSemaphorePermit, AgentWorkspace), ApiError> {
    loop {
        let found = find(app, project, agent).await?;
        check_server(app, &found)?;
        let lock = app.agent_workspace_locks.acquire(&found.workspace.id).await;
        // Another request may have deleted it and created a new one meanwhile.
        let row = find(app, project, agent).await?;
        if row.workspace.id == found.workspace.id {
            return Ok((lock, row));
        }
    }
}

/// Fails unless the directory of a workspace is on this server.
fn check_server(app: &App, row: &AgentWorkspace) -> Result<(), ApiError> {
    let server = &row.workspace.server;
    if *server == app.sandboxes.settings().server {
        return Ok(());
    }
    let agent = &row.workspace.agent;
    let message = format!("the workspace of agent `{agent}` is on server `{server}`; send the request there");
    let error = ApiError::new(error_codes::WORKSPACE_ELSEWHERE, message);
    Err(error.detail("agent", agent.clone()).detail("server", server.clone()))
}

pub(super) fn busy(agent: &str, state: AgentWorkspaceState) -> ApiError {
    let message = match state {
        AgentWorkspaceState::Moving => {
            format!(
                "the workspace of agent `{agent}` was not moved to the head completely; run `workspace project sync`, \
                 or rebase it"
            )
        }
        state => format!("the workspace of agent `{agent}` is {state}; try again, or delete it"),
    };
    let error = ApiError::new(error_codes::WORKSPACE_BUSY, message).detail("agent", agent);
    error.header(header::RETRY_AFTER, RETRY_AFTER)
}

/// Returns the id of the present round of a workspace, under which its completions are recorded: `WORKSPACE`, or
/// `WORKSPACE.MOVES` after moves to newer heads. A completion before a move is no base of a later one.
pub(super) fn round_id(row: &AgentWorkspace) -> String {
    match row.round {
        0 => row.workspace.id.clone(),
        moves => format!("{}.{moves}", row.workspace.id),
    }
}

/// Compares a workspace with its base. This reads all its files, so it needs the permit of a comparison.
pub(super) async fn read_changes(
    app: &App,
    _permit: &WorkPermit,
    workspace: &str,
) -> Result<Changes, SandboxError> {
    app.sandboxes.agent_workspace_changes(workspace).await
}

/// Returns true if the newest completion of a workspace has this content, and did not fail.
pub(super) async fn is_last_completion(
    app: &App,
    row: &AgentWorkspace,
    tree: TreeId,
) -> Result<bool, ApiError> {
    let newest = app.catalog.completions().newest(&row.workspace.project, &round_id(row)).await?;
    match newest.filter(|newest| newest.state != CompletionState::Failed) {
        Some(newest) => Ok(app.projects.has_tree(&newest.completion.theirs_snapshot, tree).await?),
        None => Ok(false),
    }
}
