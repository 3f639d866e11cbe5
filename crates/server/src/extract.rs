//! Extractors like those of axum, with [`ApiError`] as rejection.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use workspace_api::error_codes;

use crate::error::ApiError;

/// Timeout for receiving a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// JSON body of a request or response.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let is_json = is_json(request.headers());
        let body = if is_json { read(request, state).await? } else { return Err(not_json()) };
        parse(&body).map(Self)
    }
}

/// JSON body that may be missing; then it is the default value.
#[derive(Debug, Clone, Copy)]
pub struct Optional<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for Optional<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let is_json = is_json(request.headers());
        let body = read(request, state).await?;
        match (body.is_empty(), is_json) {
            (true, _) => Ok(Self(T::default())),
            (false, true) => parse(&body).map(Self),
            (false, false) => Err(not_json()),
        }
    }
}

fn not_json() -> ApiError {
    ApiError::new(error_codes::UNSUPPORTED_MEDIA_TYPE, "the body must be `application/json`")
}

async fn read<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    let body = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await;
    let body =
        body.map_err(|_| ApiError::new(error_codes::REQUEST_TIMEOUT, "the body was not received in time"))?;
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::new(error_codes::PAYLOAD_TOO_LARGE, "the body is larger than allowed")
        }
        _ => ApiError::new(error_codes::INVALID_REQUEST, "the body could not be read"),
    })
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // serde would also accept a list with the fields in order, even an empty one if no field is required.
    if body.trim_ascii_start().first() == Some(&b'[') {
        let message = "the body must be a JSON object, not a list";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message)
            .detail("line", 1)
            .detail("column", 0));
    }
    serde_json::from_slice(body).map_err(|error| malformed(&error))
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn malformed(error: &serde_json::Error) -> ApiError {
    ApiError::new(error_codes::INVALID_REQUEST, format!("the body is not valid for this request: {error}"))
        .detail("line", error.line())
        .detail("column", error.column())
}

/// Query parameters.
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = axum::extract::Query::from_request_parts(parts, state).await;
        let query = query.map_err(|error| ApiError::new(error_codes::INVALID_REQUEST, error.body_text()))?;
        Ok(Self(query.0))
    }
}

/// Path parameters.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        let path = path.map_err(|error| ApiError::new(error_codes::INVALID_REQUEST, error.body_text()))?;
        Ok(Self(path.0))
    }
}
