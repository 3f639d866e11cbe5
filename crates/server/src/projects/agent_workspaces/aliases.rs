//! `/api/v1/workspace/…`: shorter paths for an agent that knows only its own name, or that of its project.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use workspace_api::agent_workspaces::AgentWorkspace;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::projects::{CompleteSandbox, Completion};
use workspace_catalog::Project;

use super::super::lookup::{NamedAgent, agent_of, bound_projects, project_and_agent};
use super::complete::complete as complete_in;
use super::conversion::shown_to;
use super::lookup::{find, not_found};
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path};
use crate::request_id::RequestId;

/// Complete the work in the only workspace of an agent.
///
/// Does the same as `POST /api/v1/projects/{project}/workspaces/{agent}/complete`. Fails with `WORKSPACE_AMBIGUOUS` if the
/// agent has workspaces of several projects.
#[utoipa::path(post, path = "/api/v1/workspace/{subject}/complete", tag = "projects", operation_id = "complete_workspace_of_agent",
    params(("subject" = String, Path, description = "Agent"),
        ("Idempotency-Key" = Option<String>, Header, description = "Key that identifies the request")),
    request_body = Option<CompleteSandbox>, responses(
    (status = 202, description = "Completion", body = Completion),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn complete(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(agent): Path<String>,
    headers: HeaderMap,
    Optional(body): Optional<CompleteSandbox>,
) -> Result<(StatusCode, Json<Completion>), ApiError> {
    let project = only_project(&app, &caller, &agent).await?;
    complete_in(&app, (&caller, &request), (&project, &agent), &headers, body).await
}

/// Get the workspace of the caller's agent, with its path.
///
/// Returns the same as `GET /api/v1/projects/{project}/workspaces/{agent}`. Fails with `AGENT_REQUIRED` if the key may act
/// for several agents, and the header `X-Agent` names none.
#[utoipa::path(get, path = "/api/v1/workspace/{subject}/path", tag = "projects", operation_id = "get_workspace_path",
    params(("subject" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent. Needed if the key may act for several agents")), responses(
    (status = 200, description = "Workspace", body = AgentWorkspace),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn path(
    State(app): State<App>,
    caller: Caller,
    named: NamedAgent,
    Path(project): Path<String>,
) -> Result<Json<AgentWorkspace>, ApiError> {
    let (project, agent) = project_and_agent(&app, &caller, &project, named.name()).await?;
    let row = find(&app, &project, &agent).await?;
    Ok(Json(shown_to(&app, &caller, row).await?))
}

/// Returns the only project of which an agent has a workspace, as far as the caller may know.
async fn only_project(app: &App, caller: &Caller, agent: &str) -> Result<Project, ApiError> {
    let workspaces = app.catalog.agent_workspaces();
    let mut projects = Vec::new();
    match &caller.binding {
        Some(binding) => {
            agent_of(binding, Some(agent.to_owned()))?;
            for project in bound_projects(app, binding).await? {
                if workspaces.find(&project.id, agent).await?.is_some() {
                    projects.push(project);
                }
            }
        }
        None => {
            for row in workspaces.of_agent(&caller.owner, agent, 2).await? {
                projects.extend(app.catalog.projects().get(&row.workspace.project).await?);
            }
        }
    }
    let several = projects.len() > 1;
    match projects.pop() {
        Some(_) if several => {
            let message = format!(
                "agent `{agent}` has workspaces of several projects; use \
                 `/api/v1/projects/PROJECT/workspaces/AGENT/complete`"
            );
            Err(ApiError::new(error_codes::WORKSPACE_AMBIGUOUS, message).detail("agent", agent))
        }
        Some(project) => Ok(project),
        None => Err(not_found("*", agent)),
    }
}
