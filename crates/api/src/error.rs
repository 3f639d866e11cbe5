//! The body of every response that reports an error.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Name of the detail that counts the bytes of a command's input that were accepted before the error.
pub const WRITTEN: &str = "written";

/// Body of an error response.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Error.
    pub error: ErrorFields,
}

/// Error of a request.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorFields {
    /// Number of the error code; `docs/errors.md` lists them. Stable.
    #[schema(example = 2001)]
    pub code: u16,
    /// Name of the error code. Stable.
    #[schema(example = "SANDBOX_NOT_FOUND")]
    pub name: String,
    /// Explanation for people.
    pub message: String,
    /// Explanation for programs. The fields depend on the error code: for instance `field` names an invalid field,
    /// `limit` and `setting` a limit that was exceeded.
    #[schema(value_type = Object)]
    pub details: Map<String, Value>,
    /// Id of the request, as in the header `X-Request-Id` and in the log of the server.
    #[schema(example = "req-0190c2f1a5c07cc0a1b2c3d4e5f60718")]
    pub request_id: String,
}

impl ErrorFields {
    /// Detail `written`: bytes of a command's input that were accepted before the error. 0 if there is none.
    pub fn written(&self) -> u64 {
        self.details.get(WRITTEN).and_then(Value::as_u64).unwrap_or(0)
    }
}
