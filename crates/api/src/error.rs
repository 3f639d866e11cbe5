//! The body of every response that reports an error.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Name of the detail that counts the bytes of a command's input that were accepted before the error.
pub const WRITTEN: &str = "written";

/// Body of an error response.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorFields,
}

/// An error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorFields {
    /// Number of the error code; see `docs/errors.md`.
    #[schema(example = 2001)]
    pub code: u16,
    /// Name of the error code.
    #[schema(example = "SANDBOX_NOT_FOUND")]
    pub name: String,
    /// Explanation for people.
    pub message: String,
    /// Explanation for programs; the names depend on the error.
    #[schema(value_type = Object)]
    pub details: Map<String, Value>,
    /// Id of the request, which is also in the server's log.
    #[schema(example = "req-0190c2f1a5c07cc0a1b2c3d4e5f60718")]
    pub request_id: String,
}

impl ErrorFields {
    /// Detail `written`: bytes of a command's input that were accepted before the error. 0 if there is none.
    pub fn written(&self) -> u64 {
        self.details.get(WRITTEN).and_then(Value::as_u64).unwrap_or(0)
    }
}
