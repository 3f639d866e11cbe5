//! Authentication by API key, or by a credential that was created with a key: a token, a ticket or a signed URL.
//!
//! A key is looked up by its BLAKE3 hash, so no code compares keys byte by byte. Timing a lookup reveals at most
//! something about the hash, from which no key can be derived. Tokens and signed URLs are compared in constant time
//! (`signing_key.rs`), and their key is looked up after that.

mod identify;

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body::Body as _;
use serde_json::json;
use workspace_api::error_codes;
use workspace_catalog::Role;
use workspace_sandbox::SandboxError;

use self::identify::{IdentifyError, identify, path_parameter};
use crate::access::{self, Access, Rule};
use crate::app::App;
use crate::audit::{Entry, Level};
use crate::caller::Caller;
use crate::connections::Connection;
use crate::error::ApiError;
use crate::key_hash::short;
use crate::owner_memory::MemoryReservation;
use crate::rate::{self, Class, Decision, Rates};
use crate::request_id::{Peer, RequestId};

/// Size in bytes above which a response counts against the memory budget of its owner.
const COUNTED_RESPONSE_MIN: usize = 64 << 10;

/// Start of the routes of one sandbox.
const SANDBOX_ROUTE: &str = "/api/v1/sandboxes/{id}";

/// State of the middleware: the app, and the rules of all routes.
#[derive(Clone)]
pub(crate) struct AuthState {
    pub(crate) app: App,
    pub(crate) rules: Arc<[Rule]>,
}

/// Middleware that adds the [`Caller`] to a request. Rejects requests without a valid key, above the rate limit, or not
/// allowed by the role of the key or by the rights of the token.
pub(crate) async fn authenticate(State(auth): State<AuthState>, request: Request, next: Next) -> Response {
    let AuthState { app, rules } = auth;
    let (mut parts, body) = request.into_parts();
    let rule = access::find(&rules, &parts.method, route(&parts));
    let (caller, decision) = match admit(&app, &mut parts, rule).await {
        Ok(admitted) => admitted,
        Err(error) => return error.into_response(),
    };
    let class = Class::for_request(&parts.method, route(&parts));
    let id = parts.extensions.get::<RequestId>().cloned();
    let details = json!({"method": parts.method.as_str(), "route": route(&parts)});
    parts.extensions.insert(caller.clone());
    let checked = check_access(&caller, &mut parts, rule).await;
    let mut response = match checked {
        Ok(()) => reserve_memory(&app, &caller, next.run(Request::from_parts(parts, body)).await),
        Err(error) => error.into_response(),
    };
    if let (true, Some(id)) = (is_forbidden(&response), id) {
        app.audit.record(Entry {
            level: Level::Warn,
            ..Entry::for_caller("auth.forbidden", &caller, &id, details)
        });
    }
    // A request that failed with a client error counts in a class of its own instead (`rate.rs`).
    let decision = if rate::is_counted_client_error(&response) {
        app.limiter.refund(&caller.key_id, class, rates(&caller, &app))
    } else {
        decision
    };
    response.headers_mut().extend(decision.into_iter().flat_map(|decision| decision.headers()));
    response
}

/// Returns true if the role of the key or the rights of the token did not allow a request. The status does not tell: a
/// file that the user of a sandbox may not access has the same status with another code.
fn is_forbidden(response: &Response) -> bool {
    response.extensions().get::<ApiError>().is_some_and(|error| error.code() == error_codes::FORBIDDEN)
}

/// Fails if the role of the key or the rights of the token do not allow a request. A token gets `SANDBOX_NOT_FOUND` for
/// every sandbox other than its own.
async fn check_access(caller: &Caller, parts: &mut Parts, rule: Option<Rule>) -> Result<(), ApiError> {
    if caller.role == Role::ReadOnly && !is_read_only(parts) {
        return Err(ApiError::new(error_codes::FORBIDDEN, "this key is read-only"));
    }
    let Some(grant) = &caller.grant else { return Ok(()) };
    if route(parts).is_some_and(|route| route.starts_with(SANDBOX_ROUTE)) {
        let id = path_parameter(parts, "id").await.unwrap_or_default();
        if id != grant.sandbox {
            return Err(SandboxError::NotFound { id }.into());
        }
    }
    match rule.map_or(Access::Keys, |rule| rule.access) {
        Access::Keys => Err(ApiError::new(error_codes::FORBIDDEN, "this needs a key; a token is not enough")),
        Access::AnyToken => Ok(()),
        Access::Right(right) => caller.require(right),
    }
}

