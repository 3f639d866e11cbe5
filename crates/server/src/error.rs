//! Errors of the API.
//!
//! A handler's [`ApiError`] becomes a response without a body, with the error as an extension. The middleware in
//! `request.rs` adds the body, because it knows the request id, and logs the cause, which the caller does not get.

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use workspace_api::error::{ErrorBody, ErrorFields};
use workspace_api::error_codes::{self, ErrorCode};
use workspace_catalog::CatalogError;

/// Error response of the API.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    code: ErrorCode,
    message: String,
    details: Map<String, Value>,
    cause: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ApiError {
    /// Creates an error. The caller gets the message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner { code, message, details: Map::new(), cause: None, headers: Vec::new() }))
    }

    /// Creates an internal error. The caller gets a general message; the cause is logged.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        let message = "internal error; search the server log for the request id";
        Self::new(error_codes::INTERNAL_ERROR, message).because(cause)
    }

    /// Adds a field to `details`.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a cause, which is logged and not sent.
    #[must_use]
    pub fn because(mut self, cause: impl std::fmt::Display) -> Self {
        self.0.cause = Some(cause.to_string());
        self
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Replaces the message for the caller.
    #[must_use]
    pub(crate) fn with_message(mut self, message: String) -> Self {
        self.0.message = message;
        self
    }

    /// Returns number, name and status of the error.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// Returns the message for the caller.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the cause, which is logged and not sent.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.0.cause.as_deref()
    }

    /// Returns the body of the response.
    pub fn body(&self, request_id: &str) -> ErrorBody {
        let Inner { code, message, details, .. } = &*self.0;
        ErrorBody {
            error: ErrorFields {
                code: code.number,
                name: code.name.to_owned(),
                message: message.clone(),
                details: details.clone(),
                request_id: request_id.to_owned(),
            },
        }
    }
}

/// Creates the error for a cursor that is invalid, or given together with a page.
pub(crate) fn invalid_cursor() -> ApiError {
    let message = "cursor: send `next` of a previous page, and no `page`";
    ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "cursor")
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // All statuses in the table of `error_codes` are valid.
        let status = StatusCode::from_u16(self.0.code.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.headers_mut().extend(self.0.headers.iter().cloned());
        response.extensions_mut().insert(self);
        response
    }
}

impl From<CatalogError> for ApiError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Nul { field } => {
                Self::new(error_codes::INVALID_REQUEST, format!("{field} must not contain NUL characters"))
            }
            error if error.is_full() => {
                let message = "the catalog's disk is full; delete sandboxes, or free disk space";
                Self::new(error_codes::STORAGE_FULL, message).because(error)
            }
            CatalogError::Database { .. } => {
                Self::new(error_codes::CATALOG_UNAVAILABLE, "the catalog database does not respond")
                    .because(error)
            }
            other => Self::internal(other),
        }
    }
}
