//! `/api/docs`: the API browser, Swagger UI over the OpenAPI document.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use workspace_api::error::ErrorBody;

use super::text_file::{HTML, JAVASCRIPT, text_file};
use crate::app::App;

const PAGE: &str = include_str!("api_docs.html");
const SCRIPT: &str = include_str!("api_docs.js");
/// Swagger UI draws its icons from `data:` URLs in its style sheet.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/docs", get(api_docs))
        .route("/api/docs/api_docs.js", get(async || text_file(JAVASCRIPT, SCRIPT)))
}

/// Get a page that shows this description and sends requests.
///
/// The page keeps the key that you enter in memory only.
#[utoipa::path(get, path = "/api/docs", tag = "system", security(()), responses(
    (status = 200, description = "A page", body = String, content_type = "text/html"),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn api_docs() -> Response {
    let policy = [(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY)];
    (policy, text_file(HTML, PAGE)).into_response()
}
