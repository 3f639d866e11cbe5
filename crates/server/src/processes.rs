//! `/api/v1/sandboxes/{id}/processes`: running processes of a sandbox, with the commands that started them.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use utoipa::OpenApi;
use workspace_api::access::Right;
use workspace_api::error::ErrorBody;
use workspace_api::processes::{Process, ProcessList};

use crate::access::Rule;
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::route_group::RouteGroup;

#[derive(OpenApi)]
#[openapi(paths(list))]
struct Document;

const RULES: &[Rule] = &[Rule::right("GET", "/api/v1/sandboxes/{id}/processes", Right::Process)];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/sandboxes/{id}/processes", get(list));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// List the running processes of a sandbox.
///
/// The list has all processes that commands and terminals started. Processes that a command leaves behind when it exits
/// keep running until the sandbox is deleted; to end them earlier, send a signal to that command (`kill`).
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/processes", tag = "process", operation_id = "list_processes",
    params(("id" = String, Path, description = "Id of the sandbox")), responses(
    (status = 200, description = "Processes", body = ProcessList),
    (status = "default", description = "Error", body = ErrorBody),
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
        left: process.is_leftover,
        arguments: process.arguments,
    });
    Ok(Json(ProcessList { items: items.collect() }))
}
