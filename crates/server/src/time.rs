//! Times as the API writes them.

use jiff::Timestamp;

use crate::error::ApiError;

/// Of milliseconds since 1970, in the form of RFC 3339.
pub(crate) fn time(milliseconds: i64) -> Result<String, ApiError> {
    Timestamp::from_millisecond(milliseconds).map(|time| format!("{time:.3}")).map_err(ApiError::internal)
}

/// Of a text in the form of RFC 3339, milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}
