//! The OpenAPI 3.1 document of the API: merged from the route groups, checked in as `docs/openapi.json`, and served.
//! `pages/api_docs.rs` serves a browser for it.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as ApiDocument;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use workspace_api::error::ErrorBody;

use crate::app::App;
use crate::route_group::RouteGroup;

#[derive(OpenApi)]
#[openapi(
    info(title = "Elevo Workspace", description = "Sandboxes for AI agents: isolated processes and terminals around a workspace, snapshots of file trees, and searches \
over snapshots.\n\nRequests need an API key, sent as `Authorization: Bearer KEY` or `X-API-Key: KEY`. Only `/`, `/health`, `/ready`, `/api/docs` and `/api/v1/openapi.json` need none. \
The file `api-key` in the server's `DATA_DIR` contains the first key.\n\nTimes are RFC 3339 in UTC. Ids are opaque strings. Responses may gain fields. An error response is an `ErrorBody`; \
its `name` is stable."),
    paths(openapi),
    components(schemas(ErrorBody)),
    security(("bearer" = []), ("apiKey" = [])),
    tags(
        (name = "sandboxes", description = "Isolated processes around a workspace, and the snapshots of that workspace"),
        (name = "process", description = "Commands and processes in a sandbox"),
        (name = "pty", description = "Terminals in a sandbox"),
        (name = "files", description = "Files of a sandbox: read, write, list, change and watch them"),
        (name = "ports", description = "TCP ports of a sandbox, and connections to them"),
        (name = "templates", description = "Root filesystems of sandboxes"),
        (name = "snapshots", description = "Immutable file trees, with their files and differences"),
        (name = "episodes", description = "Steps of a search over snapshots, which form a tree"),
        (name = "system", description = "Health, metrics, statistics and documentation of the server"),
        (name = "keys", description = "API keys; admins only"),
    )
)]
struct Document;

/// Merges the documents of the route groups, and adds the security schemes.
pub(crate) fn merge<'g>(groups: impl IntoIterator<Item = &'g RouteGroup>) -> ApiDocument {
    let mut document = Document::openapi();
    for group in groups {
        document.merge(group.document.clone());
    }
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
    let bearer = bearer.description(Some("API key, sent as `Authorization: Bearer KEY`.")).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let header = ApiKeyValue::with_description("X-API-Key", "The same key, sent as `X-API-Key: KEY`.");
    components.add_security_scheme("apiKey", SecurityScheme::ApiKey(ApiKey::Header(header)));
    document
}

/// Returns the public route that serves the document.
pub(crate) fn routes(document: &ApiDocument) -> Result<Router<App>, serde_json::Error> {
    let text = serde_json::to_string(document)?;
    Ok(Router::new().route("/api/v1/openapi.json", get(move || openapi(text.clone()))))
}

/// Get this OpenAPI document.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "system", security(()), responses(
    (status = 200, description = "The document, in OpenAPI 3.1", body = Object, content_type = "application/json"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn openapi(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
