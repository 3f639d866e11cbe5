//! Times in milliseconds since 1970, as the catalog stores them.

pub(crate) use workspace_catalog::now;

/// Converts seconds to milliseconds. Saturates.
pub(crate) fn milliseconds(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}
