//! Cross-origin requests (CORS). Browsers refuse them unless `CORS_ORIGINS` contains the origin.
//!
//! The API uses no cookies, so credentials are never allowed: a page has to know a key, a token or a ticket.

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};

use crate::settings::Origins;

const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
const HEADERS: &str = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Range, \
                       X-Agent, X-API-Key, X-Request-Id";
const EXPOSED: &str = "Accept-Ranges, Content-Disposition, Content-Range, ETag, Last-Event-ID, RateLimit-Limit, \
                       RateLimit-Remaining, RateLimit-Reset, Retry-After, X-Request-Id";
const ANY_ORIGIN: &str = "*";

/// Returns the value of `Access-Control-Allow-Origin` for a request: its origin, or `*`, if the settings allow it.
pub(crate) fn allowed(origins: &Origins, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    if origins.is_any() {
        return Some(HeaderValue::from_static(ANY_ORIGIN));
    }
    origins.0.iter().any(|it| it.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

/// Returns the response to a preflight request, which has no key. `None` for other requests and origins.
pub(crate) fn preflight(origins: &Origins, request: &Request) -> Option<Response> {
    let is_preflight =
        request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    allowed(origins, request.headers()).filter(|_| is_preflight)?;
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    Some((StatusCode::NO_CONTENT, headers).into_response())
}

/// Adds the headers that allow pages of that origin to read the response.
pub(crate) fn allow(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
    let Some(origin) = origin else { return };
    if origin != ANY_ORIGIN {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
}
