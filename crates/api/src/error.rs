//! The body of every response that reports an error.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Key in [`ErrorFields::details`]: number of bytes of a command's input that were accepted before the error.
pub const WRITTEN_DETAIL: &str = "written";

/// Key in [`ErrorFields::details`]: name of the invalid field of a request.
pub const FIELD_DETAIL: &str = "field";

/// Body of an error response.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Code, message and details of the error.
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
    /// Human-readable message.
    pub message: String,
    /// Machine-readable details. The fields depend on the error code: for instance `field` names an invalid field,
    /// `limit` and `setting` a limit that was exceeded.
    #[schema(value_type = Object)]
    pub details: Map<String, Value>,
    /// Id of the request, as in the header `X-Request-Id` and in the server log.
    #[schema(example = "req-0190c2f1a5c07cc0a1b2c3d4e5f60718")]
    pub request_id: String,
}

impl ErrorFields {
    /// Returns the detail [`FIELD_DETAIL`]; `None` if it is absent.
    pub fn field(&self) -> Option<&str> {
        self.details.get(FIELD_DETAIL).and_then(Value::as_str)
    }

    /// Returns the detail [`WRITTEN_DETAIL`]; 0 if it is absent.
    pub fn written(&self) -> u64 {
        self.details.get(WRITTEN_DETAIL).and_then(Value::as_u64).unwrap_or(0)
    }
}
