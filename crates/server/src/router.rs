//! Router of the whole API.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use workspace_api::error_codes;

use crate::app::App;
use crate::error::ApiError;
use crate::route_group::RouteGroup;
use crate::{
    auth, episodes, health, keys, openapi, pages, process, processes, pty, request, sandbox_io, sandboxes,
    snapshots, system, templates,
};

/// Returns all route groups of the API. Add a new one only here.
pub fn route_groups() -> Vec<RouteGroup> {
    vec![
        pages::route_group(),
        health::route_group(),
        keys::route_group(),
        sandboxes::route_group(),
        sandbox_io::route_group(),
        process::route_group(),
        processes::route_group(),
        pty::route_group(),
        templates::route_group(),
        snapshots::route_group(),
        episodes::route_group(),
        system::route_group(),
    ]
}

/// Builds the router of the whole API. Unknown paths need a key, too, so that a caller without a key cannot find
/// out which paths exist.
pub fn router(app: App, groups: Vec<RouteGroup>) -> Result<Router, serde_json::Error> {
    let document = openapi::merge(&groups);
    let (mut public, mut authenticated) = (openapi::routes(&document)?, Router::new());
    for group in groups {
        public = public.merge(group.public);
        authenticated = authenticated.merge(group.authenticated);
    }
    let public = public.method_not_allowed_fallback(no_such_method);
    let authenticated = authenticated
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_such_path)
        .layer(from_fn_with_state(app.clone(), auth::authenticate));
    let body_max = usize::try_from(app.settings.max_body.0).unwrap_or(usize::MAX);
    Ok(public
        .merge(authenticated)
        .layer(DefaultBodyLimit::max(body_max))
        .layer(from_fn_with_state(app.clone(), request::middleware))
        .with_state(app))
}

/// Returns the text of `docs/openapi.json`.
pub fn openapi_json() -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(&openapi::merge(&route_groups())).map(|text| text + "\n")
}

async fn no_such_path() -> ApiError {
    ApiError::new(error_codes::NOT_FOUND, "the API has no such path; /api/docs lists all paths")
}

async fn no_such_method() -> ApiError {
    ApiError::new(error_codes::METHOD_NOT_ALLOWED, "the path does not support that method")
}
