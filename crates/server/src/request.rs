//! Middleware around every route: request id, limits, log line, metrics, error bodies, security headers, and
//! the refusal of new requests during shutdown.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{self, CONNECTION, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tracing::Instrument as _;
use uuid::Uuid;
use workspace_api::error_codes;

use crate::app::App;
use crate::body_with_permits::BodyWithPermits;
use crate::connections::Connection;
use crate::cors;
use crate::error::ApiError;
use crate::extract::Json;
use crate::owner_memory::MemoryReservation;
use crate::request_id::RequestId;

/// Maximum length of path and query of a request to the API in bytes.
const PATH_MAX: usize = 4096;
/// Maximum size of all headers of a request to the API in bytes.
const HEADERS_MAX: usize = 16 << 10;
/// Maximum length of a request id that a client sends.
const ID_MAX: usize = 100;
/// Header with the id of a request, in requests and responses.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Default security headers. A handler can set others.
const SECURITY: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Middleware around every route and the fallback for unknown paths.
pub(crate) async fn middleware(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let running = app.shutdown.enter();
    let connection = request.extensions().get::<Connection>().cloned();
    let request_guard = connection.as_ref().map(Connection::begin_request);
    let id = request_id(request.headers());
    let endpoint = endpoint(&request);
    let allowed = cors::allowed(&app.settings.cors_origins, request.headers());
    request.extensions_mut().insert(RequestId(id.clone()));

    let span = tracing::info_span!("request", request_id = id, owner = tracing::field::Empty);
    let mut response = handle(&app, request, next).instrument(span.clone()).await;
    let _entered = span.enter();
    response = render_error(response, &id);
    add_retry_after(&mut response);
    add_headers(&app, response.headers_mut(), &id);
    cors::allow(response.headers_mut(), allowed);
    record(&app, &endpoint, &response, began.elapsed());
    // An unauthenticated connection counts as idle as soon as it has its response, even while the client reads it.
    let request_guard = request_guard.filter(|_| connection.is_some_and(|it| it.is_authenticated()));
    let memory = response.extensions_mut().remove::<Arc<MemoryReservation>>();
    response.map(|body| Body::new(BodyWithPermits::new(body, (running, request_guard, memory))))
}

async fn handle(app: &App, request: Request, next: Next) -> Response {
    if app.shutdown.has_begun() {
        let error = ApiError::new(error_codes::SHUTTING_DOWN, "the server is stopping");
        return error.header(CONNECTION, HeaderValue::from_static("close")).into_response();
    }
    if let Err(error) = check_limits(&request, PATH_MAX, HEADERS_MAX) {
        return error.into_response();
    }
    if let Some(response) = cors::preflight(&app.settings.cors_origins, &request) {
        return response;
    }
    catch_panic(next.run(request)).await
}

/// Fails if path and query, or the headers, of a request have more bytes than allowed.
pub(crate) fn check_limits(request: &Request, path_max: usize, headers_max: usize) -> Result<(), ApiError> {
    if request.uri().path_and_query().is_some_and(|path| path.as_str().len() > path_max) {
        let message = format!("path and query have more than {path_max} bytes");
        return Err(ApiError::new(error_codes::URI_TOO_LONG, message));
    }
    let headers: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers > headers_max {
        let message = format!("the headers have more than {headers_max} bytes");
        return Err(ApiError::new(error_codes::HEADERS_TOO_LARGE, message));
    }
    Ok(())
}

/// Turns a panic of a handler into an internal error, so that the connection survives.
pub(crate) async fn catch_panic(handler: impl Future<Output = Response>) -> Response {
    let mut handler = pin!(handler);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(context))) {
        Ok(poll) => poll,
        Err(_) => Poll::Ready(ApiError::internal("a handler panicked").into_response()),
    })
    .await
}

/// Returns the id in the header `X-Request-Id` if it has at most [`ID_MAX`] letters, digits and `-_.`, else a new one.
pub(crate) fn request_id(headers: &HeaderMap) -> String {
    let plain = |id: &&str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=ID_MAX).contains(&id.len()) && id.bytes().all(is_allowed)
    };
    let client_id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(plain);
    client_id.map_or_else(|| format!("req-{}", Uuid::now_v7().simple()), str::to_owned)
}

