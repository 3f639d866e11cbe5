//! `/api/v1/projects/{project}/completions/{completion}/files/{path}`: files of an agent as it completed them, also those
//! whose changes were refused.

use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use workspace_api::error::ErrorBody;

use super::completed_file::CompletedFile;
use super::completions::completion_not_found;
use super::lookup::find;
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::snapshots;

/// Get the content of a file that an agent completed, or a range of it.
///
/// The file is that of the agent, also if its change was refused, is reviewed or was merged with others. It is kept as
/// long as the project. Only for the owner of the project, and admins. Symlinks are not followed.
#[utoipa::path(get, path = "/api/v1/projects/{project}/completions/{completion}/files/{path}", tag = "projects", operation_id = "get_completion_file",
    params(
        ("project" = String, Path, description = "Name or id of the project"),
        ("completion" = String, Path, description = "Id of the completion"),
        ("path" = String, Path, description = "Path in the files of the agent. Slashes may be encoded as `%2F`, other bytes as `%XX`"),
        ("Range" = Option<String>, Header, description = "Range of bytes, such as `bytes=0-99`. Several ranges are ignored, and the whole file is sent"),
        ("If-None-Match" = Option<String>, Header, description = "`ETag` of cached content"),
    ),
    responses(
        (status = 200, description = "Content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, description = "Range of the content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "The cached content is current"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn content(
    State(app): State<App>,
    caller: Caller,
    file: CompletedFile,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let CompletedFile { project, completion, path } = file;
    // `find` refuses bound keys: the files of an agent may be more than another agent may see.
    let project = find(&app, &caller, &project).await?;
    let found = app.catalog.completions().find(&project.id, &completion).await?;
    let found = found.ok_or_else(|| completion_not_found(&project.name, &completion))?;
    let snapshot = app.projects.completed_files(&found).await?;
    snapshots::send_content(&app, &caller, snapshot, path, &method, &headers).await
}
