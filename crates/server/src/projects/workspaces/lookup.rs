//! Lookup of workspaces of agents, and locks on them.

use axum::http::{HeaderValue, header};
use tokio::sync::OwnedSemaphorePermit;
use workspace_api::error_codes;
use workspace_catalog::{AgentWorkspace, AgentWorkspaceState, CompletionState, Project};
use workspace_state::TreeId;

use crate::app::App;
use crate::error::ApiError;

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
) -> Result<(Option<OwnedSemaphorePermit>, AgentWorkspace), ApiError> {
    let (lock, row) = lock_any(app, project, agent).await?;
    match row.state {
        AgentWorkspaceState::Ready => Ok((lock, row)),
        state => Err(busy(agent, state)),
    }
}

/// Locks the workspace of an agent, whatever its state is.
pub(super) async fn lock_any(
    app: &App,
    project: &Project,
    agent: &str,
) -> Result<(Option<OwnedSemaphorePermit>, AgentWorkspace), ApiError> {
    loop {
        let found = find(app, project, agent).await?;
        check_here(app, &found)?;
        let lock = app.agent_workspace_locks.acquire(&found.workspace.id).await;
        // It may have been replaced while this waited.
        let row = find(app, project, agent).await?;
        if row.workspace.id == found.workspace.id {
            return Ok((lock, row));
        }
    }
}

fn check_here(app: &App, row: &AgentWorkspace) -> Result<(), ApiError> {
    let server = &row.workspace.server;
    if *server == app.sandboxes.settings().server {
        return Ok(());
    }
    let agent = &row.workspace.agent;
    let message = format!("the workspace of agent `{agent}` is on server `{server}`; send the request there");
    let error = ApiError::new(error_codes::WORKSPACE_ELSEWHERE, message);
    Err(error.detail("agent", agent.clone()).detail("node", server.clone()))
}

pub(super) fn busy(agent: &str, state: AgentWorkspaceState) -> ApiError {
    let message = match state {
        AgentWorkspaceState::Moving => {
            format!(
                "the workspace of agent `{agent}` was not moved to the head completely; sync the project again"
            )
        }
        state => format!("the workspace of agent `{agent}` is {state}; try again, or delete it"),
    };
    let error = ApiError::new(error_codes::WORKSPACE_BUSY, message).detail("agent", agent);
    error.header(header::RETRY_AFTER, RETRY_AFTER)
}

/// Returns the id of a workspace in completions. It changes when the workspace moves to a newer head: a completion before
/// that is no base of a later one.
pub(super) fn round_id(row: &AgentWorkspace) -> String {
    match row.round {
        0 => row.workspace.id.clone(),
        round => format!("{}.{round}", row.workspace.id),
    }
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
