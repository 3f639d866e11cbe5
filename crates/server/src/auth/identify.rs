//! Identification of a caller by its key, token, ticket or signed URL.

use axum::extract::{FromRequestParts as _, Query, RawPathParams};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use workspace_api::access::Right;
use workspace_catalog::{CatalogError, Role, now};

use crate::access::{QueryCredential, Rule};
use crate::app::App;
use crate::caller::{Caller, Credential, Grant};
use crate::caller_cache::KeyReference;
use crate::error::ApiError;
use crate::key_hash::hash;
use crate::token;

/// Reason why a caller was not identified.
#[derive(Debug)]
pub(super) enum IdentifyError {
    /// There is no valid credential.
    Unauthorized {
        /// Hash of the invalid credential; `None` if none was sent.
        hash: Option<String>,
        reason: &'static str,
    },
    /// The credential could not be checked, for example because the catalog does not respond.
    Failed(ApiError),
}

impl From<ApiError> for IdentifyError {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl From<CatalogError> for IdentifyError {
    fn from(error: CatalogError) -> Self {
        Self::Failed(error.into())
    }
}

fn invalid(credential: &str, reason: &'static str) -> IdentifyError {
    IdentifyError::Unauthorized { hash: Some(hash(credential)), reason }
}

/// Identifies the caller of a request. A credential in the query counts only on routes that accept it, and only
/// without a key in a header.
pub(super) async fn identify(
    app: &App,
    parts: &mut Parts,
    rule: Option<Rule>,
) -> Result<Caller, IdentifyError> {
    if let Some(text) = header_credential(&parts.headers) {
        return if text.starts_with(token::PREFIX) {
            by_token(app, text).await
        } else {
            by_key(app, text).await
        };
    }
    let Some(credential) = rule.and_then(|rule| rule.query) else { return Err(nothing_sent()) };
    let name = match credential {
        QueryCredential::Ticket => "ticket",
        QueryCredential::Signature => "signature",
    };
    let Some(text) = query_value(parts, name) else { return Err(nothing_sent()) };
    match credential {
        QueryCredential::Ticket => by_ticket(app, parts, &text).await,
        QueryCredential::Signature => by_signature(app, parts, &text).await,
    }
}

fn nothing_sent() -> IdentifyError {
    IdentifyError::Unauthorized { hash: None, reason: "no key was sent" }
}

/// Returns the key or token of a request: `Authorization: Bearer KEY` or `X-API-Key: KEY`.
fn header_credential(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.split_once(' '));
    let bearer =
        bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
    let plain = || headers.get("x-api-key").and_then(|value| value.to_str().ok());
    bearer.or_else(plain).filter(|key| !key.is_empty())
}

/// Returns the first value of a parameter of the query.
fn query_value(parts: &Parts, name: &str) -> Option<String> {
    let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).ok()?.0;
    query.into_iter().find(|(found, _)| found == name).map(|(_, value)| value)
}

/// Returns a decoded parameter of the path; `None` if the route has no such parameter, or it is not UTF-8.
pub(super) async fn path_parameter(parts: &mut Parts, name: &str) -> Option<String> {
    let parameters = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    parameters.iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
}

async fn by_key(app: &App, text: &str) -> Result<Caller, IdentifyError> {
    let found = app.caller_cache.find(&app.catalog, KeyReference::Hash(hash(text))).await?;
    found.ok_or_else(|| invalid(text, "the key is not known"))
}

async fn by_token(app: &App, text: &str) -> Result<Caller, IdentifyError> {
    let refused = || invalid(text, "the token is not valid or has expired");
    let token = app.tokens.verify(text, now()).ok_or_else(refused)?;
    let key =
        app.caller_cache.find(&app.catalog, KeyReference::Id(token.key_id)).await?.ok_or_else(refused)?;
    let grant = Grant {
        credential: Credential::Token,
        sandbox: token.sandbox,
        // A token names the owner of the sandbox only if it is not the owner of its key.
        sandbox_owner: token.sandbox_owner.unwrap_or_else(|| key.owner.clone()),
        rights: token.rights,
        expires_at: Some(token.expires_at),
    };
    Ok(Caller { grant: Some(grant), ..key })
}

async fn by_ticket(app: &App, parts: &mut Parts, text: &str) -> Result<Caller, IdentifyError> {
    let refused = || invalid(text, "the ticket is not valid, was used or has expired");
    let sandbox = path_parameter(parts, "id").await.ok_or_else(refused)?;
    let pty = path_parameter(parts, "pty").await.ok_or_else(refused)?;
    let ticket = app.tickets.redeem(text, &sandbox, &pty).ok_or_else(refused)?;
    let key =
        app.caller_cache.find(&app.catalog, KeyReference::Id(ticket.key_id)).await?.ok_or_else(refused)?;
    let grant = Grant {
        credential: Credential::Ticket { read_only: ticket.read_only },
        sandbox: ticket.sandbox,
        sandbox_owner: ticket.sandbox_owner,
        rights: [Right::Terminal].into_iter().collect(),
        expires_at: ticket.connection_ends_at,
    };
    Ok(Caller { grant: Some(grant), ..key })
}

async fn by_signature(app: &App, parts: &mut Parts, signature: &str) -> Result<Caller, IdentifyError> {
    let refused = || invalid(signature, "the signature is not valid or has expired");
    let sandbox = path_parameter(parts, "id").await.ok_or_else(refused)?;
    let path = path_parameter(parts, "path").await.ok_or_else(refused)?;
    let file = app.signed_urls.verify(&parts.method, &parts.uri, (&sandbox, &path), now());
    let file = file.ok_or_else(refused)?;
    let rights = [file.right()].into_iter().collect();
    let key =
        app.caller_cache.find(&app.catalog, KeyReference::Id(file.key_id)).await?.ok_or_else(refused)?;
    let grant = Grant {
        credential: Credential::SignedUrl { max_bytes: file.max_bytes },
        sandbox_owner: sandbox_owner(app, &key, &file.sandbox).await?,
        sandbox: file.sandbox,
        rights,
        expires_at: Some(file.expires.saturating_mul(1_000)),
    };
    Ok(Caller { grant: Some(grant), ..key })
}

/// Returns the owner of a sandbox for which a key made a signed URL. Only admin keys may do that for other owners.
async fn sandbox_owner(app: &App, key: &Caller, sandbox: &str) -> Result<String, IdentifyError> {
    if key.role != Role::Admin {
        return Ok(key.owner.clone());
    }
    let found = app.catalog.sandboxes().get(sandbox).await?;
    Ok(found.map_or_else(|| key.owner.clone(), |sandbox| sandbox.owner))
}
