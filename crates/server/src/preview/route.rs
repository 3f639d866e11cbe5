//! `POST /api/v1/sandboxes/{id}/ports/{port}`: creates a preview of a port.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::access::Right;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::previews::{CreatePreview, Preview};
use workspace_catalog::now;
use workspace_sandbox::SandboxError;

use super::host::preview_host;
use super::path::preview_path;
use super::query;
use super::target::Target;
use super::token::PreviewToken;
use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::credential_expiry::expiry;
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::time::format_millis;

#[derive(OpenApi)]
#[openapi(paths(create))]
struct Document;

const RULES: &[Rule] = &[Rule::right("POST", "/api/v1/sandboxes/{id}/ports/{port}", Right::Ports)];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/sandboxes/{id}/ports/{port}", post(create));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Create a preview of a port.
///
/// The URL shows the HTTP server on that port, without a key. Nothing needs to listen on the port yet. The preview ends
/// when it expires, when its key is revoked, or with the sandbox.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/ports/{port}", tag = "ports", operation_id = "create_preview",
    params(("id" = String, Path, description = "Id of the sandbox"),
        ("port" = u16, Path, description = "Number of the port", minimum = 1, maximum = 65535)),
    request_body = Option<CreatePreview>, responses(
    (status = 201, description = "Preview", body = Preview),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    headers: HeaderMap,
    Path((id, port)): Path<(String, u16)>,
    Optional(body): Optional<CreatePreview>,
) -> Result<(StatusCode, Json<Preview>), ApiError> {
    if port == 0 {
        let message = "a port is a number from 1 to 65535";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "port"));
    }
    let expires_at = expiry(&caller, body.expires_in_seconds, now())?;
    let sandbox = app.sandboxes.get(&scope(&caller), &id).await?.sandbox;
    // Only the server that runs the sandbox can forward requests to it.
    if sandbox.server != app.sandboxes.settings().server {
        return Err(SandboxError::Elsewhere { id: sandbox.id, server: sandbox.server }.into());
    }
    let token = PreviewToken {
        key_id: caller.key_id.clone(),
        target: Target { sandbox: sandbox.id, port },
        host_header: body.host_header,
        expires_at,
    };
    let text = app.previews.tokens.encode(&token);
    let expires_at = format_millis(expires_at)?;
    let details = json!({ "port": port, "expires_at": expires_at });
    app.audit.record(Entry {
        sandbox_id: Some(id),
        ..Entry::for_caller("preview.created", &caller, &request, details)
    });
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let (url, path_url) = urls(&app, &token.target, &text, host);
    Ok((StatusCode::CREATED, Json(Preview { url, path_url, token: text, expires_at })))
}

/// Returns two URLs of a preview: the one to open, which has the host form if there is a domain for it, and the one in
/// the path form. `host` is the host to which the client sent its request.
fn urls(app: &App, target: &Target, token: &str, host: &str) -> (String, String) {
    let scheme = if app.settings.tls_cert.is_some() { "https" } else { "http" };
    let path_url = format!("{scheme}://{host}{}", preview_path(target, token));
    let url = match app.previews.domain() {
        Some(domain) => {
            let host = preview_host(target, domain, host);
            format!("{scheme}://{host}/?{}={token}", query::PARAMETER)
        }
        None => path_url.clone(),
    };
    (url, path_url)
}
