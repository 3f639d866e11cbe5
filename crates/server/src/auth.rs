//! Authentication by API key.
//!
//! A key is looked up by its BLAKE3 hash, so nothing compares keys byte by byte: how long the lookup takes tells
//! at most about the hash, from which neither the key nor a key with a similar hash can be made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body::Body as _;
use serde_json::json;
use workspace_api::error_codes;
use workspace_api::keys::KeyLimits;
use workspace_catalog::{ApiKey, Catalog, Role};

use crate::app::App;
use crate::audit::{Entry, Level};
use crate::connections::Connection;
use crate::error::ApiError;
use crate::keys;
use crate::owner_memory::Held;
use crate::rate::{self, Class, Rates, Verdict};
use crate::request::{Peer, RequestId};

/// Time for which a key is cached. Another node that shares the catalog may revoke it meanwhile.
const CACHE_LIFETIME: Duration = Duration::from_secs(5);
const CACHE_ENTRIES_MAX: usize = 10_000;
/// Smaller answers are not counted.
const ANSWER_MIN: usize = 64 << 10;

/// Authenticated caller, as described by its key.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// The key.
    pub key_id: String,
    /// Owner whose sandboxes and snapshots the key gives access to.
    pub owner: String,
    /// Role of the key.
    pub role: Role,
    /// Limits of the key.
    pub limits: KeyLimits,
    /// The beginning of the key's hash, for the audit log.
    pub user: String,
}

impl Caller {
    /// Returns true for admin keys.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    /// Returns the rate limits of the key. Admin keys have no limits but those given to them.
    fn rates(&self, app: &App) -> Rates {
        let usual = if self.is_admin() { Rates::UNLIMITED } else { app.limiter.rates() };
        keys::rates(&self.limits, usual)
    }

    /// Fails with `FORBIDDEN` unless the key is an admin's.
    pub fn require_admin(&self) -> Result<(), ApiError> {
        let refused = || ApiError::new(error_codes::FORBIDDEN, "only admin keys may do this");
        self.is_admin().then_some(()).ok_or_else(refused)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get().cloned();
        caller.ok_or_else(|| ApiError::internal("a route without authentication asked for the caller"))
    }
}

/// Returns the hash under which a key is stored.
pub fn hash(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().to_string()
}

/// Returns the part of a key's hash that is logged.
pub(crate) fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}

/// The keys that were seen lately.
#[derive(Debug, Default)]
pub struct Cache {
    inner: Mutex<Believed>,
}

#[derive(Debug, Default)]
struct Believed {
    callers: HashMap<String, (Caller, Instant)>,
    /// Grows with every revocation, so that a lookup that began before it leaves nothing here.
    revocations: u64,
}

impl Cache {
    /// Finds the caller by the hash of the key.
    pub async fn find(&self, catalog: &Catalog, hash: &str) -> Result<Option<Caller>, ApiError> {
        let began = {
            let believed = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((caller, at)) = believed.callers.get(hash)
                && at.elapsed() < CACHE_LIFETIME
            {
                return Ok(Some(caller.clone()));
            }
            believed.revocations
        };
        let Some(key) = catalog.api_keys().find_by_hash(hash).await? else { return Ok(None) };
        let caller = caller(key)?;
        self.keep(hash, &caller, began);
        Ok(Some(caller))
    }

    fn keep(&self, hash: &str, caller: &Caller, began: u64) {
        let mut believed = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if believed.revocations != began {
            return;
        }
        if believed.callers.len() >= CACHE_ENTRIES_MAX {
            believed.callers.clear();
        }
        believed.callers.insert(hash.to_owned(), (caller.clone(), Instant::now()));
    }

    /// Forgets a key that was revoked.
    pub fn forget(&self, key_id: &str) {
        let mut believed = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        believed.revocations += 1;
        believed.callers.retain(|_, (caller, _)| caller.key_id != key_id);
    }
}

fn caller(key: ApiKey) -> Result<Caller, ApiError> {
    let limits = serde_json::from_value(key.limits).map_err(ApiError::internal)?;
    Ok(Caller { key_id: key.id, owner: key.owner, role: key.role, limits, user: short(&key.hash) })
}

/// Lets a request through with its [`Caller`], if its key is good, may do this, and has requests left.
pub(crate) async fn authenticate(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let (caller, verdict) = match admit(&app, &parts).await {
        Ok(admitted) => admitted,
        Err(error) => return error.into_response(),
    };
    let class = Class::of(&parts.method, route(&parts));
    let id = parts.extensions.get::<RequestId>().cloned();
    let about = json!({"method": parts.method.as_str(), "route": route(&parts)});
    parts.extensions.insert(caller.clone());
    let mut response = if caller.role == Role::ReadOnly && !only_looks(&parts) {
        ApiError::new(error_codes::FORBIDDEN, "this key may only look").into_response()
    } else {
        hold_memory(&app, &caller, next.run(Request::from_parts(parts, body)).await)
    };
    if let (StatusCode::FORBIDDEN, Some(id)) = (response.status(), id) {
        app.audit.record(Entry { level: Level::Warn, ..Entry::by("auth.forbidden", &caller, &id, about) });
    }
    let verdict = if rate::was_refused(&response) {
        app.limiter.give_back(&caller.key_id, class, caller.rates(&app))
    } else {
        verdict
    };
    response.headers_mut().extend(verdict.into_iter().flat_map(|verdict| verdict.headers()));
    response
}

