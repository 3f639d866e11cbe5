//! `/api/v1/sandboxes/{id}/token`: tokens for one sandbox.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::access::{CreateToken, SandboxToken};
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_catalog::now;

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::credential_expiry::expiry;
use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::request_id::RequestId;
use crate::rights::Rights;
use crate::route_group::RouteGroup;
use crate::time::format_millis;
use crate::token::Token;

#[derive(OpenApi)]
#[openapi(paths(create))]
struct Document;

/// Tokens cannot create tokens, so no token has more rights or a longer life than the one that a key created.
const RULES: &[Rule] = &[Rule::only_keys("POST", "/api/v1/sandboxes/{id}/token")];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/sandboxes/{id}/token", post(create));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Create a token for a sandbox.
///
/// Send it like a key. It gives the named rights in this sandbox and no access to anything else, so it can be passed to
/// a browser or another program. It ends when it expires, when its key is revoked, or with the sandbox. It cannot be
/// revoked by itself, and it cannot create other tokens.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/token", tag = "sandboxes", operation_id = "create_token",
    params(("id" = String, Path, description = "Id of the sandbox")), request_body = CreateToken, responses(
    (status = 201, description = "Token", body = SandboxToken),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(body): Json<CreateToken>,
) -> Result<(StatusCode, Json<SandboxToken>), ApiError> {
    if body.rights.is_empty() {
        let message = "rights must name at least one right";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "rights"));
    }
    let expires_at = expiry(&caller, body.expires_in_seconds, now())?;
    let sandbox = app.sandboxes.get(&scope(&caller), &id).await?.sandbox;
    let rights: Rights = body.rights.into_iter().collect();
    let token = app.tokens.encode(&Token {
        key_id: caller.key_id.clone(),
        // An admin key may create tokens for the sandboxes of other owners.
        sandbox_owner: Some(sandbox.owner).filter(|owner| *owner != caller.owner),
        sandbox: sandbox.id,
        rights,
        expires_at,
    });
    let (rights, expires_at) = (rights.to_vec(), format_millis(expires_at)?);
    let details = json!({ "rights": rights, "expires_at": expires_at });
    app.audit.record(Entry {
        sandbox_id: Some(id),
        ..Entry::for_caller("token.created", &caller, &request, details)
    });
    Ok((StatusCode::CREATED, Json(SandboxToken { token, rights, expires_at })))
}