/// Returns the method and the pattern of the route, as a label of metrics. Raw paths would make an unlimited number of
/// series.
fn endpoint(request: &Request) -> String {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    format!("{} {}", method_label(request.method()), route.unwrap_or("(none)"))
}

/// Returns a method as a label of metrics. Unknown methods would make an unlimited number of series.
pub(crate) fn method_label(method: &Method) -> &str {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    if known.contains(method) { method.as_str() } else { "(other)" }
}

/// Writes the body of an error, now that the request id is known, and logs its cause.
pub(crate) fn render_error(response: Response, id: &str) -> Response {
    let Some(error) = response.extensions().get::<ApiError>().cloned() else { return response };
    if let Some(cause) = error.cause() {
        tracing::error!(code = error.code().number, name = error.code().name, cause, "request failed");
    }
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let (body, bytes) = Json(error.body(id)).into_response().into_parts();
    parts.headers.extend(body.headers);
    Response::from_parts(parts, bytes)
}

/// Adds `Retry-After` where a retry may help and the header is not set.
pub(crate) fn add_retry_after(response: &mut Response) {
    if !matches!(response.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        return;
    }
    let code = response.extensions().get::<ApiError>().map(ApiError::code);
    let seconds = match code {
        // Waiting does not help: something must be deleted or closed.
        Some(
            error_codes::SNAPSHOT_LIMIT_EXCEEDED
            | error_codes::REFERENCE_LIMIT_EXCEEDED
            | error_codes::EPISODE_LIMIT_EXCEEDED
            | error_codes::NOTE_LIMIT_EXCEEDED,
        ) => return,
        // Only the operator of the machine can add the missing isolation.
        Some(error_codes::ISOLATION_UNAVAILABLE) => 60,
        Some(
            error_codes::RUNTIME_UNAVAILABLE
            | error_codes::SANDBOX_LIMIT_EXCEEDED
            | error_codes::SHUTTING_DOWN,
        )
        | None => 5,
        Some(_) => 1,
    };
    response.headers_mut().entry(header::RETRY_AFTER).or_insert(HeaderValue::from(seconds));
}

fn add_headers(app: &App, headers: &mut HeaderMap, id: &str) {
    for (name, value) in SECURITY {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if app.settings.tls_cert.is_some() {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
}

/// Counts a request in the metrics and logs it.
pub(crate) fn record(app: &App, endpoint: &str, response: &Response, duration: Duration) {
    let status = response.status().as_u16();
    let code = response.extensions().get::<ApiError>().map(|error| error.code().name);
    app.metrics.record_request(endpoint, status, duration);
    if let Some(code) = code {
        app.metrics.record_error(code);
    }
    tracing::info!(
        endpoint,
        status,
        code,
        duration_ms = duration.as_secs_f64() * 1000.0,
        "request completed"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_temporary_error_has_retry_after() {
        let mut seen = 0;
        for code in error_codes::TABLE {
            let mut response = ApiError::new(*code, "a test").into_response();
            add_retry_after(&mut response);
            let needs_deletion = [
                error_codes::SNAPSHOT_LIMIT_EXCEEDED,
                error_codes::REFERENCE_LIMIT_EXCEEDED,
                error_codes::EPISODE_LIMIT_EXCEEDED,
                error_codes::NOTE_LIMIT_EXCEEDED,
            ]
            .contains(code);
            let is_temporary = matches!(code.status, 429 | 503) && !needs_deletion;
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), is_temporary, "{}", code.name);
            seen += usize::from(is_temporary);
        }
        assert!(seen > 10, "{seen}");
        // An existing value is not overwritten.
        let own = ApiError::new(error_codes::RATE_LIMITED, "a test")
            .header(header::RETRY_AFTER, HeaderValue::from(7));
        let mut response = own.into_response();
        add_retry_after(&mut response);
        assert_eq!(response.headers()[header::RETRY_AFTER], "7");
    }
}
