//! The OpenAPI 3.1 document of the API: merged from the route groups, checked in as `docs/openapi.json`, and served.
//! `pages/api_docs.rs` serves a browser for it.
//!
//! The attributes `#[utoipa::path]` of similar handlers repeat parameters and responses: the macro reads only literals.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as ApiDocument;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use workspace_api::error::ErrorBody;

use crate::access::{Access, QueryCredential, Rule};
use crate::app::App;
use crate::route_group::RouteGroup;

#[derive(OpenApi)]
#[openapi(
    info(title = "Elevo Workspace", description = "Sandboxes for AI agents: isolated processes and terminals around a workspace, snapshots of file trees, and searches \
over snapshots.\n\nRequests need an API key, sent as `Authorization: Bearer KEY` or `X-API-Key: KEY`. Only `/`, `/health`, `/ready`, `/api/docs` and `/api/v1/openapi.json` need none. \
The file `api-key` in the server's `DATA_DIR` contains the first key. Operations with the scheme `sandboxToken` also accept a token for the sandbox, \
which `POST /api/v1/sandboxes/{id}/token` creates.\n\nTimes are RFC 3339 in UTC. Ids are opaque strings. Responses may gain fields. An error response is an `ErrorBody`; \
its `name` is stable."),
    paths(openapi),
    components(schemas(ErrorBody)),
    security(("bearer" = []), ("apiKey" = [])),
    tags(
        (name = "sandboxes", description = "Isolated processes around a workspace, and the snapshots of that workspace"),
        (name = "process", description = "Commands and processes in a sandbox"),
        (name = "pty", description = "Terminals in a sandbox"),
        (name = "notes", description = "Texts of agents about their steps in a sandbox"),
        (name = "files", description = "Files of a sandbox: read, write, list, change and watch them"),
        (name = "ports", description = "TCP ports of a sandbox, and previews of HTTP servers on them"),
        (name = "templates", description = "Root filesystems of sandboxes"),
        (name = "snapshots", description = "Immutable file trees, with their files and differences"),
        (name = "references", description = "Names for snapshots, which keep them from being deleted"),
        (name = "episodes", description = "Steps of a search over snapshots, which form a tree"),
        (name = "events", description = "Events of sandboxes and snapshots, as pages and as a stream"),
        (name = "system", description = "Health, metrics, statistics and documentation of the server"),
        (name = "keys", description = "The caller; API keys, which only admins manage"),
    )
)]
struct Document;

const BEARER: &str = "bearer";
const API_KEY: &str = "apiKey";
const SANDBOX_TOKEN: &str = "sandboxToken";
const TICKET: &str = "ticket";
const SIGNATURE: &str = "signature";

/// Merges the documents of the route groups, and adds the security schemes.
pub(crate) fn merge<'g>(groups: impl IntoIterator<Item = &'g RouteGroup>) -> ApiDocument {
    let mut document = Document::openapi();
    let mut rules: Vec<Rule> = Vec::new();
    for group in groups {
        document.merge(group.document.clone());
        rules.extend(group.rules);
    }
    for rule in &rules {
        let item = document.paths.paths.get_mut(&documented_path(rule.path));
        if let Some(operation) = item.and_then(|item| operation(item, rule.method)) {
            operation.security = security(rule).or(operation.security.take());
        }
    }
    add_schemes(&mut document, &rules);
    document
}

/// Returns a path as it is in the document: OpenAPI has no parameters that span several segments.
pub(crate) fn documented_path(path: &str) -> String {
    path.replace("{*", "{")
}

fn operation<'i>(item: &'i mut PathItem, method: &str) -> Option<&'i mut Operation> {
    match method {
        "GET" => item.get.as_mut(),
        "PUT" => item.put.as_mut(),
        "POST" => item.post.as_mut(),
        "PATCH" => item.patch.as_mut(),
        "DELETE" => item.delete.as_mut(),
        _ => None,
    }
}

/// Returns the credentials that a route accepts; `None` for keys only, which is the default of the whole document.
fn security(rule: &Rule) -> Option<Vec<SecurityRequirement>> {
    let needs = |scheme: &str, rights: &[&str]| SecurityRequirement::new(scheme, rights.iter().copied());
    let mut all = vec![needs(BEARER, &[]), needs(API_KEY, &[])];
    match rule.access {
        Access::Keys => return None,
        Access::AnyToken => all.push(needs(SANDBOX_TOKEN, &[])),
        Access::Right(right) => all.push(needs(SANDBOX_TOKEN, &[right.as_str()])),
    }
    match rule.query {
        Some(QueryCredential::Ticket) => all.push(needs(TICKET, &[])),
        Some(QueryCredential::Signature) => all.push(needs(SIGNATURE, &[])),
        None => {}
    }
    Some(all)
}

fn add_schemes(document: &mut ApiDocument, rules: &[Rule]) {
    let accepts = |credential: QueryCredential| rules.iter().any(|rule| rule.query == Some(credential));
    let (has_tickets, has_signatures) =
        (accepts(QueryCredential::Ticket), accepts(QueryCredential::Signature));
    let components = document.components.get_or_insert_default();
    let mut add_bearer = |name: &str, description: &str| {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description));
        components.add_security_scheme(name, SecurityScheme::Http(scheme.build()));
    };
    add_bearer(BEARER, "API key, sent as `Authorization: Bearer KEY`.");
    let token = "Token for one sandbox, sent as `Authorization: Bearer TOKEN`. It needs the named right; the \
                 sandbox in the path must be its own.";
    add_bearer(SANDBOX_TOKEN, token);
    let mut add_key = |name: &str, key: ApiKey| {
        components.add_security_scheme(name, SecurityScheme::ApiKey(key));
    };
    let header = ApiKeyValue::with_description("X-API-Key", "The same key, sent as `X-API-Key: KEY`.");
    add_key(API_KEY, ApiKey::Header(header));
    if has_tickets {
        let text = "Ticket for one connection to a terminal, for browsers, which cannot send headers there.";
        add_key(TICKET, ApiKey::Query(ApiKeyValue::with_description("ticket", text)));
    }
    if has_signatures {
        let text = "Signature of a URL that `POST /api/v1/sandboxes/{id}/signed-url` created.";
        add_key(SIGNATURE, ApiKey::Query(ApiKeyValue::with_description("signature", text)));
    }
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
