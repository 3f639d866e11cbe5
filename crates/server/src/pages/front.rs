//! `/`: name, version and main paths of the server, as a page for browsers and as JSON for all other clients.

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use workspace_api::error::ErrorBody;
use workspace_api::system::{ServerInfo, ServerLinks};

use super::text_file::HTML;
use crate::accept_header::prefers;
use crate::extract::Json;

const PAGE: &str = include_str!("front.html");
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; \
                                       form-action 'none'; frame-ancestors 'none'";
const DESCRIPTION: &str = "Every AI agent gets a computer of its own over files that all agents share: sandboxes, \
                           workspaces, snapshots, and projects that merge the changes of several agents.";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Describe the server: its name, its version, and the paths that need no explanation beforehand.
///
/// Browsers, which accept `text/html`, get a page.
#[utoipa::path(get, path = "/", tag = "system", operation_id = "server_info", security(()), responses(
    (status = 200, description = "The server and its main paths", content(
        (ServerInfo = "application/json"),
        (String = "text/html"),
    )),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn front_page(headers: HeaderMap) -> Response {
    let vary = (header::VARY, "Accept");
    // Browsers name `text/html`; clients of the API name JSON, or accept anything.
    if !prefers(&headers, "text/html") {
        return ([vary], Json(info())).into_response();
    }
    let page = PAGE.replace("{description}", DESCRIPTION).replace("{version}", VERSION);
    let headers =
        [vary, (header::CONTENT_TYPE, HTML), (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY)];
    (headers, page).into_response()
}

fn info() -> ServerInfo {
    ServerInfo {
        name: "Elevo Workspace".to_owned(),
        version: VERSION.to_owned(),
        description: DESCRIPTION.to_owned(),
        links: ServerLinks {
            docs: "/api/docs".to_owned(),
            openapi: "/api/v1/openapi.json".to_owned(),
            health: "/health".to_owned(),
            ready: "/ready".to_owned(),
            metrics: "/metrics".to_owned(),
        },
        key: "The admin key is in the file `api-key` of the server's DATA_DIR; with it, \
              `workspace key create NAME --owner OWNER` creates others. Send a key as `Authorization: Bearer KEY`."
            .to_owned(),
    }
}
