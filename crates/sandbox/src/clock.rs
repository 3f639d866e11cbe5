//! Times as the catalog keeps them: milliseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Seconds in milliseconds, no more than fit.
pub(crate) fn milliseconds(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}
