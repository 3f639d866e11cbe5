//! The OpenAPI 3.1 document of the API: merged from the route groups, checked in as `docs/openapi.json`, and served.
//! `pages/api_docs.rs` serves a browser for it.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use workspace_api::error::ErrorBody;

use crate::app::App;
use crate::part::Part;

#[derive(OpenApi)]
#[openapi(
    info(title = "Elevo Workspace", description = "Sandboxes for agents: isolated processes and terminals; snapshots of file trees, and searches over them. Every request but those for health and this \
description has a key, `Authorization: Bearer KEY` or `X-API-Key: KEY`; the first one is in `DATA_DIR/api-key`."),
    paths(openapi),
    components(schemas(ErrorBody)),
    security(("bearer" = []), ("apiKey" = [])),
    tags(
        (name = "sandboxes", description = "Isolated processes around a workspace"),
        (name = "process", description = "Commands in a sandbox"),
        (name = "pty", description = "Terminals in a sandbox"),
        (name = "templates", description = "Templates of root filesystems"),
        (name = "snapshots", description = "File trees at moments in time"),
        (name = "episodes", description = "The steps of a search over snapshots"),
        (name = "system", description = "The server itself"),
        (name = "keys", description = "API keys; for admins"),
    )
)]
struct Document;

/// Merges the descriptions of the parts.
pub(crate) fn describe<'p>(parts: impl IntoIterator<Item = &'p Part>) -> Description {
    let mut whole = Document::openapi();
    for part in parts {
        whole.merge(part.document.clone());
    }
    let components = whole.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
    let bearer = bearer.description(Some("API key, sent as `Authorization: Bearer KEY`.")).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let header = ApiKeyValue::with_description("X-API-Key", "The same key, sent as `X-API-Key: KEY`.");
    components.add_security_scheme("apiKey", SecurityScheme::ApiKey(ApiKey::Header(header)));
    whole
}

/// Returns the routes of this file.
pub(crate) fn routes(description: &Description) -> Result<Router<App>, serde_json::Error> {
    let text = serde_json::to_string(description)?;
    Ok(Router::new().route("/api/v1/openapi.json", get(move || openapi(text.clone()))))
}

/// Get this description.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "system", security(()), responses(
    (status = 200, description = "OpenAPI 3.1", body = Object, content_type = "application/json"),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn openapi(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
