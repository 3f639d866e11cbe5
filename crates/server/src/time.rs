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

/// A moment of the store, in the form of RFC 3339, to the nanosecond as the command line shows it.
pub(crate) fn moment(time: workspace_state::Timestamp) -> Result<String, ApiError> {
    let instant = Timestamp::from_nanosecond(i128::from(time.0)).map_err(ApiError::internal)?;
    Ok(format!("{instant:.9}"))
}
