//! `/api/v1/sandboxes/{id}/signed-url`: URLs with which one file can be read or written without a key.
//!
//! A route for files accepts signed URLs if its rule has
//! [`QueryCredential::Signature`](crate::access::QueryCredential::Signature) and its last parameter is `{*path}`; its
//! handler limits the body to [`Caller::upload_max`].

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::access::{CreateSignedUrl, SignedMethod, SignedUrl};
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
use crate::route_group::RouteGroup;
use crate::signed_file::{SignedFile, right};
use crate::time::format_millis;

/// Maximum length of a path in bytes. Percent-encoded, it still fits in a request.
const PATH_MAX: usize = 1_024;

#[derive(OpenApi)]
#[openapi(paths(create))]
struct Document;

/// A token needs the right for the method, which the handler checks.
const RULES: &[Rule] = &[Rule::any_token("POST", "/api/v1/sandboxes/{id}/signed-url")];

/// Returns the route that creates signed URLs.
pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/sandboxes/{id}/signed-url", post(create));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Create a URL with which one file can be read or written without a key.
///
/// The URL is valid for everybody who has it, until it expires, its key is revoked or the sandbox is deleted. A token
/// needs the right `files:read` for `GET` and `files:write` for `PUT`; the URL expires with the token.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/signed-url", tag = "sandboxes", operation_id = "create_signed_url",
    params(("id" = String, Path, description = "Id of the sandbox")), request_body = CreateSignedUrl, responses(
    (status = 201, description = "URL", body = SignedUrl),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(body): Json<CreateSignedUrl>,
) -> Result<(StatusCode, Json<SignedUrl>), ApiError> {
    caller.require(right(body.method))?;
    let path = check_path(&body.path)?.to_owned();
    if body.max_bytes.is_some() && body.method != SignedMethod::Put {
        let message = "maxBytes limits uploads: it needs the method PUT";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "maxBytes"));
    }
    let expires = expiry(&caller, body.expires_in_seconds, now())?.div_euclid(1_000);
    let sandbox = app.sandboxes.get(&scope(&caller), &id).await?.sandbox.id;
    let (method, max_bytes, key_id) = (body.method, body.max_bytes, caller.key_id.clone());
    let file = SignedFile { method, sandbox, path, max_bytes, expires, key_id };
    let expires_at = format_millis(expires.saturating_mul(1_000))?;
    let details = json!({
        "method": method.as_str(),
        "path": body.path,
        "max_bytes": max_bytes,
        "expires_at": expires_at,
    });
    app.audit.record(Entry {
        sandbox_id: Some(id),
        ..Entry::for_caller("signed_url.created", &caller, &request, details)
    });
    let scheme = if app.settings.tls_cert.is_some() { "https" } else { "http" };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let url = format!("{scheme}://{host}{}", app.signed_urls.sign(&file));
    Ok((StatusCode::CREATED, Json(SignedUrl { url, expires_at })))
}

/// Returns a path without its first slash. Fails with `INVALID_REQUEST` unless it is absolute and names a file.
fn check_path(path: &str) -> Result<&str, ApiError> {
    let relative = path.strip_prefix('/').filter(|rest| !rest.is_empty() && rest.len() <= PATH_MAX);
    let is_plain = |rest: &&str| !rest.contains('\0') && rest.split('/').all(|part| part != "..");
    relative.filter(is_plain).ok_or_else(|| {
        let message = format!("path must be absolute, without `..`, and have at most {PATH_MAX} bytes");
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "path")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_of_files_are_signed() {
        assert_eq!(check_path("/workspace/a").unwrap(), "workspace/a");
        assert_eq!(check_path("/a..b/..c").unwrap(), "a..b/..c");
        let long = format!("/{}", "a".repeat(PATH_MAX + 1));
        for path in ["", "/", "a", "/a/../b", "/..", "/a/..", "/a\0", long.as_str()] {
            assert_eq!(check_path(path).unwrap_err().code(), error_codes::INVALID_REQUEST, "{path}");
        }
    }
}
