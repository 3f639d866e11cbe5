//! Time formats of the API.

use jiff::Timestamp;

use crate::error::ApiError;

/// Formats milliseconds since 1970 as RFC 3339.
pub(crate) fn format_millis(milliseconds: i64) -> Result<String, ApiError> {
    Timestamp::from_millisecond(milliseconds).map(|time| format!("{time:.3}")).map_err(ApiError::internal)
}

/// Parses RFC 3339 to milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// Formats a time of the store as RFC 3339 with nanoseconds, as the CLI does.
pub(crate) fn format_store_time(time: workspace_state::Timestamp) -> Result<String, ApiError> {
    let instant = Timestamp::from_nanosecond(i128::from(time.0)).map_err(ApiError::internal)?;
    Ok(format!("{instant:.9}"))
}
