//! What the API answers when something is wrong.
//!
//! An [`ApiError`] becomes an answer without a body that carries the error with it; `request.rs`, around every
//! route, knows the request's id, writes the body, and logs what the caller is not told.

use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use workspace_catalog::CatalogError;

use crate::code::{self, Code};

/// An error of the API.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    code: Code,
    message: String,
    details: Map<String, Value>,
    cause: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ApiError {
    /// An error with what its caller is told.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner { code, message, details: Map::new(), cause: None, headers: Vec::new() }))
    }

    /// An error of the server's own: the caller is told that there was one, the log what it was.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        let message = "something failed in the server; its log has the request's id";
        Self::new(code::INTERNAL_ERROR, message).because(cause)
    }

    /// Adds a detail for the caller.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(name.to_owned(), value.into());
        self
    }

    /// Adds what only the log is told.
    #[must_use]
    pub fn because(mut self, cause: impl std::fmt::Display) -> Self {
        self.0.cause = Some(cause.to_string());
        self
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// What kind of error it is.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What its caller is told.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What only the log is told.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.0.cause.as_deref()
    }

    /// The body of its answer.
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

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.0.code.status.into_response();
        response.headers_mut().extend(self.0.headers.iter().cloned());
        response.extensions_mut().insert(self);
        response
    }
}

impl From<CatalogError> for ApiError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Nul { field } => {
                Self::new(code::INVALID_REQUEST, format!("{field} must not hold the character NUL"))
            }
            error if error.is_full() => {
                let message = "the catalog's disk is full; delete sandboxes, or make room otherwise";
                Self::new(code::STORAGE_FULL, message).because(error)
            }
            CatalogError::Database { .. } => {
                Self::new(code::CATALOG_UNAVAILABLE, "the catalog's database does not answer").because(error)
            }
            other => Self::internal(other),
        }
    }
}

/// The body of an error's answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorFields,
}

/// An error.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorFields {
    /// Its number.
    #[schema(example = 2001)]
    pub code: u16,
    /// Its name.
    #[schema(example = "SANDBOX_NOT_FOUND")]
    pub name: String,
    /// What went wrong, for people.
    pub message: String,
    /// What went wrong, for programs.
    #[schema(value_type = Object)]
    pub details: Map<String, Value>,
    /// The request; the server's log has it too.
    #[schema(example = "req-0190c2f1a5c07cc0a1b2c3d4e5f60718")]
    pub request_id: String,
}