/// Counts an answer that is there as a whole as memory of its owner until it was sent.
fn hold_memory(app: &App, caller: &Caller, mut response: Response) -> Response {
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let is_held = response.extensions().get::<Arc<Held>>().is_some();
    let Some(size) = size.filter(|size| *size > ANSWER_MIN && !is_held) else { return response };
    let mut held = app.answer_memory.begin(&caller.owner);
    if !held.grow_by(size) {
        let message =
            "answers of the same owner that are not read yet take up all the memory for them; read them";
        return ApiError::new(error_codes::ANSWERS_UNREAD, message).into_response();
    }
    response.extensions_mut().insert(Arc::new(held));
    response
}

async fn admit(app: &App, parts: &Parts) -> Result<(Caller, Option<Verdict>), ApiError> {
    let Some(key) = key(&parts.headers) else {
        return Err(refuse(app, parts, None, "no key was given"));
    };
    let hash = hash(key);
    let Some(caller) = app.cache.find(&app.catalog, &hash).await? else {
        return Err(refuse(app, parts, Some(&hash), "the key is not known"));
    };
    tracing::Span::current().record("owner", caller.owner.as_str());
    if let Some(connection) = parts.extensions.get::<Connection>() {
        let owner = (!caller.is_admin()).then_some(caller.owner.as_str());
        connection.set_known(owner).map_err(too_many_connections)?;
    }
    let verdict = limit(app, parts, &caller)?;
    Ok((caller, verdict))
}

fn too_many_connections(limit: usize) -> ApiError {
    let message =
        format!("{limit} connections of the same owner have requests under way; end a stream or a terminal");
    ApiError::new(error_codes::CONNECTION_LIMIT_EXCEEDED, message)
        .detail("limit", limit)
        .detail("setting", "MAX_CONNECTIONS_PER_OWNER")
        .header(header::CONNECTION, HeaderValue::from_static("close"))
}

/// Returns true for requests that only read. A WebSocket starts as GET, but may write to a terminal.
fn only_looks(parts: &Parts) -> bool {
    matches!(parts.method, Method::GET | Method::HEAD) && !parts.headers.contains_key(header::UPGRADE)
}

/// Returns the key of a request: `Authorization: Bearer KEY` or `X-API-Key: KEY`.
fn key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.split_once(' '));
    let bearer =
        bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
    let plain = || headers.get("x-api-key").and_then(|value| value.to_str().ok());
    bearer.or_else(plain).filter(|key| !key.is_empty())
}

fn route(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str)
}

fn limit(app: &App, parts: &Parts, caller: &Caller) -> Result<Option<Verdict>, ApiError> {
    let (class, rates) = (Class::of(&parts.method, route(parts)), caller.rates(app));
    check(app.limiter.refusals(&caller.key_id, rates), "refused requests", Class::Refused)?;
    check(app.limiter.take(&caller.key_id, class, rates), "such requests", class)
}

/// Returns the verdict, or the error `RATE_LIMITED` if there is no token.
fn check(verdict: Option<Verdict>, what: &str, class: Class) -> Result<Option<Verdict>, ApiError> {
    let Some(refused) = verdict.filter(|verdict| verdict.retry_after.is_some()) else { return Ok(verdict) };
    let message = format!("more than {} {what} a minute", refused.limit);
    let error = ApiError::new(error_codes::RATE_LIMITED, message).detail("limit", refused.limit);
    let error = error.detail("setting", class.setting());
    Err(refused.headers().into_iter().fold(error, |error, (name, value)| error.header(name, value)))
}

/// Refuses a request without a good key. Who tries often is limited by address, so that the audit log cannot be
/// filled from outside.
fn refuse(app: &App, parts: &Parts, hash: Option<&str>, reason: &str) -> ApiError {
    let address = parts.extensions.get::<Peer>().map(|peer| peer.0.to_string()).unwrap_or_default();
    let taken = app.limiter.take(&format!("address {address}"), Class::Other, app.limiter.rates());
    if let Err(limited) = check(taken, "such requests", Class::Other) {
        return limited;
    }
    let details = json!({"reason": reason, "address": address, "method": parts.method.as_str()});
    app.audit.record(Entry {
        level: Level::Warn,
        event: "auth.failed",
        user: hash.map(short),
        request_id: parts.extensions.get::<RequestId>().map(|id| id.0.clone()),
        details: details.as_object().cloned().unwrap_or_default(),
        ..Entry::default()
    });
    ApiError::new(
        error_codes::UNAUTHORIZED,
        format!("{reason}: send `Authorization: Bearer KEY` or `X-API-Key: KEY`"),
    )
    .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_that_began_before_a_revocation_is_not_believed() {
        let caller = Caller {
            key_id: "key-1".into(),
            owner: "a".into(),
            role: Role::User,
            limits: KeyLimits::default(),
            user: "0".into(),
        };
        let cache = Cache::default();
        let count = || cache.inner.lock().unwrap().callers.len();
        cache.keep("0", &caller, 0);
        assert_eq!(count(), 1);
        cache.forget("key-1");
        assert_eq!(count(), 0);
        cache.keep("0", &caller, 0);
        assert_eq!(count(), 0);
    }
}
