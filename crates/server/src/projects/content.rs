//! `/api/v1/projects/{project}/tree`, `/files` and `/archive`: files of a project, of the present head or an earlier one.

use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::projects::{ProjectArchiveQuery, ProjectFileQuery, ProjectTreeQuery};
use workspace_api::revision::Revision;
use workspace_api::snapshots::{PageQuery, TreeListing};
use workspace_state::Snapshot;

use super::lookup::{Found, NamedAgent, agent_snapshot_at, open, parse_path, project_snapshot_at};
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::snapshots::{self, TreeLocation};

/// Returns the snapshot with the files of a project at a revision, or of its head.
async fn snapshot_at(
    app: &App,
    caller: &Caller,
    agent: NamedAgent,
    project: &str,
    at: Option<&Revision>,
) -> Result<Snapshot, ApiError> {
    let Found { project, view } = open(app, caller, agent, project).await?;
    let snapshot = match &view {
        Some(view) => {
            // A view may have to be made first.
            let _permit = app.work_limits.read(&caller.owner).await;
            agent_snapshot_at(app, view, at).await?
        }
        None => project_snapshot_at(app, &project, at).await?,
    };
    snapshot.ok_or_else(|| {
        let message =
            format!("project `{}` has no files yet; import some, or complete a sandbox", project.name);
        ApiError::new(error_codes::PATH_NOT_FOUND, message)
    })
}

/// List the root directory of a project.
#[utoipa::path(get, path = "/api/v1/projects/{project}/tree", tag = "projects", operation_id = "get_project_root",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"), ProjectTreeQuery), responses(
    (status = 200, description = "Root directory with a page of its entries", body = TreeListing),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn root(
    state: State<App>,
    caller: Caller,
    agent: NamedAgent,
    location: TreeLocation,
    query: Query<ProjectTreeQuery>,
) -> Result<Json<TreeListing>, ApiError> {
    tree(state, caller, agent, location, query).await
}

/// Get an entry of a project.
///
/// For a directory, the response has a page of its entries. Symlinks are not followed.
#[utoipa::path(get, path = "/api/v1/projects/{project}/tree/{path}", tag = "projects", operation_id = "get_project_tree",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"),
        ("path" = String, Path, description = "Path in the project. Slashes may be encoded as `%2F`, other bytes as `%XX`"),
        ProjectTreeQuery), responses(
    (status = 200, description = "Entry", body = TreeListing),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn tree(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    location: TreeLocation,
    Query(query): Query<ProjectTreeQuery>,
) -> Result<Json<TreeListing>, ApiError> {
    let page = PageQuery { page: query.page, limit: query.limit };
    let snapshot = snapshot_at(&app, &caller, agent, &location.root, query.at.as_ref()).await?;
    snapshots::list_entries(&app, &caller, snapshot, location.path, &page).await
}

/// Get the content of a file of a project, or a range of it.
///
/// Symlinks are not followed.
#[utoipa::path(get, path = "/api/v1/projects/{project}/files/{path}", tag = "projects", operation_id = "get_project_file",
    params(
        ("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"),
        ("path" = String, Path, description = "Path in the project. Slashes may be encoded as `%2F`, other bytes as `%XX`"),
        ProjectFileQuery,
        ("Range" = Option<String>, Header, description = "Range of bytes, such as `bytes=0-99`. Several ranges are ignored, and the whole file is sent"),
        ("If-None-Match" = Option<String>, Header, description = "`ETag` of cached content"),
    ),
    responses(
        (status = 200, description = "Content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, description = "Range of the content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "The cached content is current"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn file(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    location: TreeLocation,
    Query(query): Query<ProjectFileQuery>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let snapshot = snapshot_at(&app, &caller, agent, &location.root, query.at.as_ref()).await?;
    snapshots::send_content(&app, &caller, snapshot, location.path, &method, &headers).await
}

/// Get a project, or a part of it, as a tar archive.
///
/// The format is that of `GET /api/v1/snapshots/{id}/archive`.
#[utoipa::path(get, path = "/api/v1/projects/{project}/archive", tag = "projects", operation_id = "get_project_archive",
    params(("project" = String, Path, description = "Name or id of the project"),
        ("X-Agent" = Option<String>, Header, description = "Agent as which the project is read. Needed if the key may act for several agents"), ProjectArchiveQuery),
    responses(
        (status = 200, description = "Archive", body = Vec<u8>, content_type = "application/x-tar"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn archive(
    State(app): State<App>,
    caller: Caller,
    agent: NamedAgent,
    Path(project): Path<String>,
    Query(query): Query<ProjectArchiveQuery>,
    method: Method,
) -> Result<Response, ApiError> {
    let snapshot = snapshot_at(&app, &caller, agent, &project, query.at.as_ref()).await?;
    let path = query.path.as_deref().map(parse_path).transpose()?.unwrap_or_default();
    snapshots::send_archive(&app, &caller, snapshot, path, &method).await
}
