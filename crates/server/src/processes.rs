//! `/api/v1/sandboxes/{id}/processes`: what runs in a sandbox, and which commands it came of.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::processes::{Process, ProcessList};

use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::route_group::RouteGroup;
use crate::sandboxes::scope;

#[derive(OpenApi)]
#[openapi(paths(list))]
struct Document;

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/sandboxes/{id}/processes", get(list));
    RouteGroup::authenticated(routes, Document::openapi())
}

/// List the running processes that commands and terminals started.
///
/// Processes that a command leaves behind when it exits keep running until the sandbox ends; to end them
/// earlier, send a signal to that command (`kill`).
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/processes", tag = "process", operation_id = "list_processes",
    params(("id" = String, Path)), responses(
    (status = 200, description = "The processes", body = ProcessList),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ProcessList>, ApiError> {
    let processes = app.sandboxes.processes(&scope(&caller), &id).await?;
    let items = processes.into_iter().map(|process| Process {
        pid: process.pid,
        parent: process.parent,
        command_id: process.command,
        left: process.left,
        arguments: process.arguments,
    });
    Ok(Json(ProcessList { items: items.collect() }))
}
