//! The router of the whole API.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use workspace_api::error_codes;

use crate::app::App;
use crate::error::ApiError;
use crate::part::Part;
use crate::{
    auth, episodes, health, keys, openapi, pages, process, processes, pty, request, sandboxes, snapshots, system,
    templates,
};

/// Returns the parts of the API. A new one is added here and nowhere else.
pub fn parts() -> Vec<Part> {
    vec![
        pages::part(),
        health::part(),
        keys::part(),
        sandboxes::part(),
        process::part(),
        processes::part(),
        pty::part(),
        templates::part(),
        snapshots::part(),
        episodes::part(),
        system::part(),
    ]
}

/// Builds the whole API. Everything needs a key except the open routes of a part. Unknown paths need one,
/// too, so that a caller without a key learns nothing about the paths.
pub fn router(app: App, parts: Vec<Part>) -> Result<Router, serde_json::Error> {
    let description = openapi::describe(&parts);
    let (mut open, mut closed) = (openapi::routes(&description)?, Router::new());
    for part in parts {
        open = open.merge(part.open);
        closed = closed.merge(part.closed);
    }
    let open = open.method_not_allowed_fallback(no_such_method);
    let closed = closed
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_such_path)
        .layer(from_fn_with_state(app.clone(), auth::authenticate));
    let body_max = usize::try_from(app.settings.max_body.0).unwrap_or(usize::MAX);
    Ok(open
        .merge(closed)
        .layer(DefaultBodyLimit::max(body_max))
        .layer(from_fn_with_state(app.clone(), request::around))
        .with_state(app))
}

/// Returns the text of `docs/openapi.json`.
pub fn openapi_json() -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(&openapi::describe(&parts())).map(|text| text + "\n")
}

async fn no_such_path() -> ApiError {
    ApiError::new(error_codes::NOT_FOUND, "the API has no such path; /api/docs describes it")
}

async fn no_such_method() -> ApiError {
    ApiError::new(error_codes::METHOD_NOT_ALLOWED, "the path does not have that method")
}