/// Returns the rate limits of the caller: for each class the limit that was set on the key, else that of the settings.
/// For an admin key, but not for its tokens, a class without a limit on the key is unlimited.
pub(crate) fn rates(caller: &Caller, app: &App) -> Rates {
    let default = if caller.is_admin() { Rates::UNLIMITED } else { app.limiter.rates() };
    Rates {
        create: caller.limits.create_per_minute.or(default.create),
        run: caller.limits.run_per_minute.or(default.run),
        fork: caller.limits.fork_per_minute.or(default.fork),
        files: caller.limits.files_per_minute.or(default.files),
        other: caller.limits.other_per_minute.or(default.other),
    }
}

/// Counts a response that is complete in memory against the budget of its owner until it has been sent.
fn reserve_memory(app: &App, caller: &Caller, mut response: Response) -> Response {
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let is_counted = response.extensions().get::<Arc<MemoryReservation>>().is_some();
    let Some(size) = size.filter(|size| *size > COUNTED_RESPONSE_MIN && !is_counted) else { return response };
    let mut memory = app.response_memory.reserve(&caller.owner);
    if !memory.grow_by(size) {
        let message =
            "unread responses to this owner exceed the memory limit; finish reading them, then try again";
        return ApiError::new(error_codes::ANSWERS_UNREAD, message).into_response();
    }
    response.extensions_mut().insert(Arc::new(memory));
    response
}

/// Identifies the caller, and counts its connection and its request against the limits. Returns the decision of the
/// rate limiter; `None` if there is no rate limit.
async fn admit(
    app: &App,
    parts: &mut Parts,
    rule: Option<Rule>,
) -> Result<(Caller, Option<Decision>), ApiError> {
    let caller = match identify(app, parts, rule).await {
        Ok(caller) => caller,
        Err(IdentifyError::Failed(error)) => return Err(error),
        Err(IdentifyError::Unauthorized { hash, reason }) => {
            return Err(unauthorized(app, parts, hash.as_deref(), reason));
        }
    };
    tracing::Span::current().record("owner", caller.owner.as_str());
    if let Some(connection) = parts.extensions.get::<Connection>() {
        let owner = (!caller.is_admin()).then_some(caller.owner.as_str());
        connection.set_authenticated(owner).map_err(too_many_connections)?;
    }
    let decision = limit(app, parts, &caller)?;
    Ok((caller, decision))
}

fn too_many_connections(limit: usize) -> ApiError {
    let message = format!(
        "{limit} connections of the same owner have requests in progress; close a stream or a terminal"
    );
    ApiError::new(error_codes::CONNECTION_LIMIT_EXCEEDED, message)
        .detail("limit", limit)
        .detail("setting", "MAX_CONNECTIONS_PER_OWNER")
        .header(header::CONNECTION, HeaderValue::from_static("close"))
}

/// Returns true for requests that only read. A WebSocket starts as `GET`, but the client may write over it.
fn is_read_only(parts: &Parts) -> bool {
    matches!(parts.method, Method::GET | Method::HEAD) && !parts.headers.contains_key(header::UPGRADE)
}

/// Returns the pattern of the route; `None` for an unknown path.
fn route(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str)
}

/// Counts a request against the rate limit of its class. Fails if that, or the limit of client errors, is reached.
fn limit(app: &App, parts: &Parts, caller: &Caller) -> Result<Option<Decision>, ApiError> {
    let (class, rates) = (Class::for_request(&parts.method, route(parts)), rates(caller, app));
    check(app.limiter.client_errors(&caller.key_id, rates), "rejected requests", Class::ClientError)?;
    check(app.limiter.take(&caller.key_id, class, rates), "such requests", class)
}

/// Returns the decision, or the error `RATE_LIMITED` if the request is not allowed. `what` names the counted requests.
fn check(decision: Option<Decision>, what: &str, class: Class) -> Result<Option<Decision>, ApiError> {
    let Some(limited) = decision.filter(|decision| decision.retry_after.is_some()) else {
        return Ok(decision);
    };
    let message = format!("more than {} {what} per minute", limited.limit);
    let error = ApiError::new(error_codes::RATE_LIMITED, message).detail("limit", limited.limit);
    let error = error.detail("setting", class.setting());
    Err(limited.headers().into_iter().fold(error, |error, (name, value)| error.header(name, value)))
}

/// Creates the error for a request without a valid key. These requests have a rate limit per address, so that nobody can
/// fill the audit log without a key.
fn unauthorized(app: &App, parts: &Parts, hash: Option<&str>, reason: &str) -> ApiError {
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
