//! Authentication by API key.
//!
//! A key is looked up by its BLAKE3 hash, so nothing compares keys byte by byte: how long the lookup takes tells
//! at most about the hash, from which neither the key nor a key with a similar hash can be made.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body::Body as _;
use serde_json::json;
use workspace_api::error_codes;
use workspace_catalog::Role;

use crate::app::App;
use crate::audit::{Entry, Level};
use crate::caller::Caller;
use crate::connections::Connection;
use crate::error::ApiError;
use crate::key_hash::{hash, short};
use crate::owner_memory::Held;
use crate::rate::{self, Class, Rates, Verdict};
use crate::request_id::{Peer, RequestId};

/// Smaller answers are not counted.
const ANSWER_MIN: usize = 64 << 10;

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
        app.limiter.give_back(&caller.key_id, class, rates(&caller, &app))
    } else {
        verdict
    };
    response.headers_mut().extend(verdict.into_iter().flat_map(|verdict| verdict.headers()));
    response
}

/// Returns the rate limits of the key. Admin keys have no limits but those given to them.
fn rates(caller: &Caller, app: &App) -> Rates {
    let usual = if caller.is_admin() { Rates::UNLIMITED } else { app.limiter.rates() };
    Rates {
        create: caller.limits.create_per_minute.or(usual.create),
        run: caller.limits.run_per_minute.or(usual.run),
        fork: caller.limits.fork_per_minute.or(usual.fork),
        other: caller.limits.other_per_minute.or(usual.other),
    }
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
    let (class, rates) = (Class::of(&parts.method, route(parts)), rates(caller, app));
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
