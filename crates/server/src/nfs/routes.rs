//! `/api/v1/nfs/exports`: the exports of a caller.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::nfs::NfsExports;

use crate::access::Rule;
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::Json;
use crate::route_group::RouteGroup;

#[derive(OpenApi)]
#[openapi(paths(exports))]
struct Document;

/// Paths of exports have secrets, which a token for one sandbox must not get.
const RULES: &[Rule] = &[Rule::only_keys("GET", "/api/v1/nfs/exports")];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/nfs/exports", get(exports));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// List NFS exports.
///
/// One for each workspace of a sandbox on this server that the key has access to. Workspaces that follow the head of a
/// project, and those of sandboxes that are paused to disk, are not exported.
#[utoipa::path(get, path = "/api/v1/nfs/exports", tag = "system", operation_id = "list_nfs_exports", responses(
    (status = 200, description = "Exports", body = NfsExports),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn exports(State(app): State<App>, caller: Caller) -> Result<Json<NfsExports>, ApiError> {
    if !caller.may_mount() {
        let message = "this key is read-only, and whoever mounts a workspace can write to it";
        return Err(ApiError::new(error_codes::FORBIDDEN, message));
    }
    Ok(Json(NfsExports { mode: app.nfs.mode().to_owned(), items: app.nfs.exports(&scope(&caller)) }))
}
