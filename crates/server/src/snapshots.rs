//! `/api/v1/snapshots`: snapshots with their trees, files and differences, by owner.

mod archive;
mod body;
mod content;
mod conversion;
mod diff;
mod files;
mod list;
pub(crate) mod owners;
mod patches;
mod tree;
mod tree_location;
mod upload;
mod why;
pub(crate) mod work_limits;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::snapshots::{
    ListSnapshotsQuery, Snapshot, SnapshotList, UploadSnapshotQuery, UploadSnapshotResult,
};
use workspace_state::{NewSnapshot, SnapshotId};

pub(crate) use archive::send_archive;
use conversion::{ListOptions, Pairs, UploadOptions, upload_to_api};
pub(crate) use conversion::{check_diff, check_page, kind_to_api, octal, page_offset, snapshot_to_api};
pub(crate) use diff::{
    LIMIT_DEFAULT as DIFF_LIMIT, causes_of, comparison, insight_diff, patch_response, plain_diff,
};
pub(crate) use files::send_content;
pub use owners::Snapshots;
pub(crate) use patches::Patches;
pub(crate) use tree::{list_entries, open_tree};
pub(crate) use tree_location::{TreeLocation, percent_decode};
pub(crate) use upload::receive as receive_upload;
pub(crate) use why::EntryPaths;
pub(crate) use work_limits::WorkPermit;

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::reference_names::ReferenceNames;
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::store::{blocking, snapshot_not_found};

#[derive(OpenApi)]
#[openapi(paths(
    list,
    upload,
    fetch,
    remove,
    diff::compare,
    tree::root,
    tree::list,
    files::content,
    archive::download
))]
struct Document;

/// Timeout for waiting until the files of deleted sandboxes are removed, before a snapshot is removed.
const DELETED_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

const RULES: &[Rule] = &[
    Rule::only_keys("GET", "/api/v1/snapshots"),
    Rule::only_keys("POST", "/api/v1/snapshots"),
    Rule::only_keys("GET", "/api/v1/snapshots/{id}"),
    Rule::only_keys("DELETE", "/api/v1/snapshots/{id}"),
    Rule::only_keys("GET", "/api/v1/snapshots/{a}/diff/{b}"),
    Rule::only_keys("GET", "/api/v1/snapshots/{id}/archive"),
    Rule::only_keys("GET", "/api/v1/snapshots/{id}/tree"),
    Rule::only_keys("GET", "/api/v1/snapshots/{id}/tree/"),
    Rule::only_keys("GET", "/api/v1/snapshots/{id}/tree/{*path}"),
    Rule::only_keys("GET", "/api/v1/snapshots/{id}/files/"),
    Rule::only_keys("GET", "/api/v1/snapshots/{id}/files/{*path}"),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        // `MAX_UPLOAD` limits the archive instead; it is written to the store as it arrives.
        .route("/api/v1/snapshots", get(list).post(upload).layer(DefaultBodyLimit::disable()))
        .route("/api/v1/snapshots/{id}", get(fetch).delete(remove))
        .route("/api/v1/snapshots/{a}/diff/{b}", get(diff::compare))
        .route("/api/v1/snapshots/{id}/archive", get(archive::download))
        .route("/api/v1/snapshots/{id}/tree", get(tree::root))
        .route("/api/v1/snapshots/{id}/tree/", get(tree::root))
        .route("/api/v1/snapshots/{id}/tree/{*path}", get(tree::list))
        .route("/api/v1/snapshots/{id}/files/", get(files::content))
        .route("/api/v1/snapshots/{id}/files/{*path}", get(files::content));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// List snapshots, by default the newest first.
#[utoipa::path(get, path = "/api/v1/snapshots", tag = "snapshots", operation_id = "list_snapshots", params(ListSnapshotsQuery), responses(
    (status = 200, description = "Page of snapshots", body = SnapshotList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(pairs): Query<Pairs>,
) -> Result<Json<SnapshotList>, ApiError> {
    let query = ListOptions::parse(pairs)?;
    let _permit = app.work_limits.read(&caller.owner).await;
    Ok(Json(app.snapshots().page(&scope(&caller), query).await?))
}

/// Upload a snapshot.
///
/// The body is a tar archive, which may be compressed with gzip or zstd. Set-user-id and set-group-id bits are dropped.
#[utoipa::path(post, path = "/api/v1/snapshots", tag = "snapshots", operation_id = "upload_snapshot", params(UploadSnapshotQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 201, description = "New snapshot", body = UploadSnapshotResult),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn upload(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Query(pairs): Query<Pairs>,
    body: Body,
) -> Result<(StatusCode, Json<UploadSnapshotResult>), ApiError> {
    let UploadOptions { message, labels } = UploadOptions::parse(pairs)?;
    app.sandboxes.check_snapshot_quota(&scope(&caller), 1).await?;
    let author = caller.owner.clone();
    let new = NewSnapshot { author, message, labels, ..NewSnapshot::default() };
    let report = upload::receive(&app, caller.owner.clone(), new, body).await?;
    let details = json!({ "snapshot": report.snapshot.id.to_string(), "bytes": report.bytes });
    app.audit.record(Entry::for_caller("snapshot.created", &caller, &request, details));
    Ok((StatusCode::CREATED, Json(upload_to_api(report)?)))
}

/// Get a snapshot.
#[utoipa::path(get, path = "/api/v1/snapshots/{id}", tag = "snapshots", operation_id = "get_snapshot", params(("id" = String, Path, description = "Full id of the snapshot")), responses(
    (status = 200, description = "Snapshot", body = Snapshot),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn fetch(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Snapshot>, ApiError> {
    let scope = scope(&caller);
    let snapshot = app.snapshots().find(&scope, &id).await?;
    let (store, names) = (app.store.clone(), ReferenceNames::of(&scope));
    Ok(Json(blocking(move || snapshot_to_api(snapshot, &names.list(&store, "")?)).await?))
}

/// Delete a snapshot.
///
/// Fails with `SNAPSHOT_IN_USE` while a reference, a sandbox or a mount uses it. The next garbage collection frees its
/// disk space.
#[utoipa::path(delete, path = "/api/v1/snapshots/{id}", tag = "snapshots", operation_id = "delete_snapshot", params(("id" = String, Path, description = "Full id of the snapshot")), responses(
    (status = 204, description = "The snapshot was deleted"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    // The workspace of a sandbox that was just deleted may still exist and pin the snapshot. Only sandboxes of the caller's
    // scope are waited for.
    let scope = scope(&caller);
    app.sandboxes.wait_for_removed_files_of(&scope, DELETED_TIMEOUT).await;
    let id: SnapshotId = id.parse().map_err(|_| snapshot_not_found(&id))?;
    let lock = app.snapshot_locks.acquire(&id.to_string()).await;
    app.snapshots().remove(&scope, &id, lock).await?;
    let details = json!({ "snapshot": id.to_string() });
    app.audit.record(Entry::for_caller("snapshot.deleted", &caller, &request, details));
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a snapshot whose files another one has: a head of a project, or the snapshot of the last completion.
pub(crate) async fn remove_redundant(app: &App, owner: &str, id: SnapshotId) -> Result<(), ApiError> {
    app.catalog.snapshots().remove_owner(Some(owner), &id.to_string()).await?;
    let store = app.store.clone();
    blocking(move || Ok(store.remove_snapshots(&[id])?)).await
}
