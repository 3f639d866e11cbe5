//! Current time in the format of the database.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in milliseconds since 1970, as all tables store times.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
