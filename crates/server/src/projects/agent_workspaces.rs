//! `/api/v1/projects/{project}/workspaces`: workspaces of agents that run in containers of their own.

mod aliases;
mod changes;
mod complete;
mod conversion;
mod lifecycle;
mod lookup;
mod moves;
mod rebase;
mod sync;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::agent_workspaces::{
    AgentWorkspace, AgentWorkspaceChanges, AgentWorkspaceList, CreateAgentWorkspace,
    DeleteAgentWorkspaceQuery, ListAgentWorkspacesQuery,
};
use workspace_api::error::ErrorBody;
use workspace_api::projects::{CompleteSandbox, Completion};
use workspace_catalog::AgentWorkspaceFilter;

pub(crate) use lifecycle::recover as recover_workspaces;

use super::direct::check_agent;
use super::lookup::{Found, NamedAgent, check_limit, open, project_and_agent};
use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path, Query};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use conversion::{shown_to, to_api};
use lookup::find;

#[derive(OpenApi)]
#[openapi(paths(
    create,
    list,
    fetch,
    changes,
    complete,
    rebase::rebase,
    remove,
    sync::sync,
    aliases::complete,
    aliases::path
))]
struct Document;

const RULES: &[Rule] = &[
    Rule::only_keys("GET", "/api/v1/projects/{project}/workspaces"),
    Rule::only_keys("POST", "/api/v1/projects/{project}/workspaces"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/workspaces/{agent}"),
    Rule::only_keys("DELETE", "/api/v1/projects/{project}/workspaces/{agent}"),
    Rule::only_keys("GET", "/api/v1/projects/{project}/workspaces/{agent}/changes"),
    Rule::only_keys("POST", "/api/v1/projects/{project}/workspaces/{agent}/complete"),
    Rule::only_keys("POST", "/api/v1/projects/{project}/workspaces/{agent}/rebase"),
    Rule::only_keys("POST", "/api/v1/projects/{project}/sync"),
    Rule::only_keys("POST", "/api/v1/workspace/{subject}/complete"),
    Rule::only_keys("GET", "/api/v1/workspace/{subject}/path"),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/projects/{project}/workspaces", get(list).post(create))
        .route("/api/v1/projects/{project}/workspaces/{agent}", get(fetch).delete(remove))
        .route("/api/v1/projects/{project}/workspaces/{agent}/changes", get(changes))
        .route("/api/v1/projects/{project}/workspaces/{agent}/complete", post(complete))
        .route("/api/v1/projects/{project}/workspaces/{agent}/rebase", post(rebase::rebase))
        .route("/api/v1/projects/{project}/sync", post(sync::sync))
        .route("/api/v1/workspace/{subject}/complete", post(aliases::complete))
        .route("/api/v1/workspace/{subject}/path", get(aliases::path));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Create the workspace of an agent: a directory of the server's machine with the files that the agent may see.
///
/// An agent has one workspace of a project. If it exists, it is returned, unless `baseSnapshot` names another base. Fails with `WORKSPACE_READ_ONLY` for an agent that
/// may change nothing.
#[utoipa::path(post, path = "/api/v1/projects/{project}/workspaces", tag = "projects", operation_id = "create_workspace",
    params(("project" = String, Path, description = "Name or id of the project")), request_body = CreateAgentWorkspace, responses(
    (status = 201, description = "New workspace", body = AgentWorkspace),
    (status = 200, description = "Existing workspace", body = AgentWorkspace),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(project): Path<String>,
    Json(body): Json<CreateAgentWorkspace>,
) -> Result<(StatusCode, Json<AgentWorkspace>), ApiError> {
    let provider = body.provider.as_deref().map(lifecycle::parse_provider).transpose()?;
    let (project, agent) = project_and_agent(&app, &caller, &project, body.agent.as_deref()).await?;
    check_agent(&agent)?;
    let at = body.base_snapshot.as_ref();
    let (status, row) = match lifecycle::existing(&app, &project, &agent).await? {
        Some(row) => {
            lifecycle::check_base(&app, &caller, &project, &row, at).await?;
            (StatusCode::OK, row)
        }
        None => lifecycle::create(&app, &caller, &project, &agent, provider, at).await?,
    };
    let details = json!({ "project": project.id, "agent": agent, "workspace": row.workspace.id });
    app.audit.record(Entry::for_caller("workspace.created", &caller, &request, details));
    Ok((status, Json(shown_to(&app, &caller, row).await?)))
}

/// List the workspaces of agents of a project, ordered by agent.
///
/// With the key of an agent: its own.
#[utoipa::path(get, path = "/api/v1/projects/{project}/workspaces", tag = "projects", operation_id = "list_workspaces",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"), ListAgentWorkspacesQuery), responses(
    (status = 200, description = "Page of workspaces", body = AgentWorkspaceList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path(project): Path<String>,
    Query(query): Query<ListAgentWorkspacesQuery>,
) -> Result<Json<AgentWorkspaceList>, ApiError> {
    let limit = check_limit(query.limit)?;
    let Found { project, view } = open(&app, &caller, agent, &project).await?;
    let agent = view.as_ref().map(|view| view.policy().agent().to_owned());
    let filter = AgentWorkspaceFilter { agent, cursor: query.cursor, limit };
    let rows = app.catalog.agent_workspaces().list(&project.id, &filter).await?;
    let is_full = rows.len() as u64 == u64::from(limit);
    let next = rows.last().filter(|_| is_full).map(|last| last.workspace.agent.clone());
    let items = rows.into_iter().map(|row| to_api(row, view.as_ref())).collect::<Result<_, ApiError>>()?;
    Ok(Json(AgentWorkspaceList { items, limit, next }))
}

/// Get the workspace of an agent.
#[utoipa::path(get, path = "/api/v1/projects/{project}/workspaces/{agent}", tag = "projects", operation_id = "get_workspace",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("agent" = String, Path, description = "Agent")), responses(
    (status = 200, description = "Workspace", body = AgentWorkspace),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn fetch(
    State(app): State<App>,
    caller: Caller,
    Path((project, agent)): Path<(String, String)>,
) -> Result<Json<AgentWorkspace>, ApiError> {
    let (project, agent) = project_and_agent(&app, &caller, &project, Some(&agent)).await?;
    let row = find(&app, &project, &agent).await?;
    Ok(Json(shown_to(&app, &caller, row).await?))
}

/// Get the changes in the workspace of an agent, with the content of small files.
///
/// Processes may write to the workspace meanwhile. Each file is as it was at one moment.
#[utoipa::path(get, path = "/api/v1/projects/{project}/workspaces/{agent}/changes", tag = "projects", operation_id = "get_workspace_changes",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("agent" = String, Path, description = "Agent")), responses(
    (status = 200, description = "Changes since the workspace was made", body = AgentWorkspaceChanges),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn changes(
    State(app): State<App>,
    caller: Caller,
    Path((project, agent)): Path<(String, String)>,
) -> Result<Json<AgentWorkspaceChanges>, ApiError> {
    let (project, agent) = project_and_agent(&app, &caller, &project, Some(&agent)).await?;
    let permit = app.work_limits.comparison(&caller.owner).await;
    let (_lock, row) = lookup::lock(&app, &project, &agent).await?;
    let shown = shown_to(&app, &caller, row.clone()).await?;
    Ok(Json(changes::read(&app, &permit, &row, shown.sequence).await?))
}

/// Complete the work in the workspace of an agent: merge its changes into the project.
///
/// The directory is committed, and the completion is recorded, as for a sandbox. Fails with `WORKSPACE_CHANGING` if
/// processes keep writing to it: then no moment is found whose files could be merged.
#[utoipa::path(post, path = "/api/v1/projects/{project}/workspaces/{agent}/complete", tag = "projects", operation_id = "complete_workspace",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("agent" = String, Path, description = "Agent"),
        ("Idempotency-Key" = Option<String>, Header, description = "Key that identifies the request")),
    request_body = Option<CompleteSandbox>, responses(
    (status = 202, description = "Completion", body = Completion),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn complete(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((project, agent)): Path<(String, String)>,
    headers: HeaderMap,
    Optional(body): Optional<CompleteSandbox>,
) -> Result<(StatusCode, Json<Completion>), ApiError> {
    let (project, agent) = project_and_agent(&app, &caller, &project, Some(&agent)).await?;
    complete::complete(&app, (&caller, &request), (&project, &agent), &headers, body).await
}

/// Delete the workspace of an agent, with its directory.
///
/// Fails with `WORKSPACE_UNCOMPLETED` if it has changes that were not completed, unless `discard` is set. End the container
/// first: what it writes meanwhile is lost.
#[utoipa::path(delete, path = "/api/v1/projects/{project}/workspaces/{agent}", tag = "projects", operation_id = "delete_workspace",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("agent" = String, Path, description = "Agent"), DeleteAgentWorkspaceQuery), responses(
    (status = 204, description = "The workspace was deleted"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((project, agent)): Path<(String, String)>,
    Query(query): Query<DeleteAgentWorkspaceQuery>,
) -> Result<StatusCode, ApiError> {
    let (project, agent) = project_and_agent(&app, &caller, &project, Some(&agent)).await?;
    let permit = app.work_limits.comparison(&caller.owner).await;
    let id = lifecycle::remove(&app, &permit, (&project, &agent), query.discard).await?;
    drop(permit);
    let details = json!({ "project": project.id, "agent": agent, "workspace": id, "discard": query.discard });
    app.audit.record(Entry::for_caller("workspace.deleted", &caller, &request, details));
    Ok(StatusCode::NO_CONTENT)
}
